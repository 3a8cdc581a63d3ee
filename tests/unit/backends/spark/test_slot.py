"""The prints of user code on Spark."""

from __future__ import annotations

import socket

from streamlet.backends.spark.slot import SlotChannel
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, FrameReader, FrameWriter
from streamlet.runtime.worker.channel import ControlChannel
from streamlet.runtime.worker.messages import Stopped


def test_the_last_line_comes_before_the_word_that_the_worker_has_stopped() -> None:
    """The coordinator hangs up after that word of the last worker."""
    here, there = socket.socketpair()
    with here, there:
        channel = SlotChannel(here, FrameWriter(b"key"), FrameReader(b"key", MAX_CONTROL_FRAME))
        channel.lines.write("the end")
        channel.send(Stopped([]))
        sent = ControlChannel(there, FrameWriter(b"key"), FrameReader(b"key", MAX_CONTROL_FRAME)).receive()
    assert [raw.get("text") for raw in sent] == ["the end", None]
