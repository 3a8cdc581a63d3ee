"""The task, call and tuples that a worker has in hand, in memory that outlives its process.

One page in a file of the run's folder, mapped by the worker and by the coordinator. The worker's loop writes there what
it is about to call; the reader (the worker's control thread, or the coordinator after a death) finds the call that was
running. A fast bolt writes two numbers a slice. A slice of one tuple of a slow bolt, or of one under suspicion, also
writes the roots of the tuple, its message and its values, shortened.

Pure: a buffer in, a ``Holding`` out. A reader in another process may see a half-written page: the loop writes the
details before the task, and takes the task away before it changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from streamlet.tracking.shared_roots import Root, each_root

PAGE_BYTES = 8192
"""Size of a page: two of the kernel's. The first 128 bytes are numbers."""

TASK, COUNT, CALL, BEGAN, LENGTH, WRITER, UNTRACKED = range(7)
"""Places of the eight-byte numbers.

A task id (0: nothing), tuples in the slice, index in CALLS, seconds (a float), bytes of the details, the process that
writes here, and whether tuples of the run that a bolt was last given belong to no tree.
"""

_DETAILS = 128
"""Where the details begin, in bytes."""

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

STARTING = frozenset({"initialize", "its constructor"})
"""Those that a start calls."""

MOST_ROOTS = 64
LONGEST = 200
"""Most characters of a tuple's values that are shown."""

Key = bytes
"""A message id as bytes, equal in every process; see ``message_key``."""

Messages = Callable[[int], Any]
"""Returns the lasting message id of a root; None where its spout lives in another process."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One look at the page. ``began`` in monotonic seconds of the machine.

    ``count`` tuples were in the slice: with one, ``roots``, ``messages`` and ``values`` say which.
    """

    task: int
    call: str
    count: int
    began: float
    roots: tuple[int, ...] = ()
    messages: tuple[tuple[int, Key, str], ...] = ()
    """(root, key, text) of the messages whose spouts live in the same worker."""
    values: str = ""
    untracked: bool = False
    """Whether some of the bolt's run belong to no tree: nobody sends them again."""


class InHand:
    """The writer's side of a page: the loop's alone. A call that hangs may return at any moment."""

    def __init__(self, page: Any = None, message_of: Messages = lambda root: None) -> None:
        """Take a page, and how to name a root's message. Without: a page that nobody reads after a death."""
        view = memoryview(page if page is not None else bytearray(PAGE_BYTES))
        self.words = view.cast("Q")
        self.times = view.cast("d")
        self._bytes = view
        self._message_of = message_of

    def note_writer(self, pid: int) -> None:
        """Note whose page this is."""
        self.words[WRITER] = pid

    def note_call(self, task_id: int, name: str, now: float) -> None:
        """Note a call that is about no tuple."""
        words = self.words
        words[TASK] = words[COUNT] = 0
        words[CALL] = _NUMBER.get(name, len(CALLS) - 1)
        self.times[BEGAN] = now
        words[TASK] = task_id

    def note_tuple(self, task_id: int, root: Any, values: Sequence[Any], now: float) -> None:
        """Note one tuple that is about to be processed.

        ``root``: a list or SharedRoots for several trees, 0 for none.
        """
        words = self.words
        words[TASK] = 0
        roots = roots_at_work(root if isinstance(root, list) else [root])
        found = [(one, self._message_of(one)) for one in roots]
        messages = [(one, message_key(name), shortened(name)) for one, name in found if name is not None]
        details: bytes = msgpack.packb([roots, messages, shortened(values)])
        if len(details) > PAGE_BYTES - _DETAILS:
            details = msgpack.packb([roots[:1], [], shortened(values)])
        self._bytes[_DETAILS : _DETAILS + len(details)] = details
        words[LENGTH] = len(details)
        words[COUNT], words[CALL] = 1, 0
        self.times[BEGAN] = now
        words[TASK] = task_id

    def clear(self) -> None:
        """Note that the loop is in no code of the user's."""
        words = self.words
        words[TASK] = words[CALL] = words[LENGTH] = 0


_NUMBER = {name: number for number, name in enumerate(CALLS)}


def holding(page: Any) -> Holding | None:
    """Return what stands on a page; None: no code of the user's was running."""
    view = memoryview(page)
    words, times = view.cast("Q"), view.cast("d")
    task, count, call, length = words[TASK], words[COUNT], words[CALL], words[LENGTH]
    if not task:
        return None
    untracked = bool(words[UNTRACKED])
    held = Holding(task, CALLS[min(call, len(CALLS) - 1)], count, times[BEGAN], untracked=untracked)
    if count != 1 or not 0 < length <= PAGE_BYTES - _DETAILS:
        return held
    try:
        roots, messages, values = msgpack.unpackb(bytes(view[_DETAILS : _DETAILS + length]))
        named = tuple((int(root), bytes(key), str(text)) for root, key, text in messages)
        return Holding(task, held.call, 1, held.began, tuple(map(int, roots)), named, str(values), untracked)
    except (ValueError, TypeError):  # it died in the middle of writing
        return held


def roots_at_work(roots: Iterable[Root]) -> list[int]:
    """Return the trees of a tuple, each once; not all of very many."""
    return [*dict.fromkeys(one for one in each_root(roots) if one)][:MOST_ROOTS]


def with_tuple(held: Holding | None, task: int, roots: Sequence[int], values: str) -> Holding:
    """Return a look at a page with the tuple its worker named."""
    if held is not None and (held.task, held.count, held.values) == (task, 1, values) and {*held.roots} <= {*roots}:
        return held  # the page has the messages, too
    began, untracked = (held.began, held.untracked) if held is not None else (0.0, not roots)
    return Holding(task, CALLS[0], 1, began, tuple(roots), (), values, untracked)


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
