"""The channel between a worker and its coordinator: one stream socket that carries ``messages``."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, BadFrame, FrameReader, FrameWriter, pack, unpack
from streamlet.runtime.worker.messages import Message, Raw, encode

INHERITED_KEY = b"an inherited socket pair has no third party"

SEND_S = 2.0
"""Seconds that a send may take."""

LONGEST_TEXT = 1 << 16
"""Most characters of a text; the rest is cut."""


class ChannelClosed(Exception):
    """The other end is gone."""


class ControlChannel:
    """One end. ``send`` may be called by any thread; ``receive`` by one."""

    def __init__(self, sock: socket.socket, writer: FrameWriter, reader: FrameReader) -> None:
        self.sock = sock
        # A bound for sends: a coordinator that is stopped and reads nothing must not hold the worker's threads for
        # ever.
        self.sock.settimeout(SEND_S)
        self._writer = writer
        self._reader = reader
        self._lock = threading.Lock()

    @classmethod
    def inherited(cls, sock: socket.socket) -> ControlChannel:
        """Wrap one end of a socket pair, which needs no proof."""
        return cls(sock, FrameWriter(INHERITED_KEY), FrameReader(INHERITED_KEY, MAX_CONTROL_FRAME))

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self.sock.fileno()

    def send(self, message: Message) -> None:
        """Send one message, within two seconds. Raises ChannelClosed."""
        raw = encode(message)
        payload = pack(raw)
        # Users' code makes these texts. A frame beyond the limit would close the channel and cost the worker its life.
        if len(payload) > LONGEST_TEXT:
            payload = pack({key: _cut(value) for key, value in raw.items()})
        # Numbered and sent under one lock. The tag of a frame covers its number, and the other end refuses frames that
        # come in another order than they were numbered in.
        with self._lock:
            try:
                self.sock.sendall(self._writer.frame(payload))
            except OSError as error:
                raise ChannelClosed(str(error)) from None

    def try_send(self, message: Message) -> None:
        """Send if the other end is there; the reading side notices a closed channel."""
        with contextlib.suppress(ChannelClosed):
            self.send(message)

    def receive(self) -> list[Raw]:
        """Return the messages that are there now, unchecked. Raises ChannelClosed.

        Call it when the channel is readable.
        """
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

    def last_words(self) -> list[Raw]:
        """Return all messages that an ended worker left, without waiting."""
        # Not until the end of file: a child that a component forked may hold the worker's socket open for ever.
        self.sock.setblocking(False)
        messages: list[Raw] = []
        with contextlib.suppress(ChannelClosed):  # also raised when nothing is there now
            while True:
                messages += self.receive()
        return messages

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]} ... ({len(value) - LONGEST_TEXT} characters more)"
    return value
