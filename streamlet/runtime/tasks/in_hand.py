"""The task, call and tuples that a worker has in hand, in memory that outlives its process.

One page in a file of the run's folder, mapped by the worker and by the coordinator. The worker's loop writes there what
it is about to call; the reader (the worker's control thread, or the coordinator after a death) finds the call that was
running. A fast bolt writes two numbers a slice. A slice of one tuple of a slow bolt, or of one under suspicion, also
writes the roots of the tuple, its message and its values, shortened. Beside the call stand the bolts that hold tuples:
threads of their own may be at work on those.

Pure: a buffer in, a ``Holding`` out. A reader in another process may see a half-written page: the loop writes the
details before the task, and takes the task away before it changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import msgpack

from streamlet.components.tuples import Tuple
from streamlet.tracking.shared_roots import Root, each_root

PAGE_BYTES = 8192
"""Size of a page: two of the kernel's. The first 1024 bytes are numbers."""

TASK, COUNT, CALL, BEGAN, LENGTH, WRITER, HELD_BY, HELD_LENGTH = range(8)
"""Places of the eight-byte numbers.

A task id (0: nothing), tuples in the slice or held by the bolt that is called, index in CALLS, seconds (a float), bytes
of the details, the process that writes here, and the task whose one held tuple has details (0: none), with their bytes.
"""

_HOLDERS = 16
"""Where the bolts that hold tuples begin: two numbers each, twice the task plus 1 if it has threads, and how many."""

MOST_HOLDERS = 56

_DETAILS, _HELD_DETAILS = 1024, (1024 + PAGE_BYTES) // 2
"""Where the details of the call and of a held tuple begin, in bytes."""

_ROOM = _HELD_DETAILS - _DETAILS
"""Most bytes of each."""

CALLS = (
    "process",
    "process_tick",
    "next_tuple",
    "ack",
    "fail",
    "on_timer",
    "activate",
    "initialize",
    "cleanup",
    "unfinished_count",
    "its constructor",
    "deactivate",
    "close",
    "its own call",
)
"""The user's methods by their number on the page; the last stands for any other."""

HOLDS = "no call"
"""Stands for a call where a worker was in none, and a bolt of it held tuples."""

STARTING = frozenset({"initialize", "its constructor"})
"""Those that a start calls."""

MOST_ROOTS = 64
LONGEST = 200
"""Most characters of a tuple's values that are shown."""

Key = bytes
"""A message id as bytes, equal in every process; see ``message_key``."""

Messages = Callable[[int], Any]
"""Returns the lasting message id of a root; None where its spout lives in another process."""


LookBack = Callable[[int, str, float, str], float]
"""Takes a call of the loop that took long: task, method, when it began, what it was about.

Returns the seconds of it while it could not go on.
"""


def _none_kept(task: int, call: str, began: float, on: str) -> float:
    return 0.0


def _nobody_looks() -> None:
    pass


@dataclass(frozen=True, slots=True)
class CallWatch:
    """What looks at calls that take long. The loop's; by itself it sees nothing."""

    long_s: float = inf
    """Seconds of a call after which ``look_back`` is called."""
    look_back: LookBack = _none_kept
    look_if_missed: Callable[[], None] = _nobody_looks
    """Finds, and notes at the bolts, whether the process has stood still until now. Any thread."""


UNWATCHED = CallWatch()


@dataclass(frozen=True, slots=True)
class Holding:
    """One look at the page. ``began`` in monotonic seconds of the machine.

    ``count`` tuples were in the slice, or were held by the bolt in another call: with one, ``roots``, ``messages`` and
    ``values`` say which.
    """

    task: int
    call: str
    count: int
    began: float
    roots: tuple[int, ...] = ()
    messages: tuple[tuple[int, Key, str], ...] = ()
    """(root, key, text) of the messages whose spouts live in the same worker."""
    values: str = ""
    has_threads: bool = False
    """Whether threads of the bolt's own have called the worker."""
    beside: tuple[Holding, ...] = ()
    """The bolts that held tuples meanwhile, this one too if it held some."""


