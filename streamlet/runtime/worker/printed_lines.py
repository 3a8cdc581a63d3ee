"""What users' code prints, as lines of the run's log."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from streamlet.base.log_line import LogLine
from streamlet.runtime.worker.log_lines import line_now

LONGEST = 1 << 16
"""Most characters of a line that has not ended."""

_LOGGER = "streamlet."
STDOUT, STDERR = f"{_LOGGER}stdout", f"{_LOGGER}stderr"
"""The loggers of lines that were printed."""

Tell = Callable[[LogLine], None]


class PrintedLines(io.TextIOBase):
    """A standard stream that tells its lines, each on its own thread.

    ``under`` is the stream that gets the text too, unchanged and line by line; None: the lines are all that is left of
    it. ``wanted`` tells whether a line of the calling thread is one of the run.
    """

    def __init__(
        self, tell: Tell, name: str = "stdout", under: TextIO | None = None, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._tell = tell
        self._logger = f"{_LOGGER}{name}"
        self.under = under
        self._wanted = wanted
        self.thread = threading.get_ident()
        """The one whose run it is for."""
        self.over = False
        """Whether that run has ended, and another one's stream stands on it."""
        self._rests = threading.local()
        """Of each thread the text since its last line end: lines of two threads do not mix."""
        self._held: dict[int, str] = {}
        """By thread, what ``under`` has not got of the line that it has begun."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.under is not None:
            self._write_under(text, self.under)
        if self.over or not self._wanted():
            return len(text)
        *lines, rest = (self._rest + text).split("\n")
        if lines and not lines[0] and self._is_told:  # the end of a line that was told
            del lines[0]
        told = len(rest) > LONGEST  # a program that never ends a line must not fill the memory
        if told:
            lines, rest = [*lines, rest], ""
        self._rests.text, self._rests.told = rest, told or (self._is_told and not text)
        for line in lines:
            self._say(line)
        return len(text)

    def _write_under(self, text: str, under: TextIO) -> None:
        """Write the lines that a text ends; hold the last one."""
        # Rule: a line gets to the terminal in one write. `print` writes argument by argument, and a handler of
        # [logging] on its own thread would put its line between two of them.
        thread = threading.get_ident()
        text = self._held.pop(thread, "") + text
        end = text.rfind("\n") + 1
        # A carriage return draws over a line: a bar of progress, seen at once on any stream that buffers lines.
        if self.over or "\r" in text or len(text) - end > LONGEST:
            end = len(text)
        if end < len(text):
            self._held[thread] = text[end:]
        if end:
            under.write(text[:end])

    def flush(self) -> None:
        # To tell, the line that was begun stays: a program that prints dots would get a line for each.
        if self.under is not None and not self.closed:
            if held := self._held.pop(threading.get_ident(), ""):
                self.under.write(held)
            self.under.flush()

    def write_begun(self) -> None:
        """Write to the stream under this one what threads have begun."""
        for thread in list(self._held):
            if self.under is not None:
                self.under.write(self._held.pop(thread, ""))

    def end_line(self) -> None:
        """Tell a line that this thread has begun and not ended."""
        rest, self._rests.text = self._rest, ""
        if rest:
            self._say(rest)

    def close(self) -> None:
        if not self.closed:
            self.end_line()
            self.write_begun()
        super().close()

    @property
    def _rest(self) -> str:
        rest: str = getattr(self._rests, "text", "")
        return rest

    @property
    def _is_told(self) -> bool:
        """Whether the line that this thread has begun was told."""
        told: bool = getattr(self._rests, "told", False)
        return told

    def _say(self, text: str) -> None:
        line = line_now("info", text, self._logger)
        self._tell(line._replace(printed=self.under is not None))

    # What programs ask of a standard stream besides: its descriptor, its bytes, whether it is a terminal. Named one by
    # one, since TextIOBase has answers of its own that would come first.
    def fileno(self) -> int:
        return super().fileno() if self.under is None else self.under.fileno()

    def isatty(self) -> bool:
        return self.under is not None and self.under.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a property where typeshed has a variable
        return "utf-8" if self.under is None else self.under.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # as ``encoding``
        return "backslashreplace" if self.under is None else self.under.errors

    def __getattr__(self, name: str) -> Any:
        under = self.__dict__.get("under")
        if under is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(under, name)


@contextlib.contextmanager
def prints_told(tell: Tell, wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Tell the lines of both standard streams while entered; they stand there too.

    A stream that tells its lines already to this thread's run is left alone; one for another run's gets them too, and
    ``wanted`` says whose they are.
    """
    with contextlib.ExitStack() as undo:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None or (isinstance(stream, PrintedLines) and stream.thread == threading.get_ident()):
                continue
            lines = PrintedLines(tell, name, stream, wanted)
            setattr(sys, name, lines)
            undo.callback(_put_back, name, lines, stream)
        yield


def _put_back(name: str, lines: PrintedLines, stream: TextIO) -> None:
    lines.end_line()
    lines.over = True
    lines.write_begun()
    if getattr(sys, name) is lines:
        while isinstance(stream, PrintedLines) and stream.over:  # runs that began before and ended meanwhile
            assert stream.under is not None
            stream = stream.under
        setattr(sys, name, stream)
