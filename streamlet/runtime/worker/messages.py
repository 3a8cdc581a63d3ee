"""The control protocol between a worker and its coordinator: every message of both directions.

A message is a frozen dataclass; the annotation of a field says how its value is checked. On the wire it is a msgpack
map ``{"t": kind, field: value, ...}`` with the fields in the order of the class. ``FROM_COORDINATOR`` and
``FROM_WORKER`` are the tables kind -> class; a new message is a class and a line in a table.

    coordinator                                 worker
      | plan ------------------------------------> |  builds its tasks
      | <------------------------------------ ready|  listens; the coordinator sends the new book
      | book (each time somebody comes or goes) -> |  dials
      | <---------------------------- initialized  |
      | <--------------- linked by version N, each |
      | whole by version N ----------------------> |  tuples flow
      | <------------- beat, state, event, ...     |
      | pause, quiet, later stop ----------------> |  drains, closes
      | <--------------------------------- stopped |

A worker has proved who it is, but it runs its users' code. A misshapen message of a worker ends that worker and not
the run: the next worker may be free of the trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, get_type_hints

from streamlet.base.log_line import LogLine, Origin
from streamlet.runtime.links.links import Traffic
from streamlet.runtime.tasks.task_stats import COUNTERS, GAUGES, SLOTS

Raw = dict[str, Any]
"""A message as the channel carries it: ``t`` names its kind."""

Check = Callable[[Any], bool]

LAST_MOMENT_S = 253_402_300_800.0
"""Seconds from 1970 to the year 10000, which no calendar has room for."""


class BadMessage(Exception):
    """A message the other end must not send. The text continues a sentence: "worker 1 ..."."""


# -- checks of values ------------------------------------------------------------------------------------------------
# `type(value) is`, not isinstance: a bool is an int to isinstance, and msgpack gives exact types.


def _is(*kinds: type) -> Check:
    return lambda value: type(value) in kinds


def _list_of(check: Check, length: int | None = None) -> Check:
    return lambda value: type(value) is list and length in (None, len(value)) and all(map(check, value))


def _dict_of(key: Check, item: Check) -> Check:
    return lambda value: type(value) is dict and all(key(k) and item(v) for k, v in value.items())


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _moment(value: Any) -> bool:
    return type(value) is float and 0 <= value < LAST_MOMENT_S


def _address(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) == 3
        and value[0] in ("unix", "tcp")
        and type(value[1]) is str
        and _natural(value[2])
    )


def _entry(value: Any) -> bool:
    return type(value) is list and len(value) == 4 and _natural(value[0]) and _address(value[1:])


def _part(value: Any) -> bool:
    return type(value) is list and [type(item) for item in value] == [str, str, int]


def _snapshot(value: Any) -> bool:
    return (
        type(value) is dict
        and all(_natural(value.get(name)) for name in (*COUNTERS, *GAUGES))
        and type(latency := value.get("latency")) is list
        and len(latency) == SLOTS
        and all(map(_natural, latency))
        and _metrics(value.get("metrics"))
    )


def _hang(value: Any) -> bool:
    return (
        type(value) is dict
        and _natural(value.get("task"))
        and type(value.get("seconds")) is float
        and type(value.get("call")) is str
        and type(value.get("tuple")) is str
    )


def _traffic(value: Any) -> bool:
    return value is None or _two_counts(value)


_metrics = _dict_of(_is(str), _is(float))
_counts = _dict_of(_is(str), _natural)
_two_counts = _list_of(_dict_of(_natural, _natural), 2)
_conf = _dict_of(_is(str), lambda value: True)

Natural = Annotated[int, _natural]
Text = Annotated[str, _is(str)]
Flag = Annotated[bool, _is(bool)]
Bytes = Annotated[bytes, _is(bytes)]


# -- to a worker -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Everything that a worker needs to build itself; the first message."""

    worker: Natural
    epoch: Natural
    workers: Natural
    file: Text
    attribute: Annotated[str | None, _is(str, type(None))]
    fingerprint: Text
    conf: Annotated[Mapping[str, Any], _conf]
    overrides: Annotated[Mapping[str, Mapping[str, Any]], _dict_of(_is(str), _is(dict))]
    run_id: Bytes
    listen_host: Text
    """Where it listens for peers over TCP; empty: at its own end of the channel to the coordinator."""
    heartbeat_s: Annotated[float, _is(int, float)]
    page: Text
    """File of the page that names the call at hand; empty, or missing here: the worker keeps the page in memory."""
    careful: Annotated[Sequence[int], _list_of(_natural)]
    """Tasks that process one tuple at a time, for ``careful_s``."""
    careful_s: Annotated[float, _is(int, float)]
    crashes: Annotated[Mapping[int, Mapping[bytes, int]], _dict_of(_natural, _dict_of(_is(bytes), _natural))]
    """Spout task -> message -> how often its worker died at work on it."""
    began: Flag
    """All workers had stood before: this one takes the place of one that died."""
    debug: Flag
    keeps_log: Flag
    """The run's log is kept, with the lines that components print."""
    code_folder: Text
    folder: Text = ""
    """The run's folder, where all workers are on its machine and link by Unix sockets; else empty, as all below."""
    secret: Bytes = b""
    """Over TCP the Spark task brings it, since links are authenticated but not encrypted."""
    modules: Annotated[Mapping[str, Sequence[str]], _dict_of(_is(str), _list_of(_is(str), 2))] = field(
        default_factory=dict
    )
    files: Annotated[Mapping[str, str], _dict_of(_is(str), _is(str))] = field(default_factory=dict)
    roots: Annotated[Sequence[str], _list_of(_is(str))] = field(default_factory=list)
    links: Annotated[Mapping[str, str], _dict_of(_is(str), _is(str))] = field(default_factory=dict)
    elsewhere: Annotated[Sequence[str], _list_of(_is(str))] = field(default_factory=list)
    kept_s: Annotated[float, _is(int, float)] = 0.0
    compiled: Annotated[Mapping[str, str], _dict_of(_is(str), _is(str))] = field(default_factory=dict)
    edited: Annotated[Sequence[str], _list_of(_is(str))] = field(default_factory=list)
    """The code of the run as it was when it was checked (``kept_code.Code``)."""
    build: Text = ""
    """Hash of streamlet's own files when the run began (``kept_code``); empty where they travel with the run."""
    certificate: Bytes = b""
    """The run's certificate and key, where its links are encrypted. It travels as the secret does."""
    host: Text = ""
    executor: Text = ""
    """Where the worker is, on Spark; the slot fills them in."""


