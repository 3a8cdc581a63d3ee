"""The prints of user code on Spark."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from streamlet.backends.spark.slot import EventLines, SlotChannel
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, FrameReader, FrameWriter
from streamlet.runtime.worker.channel import LONGEST_TEXT, ControlChannel
from streamlet.runtime.worker.messages import Event, Stopped


class Channel:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def try_send(self, message: Event) -> None:
        self.texts.append(message.text)


def test_a_last_line_without_an_end_is_sent_when_the_worker_ends() -> None:
    channel: Any = Channel()
    with EventLines(channel) as lines, contextlib.redirect_stdout(lines):
        print("one\ntwo", end="")
        print(" and a half")
        print("the end", end="")
        assert channel.texts == ["one", "two and a half"]
    assert channel.texts == ["one", "two and a half", "the end"]


def test_nothing_is_sent_for_a_line_that_was_ended() -> None:
    channel: Any = Channel()
    with EventLines(channel) as lines:
        lines.write("whole\n")
    assert channel.texts == ["whole"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    channel: Any = Channel()
    with EventLines(channel) as lines:
        lines.write("x" * (LONGEST_TEXT + 1))
        assert [len(text) for text in channel.texts] == [LONGEST_TEXT + 1]


def test_the_last_line_comes_before_the_word_that_the_worker_has_stopped() -> None:
    """The coordinator hangs up after that word of the last worker."""
    here, there = socket.socketpair()
    with here, there:
        channel = SlotChannel(here, FrameWriter(b"key"), FrameReader(b"key", MAX_CONTROL_FRAME))
        channel.lines.write("the end")
        channel.send(Stopped([]))
        sent = ControlChannel(there, FrameWriter(b"key"), FrameReader(b"key", MAX_CONTROL_FRAME)).receive()
    assert [raw.get("text") for raw in sent] == ["the end", None]
