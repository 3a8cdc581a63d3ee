"""Standard output: how a command ends where it cannot be written.

The rule: nothing in a user's text stops the writer; a command whose output is gone ends with one paragraph, and a run
is drained first.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, NoReturn

from streamlet.base.errors import StreamletError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def forgive(stream: IO[str]) -> None:
    """Let a stream escape characters that its encoding lacks, instead of raising.

    A stream whose error handler somebody has chosen is left alone.
    """
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and getattr(stream, "errors", None) == "strict":
        reconfigure(errors="backslashreplace")


def is_standard_output(its: os.stat_result) -> bool:
    """Tell whether a file or pipe is standard output. Raises OSError where there is none."""
    ours = os.fstat(1)
    # A terminal may have both: who looks at it tells them apart.
    return (its.st_dev, its.st_ino) == (ours.st_dev, ours.st_ino) and not stat.S_ISCHR(ours.st_mode)


class OutputFailed(StreamletError):
    """Standard output is closed, or its disk is full or broken.

    A reader that went away is a BrokenPipeError instead.
    """

    def __init__(self, why: str, number: int | None = None) -> None:
        """Take the words of the system, and its number for them."""
        self.terminal_gone = number == errno.EIO  # or a disk that is broken
        super().__init__(
            f"Standard output cannot be written: {why}. What came after that is not shown; make room where it goes, or "
            "send it elsewhere, and run the command again."
        )


class ReaderGone(StreamletError):
    """A run's standard output has lost its reader."""

    def __init__(self) -> None:
        super().__init__(
            "Nobody reads the run's standard output any more: the program at the other end of its pipe has ended. The "
            "run was drained and has ended, and what it had done is committed. Send the output to a file, to the "
            "journal, or to /dev/null if the metrics file and the log are enough."
        )


class _Descriptor(io.FileIO):
    """Standard output's own errors, told apart from those of any other file."""

    def write(self, data: ReadableBuffer) -> int:
        # A file object of our own: nothing else in an OSError says that it came from standard output.
        try:
            return super().write(data)
        # `| head` is no fault of the output: `main` ends quietly where nobody reads any more.
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.strerror or str(error), error.errno) from error


def open_standard_streams() -> None:
    """Open closed standard streams, so that no file gets their number. Raises OutputFailed for a closed output."""
    # First of all: with number 1 free, the first socket would get that number and receive the printed lines.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
        raise OutputFailed("it is closed")


def name_output_errors(alone: bool = False) -> None:
    """Make errors of standard output OutputFailed from here on. A stream put in its place is left.

    ``alone``: nobody but who writes to ``sys.stdout`` writes there. What others write to its descriptor goes to
    standard error.
    """
    plain = sys.stdout
    # A stream that a test or an embedding program put there is not ours to wrap.
    if plain is not sys.__stdout__ or not isinstance(plain, io.TextIOWrapper):
        return
    plain.flush()
    descriptor = plain.fileno()
    if alone:
        # Rule: where a program reads our output, it has a descriptor of its own. A C library, a process that a
        # component starts, an `os.write` would else put a line of theirs between two of ours.
        descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
        os.dup2(2, plain.fileno())
    raw = _Descriptor(descriptor, "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        # Unbuffered (`python -u`) there is none between text and descriptor.
        raw if isinstance(plain.buffer, io.FileIO) else io.BufferedWriter(raw),
        plain.encoding,
        plain.errors,
        line_buffering=plain.line_buffering,
        write_through=plain.write_through,
    )


def streams_apart() -> bool:
    """Tell whether standard output and standard error are two files."""
    try:
        ours, errors = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # a stream that an embedding program put there
        return False
    return (ours.st_dev, ours.st_ino) != (errors.st_dev, errors.st_ino)


def give_up_output() -> None:
    """Drop unwritten output: the interpreter's own last flush would fail again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, OutputFailed):
            # Not closed but led into nothing: the interpreter flushes once more when it ends, and would print a second
            # error and end with status 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def end_output() -> None:
    """Send later prints to standard error: nothing follows a command's last line."""
    sys.stdout = sys.stderr


LAST_WORDS_S = 1.0
"""Seconds that the last words of a process may take."""


def leave(exit_status: int, last_words: Callable[[], object]) -> NoReturn:
    """End the process, after its last words if they leave.

    ``last_words`` writes to descriptors, past the streams of this process: another thread may stand in one of them for
    ever, and keep its lock.
    """
    writing = threading.Thread(target=last_words, name="last-words", daemon=True)
    writing.start()
    writing.join(LAST_WORDS_S)  # a write to a terminal that nobody reads does not return
    os._exit(exit_status)