@dataclass(frozen=True, slots=True)
class Book:
    """The address book: worker -> (epoch, kind of address, host or path, port)."""

    version: Natural
    workers: Annotated[Mapping[int, Sequence[Any]], _dict_of(_natural, _entry)]


@dataclass(frozen=True, slots=True)
class Whole:
    """Every worker is linked by this version of the book: tuples may flow."""

    version: Natural


@dataclass(frozen=True, slots=True)
class Pause:
    """The run is ending: spouts emit no more."""

    gone: Annotated[Sequence[int], _list_of(_natural)] = field(default_factory=list)
    """Workers that are dead by now: nobody is started any more."""


@dataclass(frozen=True, slots=True)
class Paused:
    """All parts that emit nothing until the next such message: spout, topic or "", partition or -1."""

    parts: Annotated[Sequence[Sequence[Any]], _list_of(_part)]


@dataclass(frozen=True, slots=True)
class Quiet:
    """Every queue was empty: one last tick for this step's bolts; after the last step, no new tuples."""

    step: Natural


@dataclass(frozen=True, slots=True)
class TickNow:
    """A drain waits for open trees alone: a tick for each bolt that gets ticks and is not quiet."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone, and what it had in hand."""

    worker: Natural
    epoch: Natural
    how: Text = ""
    """How it died, for a sentence: "was killed by SIGSEGV at work in ..."."""
    roots: Annotated[Sequence[int], _list_of(_natural)] = field(default_factory=list)
    """The trees of the tuple that it died of, if that is known."""
    careful: Annotated[Sequence[int], _list_of(_natural)] = field(default_factory=list)
    """Tasks that process one tuple at a time from now on, so that the next death names it."""
    careful_s: Annotated[float, _is(int, float)] = 0.0


@dataclass(frozen=True, slots=True)
class Cut:
    """The links of a pair made before ``version`` are void."""

    pair: Annotated[Sequence[int], _list_of(_natural, 2)]
    version: Natural


@dataclass(frozen=True, slots=True)
class Close:
    """Close, after a clean end with ``cleanup``. Not ``settled``: tuples are left in queues and links."""

    clean: Flag
    settled: Flag = False


