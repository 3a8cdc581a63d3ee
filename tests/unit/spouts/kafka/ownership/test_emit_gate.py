"""The gate before every emit: what it commits, and when it gives the place back."""

from __future__ import annotations

import pytest

from streamlet.spouts.kafka.activity import NextPoll, Steps
from streamlet.spouts.kafka.ownership.emit_gate import FLUSH_S, EmitGate


class Lease:
    granted_s = 0.0


class Gated:
    """A gate that is open, whose commit may have to wait for an older one."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.waits = False
        self.gate: EmitGate[str] = EmitGate("t", "the group", Lease(), 10.0, lambda: self.log.append("given back"))
        self.gate.flush = self.flush
        self.gate.give("grant")
        self.gate.poll(0.0)
        assert self.gate.may_emit(0.0)

    def flush(self) -> Steps[None]:
        again = NextPoll()
        while self.waits:
            yield again
        self.log.append("commit sent")
        yield again
        self.log.append("commit answered")


@pytest.mark.parametrize("polls", [0, 1])
def test_a_right_that_is_lost_while_the_gate_closes_commits_nothing_more(polls: int) -> None:
    gated = Gated()
    gated.waits = True
    gated.gate.ask_to_stop()
    for _ in range(polls):
        gated.gate.poll(0.1)
    gated.gate.withdraw()
    gated.waits = False
    gated.gate.poll(0.2)
    assert gated.log == ["given back"] and not gated.gate.stopping


def test_a_commit_that_had_to_wait_for_too_long_is_sent_before_the_place_is_given_back_or_not_at_all() -> None:
    gated = Gated()
    gated.waits = True
    gated.gate.ask_to_stop()
    gated.gate.poll(0.1)
    gated.waits = False
    gated.gate.poll(0.2 + FLUSH_S)
    assert gated.log == ["commit sent", "given back"]


def test_what_is_done_is_committed_before_the_place_is_given_back() -> None:
    gated = Gated()
    gated.gate.ask_to_stop()
    for now_s in (0.1, 0.2):
        gated.gate.poll(now_s)
    assert gated.log == ["commit sent", "commit answered", "given back"]