class InHand:
    """The writer's side of a page: the loop's alone. A call that hangs may return at any moment."""

    def __init__(self, page: Any = None, message_of: Messages = lambda root: None) -> None:
        """Take a page, and how to name a root's message. Without: a page that nobody reads after a death."""
        view = memoryview(page if page is not None else bytearray(PAGE_BYTES))
        self.words = view.cast("Q")
        self.times = view.cast("d")
        self._bytes = view
        self._message_of = message_of
        self._places: dict[int, int] = {}
        """Task -> place of its two numbers among the bolts that hold tuples."""

    def note_writer(self, pid: int) -> None:
        """Note whose page this is."""
        self.words[WRITER] = pid

    def note_call(self, task_id: int, name: str, now: float, held: Collection[Tuple] = ()) -> None:
        """Note a call that is about no tuple, or about those held."""
        words = self.words
        words[TASK] = 0
        # Before anything else is written: to name a message asks its spout, and that is noted, too.
        details = self._details_of(*held) if len(held) == 1 else b""
        words[LENGTH] = self._put(_DETAILS, details) if details else 0
        words[COUNT] = len(held)
        words[CALL] = _NUMBER.get(name, len(CALLS) - 1)
        self.times[BEGAN] = now
        words[TASK] = task_id

    def note_tuple(self, task_id: int, root: Any, values: Sequence[Any], now: float) -> None:
        """Note one tuple that is about to be processed.

        ``root``: a list or SharedRoots for several trees, 0 for none.
        """
        words = self.words
        words[TASK] = 0
        details = self._details(root if isinstance(root, list) else [root], values)
        words[LENGTH] = self._put(_DETAILS, details)
        words[COUNT], words[CALL] = 1, 0
        self.times[BEGAN] = now
        words[TASK] = task_id

    def note_held(self, task_id: int, held: Collection[Tuple], has_threads: bool, in_full: bool) -> None:
        """Note what a bolt holds outside of calls. ``in_full``: also which one, where it is one."""
        words = self.words
        place = self._places.setdefault(task_id, _HOLDERS + 2 * len(self._places))
        if place >= _HOLDERS + 2 * MOST_HOLDERS:
            return
        if words[HELD_BY] == task_id:
            words[HELD_BY] = 0
        if in_full and len(held) == 1:
            words[HELD_LENGTH] = self._put(_HELD_DETAILS, self._details_of(*held))
            words[HELD_BY] = task_id
        words[place], words[place + 1] = 2 * task_id + has_threads, len(held)

    def _details_of(self, tup: Tuple) -> bytes:
        return self._details([root for root, _ in tup.anchors] if tup.anchors else [tup.root], tup.values)

    def _details(self, among: Iterable[Root], values: Sequence[Any]) -> bytes:
        roots = roots_at_work(among)
        found = [(one, self._message_of(one)) for one in roots]
        messages = [(one, message_key(name), shortened(name)) for one, name in found if name is not None]
        details: bytes = msgpack.packb([roots, messages, shortened(values)])
        return details if len(details) <= _ROOM else msgpack.packb([roots[:1], [], shortened(values)])

    def _put(self, place: int, details: bytes) -> int:
        self._bytes[place : place + len(details)] = details
        return len(details)

    def clear(self) -> None:
        """Note that the loop is in no code of the user's."""
        words = self.words
        words[TASK] = words[CALL] = words[LENGTH] = 0


_NUMBER = {name: number for number, name in enumerate(CALLS)}


def holding(page: Any) -> Holding | None:
    """Return what stands on a page; None: no code of the user's was running, and no bolt held anything."""
    view = memoryview(page)
    words, times = view.cast("Q"), view.cast("d")
    beside = tuple(_holders(view))
    task, count, call, length = words[TASK], words[COUNT], words[CALL], words[LENGTH]
    if not task:
        return replace(beside[0], beside=beside) if beside else None
    held = Holding(task, CALLS[min(call, len(CALLS) - 1)], count, times[BEGAN], beside=beside)
    return _with_details(held, view[_DETAILS : _DETAILS + min(length, _ROOM)])


def _holders(view: memoryview) -> Iterable[Holding]:
    words = view.cast("Q")
    for place in range(_HOLDERS, _HOLDERS + 2 * MOST_HOLDERS, 2):
        task, has_threads, count = words[place] >> 1, bool(words[place] & 1), words[place + 1]
        if task and count:
            held = Holding(task, HOLDS, count, 0.0, has_threads=has_threads)
            length = min(words[HELD_LENGTH], _ROOM) if words[HELD_BY] == task else 0
            yield _with_details(held, view[_HELD_DETAILS : _HELD_DETAILS + length])


def _with_details(held: Holding, details: memoryview) -> Holding:
    if held.count != 1 or not details:
        return held
    try:
        roots, messages, values = msgpack.unpackb(bytes(details))
        named = tuple((int(root), bytes(key), str(text)) for root, key, text in messages)
        return replace(held, roots=tuple(map(int, roots)), messages=named, values=str(values))
    except (ValueError, TypeError):  # it died in the middle of writing
        return held


def roots_at_work(roots: Iterable[Root]) -> list[int]:
    """Return the trees of a tuple, each once; not all of very many."""
    return [*dict.fromkeys(one for one in each_root(roots) if one)][:MOST_ROOTS]


def with_tuple(held: Holding | None, task: int, roots: Sequence[int], values: str) -> Holding:
    """Return a look at a page with the tuple its worker named."""
    if held is not None and (held.task, held.count, held.values) == (task, 1, values) and {*held.roots} <= {*roots}:
        return held  # the page has the messages, too
    began, beside = (held.began, held.beside) if held is not None else (0.0, ())
    noted = (each.messages for each in beside if (each.task, each.count, each.values) == (task, 1, values))
    # Without what bolts held beside it: it is named, so nothing else is suspected.
    return Holding(task, CALLS[0], 1, began, tuple(roots), next(noted, ()), values)


def writer_of(page: Any) -> int:
    """Return the process that writes a page; 0 as long as nobody does."""
    return memoryview(page).cast("Q")[WRITER]


def message_key(message: Any) -> Key:
    """Return a message id as bytes: the same for equal ids in every process."""
    try:
        packed: bytes = msgpack.packb(message)
    except (TypeError, ValueError, OverflowError):
        return repr(message)[:LONGEST].encode(errors="replace")
    return packed


def shortened(value: Any) -> str:
    """Return a value as text of bounded length, at a bounded cost: a value may be megabytes long."""
    text = _short(value, LONGEST // 2)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def _short(value: Any, room: int) -> str:
    if isinstance(value, (str, bytes, bytearray)):
        return repr(value) if len(value) <= room else f"{value[:room]!r}... ({len(value):,} long)"
    if isinstance(value, (list, tuple)):
        parts = [_short(one, 60) for one in value[:8]]
        inside = ", ".join([*parts, f"... ({len(value):,} values)"] if len(value) > 8 else parts)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and value.bit_length() < 512):
        return repr(value)
    return f"<{type(value).__name__}{f' of {len(value):,}' if isinstance(value, (dict, set)) else ''}>"