# -- from a worker ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker listens for links."""

    address: Annotated[Sequence[Any], _address]
    pid: Natural
    host: Text = ""
    executor: Text = ""
    """Where it is; empty on the coordinator's own machine."""


@dataclass(frozen=True, slots=True)
class Initialized:
    """All components of the worker are initialised."""


@dataclass(frozen=True, slots=True)
class Linked:
    """The worker has every link of this version of the book."""

    version: Natural


@dataclass(frozen=True, slots=True)
class Unlinked:
    """A peer does not answer the worker's dials."""

    worker: Natural
    why: Text


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, with the worker's numbers, all of one moment."""

    tasks: Annotated[Mapping[int, Mapping[str, Any]], _dict_of(_natural, _snapshot)]
    partitions: Annotated[Sequence[Mapping[str, Any]], _list_of(_is(dict))]
    pending: Natural
    unfinished: Natural
    initializing: Text = ""
    hanging: Annotated[Sequence[Mapping[str, Any]], _list_of(_hang)] = field(default_factory=list)
    """The call that the loop is in for too long, if it is: task, call, seconds, tuple."""
    wait_s: Annotated[float, _is(float)] = 0.0
    """Estimated seconds to work off the queues of this worker."""
    call_s: Annotated[float, _is(float)] = 0.0
    """Estimated seconds of a call of its slowest bolt."""
    done: Annotated[Mapping[int, int], _dict_of(_natural, _natural)] = field(default_factory=dict)
    emitted: Annotated[Mapping[int, int], _dict_of(_natural, _natural)] = field(default_factory=dict)
    handed: Annotated[Mapping[int, int], _dict_of(_natural, _natural)] = field(default_factory=dict)
    """Task -> untracked tuples, as in ``UntrackedCounts``."""
    sent: Annotated[Mapping[int, int], _dict_of(_natural, _natural)] = field(default_factory=dict)
    """Task -> untracked tuples that were sent to it in another worker."""
    lost: Annotated[Mapping[str, int], _counts] = field(default_factory=dict)
    """Untracked tuples that lost links took along, by the bolt they were for."""


@dataclass(frozen=True, slots=True)
class State:
    """What the end of a run depends on, sent whenever it changes.

    ``traffic`` is None until the worker was paused for good.
    """

    drained: Flag
    caught_up: Flag
    done: Flag
    traffic: Annotated[Traffic | None, _traffic]
    idle: Flag = False
    """Every queue is empty, though trees may be open."""
    quiet: Natural = 0
    """How many steps of quiet were taken."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Untracked tuples sent to and read of a dead worker, by task."""

    worker: Natural
    epoch: Natural
    sent: Annotated[Mapping[int, int], _dict_of(_natural, _natural)]
    read: Annotated[Mapping[int, int], _dict_of(_natural, _natural)]


@dataclass(frozen=True, slots=True)
class Unfit:
    """The worker asks to be replaced: a call takes too long, or its memory is used up."""

    why: Text
    task: Natural = 0
    """The task whose tuple hangs, where that is known exactly, and not only the slice that it is in."""
    roots: Annotated[Sequence[int], _list_of(_natural)] = field(default_factory=list)
    values: Text = ""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the run's log, with the task at work (0: none)."""

    level: Text
    text: Text
    time_s: Annotated[float, _moment]
    """When it was logged, by the worker's clock."""
    logger: Text = "streamlet"
    component: Text = ""
    task: Natural = 0
    trace: Text = ""
    """A traceback, beside the text."""
    printed: Flag = False
    """It stands on a standard stream of the worker already."""
    left_out: Natural = 0
    """How many lines are missing in its place."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """The first error of a kind of a component: the end of the run may tell it again."""

    text: Text


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The worker lost a link made by ``version`` of the book."""

    worker: Natural
    epoch: Natural
    version: Natural
    why: Text


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot go on; ``drains``: one component of it cannot, and all others end in order."""

    message: Text
    status: Natural
    trace: Text
    retriable: Flag
    drains: Flag = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The worker has closed its components; ``errors`` are what they raised."""

    errors: Annotated[Sequence[str], _list_of(_is(str))]
    left: Annotated[Mapping[str, int], _counts] = field(default_factory=dict)
    """Untracked tuples that nobody processed, by the bolt they were for."""
    traces: Annotated[Sequence[str], _list_of(_is(str))] = field(default_factory=list)
    """The tracebacks of ``errors``."""
    sent: Annotated[Mapping[int, int], _dict_of(_natural, _natural)] = field(default_factory=dict)
    """Task elsewhere -> untracked tuples that were sent to it."""
    read: Annotated[Mapping[int, Mapping[int, int]], _dict_of(_natural, _dict_of(_natural, _natural))] = field(
        default_factory=dict
    )
    """Worker -> task here -> untracked tuples of that worker that were read, all in the end."""


