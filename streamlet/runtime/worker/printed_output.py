"""The standard output and error of a worker: who prints never waits for who reads.

Lines leave at once while their reader takes them: what a worker printed before it was killed is there. Else they wait
in memory, up to a bound, and a thread writes them. C code, and programs that a component starts, write to the
descriptor itself, and are held up by it as any program is.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from streamlet.base.backlog import LINE_BYTES

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WHOLE = 4096
"""Most bytes of one write to a pipe that do not mix with others' (PIPE_BUF)."""

LONGEST_LINE = 1 << 20
"""Most bytes of a line that leaves in one write: a file then has it whole, though others write there, too."""

ROOM_S = 0.5
"""Seconds that a print may wait for a reader who is behind, but reads. One that stands still costs it once."""

LOOK_S = 0.5
"""Seconds between two looks of the thread at whether lines were left out."""

FULL_S = 0.01
"""Seconds until the next try where an output had room, and then had none."""

END_S = 3.0
"""Seconds that a worker's end waits for the reader of its prints."""

Send = Callable[["ReadableBuffer"], int]
"""Writes what goes at once and returns its size. Raises BlockingIOError when nothing goes."""

logger = logging.getLogger("streamlet")


class WaitingLines:
    """Printed bytes that wait for a reader, up to a bound; beyond it whole lines are left out. Pure."""

    def __init__(self, most: int = LINE_BYTES) -> None:
        self._most = most
        self._bytes = bytearray()
        self._full = False
        """Whether lines are left out. Only when half of the room is free again others find any."""
        self._begun = False
        """Whether the last line that was taken has not ended."""
        self._skipping = False
        """Whether the line that is being printed is left out."""
        self._gap = 0
        self.left_out = 0
        """Lines that found no room."""

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def full(self) -> bool:
        """Whether there is no room for a line."""
        return len(self._bytes) >= (self._most // 2 if self._full else self._most)

    @property
    def waits_in_vain(self) -> bool:
        """Whether lines were left out since there was room."""
        return self._full

    @property
    def clear(self) -> bool:
        """Whether the next print may go past those that wait."""
        return not (self._bytes or self._gap or self._skipping)

    def put(self, data: bytes) -> None:
        """Take printed bytes, or count their lines."""
        if self._skipping:
            _, end, data = data.partition(b"\n")
            self._skipping = not end
        if not data:
            return
        if self.full:
            self._leave_out(data)
            return
        self._full = False
        self.tell_gap()
        self._bytes += data
        self._begun = not data.endswith(b"\n")

    def tell_gap(self) -> None:
        """Put a line where others were left out: how many."""
        if self._gap:
            self._bytes += f"{self._gap:,} lines were left out here: nobody read them in time.\n".encode()
            self._gap = 0

    def _leave_out(self, data: bytes) -> None:
        self._full = True
        if self._begun:  # a line that stands there in part is ended
            head, end, data = data.partition(b"\n")
            self._bytes += head[:WHOLE] + b"\n"
            self._begun, self._skipping = False, not end
        if data:
            self._skipping = not data.endswith(b"\n")
            lines = data.count(b"\n") + self._skipping
            self._gap += lines
            self.left_out += lines

    @property
    def unread(self) -> int:
        """How many lines wait."""
        return self._bytes.count(b"\n")

    def first(self) -> bytes:
        """Return the bytes of the next write, whole lines if they fit."""
        head = bytes(self._bytes[:WHOLE])
        end = head.rfind(b"\n") + 1
        return head[:end] if end and len(self._bytes) > WHOLE else head

    def wrote(self, size: int) -> None:
        """Forget the first bytes."""
        del self._bytes[:size]


class Outlet:
    """One output of the process: standard output, standard error, or both where they are one file."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor = descriptor
        self._name = name
        self._send, self._waits = _sender(descriptor)
        self._lines = WaitingLines()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._told = False
        self._told_in_all = 0
        os.register_at_fork(after_in_child=self._begin_in_child)

    def write(self, data: ReadableBuffer) -> int:
        """Write now what goes, and the rest later. Any thread."""
        size = 0
        with self._lock:
            rest = memoryview(data)
            if not self._waits and self._lines.clear:
                try:
                    size = self._send(rest)
                except BlockingIOError:
                    pass
                except OSError:
                    # Rule: an output that is gone or full is no fault of the tuple that is printed about. The
                    # coordinator writes to the same, says so and ends the run.
                    size = len(rest)
            if size < len(rest):
                self._keep(bytes(rest[size:]))
            return len(rest)

    def _keep(self, rest: bytes) -> None:
        if self._lines.full and not self._lines.waits_in_vain:
            self._changed.wait_for(lambda: not self._lines.full, ROOM_S)
        self._lines.put(rest)
        if self._thread is None:
            # A daemon: a write that never returns must not keep the worker from ending.
            self._thread = threading.Thread(target=self._run, name=f"print-{self.descriptor}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._lines) > 0)
                chunk = self._lines.first()
            if self._waits or poll.poll(LOOK_S * 1000):
                self._write_first(chunk)
            self._tell_left_out()

    def _write_first(self, chunk: bytes) -> None:
        """Write the first bytes that wait. Only this method takes any."""
        size = len(chunk)
        try:
            size = self._send(chunk)  # not under the lock: where it may block, printing goes on
        except BlockingIOError:
            size = 0
            time.sleep(FULL_S)  # others were faster
        except OSError:
            pass  # as in `write`
        with self._changed:
            self._lines.wrote(size)
            self._changed.notify_all()

    def _tell_left_out(self) -> None:
        """Say once that lines are left out."""
        if self._lines.left_out and not self._told:
            self._told = True
            logger.warning(
                "Nobody reads %s of this worker in time. %d MiB of lines that components print wait, and more are left "
                "out until they are read; the run goes on.", self._name, LINE_BYTES >> 20,
            )  # fmt: skip

    def finish(self, seconds: float) -> None:
        """Wait until everything is written, for so long; say how many lines were not."""
        with self._changed:
            self._lines.tell_gap()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._lines, seconds)
            left = self._lines.left_out + self._lines.unread
        if left > self._told_in_all:  # once, though the end of a process asks a second time
            self._told_in_all = left
            logger.warning(
                "%s lines that components printed to %s were left out: nobody read them in time.",
                f"{left:,}",
                self._name,
            )

    def _begin_in_child(self) -> None:
        # A child that a component forks has no thread of ours, and is a program by itself: its writes may wait.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._lines, self._thread, self._waits = WaitingLines(), None, False
        self._send = lambda data: os.write(self.descriptor, data)


def _sender(descriptor: int) -> tuple[Send, bool]:
    """Return what writes to a descriptor, and whether that may wait."""
    # Rule: the flag O_NONBLOCK belongs to the open file, which this process shares with its parent and with whatever
    # else prints there; so it is set on another.
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        own = socket.socket(fileno=os.dup(descriptor))
        return lambda data: own.send(data, socket.MSG_DONTWAIT), False
    if stat.S_ISFIFO(mode) or os.isatty(descriptor):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            again = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:  # another user's, or no /proc
            return lambda data: os.write(descriptor, data), True
        return lambda data: os.write(again, data), False
    return lambda data: os.write(descriptor, data), False  # a file: it takes everything


class _Raw(io.RawIOBase):
    """The lowest layer of a standard stream: hands everything to its outlet."""

    def __init__(self, outlet: Outlet, descriptor: int) -> None:
        self._outlet = outlet
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        return self._outlet.write(data)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


_outlets: list[Outlet] = []


def print_without_waiting() -> None:
    """Give this process standard streams that never hold it up."""
    # Rule: what a worker prints leaves by whole lines, whatever PYTHONUNBUFFERED says. Its siblings write to the same
    # output: pieces of a line, or buffers that end anywhere, would mix with theirs; and a buffer is lost with a worker
    # that is killed.
    known: dict[tuple[int, int], Outlet] = {}
    for name, words in (("stdout", "the standard output"), ("stderr", "the standard error")):
        stream: TextIO | None = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        stream.flush()
        found = os.fstat(stream.fileno())
        if (found.st_dev, found.st_ino) not in known:
            known[found.st_dev, found.st_ino] = Outlet(stream.fileno(), words)
            _outlets.append(known[found.st_dev, found.st_ino])
        raw = io.BufferedWriter(_Raw(known[found.st_dev, found.st_ino], stream.fileno()), LONGEST_LINE)
        own = io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True)
        setattr(sys, name, own)
        # Libraries that put a stream of their own in place of the standard one go back to this.
        setattr(sys, f"__{name}__", own)


def finish_printing(seconds: float = END_S) -> None:
    """Wait for the reader of printed lines, for so long."""
    deadline = time.monotonic() + seconds
    for stream in (sys.stdout, sys.stderr):
        # A component may have put None, or an object of its own, in its place.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    for outlet in _outlets:
        outlet.finish(max(0.0, deadline - time.monotonic()))
