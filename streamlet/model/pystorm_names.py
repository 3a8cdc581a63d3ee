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
    "exc_info": "batches are processed on the bolt's own thread, and an exception there is reported as any other",
    "read_handshake": "what it told is in initialize(conf, context) and in self.storm_conf and self.context",
    "run": "a component does not run by itself: leave out the lines under `if __name__ == '__main__'` and start the "
    "topology by `streamlet run FILE`",
}
"""Attributes of a component."""

MODULE = {
    "Component": "derive from streamlet.Spout or streamlet.Bolt",
    "JavaBolt": "components are Python classes",
    "JavaSpout": "components are Python classes; for storm-kafka's spout see streamlet.spouts.kafka.KafkaSpout",
    "ShellBolt": "components are Python classes; start a program from one with subprocess",
    "ShellSpout": "components are Python classes; start a program from one with subprocess",
    "StormHandler": "self.logger writes to the run's log; any handler of the standard library works beside it",
    "LogStream": "print writes to standard output, which carries no tuples here",
    "StormWentAwayError": "a worker whose coordinator is gone ends by itself",
    "VERSION": "the version is a text: streamlet.__version__",
    "bolt": "the classes are in the package itself: from streamlet import Bolt, BatchingBolt",
    "spout": "the classes are in the package itself: from streamlet import Spout, ReliableSpout",
    "component": "the classes are in the package itself: from streamlet import Bolt, Spout, Tuple",
    "dsl": "the classes are in the package itself: from streamlet import Grouping, Stream, Topology",
    "storm": "the classes are in the package itself: from streamlet import Bolt, Spout",
}
"""Names of the packages ``streamparse`` and ``pystorm``."""

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
