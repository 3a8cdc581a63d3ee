"""Frames from a byte stream: a length of four bytes, then the frame. Pure."""

from __future__ import annotations

from streamlet.kafka.errors import ForeignProtocol, MalformedFrame
from streamlet.kafka.protocol.schema import INT32_LAYOUT

_STAGING = 64 * 1024
_FIRST_GROWTH = 1024 * 1024


class FrameBuffer:
    """Bytes in through :meth:`get_buffer` / :meth:`buffer_updated`, whole frames out.

    Small reads go through one reused staging buffer. The rest of a large frame is received straight into that frame's
    own memory. One thread.
    """

    # A frame's memory grows with the bytes that arrive, not with the length that is claimed: a hostile length alone
    # allocates nothing.

    __slots__ = ("_filled", "_frame", "_limit", "_missing", "_staged", "_staging", "_view", "seen_frames")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._staging = bytearray(_STAGING)
        self._staged = 0
        self._frame: bytearray | None = None
        self._view: memoryview | None = None
        self._filled = 0
        self._missing = 0
        self.seen_frames = 0

    def get_buffer(self) -> memoryview:
        """Return the memory to receive into, never empty.

        Call :meth:`buffer_updated` before the next call.
        """
        frame = self._frame
        if frame is not None and (self._filled < len(frame) or self._missing >= _STAGING):
            # Doubled, so that receiving n bytes copies at most n more; never above what is missing.
            if self._filled == len(frame):
                frame.extend(bytes(min(self._missing, max(_FIRST_GROWTH, self._filled))))
            self._view = memoryview(frame)[self._filled :]
            return self._view
        self._view = memoryview(self._staging)[self._staged :]
        return self._view

    def buffer_updated(self, size: int) -> list[bytearray]:
        """Take ``size`` received bytes; return the frames that they complete.

        Raises MalformedFrame, or ForeignProtocol for the first bytes of a connection.
        """
        view, self._view = self._view, None
        if view is None:
            raise RuntimeError("buffer_updated without get_buffer")
        # The view is given back at once: a bytearray that has one cannot grow, and `get_buffer` extends the frame.
        direct = view.obj is self._frame
        view.release()
        if direct:
            self._filled += size
            self._missing -= size
            if self._missing:
                return []
            return [self._finish()]
        self._staged += size
        return self._split_staging()

    def _split_staging(self) -> list[bytearray]:
        frames: list[bytearray] = []
        staging, pos, end = self._staging, 0, self._staged
        while pos < end:
            if self._frame is None:
                if end - pos < 4:
                    break
                self._begin(INT32_LAYOUT.unpack_from(staging, pos)[0], bytes(staging[pos : min(end, pos + 16)]))
                pos += 4
            assert self._frame is not None
            part = staging[pos : min(end, pos + self._missing)]
            self._frame += part
            self._filled += len(part)
            pos += len(part)
            self._missing -= len(part)
            if not self._missing:
                frames.append(self._finish())
        staging[: end - pos] = staging[pos:end]
        self._staged = end - pos
        return frames

    def _begin(self, length: int, start: bytes) -> None:
        # Every answer begins with four bytes of correlation id: a shorter frame is no answer of Kafka.
        if not 4 <= length <= self._limit:
            raise self._bad_length(length, start)
        self._frame = bytearray()
        self._filled = 0
        self._missing = length

    def _finish(self) -> bytearray:
        frame, self._frame = self._frame, None
        assert frame is not None
        self.seen_frames += 1
        return frame

    def _bad_length(self, length: int, start: bytes) -> MalformedFrame:
        # Only the first bytes of a connection can come from another protocol; later a wrong length is damage.
        if self.seen_frames:
            return MalformedFrame(
                f"a frame announces {length} bytes, and the limit is {self._limit} (receive_message_max_bytes)"
            )
        return ForeignProtocol(f"{_guess(start)}, for its first bytes are {start!r}")


def _guess(start: bytes) -> str:
    if start[:1] in (b"\x15", b"\x16") and start[1:2] == b"\x03":
        return "it speaks TLS, and this client was told to speak plain text"
    if start.startswith((b"HTTP/", b"<html", b"<!DOC")):
        return "it speaks HTTP"
    if start.startswith(b"SSH-"):
        return "it speaks SSH"
    return "it speaks another protocol"
