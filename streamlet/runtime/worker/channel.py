"""The channel between a worker and its coordinator: one stream socket that carries ``messages``."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from streamlet.base.backlog import Backlog
from streamlet.runtime.links.silence import Silence, segments_in, silent_text
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, BadFrame, FrameReader, FrameWriter, pack, unpack
from streamlet.runtime.worker.messages import Beat, Complaint, Event, Message, Raw, State, Unlinked, encode

if TYPE_CHECKING:
    from streamlet.runtime.links.tls import LinkSocket

INHERITED_KEY = b"an inherited socket pair has no third party"

LONGEST_TEXT = 1 << 16
"""Most characters of a text; the rest is cut."""

_REPLACED: Mapping[type, Callable[[Any], Hashable]] = {
    Beat: lambda _: Beat,
    State: lambda _: State,
    Unlinked: lambda message: (Unlinked, message.worker),
}
"""Kind -> the name under which a newer message replaces one that has not left."""

_LINES = (Event, Complaint)


class ChannelClosed(Exception):
    """The other end is gone."""


class ControlChannel:
    """One end. ``send`` and ``flush`` may be called by any thread; ``receive`` and ``finish`` by one."""

    def __init__(self, sock: LinkSocket, writer: FrameWriter, reader: FrameReader) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self._writer = writer
        self._reader = reader
        self._queued: deque[tuple[Message, bytes]] = deque()
        self._unsent: Backlog[bytes] = Backlog()
        self._frame = memoryview(b"")
        """The rest of a frame whose beginning has left."""
        self._lock = threading.Lock()
        self._broken = ""
        self.ended = False
        """Whether the other end was found to be gone."""
        self._silence = Silence(time.monotonic())

    @classmethod
    def inherited(cls, sock: socket.socket) -> ControlChannel:
        """Wrap one end of a socket pair, which needs no proof."""
        return cls(sock, FrameWriter(INHERITED_KEY), FrameReader(INHERITED_KEY, MAX_CONTROL_FRAME))

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self.sock.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits for the other end to read: ``flush`` is to be called now and then."""
        return not self._broken and bool(self._frame or self._unsent or self._queued)

    def send(self, message: Message) -> None:
        """Send one message, or keep it for ``flush``. Waits for nothing. Raises ChannelClosed."""
        raw = encode(message)
        payload = pack(raw)
        # Users' code makes these texts. A frame beyond the limit would close the channel and cost the worker its life.
        if len(payload) > LONGEST_TEXT:
            payload = pack({key: _truncated(value) for key, value in raw.items()})
        self._queued.append((message, payload))
        self.flush()

    def flush(self) -> None:
        """Write what the socket takes now. Any thread. Raises ChannelClosed."""
        # Nobody waits for the lock: who finds it taken leaves its message to the thread that has it, and that thread
        # looks again after it has given it back. So a message of a `__del__` that interrupts this very code is no
        # deadlock.
        while self._lock.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._lock.release()
            if not self._queued:
                return

    def _write(self) -> None:
        if self._broken:
            self._queued.clear()
            raise ChannelClosed(self._broken)
        while self._queued:
            message, packed = self._queued.popleft()
            name = _REPLACED.get(type(message), lambda _: None)(message)
            self._unsent.put(packed, name, line_bytes=len(packed) if isinstance(message, _LINES) else 0)
        try:
            # The rest of a frame goes first, however late: half a frame, and another after it, could never be read
            # again. Frames are numbered when they leave, because the other end refuses any other order.
            while self._frame or self._next_frame():
                self._frame = self._frame[self.sock.send(self._frame) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._broken, self.ended = str(error), True
            raise ChannelClosed(self._broken) from None

    def _next_frame(self) -> bool:
        packed = self._unsent.take()
        if packed is None and (left_out := self._unsent.take_left_out()):
            text = f"{left_out:,} log lines were left out here: the coordinator did not read in time."
            packed = pack(encode(Event("warning", text, time.time(), left_out=left_out)))
        if packed is not None:
            self._frame = memoryview(self._writer.frame(packed))
        return packed is not None

    def try_send(self, message: Message) -> None:
        """Send if the other end is there; the reading side notices a closed channel."""
        with contextlib.suppress(ChannelClosed):
            self.send(message)

    def finish(self) -> None:
        """Wait until the other end has taken everything, or is gone."""
        # Without a limit: the other end may be a coordinator that was stopped, and the last words end its run.
        waiting = select.poll()
        waiting.register(self.sock, select.POLLOUT)
        with contextlib.suppress(ChannelClosed):
            while self.unsent:
                waiting.poll()
                self.flush()

    def receive(self, wait: bool = False) -> list[Raw]:
        """Return the messages that are there now, unchecked. Raises ChannelClosed.

        With ``wait``, wait for the next bytes if nothing is there.
        """
        if wait:
            waiting = select.poll()
            waiting.register(self.sock, select.POLLIN)
            waiting.poll()
        return self._received() or []

    def _received(self) -> list[Raw] | None:
        """Return whole messages of one read; None when nothing is there."""
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError as error:
            self.ended = True
            raise ChannelClosed(str(error)) from None
        if not data:
            self.ended = True
            raise ChannelClosed("closed by the other end")
        try:
            messages = [unpack(payload) for payload in self._reader.feed(data)]
        except BadFrame as error:
            raise ChannelClosed(str(error)) from None
        if not all(isinstance(message, dict) and isinstance(message.get("t"), str) for message in messages):
            raise ChannelClosed("the other end sent something that is not a message")
        return messages

    def last_messages(self) -> list[Raw]:
        """Return all messages that an ended worker left, without waiting."""
        # Not until the end of file: a child that a component forked may hold the worker's socket open for ever.
        messages: list[Raw] = []
        with contextlib.suppress(ChannelClosed):
            while (more := self._received()) is not None:
                messages += more
        return messages

    def give_up_if_silent(self, now: float, limit_s: float) -> None:
        """Give up an end whose machine was silent for so long. Raises ChannelClosed.

        For a channel over TCP, called about each ``silence.LOOK_S``, by one thread.
        """
        with contextlib.suppress(OSError):  # broken: who reads next says how
            if self._silence.note_segments(segments_in(self.sock), now) >= limit_s:
                self._broken = silent_text(limit_s)
                raise ChannelClosed(self._broken)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def _truncated(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]} ... ({len(value) - LONGEST_TEXT} characters more)"
    return value
