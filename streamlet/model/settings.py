"""The settings of a run: Storm's key names where Storm has one, each with a type, a default and a unit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from streamlet.base.errors import SettingError
from streamlet.model.spec import BOLT, SPOUT


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: how its text is read, its default, what it means.

    ``component``: the kind that may have one of its own in its config; None where it is the whole run's.
    """

    key: str
    parse: Callable[[Any], Any]
    default: Any
    meaning: str
    component: str | None = None


def _at_least(kind: type, least: float) -> Callable[[Any], Any]:
    wanted = (
        f"a whole number of at least {least} is wanted" if kind is int else f"a number of at least {least:g} is wanted"
    )

    def parse(value: Any) -> Any:
        try:
            number = kind(value)
        except (ValueError, TypeError, OverflowError):  # whose words are Python's, not our user's
            raise ValueError(wanted) from None
        # The middle one is false for nan, too.
        if isinstance(value, bool) or not least <= number < math.inf or (isinstance(value, float) and number != value):
            raise ValueError(wanted)
        return number

    return parse


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("true or false is wanted")


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ValueError("a mapping of names to texts is wanted, in the topology's config")
    # As the system takes them: the start of a worker would be refused, each time.
    if any(not name or "=" in name or "\0" in name + text for name, text in value.items()):
        raise ValueError("a mapping of names to texts is wanted: no name is empty or has =, and nothing has a zero")
    seed = value.get("PYTHONHASHSEED", "random")
    if seed not in ("", "random") and not (seed.isdecimal() and int(seed) < 1 << 32):
        raise ValueError("PYTHONHASHSEED is random or a whole number below 4294967296, or no interpreter starts")
    if "PYTHONHOME" in value:
        raise ValueError("PYTHONHOME is another interpreter's, and a worker is of the one that starts the run")
    return dict(value)


TABLES = ("topology.environment", "streamlet.shared")
"""Settings whose value is a table: in a file of settings its rows are no settings of their own."""


def _paths(value: Any) -> dict[str, str]:
    named = value.items() if isinstance(value, Mapping) else [("", None)]
    if not all(isinstance(path, (str, Path)) and re.fullmatch(r"[\w.-]*\w", str(name)) for name, path in named):
        raise ValueError('a mapping of names to files or folders is wanted, {"model": "model.bin"}')
    return {str(name): str(path) for name, path in named}


def _text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("the name of a file is wanted")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is wanted")
    return value


def _one_of(*words: str) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if value not in words:
            raise ValueError(f"{' or '.join(words)} is wanted")
        return value

    return parse


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value in (None, "", "null", "none") else parse(value)


_positive = _at_least(float, 0.001)


def _share(value: Any) -> Any:
    number = _positive(value)
    if number > 1:
        raise ValueError("a number of at most 1 is wanted")
    return number


