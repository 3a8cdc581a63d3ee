"""Names of streamparse and pystorm that are not here, each with what to write instead. Pure.

A program that comes from there meets them as an attribute or an import that is missing; the error then says what takes
its place. Names that are here have no entry.
"""

from __future__ import annotations

PAGE = "migrating-from-streamparse"

COMPONENT = {
    "serializer": "no messages to Storm are written here: tuples travel inside and between workers",
    "send_message": "no messages to Storm are written here: use emit, ack, fail, self.logger or report_metric",
    "read_message": "tuples are handed to process; nothing is read by hand",
    "read_command": "a spout's methods are called; nothing is read by hand",
    "read_task_ids": "emit(..., need_task_ids=True) returns the task ids",
    "read_tuple": "tuples are handed to process; nothing is read by hand",
    "input_stream": "nothing is read from Storm: tuples are handed to process, and standard input is the user's",
    "output_stream": "nothing is written to Storm: use emit, ack, fail, self.logger or report_metric",
    "exc_info": "batches are processed on the bolt's own thread, and an exception there is reported as any other",
    "read_handshake": "what it told is in initialize(conf, context) and in self.storm_conf and self.context",
    "run": "a component does not run by itself: leave out the lines under `if __name__ == '__main__'` and start the "
    "topology by `streamlet run FILE`",
}
"""Attributes of a component."""

INNER = {
    "_run": "the runtime calls process, or next_tuple, ack and fail, by itself",
    "_setup_component": "what it set is there before initialize(conf, context) is called: do it there",
    "_handle_run_exception": "an exception of process is logged, counted and fails its tuple; what you want to handle "
    "you catch there",
    "_handle_worker_exception": "batches are processed on the bolt's own thread; no signal brings errors of another",
    "_batch_entry": "no thread processes batches: process_batches does, at each tick",
    "_batch_entry_run": "no thread processes batches: process_batches does, at each tick",
    "_exit": "a component ends no process; an exception in initialize ends the run",
}
"""Methods of a component that pystorm calls private, and that programs override all the same."""

CURRENT = {"_current_tups": "the tuple of a call is its argument, and what is emitted there is anchored to it"}
"""Attributes that pystorm calls private, and that programs read all the same."""

CONSTRUCTOR = {
    "input_stream": COMPONENT["input_stream"],
    "output_stream": COMPONENT["output_stream"],
    "rdb_signal": "no signal starts a debugger: run with `--backend inline` and call breakpoint() where you want it",
    "serializer": COMPONENT["serializer"],
}
"""Arguments of ``Component.__init__``."""

SPEC = {
    "component_cls": "it is called cls",
    "common": "there is no Thrift: inputs, outputs, par and config are attributes of the spec itself",
    "component_object": "there is no Thrift: the component's class is the attribute cls",
}
"""Attributes of a component's spec."""

MODULE = {
    "Component": "derive from streamlet.Spout or streamlet.Bolt",
    "JavaBolt": "components are Python classes",
    "JavaSpout": "components are Python classes; for storm-kafka's spout see streamlet.spouts.kafka.KafkaSpout",
    "ShellBolt": "components are Python classes; start a program from one with subprocess",
    "ShellSpout": "components are Python classes; start a program from one with subprocess",
    "StormHandler": "self.logger writes to the run's log; any handler of the standard library works beside it",
    "LogStream": "print writes to standard output, which carries no tuples here",
    "StormWentAwayError": "a worker whose coordinator is gone ends by itself",
    "remote_pdb_handler": CONSTRUCTOR["rdb_signal"],
    "Serializer": COMPONENT["serializer"],
    "JSONSerializer": COMPONENT["serializer"],
    "MsgpackSerializer": COMPONENT["serializer"],
    "TopologyType": "the topology as data is __topology__ of the class that inherits from streamlet.Topology",
    "ComponentSpec": "a line of a topology is made by spec of the component's class",
    "JavaComponentSpec": "components are Python classes",
    "JavaBoltSpec": "components are Python classes",
    "JavaSpoutSpec": "components are Python classes",
    "ShellComponentSpec": "components are Python classes; a line of a topology is made by their spec",
    "ShellBoltSpec": "components are Python classes; a line of a topology is made by their spec",
    "ShellSpoutSpec": "components are Python classes; a line of a topology is made by their spec",
    "VERSION": "the version is a text: streamlet.__version__",
    "bolt": "the classes are in the package itself: from streamlet import Bolt, BatchingBolt",
    "spout": "the classes are in the package itself: from streamlet import Spout, ReliableSpout",
    "component": "the classes are in the package itself: from streamlet import Bolt, Spout, Tuple",
    "dsl": "the classes are in the package itself: from streamlet import Grouping, Stream, Topology",
    "storm": "the classes are in the package itself: from streamlet import Bolt, Spout",
    "serializers": COMPONENT["serializer"],
    "exceptions": "its StormWentAwayError is not there: a worker whose coordinator is gone ends by itself",
    "version": "the version is a text: streamlet.__version__",
    "util": "it serves the command sparse: no Nimbus, no config.json and no virtualenv are looked for here; settings "
    "stand in conf, and commands are those of `streamlet --help`",
    "thrift": "there is no Thrift: the topology as data is __topology__",
    "bootstrap": "a topology is one file, and no project is made for it",
}
"""Names of the packages ``streamparse`` and ``pystorm``, with those of their modules."""

MODULE_ALONE = {
    "run": "it starts one component for Storm; here `streamlet run FILE` starts a topology, from Python "
    "streamlet.run(...)",
    "cli": "the commands are those of `streamlet --help`, and streamlet.run(...) is one of them from Python",
}
"""Modules of theirs whose name is something else here, or has other names in it."""

TOPOLOGY = {
    "write": "nothing is submitted to a Nimbus: the topology as data is __topology__",
    "read": "there is no Nimbus to read one back from: import the file that holds the topology",
    "to_flux_dict": "there is no Flux: the topology as data is __topology__",
    "specs": "the components are in __topology__.components",
    "thrift_topology": "there is no Thrift: the topology as data is __topology__",
    "thrift_bolts": "there is no Thrift: the components are in __topology__.components",
    "thrift_spouts": "there is no Thrift: the components are in __topology__.components",
}
"""Attributes of a topology's class."""

GROUPING = {
    "custom_object": "groupings are not Java classes: declare the stream with direct=True and emit with direct_task",
    "custom_serialized": "groupings are not Java classes: declare the stream with direct=True and emit with "
    "direct_task",
}
"""Attributes of ``Grouping``."""


def missing(where: str, name: str, answers: dict[str, str]) -> str:
    """Return the text of the AttributeError for a name that is missing."""
    text = f"{where} has no attribute {name!r}"
    return f"{text}: {answers[name]}. `streamlet docs {PAGE}` lists all differences." if name in answers else text
