"""The XOR ledger against a naive oracle: a set of live edges per tree."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamlet.tracking.acker import AckLedger
from streamlet.tracking.roots import STEP, first_root


class LedgerAgainstOracle(RuleBasedStateMachine):
    """Any interleaving of init, delta, fail, time-out, lost link, late and unknown deltas."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = AckLedger()
        self.rng = random.Random(7)
        self.next_root = first_root(1, 1)
        self.live: dict[int, set[int]] = {}  # the oracle: edges not yet acked, per open root
        self.wire: list[tuple[int, int, set[int], set[int]]] = []  # (root, delta, acked edges, new edges)
        self.held: dict[int, list[int]] = {}  # edges at bolts, also of trees that are closed by now
        self.done: set[int] = set()
        self.closed: set[int] = set()

    @rule(fanout=st.integers(0, 4))
    def init(self, fanout: int) -> None:
        """A spout emits: the tree is open before anything can come back; without receivers it is done."""
        root, self.next_root = self.next_root, self.next_root + STEP
        edges = [self.rng.getrandbits(64) for _ in range(fanout)]
        value = 0
        for edge in edges:
            value ^= edge
        if edges:
            self.ledger.open[root] = value
            self.live[root] = set(edges)
            self.held[root] = edges

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), fanout=st.integers(0, 3))
    def bolt_acks(self, data: st.DataObject, fanout: int) -> None:
        """A bolt acks one edge and anchors some new ones; the delta travels and may overtake others."""
        root = data.draw(st.sampled_from(sorted(r for r, edges in self.held.items() if edges)))
        edges = self.held[root]
        edge = edges.pop(data.draw(st.integers(0, len(edges) - 1)))
        new = [self.rng.getrandbits(64) for _ in range(fanout)]
        delta = edge
        for child in new:
            delta ^= child
        edges.extend(new)
        self.wire.append((root, delta, {edge}, set(new)))

    @precondition(lambda self: self.wire)
    @rule(data=st.data(), count=st.integers(1, 5))
    def deliver(self, data: st.DataObject, count: int) -> None:
        """Some deltas arrive, in any order, in one frame."""
        picked = [
            self.wire.pop(data.draw(st.integers(0, len(self.wire) - 1))) for _ in range(min(count, len(self.wire)))
        ]
        expected = []
        for root, _, acked, new in picked:
            if root not in self.live:
                continue
            self.live[root] ^= acked ^ new  # symmetric difference: an ack may arrive before its edge was named
            if not self.live[root]:
                del self.live[root]
                expected.append(root)
        assert self.ledger.apply([(root, delta) for root, delta, _, _ in picked]) == expected
        self.done.update(expected)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A bolt fails a tree; a second failure and one for an unknown root change nothing."""
        root = data.draw(st.sampled_from(sorted(self.live)))
        assert self.ledger.fail([root, root, self.next_root + 1000 * STEP]) == [root]
        self.close([root])

    @rule(steps=st.integers(0, 5))
    def time_out(self, steps: int) -> None:
        """Trees below a bound expire, oldest first."""
        bound = self.next_root - steps * STEP
        expected = [root for root in sorted(self.live) if root < bound]
        assert self.ledger.below(bound) == self.ledger.fail(expected) == expected
        self.close(expected)

    @rule()
    def lost_link(self) -> None:
        """A lost link closes every open tree."""
        expected = sorted(self.live)
        assert sorted(self.ledger.fail_all()) == expected
        self.close(expected)

    @rule(delta=st.integers(1, 2**64 - 1))
    def unknown_delta(self, delta: int) -> None:
        """A delta for a root that was never opened is dropped."""
        assert self.ledger.apply([(self.next_root + 5000 * STEP, delta)]) == []

    def close(self, roots: list[int]) -> None:
        for root in roots:
            del self.live[root]
            self.closed.add(root)

    @invariant()
    def same_trees_are_open(self) -> None:
        """What is open here is what is open there; nothing ends twice."""
        assert set(self.ledger.open) == set(self.live)
        assert not self.done & self.closed


TestLedgerAgainstOracle = LedgerAgainstOracle.TestCase
TestLedgerAgainstOracle.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def test_a_duplicated_delta_would_be_a_false_ack() -> None:
    """Why links are at-most-once: the same delta twice can cancel what was never processed."""
    ledger = AckLedger()
    ledger.open[1] = 5 ^ 9
    assert ledger.apply([(1, 9)]) == []
    assert ledger.apply([(1, 9)]) == []
    assert ledger.open[1] == 5 ^ 9