SETTINGS: dict[str, Setting] = {
    setting.key: setting
    for setting in (
        Setting(
            "topology.workers",
            _optional(_at_least(int, 1)),
            None,
            "worker processes; default: one a core but one, on Spark one a core",
        ),
        Setting("topology.max.spout.pending", _at_least(int, 1), 2000, "open tuple trees a spout task, at most", SPOUT),
        Setting(
            "topology.message.timeout.secs",
            _positive,
            30.0,
            "a tree fails when a bolt was given a tuple of it so long ago and has not acked it",
            SPOUT,
        ),
        Setting(
            "streamlet.queue.timeout.share",
            _share,
            0.25,
            "the share of topology.message.timeout.secs that a tuple should wait in queues at most; fewer trees are "
            "open where bolts are slow",
            SPOUT,
        ),
        Setting(
            "streamlet.queue.target.secs",
            _optional(_positive),
            None,
            "how long a tuple should wait in queues at most, where that is less: for a low latency",
            SPOUT,
        ),
        Setting(
            "topology.disable.loadaware.messaging",
            _boolean,
            False,
            "true: a shuffle takes every task in turn, however busy its worker is and wherever it runs",
        ),
        Setting(
            "topology.delivery",
            _one_of("at-least-once", "exactly-once"),
            "at-least-once",
            "exactly-once: what a KafkaBolt writes and the offsets of KafkaSpouts are committed in one transaction",
        ),
        Setting(
            "topology.commit.interval.ms",
            _at_least(int, 1),
            100,
            "with exactly-once: milliseconds from one commit to the next",
        ),
        Setting("topology.acker.executors", _at_least(int, 0), 1, "0 turns tracking off; any other value is on", SPOUT),
        Setting("topology.tick.tuple.freq.secs", _optional(_positive), None, "period of process_tick for bolts", BOLT),
        Setting(
            "streamlet.first.failures.max",
            _at_least(int, 0),
            1000,
            "a bolt's task that fails each of its own first so many tuples ends the run, by raising or by self.fail; "
            "0: never",
            BOLT,
        ),
        Setting(
            "topology.environment",
            _optional(_texts),
            None,
            "environment variables of worker processes, from their start; inline they are set after the import, for "
            "the run alone, on Spark in a slot before the import, and by `apply` for each task: there TZ has effect, "
            "and what else a process reads at its start does not (PYTHONPATH, LD_LIBRARY_PATH, PYTHONHASHSEED)",
        ),
        Setting(
            "streamlet.shared",
            _optional(_paths),
            None,
            "files and folders that components read, by name: where each lies for a worker is context.shared[NAME]",
        ),
        Setting("streamlet.log.file", _optional(_text), None, "append each line of the run's log to this file"),
        Setting(
            "streamlet.log.format",
            _one_of("text", "json"),
            "text",
            "its lines: text, or one JSON object each",
        ),
        Setting(
            "streamlet.log.max.bytes",
            _at_least(int, 0),
            10 << 20,
            "a log file of this size is put aside as FILE.1; 0: never",
        ),
        Setting(
            "streamlet.log.backups",
            _at_least(int, 0),
            5,
            "how many such files are kept; 0: a full file is removed",
        ),
        Setting(
            "streamlet.log.repeats.secs",
            _at_least(float, 0),
            10.0,
            "a line that comes again within this time is counted, not written; 0: every line is written",
        ),
        Setting("topology.version", _optional(_word), None, "the version of your code: dead letters carry it"),
        Setting("topology.debug", _boolean, False, "what a component reads as self.debug"),
        Setting("streamlet.seed", _optional(_at_least(int, 0)), None, "inline only: repeatable edge ids and shuffles"),
        Setting("streamlet.until.caught.up", _boolean, False, "set by --until-caught-up"),
        Setting("streamlet.run.secs", _optional(_positive), None, "set by -t: a spout's start may wait no longer"),
        Setting(
            "streamlet.drain.timeout.secs",
            _optional(_positive),
            None,
            "how long an end waits until every queue is empty and no tree is open; default: 4, or longer where more "
            "waits, up to topology.message.timeout.secs; for a run that has caught up as long as bolts work, 30 at "
            "most between two tuples",
        ),
        Setting(
            "streamlet.stop.timeout.secs",
            _optional(_positive),
            None,
            "how long components may then take to close; default: 30; after Ctrl-C: 5 less the time of the drain, "
            "or 5 where the drain may take that long",
        ),
        Setting("streamlet.worker.heartbeat.secs", _positive, 1.0, "period of worker heartbeats and metrics"),
        Setting("streamlet.worker.timeout.secs", _positive, 10.0, "a worker silent for so long is replaced"),
        Setting(
            "streamlet.worker.busy.timeout.secs",
            _positive,
            300.0,
            "one that is silent but uses its processor is left alone so long",
        ),
        Setting(
            "streamlet.worker.start.timeout.secs", _positive, 30.0, "a worker must have imported the topology by then"
        ),
        Setting(
            "streamlet.worker.restarts.max",
            _at_least(int, 0),
            20,
            "restarts of one worker in 5 min, or losses of one link between which nothing is done; or starts of a "
            "worker in a row that come to nothing (before the first tuple five, where each ends in a component's own "
            "start or, in a worker process, in the import of the topology's file)",
        ),
        Setting(
            "streamlet.spark.slots.timeout.secs",
            _positive,
            60.0,
            "how long a run waits for free task slots of a Spark cluster before it ends and says who holds them",
        ),
        Setting(
            "streamlet.spark.archive",
            _optional(_text),
            None,
            "an archive of `streamlet pack`, with the packages that executors lack",
        ),
        Setting(
            "streamlet.threads.queue.max",
            _at_least(int, 1),
            10_000,
            "tuples emitted on threads other than the loop's that may wait for one task",
        ),
        Setting(
            "streamlet.threads.wait.secs",
            _at_least(float, 0),
            30.0,
            "how long such an emit waits for room, while the worker's loop goes on, before it raises; 0: not at all",
        ),
        Setting(
            "streamlet.task.hang.secs",
            _positive,
            30.0,
            "a call of a component that takes longer is named, with its stack",
        ),
        Setting(
            "streamlet.task.hang.action",
            _one_of("tell", "replace"),
            "tell",
            "then: tell, or replace its worker too (end it in a drain), but not in `initialize`; the tuple at work "
            "counts as one that killed it",
        ),
        Setting(
            "streamlet.tuple.crashes.max",
            _at_least(int, 0),
            3,
            "a tuple at whose work its worker died so often is given up; 0: when its spout has no tries left",
            SPOUT,
        ),
        Setting(
            "streamlet.links.tls",
            _boolean,
            False,
            "true: what workers say to each other, and over a network to the coordinator, is encrypted (TLS 1.3). "
            "Needs the extra tls",
        ),
        Setting(
            "streamlet.link.high.water.bytes",
            _at_least(int, 1),
            8 << 20,
            "unsent bytes that stop emits over a link",
        ),
        Setting(
            "streamlet.worker.memory.bytes",
            _at_least(int, 8 << 20),
            256 << 20,
            "most that tuples and messages may take in a worker",
        ),
        Setting(
            "streamlet.inbox.high.water.tuples",
            _at_least(int, 1),
            50_000,
            "waiting tuples that stop emits to them",
        ),
    )
}


