"""Frames out of arbitrary pieces."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlet.kafka.errors import ForeignProtocol, MalformedFrame
from streamlet.kafka.net.selector import FrameBuffer


def feed(buffer: FrameBuffer, data: bytes, piece: int) -> list[bytes]:
    """Give ``data`` as a socket would: at most ``piece`` bytes a receive, never more than there is room for."""
    found: list[bytes] = []
    pos = 0
    while pos < len(data):
        room = buffer.get_buffer()
        assert len(room) > 0
        part = data[pos : pos + min(piece, len(room))]
        room[: len(part)] = part
        found += [bytes(frame) for frame in buffer.buffer_updated(len(part))]
        pos += len(part)
    return found


@given(
    frames=st.lists(
        st.one_of(st.binary(min_size=4, max_size=40), st.integers(60_000, 200_000).map(lambda n: b"x" * n)),
        max_size=5,
    ),
    piece=st.integers(1, 100_000),
)
@settings(max_examples=60, deadline=None)
def test_any_cut_gives_the_same_frames(frames: list[bytes], piece: int) -> None:
    """However the stream is cut, the frames come out whole and in order."""
    if any(len(frame) > 50_000 for frame in frames):
        piece = max(piece, 997)
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    assert feed(FrameBuffer(1 << 20), stream, piece) == frames


def test_a_length_alone_allocates_nothing() -> None:
    """Within the limit memory grows with what arrives, beyond it the frame is refused."""
    tracemalloc.start()
    try:
        buffer = FrameBuffer(1 << 31)
        assert feed(buffer, b"\x7f\xff\xff\xff" + b"x" * 100, 104) == []
        buffer.get_buffer()
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("head", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x03", b"\x00\x00\x00\x00"])
def test_an_impossible_length_is_refused(head: bytes) -> None:
    """On a new connection it is another protocol; later it is a malformed frame."""
    with pytest.raises(ForeignProtocol):
        feed(FrameBuffer(1 << 20), head, 4)
    buffer = FrameBuffer(1 << 20)
    assert feed(buffer, b"\x00\x00\x00\x04abcd", 8) == [b"abcd"]
    with pytest.raises(MalformedFrame, match="receive_message_max_bytes"):
        feed(buffer, head, 4)
