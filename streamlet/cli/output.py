"""Standard output that cannot be written.

The rule: a command ends with one paragraph, and a run is drained first.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamlet.base.errors import StreamletError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from streamlet.backends.contract import RunRequest, RunResult, RunStatus
    from streamlet.cli.show import View


class OutputFailed(StreamletError):
    """Standard output is closed, or its disk is full or broken.

    A reader that went away is a BrokenPipeError instead.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Standard output cannot be written: {why}. What came after that is not shown; make room where it goes, or "
            "send it elsewhere, and run the command again."
        )


class _Descriptor(io.FileIO):
    """Standard output's own errors, told apart from those of any other file."""

    def write(self, data: ReadableBuffer) -> int:
        # A file object of our own: nothing else in an OSError says that it came from standard output.
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.strerror or str(error)) from error


def open_standard_streams() -> None:
    """No file or socket gets the number of a closed standard stream. Raises OutputFailed where output is closed."""
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


def name_output_errors() -> None:
    """From here on an error of standard output is an OutputFailed. A stream that somebody put in its place is left."""
    plain = sys.stdout
    if plain is not sys.__stdout__ or not isinstance(plain, io.TextIOWrapper):
        return
    plain.flush()
    raw = _Descriptor(plain.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        # Unbuffered (`python -u`) there is none between text and descriptor.
        raw if isinstance(plain.buffer, io.FileIO) else io.BufferedWriter(raw),
        plain.encoding,
        plain.errors,
        line_buffering=plain.line_buffering,
        write_through=plain.write_through,
    )


def give_up_output() -> None:
    """Drop unwritten output: the interpreter's own last flush would fail again."""
    try:
        sys.stdout.flush()
    except (OSError, OutputFailed):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class LastingView:
    """A view whose broken output asks the run to drain.

    ``lost`` is the error, for the caller to raise after the run.
    """

    def __init__(self, view: View, drain: Callable[[], None]) -> None:
        self._view = view
        self._drain = drain
        self.lost: OutputFailed | BrokenPipeError | None = None
        self.log = view.log
        self.notice = view.notice
        self.killed = view.killed
        self.close = view.close

    def start(self, request: RunRequest, backend: str) -> None:
        """Start the view. Raises its errors: nothing runs yet."""
        self._view.start(request, backend)

    def on_status(self, status: RunStatus) -> None:
        self._shown(lambda: self._view.on_status(status))

    def on_event(self, level: str, text: str) -> None:
        self._shown(lambda: self._view.on_event(level, text))

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        self._shown(lambda: self._view.finish(result, exit_status))

    def failed(self, error: BaseException, exit_status: int) -> None:
        self._shown(lambda: self._view.failed(error, exit_status))

    def _shown(self, show: Callable[[], None]) -> None:
        if self.lost is not None:
            return
        try:
            show()
        except (OutputFailed, BrokenPipeError) as error:
            self.lost = error
            self._drain()
