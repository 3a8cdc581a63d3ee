"""The channel between a worker and its coordinator: small messages, dicts with a ``t`` that names their kind.

To a worker: ``plan`` (all it needs to build itself), ``book`` (address book), ``whole`` (every worker is linked, tuples
may flow), ``pause`` (for good), ``lost`` (a worker is gone), ``cut`` (the link of a pair is), ``stop``. From it:
``ready``, ``initialized``, ``linked``, ``unlinked``, ``beat``, ``state``, ``event``, ``complaint``, ``link_lost``,
``failed``, ``stopped``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, BadFrame, FrameReader, FrameWriter, pack, unpack

Message = dict[str, Any]

INHERITED_KEY = b"an inherited socket pair has no third party"
SEND_S = 2.0

LONGEST_TEXT = 1 << 16
"""Characters of a line that are shown; the other end closes the channel at a message beyond its limit."""


class ChannelClosed(Exception):
    """The other end is gone."""


class ControlChannel:
    """One end. ``send`` may be called by any thread; ``receive`` by one."""

    def __init__(self, sock: socket.socket, writer: FrameWriter, reader: FrameReader) -> None:
        self.sock = sock
        self.sock.settimeout(SEND_S)
        self._writer = writer
        self._reader = reader
        self._lock = threading.Lock()

    @classmethod
    def inherited(cls, sock: socket.socket) -> ControlChannel:
        """One end of a socket pair, which needs no proof of anything."""
        return cls(sock, FrameWriter(INHERITED_KEY), FrameReader(INHERITED_KEY, MAX_CONTROL_FRAME))

    def fileno(self) -> int:
        """For a selector."""
        return self.sock.fileno()

    def send(self, message: Message) -> None:
        """Send one message, within two seconds; a text too long to be read is cut. Raises ChannelClosed."""
        payload = pack(message)
        if len(payload) > LONGEST_TEXT:
            payload = pack({key: _readable(value) for key, value in message.items()})
        with self._lock:
            try:
                self.sock.sendall(self._writer.frame(payload))
            except OSError as error:
                raise ChannelClosed(str(error)) from None

    def try_send(self, message: Message) -> None:
        """Send if anybody is there; a closed channel is noticed by whoever reads it."""
        with contextlib.suppress(ChannelClosed):
            self.send(message)

    def receive(self) -> list[Message]:
        """Messages that are there now; call it when readable. Raises ChannelClosed."""
        try:
            data = self.sock.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        if not data:
            raise ChannelClosed("closed by the other end")
        try:
            messages = [unpack(payload) for payload in self._reader.feed(data)]
        except BadFrame as error:
            raise ChannelClosed(str(error)) from None
        if not all(isinstance(message, dict) and isinstance(message.get("t"), str) for message in messages):
            raise ChannelClosed("the other end sent something that is not a message")
        return messages

    def last_words(self) -> list[Message]:
        """All that is there, without waiting for more. For an end that is gone: a child of it may hold its socket open,
        and then no end of file ever comes.
        """
        self.sock.setblocking(False)
        messages: list[Message] = []
        with contextlib.suppress(ChannelClosed):  # which "nothing is there now" is, too
            while True:
                messages += self.receive()
        return messages

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def _readable(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]} ... ({len(value) - LONGEST_TEXT} characters more)"
    return value
