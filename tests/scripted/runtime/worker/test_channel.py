"""The channel to the coordinator: what a user's code can put on it harms nobody."""

from __future__ import annotations

import socket
from decimal import Decimal

import pytest

from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, pack
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.worker.channel import LONGEST_TEXT, ControlChannel
from streamlet.runtime.worker.messages import Event


def test_a_line_of_any_length_is_cut_and_not_refused() -> None:
    """The other end would close the channel at a message beyond its limit, and the worker would be replaced."""
    ours, theirs = (ControlChannel.inherited(sock) for sock in socket.socketpair())
    try:
        ours.send(Event("info", "x" * (MAX_CONTROL_FRAME + 1)))
        messages = []
        while not messages:
            messages = theirs.receive()
        assert len(messages[0]["text"]) < LONGEST_TEXT + 100
        assert messages[0]["text"].startswith("xxx") and messages[0]["text"].endswith("characters more)")
    finally:
        ours.close()
        theirs.close()


def test_a_metric_is_a_number_that_travels() -> None:
    """Or is refused where it is reported, not where the heartbeat is sent."""
    stats = TaskStats()
    stats.report_metric("ratio", Decimal("0.5"))  # type: ignore[arg-type]
    assert pack(stats.snapshot()) and stats.metrics == {"ratio": 0.5}
    with pytest.raises(TypeError):
        stats.report_metric("ratio", [1])  # type: ignore[arg-type]