def resolve(
    topology: Mapping[str, Any], overrides: Mapping[str, Any], also_known: Iterable[str] = (), given_by: str = "-c"
) -> dict[str, Any]:
    """Return defaults, then the topology's config, then overrides, all parsed. ``given_by`` names these in errors.

    A key is known when it is in :data:`SETTINGS`, stands in the topology's config, or is in ``also_known``.
    Raises SettingError naming the key, and the nearest right one.
    """
    known = {*SETTINGS, *topology, *also_known}
    resolved: dict[str, Any] = {key: setting.default for key, setting in SETTINGS.items()}
    for source, values in (("the topology's config", topology), (given_by, overrides)):
        for key, value in values.items():
            # A key that nothing reads is refused: it may be a typing error.
            reserved = key.startswith(("topology.", "streamlet."))
            if key not in SETTINGS and (reserved or key not in known):
                raise SettingError(unknown_key(key, source, known))
            resolved[key] = parse_setting(key, value, source)
            # A key of the user's own comes from the command line as text, and gets the type of the topology's own
            # value.
            if isinstance(value, str) and key in topology and key not in SETTINGS:
                resolved[key] = _like(key, topology[key], value, given_by)
    _check_together(resolved)
    return resolved


def _check_together(conf: Mapping[str, Any]) -> None:
    """Refuse settings that contradict each other. Raises SettingError."""
    # Two beats: one may come late on a busy machine without costing a healthy worker its life.
    beat, silent = conf["streamlet.worker.heartbeat.secs"], conf["streamlet.worker.timeout.secs"]
    if 2 * beat > silent:
        raise SettingError(
            f"streamlet.worker.timeout.secs is {silent:g}, and streamlet.worker.heartbeat.secs is {beat:g}: a healthy "
            "worker would be taken for a silent one and replaced. Make the time-out at least twice the heartbeat."
        )
    if conf["topology.delivery"] == "exactly-once" and conf["topology.acker.executors"] == 0:
        raise SettingError(
            "topology.delivery is exactly-once, and topology.acker.executors is 0: without tracking nobody knows when "
            "all tuples of a commit are done. Leave topology.acker.executors out."
        )


def longest_wait_s(conf: Mapping[str, Any]) -> float:
    """Return how long a spout's tuples should wait in queues, in seconds."""
    share: float = conf["topology.message.timeout.secs"] * conf["streamlet.queue.timeout.share"]
    return min(share, conf["streamlet.queue.target.secs"] or share)


ALIKE = 0.6
"""Share of two names that agrees where one may be meant for the other."""


def _alike(key: str, known: Sequence[str]) -> list[str]:
    """Return the known key that looks most like another, if one does."""
    # Rule: without the word that half of all keys begin with. `topology.` alone makes any two of them look alike, and
    # a setting of Storm's that is not one here got a name of quite another one.
    tail = key.partition(".")[2] or key

    def alike(right: str) -> tuple[float, float]:
        own = right.partition(".")[2] or right
        return SequenceMatcher(None, tail, own).ratio(), SequenceMatcher(None, key, right).ratio()

    best = max(known, key=alike, default="")
    return [best] if best and alike(best)[0] >= ALIKE else []


def unknown_key(key: str, source: str, known: Iterable[str], components: Mapping[str, Iterable[str]] = {}) -> str:
    """Return the paragraph for a key that nobody reads.

    It names the nearest right key, or how to list all. ``components``: of each, the names of its own settings, which
    are given as ``COMPONENT.NAME``.
    """
    what = f"The setting {key!r} given by {source} is not one that anything in this topology reads."
    if key in STORMS_SETTINGS:
        return f"{what} {STORMS_SETTINGS[key]}"
    if key.startswith("spark."):
        return (
            f"{what} It is Spark's own: give it to spark-submit (--conf), to the session of a SparkBackend(spark), or "
            "in spark-defaults.conf of the folder that SPARK_CONF_DIR names."
        )
    plain = sorted(known)
    full = [*plain, *(f"{name}.{own}" for name, names in components.items() for own in sorted(names))]
    # Who leaves out where a key belongs gets it in full: `topic` is `lines.topic`, `out` is `word_count.out`.
    near = [right for right in full if right.endswith((f".{key}", f"_{key}"))][:3]
    near = near or _alike(key, full)
    if near:
        remedy = f"Did you mean {' or '.join(map(repr, near))}?"
    else:
        # Not the list of all: a file of settings may have many such keys, and each is answered.
        own = sorted(set(known) - set(SETTINGS))
        families = [f"{name}.NAME" for name, names in components.items() if names]
        there = f"This topology has {', '.join([*own, *families])} of its own. " if own or families else ""
        remedy = (
            f"{there}`streamlet check --settings FILE` lists all, and says what they mean. One of your own, which a "
            "component reads from its conf, stands in the topology's config first."
        )
    return f"{what} {remedy}"


