"""The ledger against a naive oracle that keeps every offset ever seen in a set, under random schedules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamlet.spouts.kafka.offset_ledger import LedgerViolation, OffsetLedger


class Oracle:
    """Every offset in one of five plain sets; the committable offset is found by looking at all of them."""

    def __init__(self, start: int) -> None:
        self.start = self.position = start
        self.in_flight: set[int] = set()
        self.failed: set[int] = set()
        self.done: set[int] = set()
        self.void: set[int] = set()
        self.lost: set[int] = set()

    def committable(self) -> int:
        offset = self.start
        while offset < self.position and offset in self.done | self.void | self.lost:
            offset += 1
        return offset


class LedgerMachine(RuleBasedStateMachine):
    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.ledger: OffsetLedger[list[int]] = OffsetLedger(start)
        self.oracle = Oracle(start)
        self.stored = start
        self.ignored = 0
        self.together: list[list[int]] = []
        self.touched: set[int] = set()

    def pick(self, data: st.DataObject, offsets: set[int]) -> int:
        return data.draw(st.sampled_from(sorted(offsets)))

    @rule(gap=st.integers(0, 3), count=st.integers(1, 5), tail=st.integers(0, 3), data=st.data())
    def read_a_batch(self, gap: int, count: int, tail: int, data: st.DataObject) -> None:
        """Records with holes between them (compaction, markers), some without tuples, and an invisible tail."""
        offset = self.oracle.position
        for _ in range(count):
            self.oracle.void |= set(range(offset, offset + gap))
            offset += gap
            if data.draw(st.booleans()):
                self.ledger.emitted(offset, [offset])
                self.oracle.in_flight.add(offset)
            else:
                self.ledger.pass_to(offset + 1)
                self.oracle.void.add(offset)
            offset += 1
        self.oracle.void |= set(range(offset, offset + tail))
        self.oracle.position = offset + tail
        self.ledger.pass_to(self.oracle.position)

    @rule(gaps=st.lists(st.integers(0, 2), min_size=1, max_size=6), refused=st.booleans(), alone=st.booleans())
    def emit_together(self, gaps: list[int], refused: bool, alone: bool) -> None:
        """Records of one emit, with holes; an emit may refuse them all, or track them one by one."""
        oracle, offset, offsets = self.oracle, self.oracle.position, []
        for gap in gaps:
            offset += gap
            offsets.append(offset)
            offset += 1
        self.ledger.all_emitted(offsets, [[one] for one in offsets])
        if refused:
            self.ledger.not_emitted(offsets, oracle.position)
            return
        if alone:
            self.ledger.stand_alone(offsets)
        else:
            self.together.append(offsets)
        oracle.void |= set(range(oracle.position, offset)) - set(offsets)
        oracle.in_flight |= set(offsets)
        oracle.position = offset

    @precondition(lambda self: self.together)
    @rule(data=st.data())
    def ack_together(self, data: st.DataObject) -> None:
        """All that were emitted together, as one; not if one of them was acked or has failed alone."""
        offsets = self.together.pop(data.draw(st.integers(0, len(self.together) - 1)))
        whole = set(offsets) <= self.oracle.in_flight and not self.touched & set(offsets)
        assert self.ledger.all_acked(offsets) == whole
        if whole:
            assert not self.ledger.all_acked(offsets)
            self.oracle.in_flight -= set(offsets)
            self.oracle.done |= set(offsets)

    @precondition(lambda self: self.oracle.in_flight)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        offset = self.pick(data, self.oracle.in_flight)
        assert self.ledger.acked(offset)
        self.touched.add(offset)
        self.oracle.in_flight.remove(offset)
        self.oracle.done.add(offset)

    @precondition(lambda self: self.oracle.in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        offset = self.pick(data, self.oracle.in_flight)
        assert self.ledger.failed(offset)
        self.touched.add(offset)
        self.oracle.in_flight.remove(offset)
        self.oracle.failed.add(offset)

    @precondition(lambda self: self.oracle.failed)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        offset = self.pick(data, self.oracle.failed)
        assert self.ledger.retried(offset) == [offset]
        self.oracle.failed.remove(offset)
        self.oracle.in_flight.add(offset)

    @precondition(lambda self: self.oracle.failed)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        offset = self.pick(data, self.oracle.failed)
        self.ledger.given_up(offset)
        self.oracle.failed.remove(offset)
        self.oracle.done.add(offset)

    @rule(offset=st.integers(-5, 400), acked=st.booleans())
    def foreign_answer(self, offset: int, acked: bool) -> None:
        """Double acks, acks after a fail, answers for offsets never emitted: ignored and counted."""
        if offset in self.oracle.in_flight:
            return
        assert not (self.ledger.acked(offset) if acked else self.ledger.failed(offset))
        self.ignored += 1

    @rule(ahead=st.integers(-3, 8))
    def log_start_moves(self, ahead: int) -> None:
        """Retention overtakes the read position: what was not read is lost, what is open stays open."""
        position = self.oracle.position
        log_start = position + ahead
        self.ledger.pass_to(log_start)
        if ahead <= 0:
            assert self.ledger.position == position
            return
        self.oracle.lost |= set(range(position, log_start))
        self.oracle.position = log_start

    @rule()
    def commit(self) -> None:
        self.stored = self.ledger.next_committable()
        self.ledger.committed_to(self.stored)

    @rule()
    def crash_and_restart(self) -> None:
        """All memory is gone; the store remembers. Nothing undone may lie below what it holds."""
        assert not (self.oracle.in_flight | self.oracle.failed) & set(range(self.stored))
        self.ledger = OffsetLedger(self.stored)
        self.oracle = Oracle(self.stored)
        self.ignored = 0
        self.together.clear()
        self.touched.clear()

    @invariant()
    def agrees_with_the_oracle(self) -> None:
        oracle, ledger = self.oracle, self.ledger
        assert ledger.position == oracle.position
        assert ledger.next_committable() == oracle.committable()
        assert ledger.open_count == len(oracle.in_flight | oracle.failed)
        assert ledger.waiting_count == len(oracle.failed)
        assert all(map(ledger.waits, oracle.failed)) and not any(map(ledger.waits, oracle.in_flight))
        assert ledger.committed == self.stored <= ledger.next_committable() <= ledger.position
        assert ledger.counts.ignored == self.ignored

    @invariant()
    def each_offset_is_in_one_place(self) -> None:
        oracle = self.oracle
        parts = [oracle.in_flight, oracle.failed, oracle.done, oracle.void, oracle.lost]
        assert sum(map(len, parts)) == oracle.position - oracle.start

    def teardown(self) -> None:
        """Once every open record is acked or given up, the committable offset is the read position."""
        if not hasattr(self, "ledger"):
            return
        for offset in self.oracle.in_flight:
            self.ledger.acked(offset)
        for offset in self.oracle.failed:
            self.ledger.given_up(offset)
        assert self.ledger.next_committable() == self.ledger.position


LedgerMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestLedgerAgainstOracle = LedgerMachine.TestCase


def test_an_offset_is_never_emitted_below_the_read_position() -> None:
    ledger: OffsetLedger[list[int]] = OffsetLedger(10)
    with pytest.raises(LedgerViolation, match="below the read position 10"):
        ledger.emitted(9, [9])


def test_nothing_is_committed_past_an_open_offset() -> None:
    ledger: OffsetLedger[list[int]] = OffsetLedger(0)
    ledger.emitted(0, [0])
    with pytest.raises(LedgerViolation, match="past the lowest open one 0"):
        ledger.committed_to(1)


def test_a_retry_or_a_give_up_of_what_has_not_failed_is_a_bug() -> None:
    ledger: OffsetLedger[list[int]] = OffsetLedger(0)
    ledger.emitted(0, [0])
    with pytest.raises(LedgerViolation):
        ledger.retried(0)
    with pytest.raises(LedgerViolation):
        ledger.given_up(0)


def test_acked_offsets_take_no_memory_while_an_old_one_is_open() -> None:
    """One stuck record holds the commit back, not memory: only what is open is kept."""
    ledger: OffsetLedger[list[int]] = OffsetLedger(0)
    for offset in range(10_000):
        ledger.emitted(offset, [offset])
        if offset:
            ledger.acked(offset)
    assert ledger.open_count == 1
    assert ledger.next_committable() == 0
    ledger.acked(0)
    assert ledger.next_committable() == 10_000


def test_the_committable_offset_of_many_failures_is_found_without_looking_at_all_of_them() -> None:
    """Half a million wait for a retry; each commit asks."""

    class Counted(dict[int, str]):
        looks = 0

        def __iter__(self) -> Iterator[int]:
            Counted.looks += len(self)
            return super().__iter__()

        def __contains__(self, offset: object) -> bool:
            Counted.looks += 1
            return super().__contains__(offset)

    ledger: OffsetLedger[str] = OffsetLedger(0)
    ledger._failed, ledger._again = Counted(), Counted()
    for offset in range(20_000):
        ledger.emitted(offset, "v")
        ledger.failed(offset)
    for offset in range(1000):
        assert ledger.next_committable() == offset
        ledger.retried(offset)
        assert ledger.next_committable() == offset
        ledger.acked(offset)
    assert Counted.looks < 20_000