FromCoordinator = WorkerPlan | Book | Whole | Pause | Paused | TickNow | Quiet | Lost | Cut | Close
FromWorker = (
    Ready
    | Initialized
    | Linked
    | Unlinked
    | Beat
    | State
    | Exchanged
    | Unfit
    | Event
    | Complaint
    | LinkLost
    | Failed
    | Stopped
)
Message = FromCoordinator | FromWorker

FROM_COORDINATOR: Mapping[str, type[FromCoordinator]] = {
    "plan": WorkerPlan,
    "book": Book,
    "whole": Whole,
    "pause": Pause,
    "paused": Paused,
    "tick_now": TickNow,
    "quiet": Quiet,
    "lost": Lost,
    "cut": Cut,
    "stop": Close,
}
FROM_WORKER: Mapping[str, type[FromWorker]] = {
    "ready": Ready,
    "initialized": Initialized,
    "linked": Linked,
    "unlinked": Unlinked,
    "beat": Beat,
    "state": State,
    "exchanged": Exchanged,
    "unfit": Unfit,
    "event": Event,
    "complaint": Complaint,
    "link_lost": LinkLost,
    "failed": Failed,
    "stopped": Stopped,
}

_KINDS: Mapping[type, str] = {cls: kind for table in (FROM_COORDINATOR, FROM_WORKER) for kind, cls in table.items()}
_SHAPES: Mapping[type, Mapping[str, Check]] = {
    cls: {name: hint.__metadata__[0] for name, hint in get_type_hints(cls, include_extras=True).items()}
    for cls in _KINDS
}


# -- coding ----------------------------------------------------------------------------------------------------------


def encode(message: Message) -> Raw:
    """Return the message as the channel carries it."""
    return {"t": _KINDS[type(message)], **{name: getattr(message, name) for name in _SHAPES[type(message)]}}


def event_of(line: LogLine) -> Event:
    """Return the message of a line; its reader knows worker and epoch."""
    logger, component, task, _, _ = line.origin
    return Event(line.level, line.text, line.time_s, logger, component, task, line.trace, line.printed, line.left_out)


def line_of_event(event: Event, worker: int, epoch: int) -> LogLine:
    """Return the line of a worker's message."""
    origin = Origin(event.logger, event.component, event.task, worker, epoch)
    return LogLine(event.level, event.text, event.time_s, origin, event.trace, event.printed, left_out=event.left_out)


def from_coordinator(raw: Raw) -> FromCoordinator:
    """Check and decode a coordinator's message. Raises BadMessage."""
    return _decode(raw, FROM_COORDINATOR)


def from_worker(raw: Raw, workers: int, tasks: int) -> FromWorker:
    """Check and decode a worker's message. Raises BadMessage.

    ``workers`` and ``tasks`` are how many the run has: a message may name no others.
    """
    message = _decode(raw, FROM_WORKER)
    if isinstance(message, LinkLost | Unlinked | Exchanged) and message.worker >= workers:
        raise BadMessage(f"spoke of worker {message.worker}, and there are {workers}")
    if isinstance(message, Event) and message.task > tasks:
        raise BadMessage("sent a line of a task that does not exist")
    if isinstance(message, Beat) and not all(
        1 <= task <= tasks for task in (*message.tasks, *(row["task"] for row in message.hanging))
    ):
        raise BadMessage("sent numbers of a task that does not exist")
    return message


_M = TypeVar("_M", bound=Message)


def _decode(raw: Raw, table: Mapping[str, type[_M]]) -> _M:
    kind = raw["t"]
    cls = table.get(kind)
    if cls is None:
        raise BadMessage(f"sent a message of kind {kind[:40]!r}, which does not exist")
    shape = _SHAPES[cls]
    for name, check in shape.items():
        if name not in raw or not check(raw[name]):
            raise BadMessage(f"sent a message of kind {kind!r} without a proper {name!r}")
    return cls(**{name: raw[name] for name in shape})