STREAMPARSES_KEYS = frozenset({"envs", "topology_specs", "virtualenv_specs", "serializer", "library"})
"""The first parts of the keys of streamparse's config.json."""


def of_streamparse(key: str) -> bool:
    """Tell whether a key stands in streamparse's config.json."""
    return key.partition(".")[0] in STREAMPARSES_KEYS


def streamparses_keys(keys: Sequence[str], source: str) -> str:
    """Return the paragraph for keys of streamparse's config.json: one for all of them."""
    return (
        f"{', '.join(keys)} given by {source}: that is streamparse's config.json, which is not read here. What stands "
        "under envs.*.options belongs into the topology's config, a --config file or -c; servers, folders and "
        "virtualenvs have nothing here that needs them (`streamlet docs migrating-from-streamparse`)."
    )


_CHILD = "Components run in the worker's own Python process: there is no child, and no JVM, to give it to."
STORMS_SETTINGS = {
    "topology.subprocess.timeout.secs": "Components run in the worker's own process. A call that hangs is named after "
    "streamlet.task.hang.secs; with streamlet.task.hang.action=replace its worker is replaced.",
    "topology.worker.childopts": _CHILD,
    "topology.worker.gc.childopts": _CHILD,
    "worker.childopts": _CHILD,
    "topology.multilang.serializer": _CHILD,
    "topology.worker.max.heap.size.mb": "What tuples may take in a worker is streamlet.worker.memory.bytes.",
    "topology.backpressure.enable": "Back-pressure is always on: topology.max.spout.pending bounds what is open.",
    "topology.eventlogger.executors": "There is no event logger: a bolt that logs its tuples shows them.",
    "topology.fall.back.on.java.serialization": "There is no Java: `streamlet docs reference` says what travels.",
    "topology.kryo.register": "There is no Java: `streamlet docs reference` says which values travel.",
    "topology.max.task.parallelism": "Tasks are counted by par, in each line of the topology.",
    "topology.tasks": "Tasks are counted by par, in each line of the topology.",
    "topology.priority": "There is no cluster that schedules topologies.",
    "topology.scheduler.strategy": "There is no cluster that schedules topologies.",
    "topology.state.checkpoint.interval.ms": "There are no stateful bolts: `streamlet docs counts-that-survive` shows "
    "what takes their place.",
    "topology.worker.logwriter.childopts": _CHILD,
    "topology.sleep.spout.wait.strategy.time.ms": "A spout with nothing to emit is asked each ms, or by its fileno().",
    "nimbus.seeds": "There is no Nimbus: `streamlet run FILE` runs the topology.",
    "nimbus.host": "There is no Nimbus: `streamlet run FILE` runs the topology.",
}
"""Storm's settings that have no meaning here -> what takes their place."""


def _like(key: str, default: Any, text: str, given_by: str) -> Any:
    """Read a user's own key from text, as the config's type."""
    # By the exact type: a bool is an int to isinstance, and "true" would be read as a number.
    kind = type(default)
    as_json = kind in (list, tuple, dict)
    readers: dict[type, Callable[[Any], Any]] = {bool: _boolean, int: int, float: float}
    try:
        return _of_json(kind, text) if as_json else readers[kind](text) if kind in readers else text
    except ValueError:
        remedy = ": write it as JSON, in quotes for the shell" if as_json else ""
        raise SettingError(
            f"The setting {key!r} given by {given_by} cannot be {text!r}: the topology's config has {default!r} there, "
            f"which is of type {kind.__name__}{remedy}."
        ) from None


def _of_json(kind: type, text: str) -> Any:
    """Return the list, tuple or dict that a text of JSON holds. Raises ValueError for another."""
    found = json.loads(text)
    if not isinstance(found, dict if kind is dict else list):
        raise ValueError
    return kind(found)


def parse_setting(key: str, value: Any, source: str) -> Any:
    """Read a value as its setting wants it. Raises SettingError. A user's own key stays as it is."""
    setting = SETTINGS.get(key)
    if setting is None:
        return value
    try:
        return setting.parse(value)
    except (ValueError, TypeError) as error:
        raise SettingError(
            f"The setting {key!r} given by {source} cannot be {value!r}: {error}. It means: {setting.meaning}."
        ) from None
