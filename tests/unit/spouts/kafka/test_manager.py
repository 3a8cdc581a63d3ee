"""One partition's manager: turns, retries, poison, bounds, and one invariant under random schedules."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamlet.base.backoff import Backoff
from streamlet.base.clock import ManualClock
from streamlet.base.errors import ValueCannotTravel
from streamlet.components.spout import FailureCause, Spout
from streamlet.components.tuples import value_bytes
from streamlet.kafka.errors import CorruptRecord
from streamlet.kafka.records.record_batch import BatchHeader, RecordBatch
from streamlet.model.grouping import Grouping
from streamlet.model.stream import Stream
from streamlet.runtime.tasks.emitter import Emitter, Outbox, StreamRoutes, Target
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.spouts.kafka.dead_letters.dead_letter import Fault, LastTry
from streamlet.spouts.kafka.errors import PoisonRecord, SchemeNotReady
from streamlet.spouts.kafka.manager import (
    EMITTED_END,
    EMITTED_MORE_LEFT,
    NO_EMITTED,
    SILENT_S,
    EmitLimits,
    PartitionManager,
)
from streamlet.spouts.kafka.offset_ledger import LedgerViolation, OffsetLedger
from streamlet.spouts.kafka.partition import OffsetRange, Partition
from streamlet.spouts.kafka.read_buffer import HEAVY_RECORD_BYTES
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager
from streamlet.spouts.kafka.schemes.scheme import FunctionScheme, RawScheme, Record, StringScheme
from streamlet.tracking.window import PendingWindow

P = Partition("lines", 3)


class Out:
    """Where tuples go; ``emit`` may be told to refuse a value."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []
        self.refuse: set[str] = set()
        self.calls: list[int] = []
        self.given: list[Any] = []
        self.as_one = False
        self.streams: list[str | None] = []
        self.last_tries: list[Any] = []

    def as_last_try(self, emit: Callable[[], object]) -> None:
        emit()
        self.last_tries.append(self.sent[-1][1])

    def emit(self, values: Sequence[Any], tup_id: Any, stream: str | None = None) -> None:
        if values[0] in self.refuse:
            raise ValueCannotTravel("it holds a set.")
        self.sent.append((values, tup_id))
        self.streams.append(stream)

    def emit_many(self, tuples: Sequence[Sequence[Any]], tup_id: Any, stream: str | None = None) -> None:
        self.sent.append((list(tuples), tup_id))
        self.streams.append(stream)

    def emit_each(self, tuples: Sequence[Sequence[Any]], tup_ids: Sequence[Any]) -> bool:
        """As the task's: none of them unless all can travel."""
        self.calls.append(len(tuples))
        if any(values[0] in self.refuse for values in tuples):
            raise ValueCannotTravel("it holds a set.")
        self.sent += zip(tuples, tup_ids, strict=True)
        self.given.append(tup_ids)
        return self.as_one

    def offsets(self) -> list[int]:
        return [tup_id[1] for _, tup_id in self.sent]


def batch(
    base: int,
    values: Sequence[bytes | None],
    *,
    deltas: Sequence[int] | None = None,
    end: int | None = None,
    epoch: int = 0,
) -> RecordBatch:
    deltas = range(len(values)) if deltas is None else deltas
    end = base + (deltas[-1] + 1 if len(deltas) else 0) if end is None else end
    header = BatchHeader(base, 0, epoch, 2, 0, 0, end - 1 - base, 0, 0, -1, -1, -1, len(values))
    return RecordBatch(header, deltas, [0] * len(values), [None] * len(values), list(values), {})


def fetched(*batches: RecordBatch, size: int = 100) -> tuple[Iterator[RecordBatch], int, int]:
    return iter(batches), size, batches[-1].next_offset


def manager(
    scheme: Any = None, *, start: int = 0, limit: int = 2, end: int | None = None, **limits: Any
) -> PartitionManager:
    retries = ExponentialBackoffMsgRetryManager(Backoff(1.0, 8.0, 2.0, 0.0), limit)
    return PartitionManager(P, 7, OffsetLedger(start), retries, scheme or StringScheme(), EmitLimits(**limits), end)


def drain(one: PartitionManager, out: Out) -> list[Any]:
    states = []
    while (state := one.next(out)) is not NO_EMITTED:
        states.append(state)
    return states


# -- emits and offsets ------------------------------------------------------------------------------------------


def test_k5_emit_states_say_what_is_left() -> None:
    one, out = manager(), Out()
    assert one.next(out) is NO_EMITTED
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    assert one.next(out) is EMITTED_MORE_LEFT
    assert one.next(out) is EMITTED_END
    assert one.next(out) is NO_EMITTED
    assert out.sent == [(["a"], (7, 0)), (["b"], (7, 1))]


def test_a_pause_keeps_what_is_open_and_drops_what_was_fetched_and_not_emitted() -> None:
    """Kept for hours it would take the bytes of other partitions."""
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b", b"c"])), 3)
    one.next(out)
    one.pause(True)
    assert (one.buffer.size_bytes, one.buffer.position, one.at_hand, one.ledger.open_count) == (0, 1, False, 1)
    one.ack(0)
    one.pause(False)
    one.add(*fetched(batch(1, [b"b", b"c"])), 3)
    drain(one, out)
    assert [values for values, _ in out.sent] == [["a"], ["b"], ["c"]]


def test_a_pause_keeps_what_was_fetched_of_a_topic_that_is_gone() -> None:
    """Nobody could fetch it again."""
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b", b"c"])), 3)
    one.next(out)
    one.end_reading()
    one.pause(True)
    one.ack(0)
    one.pause(False)
    drain(one, out)
    assert ([values for values, _ in out.sent], one.spoiled) == ([["a"], ["b"], ["c"]], None)


def test_plain_records_are_emitted_in_one_call_while_there_is_room() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b", b"c", b"d", b"e"])), 5)
    assert (one.next(out, 3), one.count) == (EMITTED_MORE_LEFT, 3)
    assert (one.next(out, 3), one.count) == (EMITTED_END, 2)
    assert out.calls == [3, 2] and out.offsets() == [0, 1, 2, 3, 4]
    assert one.last_completed_offset() == 0 and one.ledger.position == 5
    for offset in (1, 0, 2, 4):
        one.ack(offset)
    assert one.last_completed_offset() == 3


def test_a_record_that_gives_no_tuple_is_passed_over_among_those_of_one_call() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", None, b"c", b"d"])), 4)
    while one.next(out, 10) is not NO_EMITTED:
        pass
    assert out.offsets() == [0, 2, 3] and one.ledger.position == 4


@pytest.mark.parametrize(
    ("odd", "most_calls"), [([511], 1), ([0], 3), ([300], 3), (range(63, 512, 64), 16), (range(0, 512, 2), 256)]
)
def test_records_without_tuples_part_the_others_and_no_more(odd: Sequence[int], most_calls: int) -> None:
    """Tombstones of a compacted topic: the others leave together, as far as there is none between them."""
    one, out = manager(), Out()
    values: list[bytes | None] = [None if offset in odd else b"x" for offset in range(512)]
    one.add(*fetched(batch(0, values)), 512)
    while one.next(out, 512) is not NO_EMITTED:
        pass
    assert out.offsets() == [offset for offset in range(512) if offset not in odd]
    assert one.ledger.position == 512
    assert len(out.calls) <= most_calls and sum(out.calls) == 512 - len(odd)


@pytest.mark.parametrize("alone", ["large", "passed over"])
def test_a_large_record_and_one_passed_over_leave_alone_and_the_others_together(alone: str) -> None:
    """Also while the large one is open: it takes part in the bound, and slows down no other."""
    one, out = manager(), Out()
    if alone == "large":
        one.add(*fetched(batch(0, [*[b"x"] * 50, b"y" * 20_000, *[b"x"] * 49])), 100)
    else:
        one.passed = {50: LastTry(Fault(None, "", ""), 1)}
        one.add(*fetched(batch(0, [b"x"] * 100)), 100)
    while one.next(out, 100) is not NO_EMITTED:
        pass
    assert out.calls == [50, 49]
    one.add(*fetched(batch(100, [b"x"] * 100)), 200)
    while one.next(out, 100) is not NO_EMITTED:
        pass
    assert out.calls == [50, 49, 100] and one.ledger.position == 200
    one.ack_many([*range(50), *range(51, 200)])
    assert one.ledger.open_count == (alone == "large") and one.unacked_bytes == 20_000 * (alone == "large")
    one.ack_many([50] if alone == "large" else [])
    assert not one.ledger.open_count and not one.ledger.counts.ignored and not one.unacked_bytes


def test_of_many_records_the_one_that_cannot_be_emitted_is_named_and_no_other() -> None:
    one, out = manager(on_poison="skip"), Out()
    out.refuse = {"b"}
    one.add(*fetched(batch(0, [b"a", b"b", b"c"])), 3)
    while one.next(out, 10) is not NO_EMITTED:
        pass
    assert out.offsets() == [0, 2]
    assert (one.ledger.counts.given_up, one.ledger.position) == (1, 3)


def test_records_that_are_out_are_not_kept_until_others_come() -> None:
    """An idle partition of large batches would hold its last one for ever."""
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b", b"c"])), 3)
    while one.next(out, 2) is not NO_EMITTED:
        pass
    assert out.offsets() == [0, 1, 2] and not one.buffer.waiting._rows


@pytest.mark.parametrize("as_one", [False, True])
def test_records_that_were_emitted_together_are_acked_by_their_ids_as_they_were_given(as_one: bool) -> None:
    one, out = manager(), Out()
    out.as_one = as_one
    one.add(*fetched(batch(0, [b"a", b"b", b"c"])), 3)
    while one.next(out, 10) is not NO_EMITTED:
        pass
    (ids,) = out.given
    assert one.last_completed_offset() == 0 and [*ids] == [(one.slot, 0), (one.slot, 1), (one.slot, 2)]
    one.ack_set(ids)
    assert one.last_completed_offset() == 3 and not one.ledger.open_count


def test_offsets_of_many_must_ascend_from_the_position() -> None:
    ledger: OffsetLedger[str] = OffsetLedger(5)
    for wrong in ([4, 6], [5, 5], [7, 6], range(4, 6), range(7, 5, -1)):
        with pytest.raises(LedgerViolation):
            ledger.all_emitted(wrong, ["a", "b"])
    ledger.all_emitted([5, 8], ["a", "b"])
    assert (ledger.position, ledger.open_count) == (9, 2)
    ledger.not_emitted([5, 8], 5)
    assert (ledger.position, ledger.open_count) == (5, 0)


def test_k5_last_completed_offset_is_the_lowest_open_one_else_the_position() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b", b"c"])), 3)
    drain(one, out)
    one.ack(1)
    assert one.last_completed_offset() == 0
    one.ack(0)
    assert one.last_completed_offset() == 2
    one.ack(2)
    assert one.last_completed_offset() == 3


def test_k12_records_without_tuples_are_passed_over_within_the_call_that_emits_one() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [None, None, b"a", None, b"b", None])), 6)
    assert one.next(out) is EMITTED_MORE_LEFT
    assert out.offsets() == [2]
    assert one.next(out) is EMITTED_MORE_LEFT
    assert one.next(out) is NO_EMITTED
    assert one.ledger.position == 6
    one.ack(2)
    assert one.last_completed_offset() == 4
    one.ack(4)
    assert one.last_completed_offset() == 6


@pytest.mark.parametrize("asked", [1, 10])
def test_k12_of_a_scheme_of_many_tuples_one_record_is_emitted_in_a_call_however_many_are_asked_for(asked: int) -> None:
    """Records go out together only where each gives one tuple at most: here the second one gives two."""
    one, out = manager(FunctionScheme(words, ["word"])), Out()
    one.add(*fetched(batch(0, [b"a", b"b c", b"", b"d"])), 4)
    states = [(one.next(out, asked), one.count, out.offsets()) for _ in range(4)]
    assert states[:2] == [(EMITTED_MORE_LEFT, 1, [0]), (EMITTED_MORE_LEFT, 1, [0, 1])]
    assert (states[2], states[3][0]) == ((EMITTED_END, 1, [0, 1, 3]), NO_EMITTED)
    assert out.sent[1] == ([["b"], ["c"]], (7, 1)) and not out.calls


def test_k12_of_records_of_one_tuple_as_many_as_are_asked_for_go_out_and_none_is_lost() -> None:
    """The tombstone among them is passed over, and each waits for its own ack."""
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", None, b"b", b"c", b"d"])), 5)
    assert (one.next(out, 3), one.count) == (EMITTED_MORE_LEFT, 1)
    assert (one.next(out, 2), one.count, out.offsets()) == (EMITTED_MORE_LEFT, 2, [0, 2, 3])
    one.ack_many([0, 3])
    assert one.last_completed_offset() == 2 and one.ledger.position == 4
    assert (one.next(out, 9), out.offsets()) == (EMITTED_END, [0, 2, 3, 4])
    one.ack_many([2, 4])
    assert one.last_completed_offset() == 5


def words(record: Record) -> list[list[str]]:
    return [[word] for word in str(record.value, "utf-8").split()]


def test_t05_a_scheme_that_gives_an_empty_list_blocks_nothing() -> None:
    one, out = manager(FunctionScheme(words, ["word"])), Out()
    one.add(*fetched(batch(0, [b"", b"a", b" "])), 3)
    drain(one, out)
    one.ack(1)
    assert one.last_completed_offset() == 3


def test_t07_all_tuples_of_a_record_are_one_root() -> None:
    one, out = manager(FunctionScheme(words, ["word"])), Out()
    one.add(*fetched(batch(0, [b"a b c", b"d"])), 2)
    drain(one, out)
    assert out.sent == [([["a"], ["b"], ["c"]], (7, 0)), (["d"], (7, 1))]
    one.fail(0, 0.0)
    out.sent.clear()
    one.begin_turn(10.0, 10)
    drain(one, out)
    assert out.sent == [([["a"], ["b"], ["c"]], (7, 0))], "a retry brings all of them again"


def test_the_record_a_scheme_sees_has_its_coordinates() -> None:
    seen: list[Record] = []
    one = manager(FunctionScheme(lambda record: seen.append(record) or None, ["x"]))
    one.add(*fetched(batch(5, [b"v"])), 6)
    assert one.next(Out()) is NO_EMITTED
    assert (seen[0].topic, seen[0].partition, seen[0].offset, seen[0].value, seen[0].key) == ("lines", 3, 5, b"v", None)


# -- retries ----------------------------------------------------------------------------------------------------


def test_k10_a_failed_record_comes_again_after_its_pause_and_holds_the_commit_back() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    drain(one, out)
    one.ack(1)
    one.fail(0, now_s=100.0)
    assert one.last_completed_offset() == 0
    one.begin_turn(100.9, 10)
    assert one.next(out) is NO_EMITTED
    one.begin_turn(101.0, 10)
    assert one.next(out) is EMITTED_END
    assert out.sent[-1] == (["a"], (7, 0))
    one.ack(0)
    assert one.last_completed_offset() == 2


def test_t06_neither_retries_nor_new_records_starve_the_other() -> None:
    one, out = manager(limit=0), Out()
    one.add(*fetched(batch(0, [b"x"] * 20)), 20)
    for _ in range(10):
        one.next(out)
    for offset in range(10):
        one.fail(offset, 0.0)
    out.sent.clear()
    one.begin_turn(100.0, records=8)
    for _ in range(8):
        one.next(out)
    assert out.offsets() == [0, 1, 2, 3, 10, 11, 12, 13]


def test_t03_t08_a_failed_record_that_the_log_no_longer_has_is_retried_from_memory() -> None:
    """The values stay here until they are acked: no fetch is needed for a retry, so none can come back empty."""
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    drain(one, out)
    one.fail(0, 0.0)
    one.buffer.skip_to(50)
    one.begin_turn(5.0, 10)
    drain(one, out)
    assert out.sent[-1] == (["a"], (7, 0))
    one.ack(0)
    one.ack(1)
    assert one.last_completed_offset() == 50


def test_a_read_that_has_reached_its_stop_is_not_behind() -> None:
    """However far the log grows, and however old its records become."""
    one, out = manager(end=2), Out()
    one.add(*fetched(batch(0, [b"a", b"b", b"c"])), 3)
    assert one.lag == 2
    drain(one, out)
    one.ack_many([0, 1])
    one.ledger.committed_to(2)
    one.log_end = 900
    assert (one.lag, one.ages(0.0, 10_000).behind_s, one.at_end) == (0, 0.0, True)


def test_k10_what_is_given_up_is_named_and_stops_the_spout() -> None:
    one, out = manager(limit=2), Out()
    one.add(*fetched(batch(0, [b"a"])), 1)
    drain(one, out)
    for now in (0.0, 10.0, 20.0):
        one.fail(0, now)
        one.begin_turn(now + 9, 10)
        drain(one, out)
    assert isinstance(one.poisoned, PoisonRecord)
    assert (
        "topic 'lines', partition 3, offset 0 failed 3 times, which is more than retry_limit=2" in one.poisoned.message
    )
    assert one.last_completed_offset() == 0


def test_k10_with_skip_it_is_passed_over_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    one, out = manager(limit=2, on_poison="skip"), Out()
    one.add(*fetched(batch(0, [b"a"])), 1)
    drain(one, out)
    for now in (0.0, 50.0):
        assert out.last_tries == []
        one.fail(0, now)
        one.begin_turn(now + 40.0, 10)
        drain(one, out)
    assert len(out.last_tries) == 1, "before it is given up it is tried alone"
    one.fail(0, 100.0)
    assert one.poisoned is None
    assert one.last_completed_offset() == 1
    assert one.ledger.counts.given_up == 1
    assert "lines-3 offset 0 given up" in caplog.text


# -- dead letters -----------------------------------------------------------------------------------------------


def given_up(one: PartitionManager) -> list[tuple[int, bytes | None, int, Fault]]:
    return [(given.record.offset, given.record.value, given.tries, given.fault) for given in one.given_up]


def test_a_record_whose_tries_are_used_up_is_open_until_its_dead_letter_is_written() -> None:
    """With its value as it was read, and what the bolt said of its last try."""
    one, out = manager(limit=1, on_poison="dead-letter"), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    drain(one, out)
    one.ack(1)
    one.fail(0, 0.0, cause=FailureCause("count", "OSError", "first"))
    one.begin_turn(5.0, 10)
    drain(one, out)
    assert not one.given_up
    one.fail(0, 6.0, cause=FailureCause("count", "ValueError", "no"))
    assert given_up(one) == [(0, b"a", 2, Fault("count", "ValueError", "no"))]
    assert one.poisoned is None
    assert (one.last_completed_offset(), one.ledger.open_count) == (0, 1), "nothing acknowledged it yet"
    one.begin_turn(60.0, 10)
    assert drain(one, out) == [], "it is not tried again"
    one.dead_letter_written(0)
    assert (one.last_completed_offset(), one.ledger.open_count, one.ledger.counts.given_up) == (2, 0, 1)


def test_what_cannot_be_decoded_or_emitted_is_given_up_and_the_next_records_come() -> None:
    one, out = manager(on_poison="dead-letter"), Out()
    out.refuse.add("b")
    one.add(*fetched(batch(0, [b"\xff", b"b", b"c"])), 3)
    drain(one, out)
    (_, raw, tries, undecoded), (_, _, _, refused) = given_up(one)
    assert (raw, tries, undecoded.component, undecoded.error) == (b"\xff", 1, None, "UnicodeDecodeError")
    assert (refused.component, refused.error) == (None, "ValueCannotTravel")
    assert out.offsets() == [2]
    one.ack(2)
    assert one.last_completed_offset() == 0
    one.dead_letter_written(0)
    one.dead_letter_written(1)
    assert one.last_completed_offset() == 3


def test_a_bolt_sends_a_record_to_the_dead_letters_past_its_tries() -> None:
    one, out = manager(limit=0, on_poison="dead-letter"), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    drain(one, out)
    one.dead_letter(1, FailureCause("count", "", "not wanted", True))
    one.dead_letter(1, FailureCause("other", "", "late", True))
    assert given_up(one) == [(1, b"b", 1, Fault("count", "", "not wanted"))]
    one.crashed(0, FailureCause("parse", "WorkerDied", "the worker was killed by SIGSEGV"), 3)
    assert given_up(one)[1] == (0, b"a", 3, Fault("parse", "WorkerDied", "the worker was killed by SIGSEGV"))


def test_records_kept_for_dead_letters_count_as_memory() -> None:
    one, out = manager(on_poison="dead-letter"), Out()
    one.add(*fetched(batch(0, [b"x" * 1000] * 10)), 10)
    drain(one, out)
    other, out = manager(), Out()
    other.add(*fetched(batch(0, [b"x" * 1000] * 10)), 10)
    drain(other, out)
    assert one.kept_bytes == other.kept_bytes + 10_000


def test_the_error_that_stops_a_spout_says_what_the_bolt_said() -> None:
    one, out = manager(limit=1), Out()
    one.add(*fetched(batch(0, [b"a"])), 1)
    drain(one, out)
    one.fail(0, 0.0)
    one.begin_turn(5.0, 10)
    drain(one, out)
    one.fail(0, 6.0, cause=FailureCause("count", "ValueError", "no.\nAnd more of it."))
    assert one.poisoned is not None
    assert "count said of the last time: ValueError: no. Nothing past it" in one.poisoned.message


# -- poison -----------------------------------------------------------------------------------------------------


def test_an_undecodable_record_is_named_and_never_passed() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(40, [b"good", b"\xff", b"good"]), size=1), 43)
    one.ledger.pass_to(40)
    assert one.next(out) is EMITTED_MORE_LEFT
    for _ in range(2):
        with pytest.raises(PoisonRecord) as poison:
            one.next(out)
    assert "topic 'lines', partition 3, offset 41 cannot be decoded by StringScheme: UnicodeDecodeError" in str(
        poison.value
    )
    one.ack(40)
    assert one.last_completed_offset() == 41


def test_a_scheme_that_is_cancelled_names_its_record() -> None:
    def cancelled(record: Record) -> list[list[str]]:
        raise asyncio.CancelledError

    one, out = manager(FunctionScheme(cancelled, ["word"])), Out()
    one.add(*fetched(batch(40, [b"a"])), 41)
    with pytest.raises(PoisonRecord, match=r"partition 3, offset 40 cannot be decoded by .* CancelledError"):
        drain(one, out)


def test_with_skip_an_undecodable_record_is_passed_over_and_counted() -> None:
    one, out = manager(on_poison="skip"), Out()
    one.add(*fetched(batch(0, [b"\xff", b"good", b"\xfe"])), 3)
    drain(one, out)
    assert out.offsets() == [1]
    one.ack(1)
    assert one.last_completed_offset() == 3
    assert one.ledger.counts.given_up == 2


def test_a_value_that_cannot_travel_is_not_tried_again() -> None:
    one, out = manager(), Out()
    out.refuse = {"a"}
    one.add(*fetched(batch(0, [b"a"])), 1)
    one.next(out)
    assert one.poisoned is not None
    assert "cannot be sent on. it holds a set." in one.poisoned.message


class Checked(Out):
    """Emits as the task of a spout with these fields does."""

    def __init__(self, fields: Sequence[str] = ("word",)) -> None:
        super().__init__()
        target = Target(Grouping.SHUFFLE, (), (Outbox(1, 2, "default"),), ())
        emitter = Emitter("lines", [StreamRoutes(Stream(list(fields)), [target], lambda: 0.0)])
        bits = random.Random(1).getrandbits
        self.task = SpoutTask(
            Spout(),
            1,
            1,
            emitter,
            bits,
            ManualClock(),
            tracked=True,
            window=PendingWindow(99, 7.5),
            timeout_s=30.0,
        )

    def emit(self, values: Sequence[Any], tup_id: Any, stream: str | None = None) -> None:
        self.task.emit(values, tup_id)
        super().emit(values, tup_id)

    def emit_many(self, tuples: Sequence[Sequence[Any]], tup_id: Any, stream: str | None = None) -> None:
        self.task.emit_many(tuples, tup_id)
        super().emit_many(tuples, tup_id)


WRONG_ROWS = {
    "a,b": [["a", "b"]],
    "none": [[]],
    "text": "x",
    "dict": {"word": "x"},
    "number": [5],
    "None": [None],
    "generator": [(each for each in "a")],
    "second": [["good"], ["a", "b"]],
    "set": [{"x"}],
}


def by_name(record: Record) -> Any:
    name = str(record.value, "utf-8")
    return WRONG_ROWS.get(name, [[name]])


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_a_row_that_does_not_fit_is_poison_named_by_its_record(name: str) -> None:
    """It says what the scheme gave and what it declares; nothing past the record is emitted or committed."""
    one, out = manager(FunctionScheme(by_name, ["word"])), Checked()
    one.add(*fetched(batch(0, [b"good", name.encode(), b"later"])), 3)
    drain(one, out)
    assert out.offsets() == [0]
    one.ack(0)
    assert one.last_completed_offset() == 1
    assert isinstance(one.poisoned, PoisonRecord)
    said = one.poisoned.message
    assert "topic 'lines', partition 3, offset 1 gave a tuple that cannot be emitted. by_name gave " in said
    assert "declares 1 field: word. A tuple is a list with one value per field." in said


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_with_skip_a_row_that_does_not_fit_is_passed_over_and_counted(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In one call with the record behind it: a turn that emitted nothing would let the loop sleep."""
    one, out = manager(FunctionScheme(by_name, ["word"]), on_poison="skip"), Checked()
    one.add(*fetched(batch(0, [name.encode(), b"good", name.encode()])), 3)
    assert one.next(out) is EMITTED_MORE_LEFT
    assert one.next(out) is NO_EMITTED
    assert out.offsets() == [1]
    one.ack(1)
    assert (one.last_completed_offset(), one.ledger.counts.given_up) == (3, 2)
    assert "lines-3 offset 0 given up (on_poison=skip): it gave a tuple that cannot be emitted. by_name" in caplog.text


class TwoColumns(StringScheme):
    """Columns of another width than is declared, and record by record as many tuples as a record has bars."""

    def deserialize(self, record: Record) -> list[Any]:
        return [[part, part] for part in str(record.value, "utf-8").split("|")]

    def deserialize_columns(self, keys: Any, values: Any) -> list[Any]:
        return [[value, value] for value in (str(value, "utf-8") for value in values) if "|" not in value]


def test_rows_made_of_columns_are_looked_at_too() -> None:
    one, out = manager(TwoColumns(), on_poison="skip"), Checked()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    assert drain(one, out) == []
    assert (one.last_completed_offset(), one.ledger.counts.given_up) == (2, 2)


def test_columns_that_are_too_short_are_taken_record_by_record_and_no_tuple_is_dropped() -> None:
    """A scheme with columns makes one tuple of a record; of two the second would be lost."""
    one, out = manager(TwoColumns()), Checked(["a", "b"])
    one.add(*fetched(batch(0, [b"a", b"b|c"])), 2)
    one.next(out)
    assert out.offsets() == [0]
    with pytest.raises(PoisonRecord, match="offset 1 gave 2 tuples; TwoColumns has deserialize_columns"):
        one.next(out)


def test_an_error_of_emit_that_is_not_the_rows_goes_on() -> None:
    """It would be a bug of the runtime, and must not be passed over as a poison record."""

    class Broken(Out):
        def emit(self, values: Sequence[Any], tup_id: Any, stream: str | None = None) -> None:
            raise TypeError("a bug")

    one = manager(on_poison="skip")
    one.add(*fetched(batch(0, [b"a"])), 1)
    with pytest.raises(TypeError, match="a bug"):
        one.next(Broken())


def test_a_damaged_batch_is_not_taken_for_an_empty_one() -> None:
    """What was good before it goes out, and the rest is fetched again; at its beginning, the damage is an error."""

    def batches(*good: RecordBatch) -> Iterator[RecordBatch]:
        yield from good
        raise CorruptRecord("bad crc at offset 1")

    one, out = manager(), Out()
    one.add(batches(batch(0, [b"a"])), 10, 9, 9)
    assert one.next(out) is EMITTED_END
    assert one.damage is None and one.next(out) is NO_EMITTED
    assert (one.ledger.position, one.buffer.position, one.buffer.size_bytes) == (1, 1, 0)
    one.add(batches(), 10, 9, 9)
    assert one.next(out) is NO_EMITTED
    assert isinstance(one.damage, CorruptRecord)
    assert (one.ledger.position, one.buffer.position, one.buffer.size_bytes) == (1, 1, 0)


def test_what_is_damaged_of_a_topic_that_is_gone_is_named_for_it_cannot_be_fetched_again() -> None:
    """Behind good records of the same answer, where no error is seen, and at its beginning."""

    def batches(*good: RecordBatch) -> Iterator[RecordBatch]:
        yield from good
        raise CorruptRecord("bad crc at offset 1")

    for good, position in (([batch(0, [b"a"])], 1), ([], 0)):
        one, out = manager(), Out()
        one.add(batches(*good), 10, 9, 12)
        one.end_reading()
        assert one.ending and one.unread == OffsetRange(9, 12) and one.spoiled is None
        one.next(out)
        assert one.spoiled == OffsetRange(position, 9) and not one.wants_fetch()


def test_few_bytes_of_large_batches_are_unpacked_at_once() -> None:
    """No bound counts what is unpacked and not emitted: of batches of one large record, one is."""
    unpacked: list[int] = []

    def batches() -> Iterator[RecordBatch]:
        for n in range(200):
            unpacked.append(n)
            yield batch(n, [b"x" * (1 << 20)])

    one, out = manager(), Out()
    one.add(batches(), 1 << 20, 200, 200)
    one.next(out)
    assert len(unpacked) <= 2  # the one that was emitted, and the next


def test_small_batches_are_emitted_in_one_call_and_holes_between_them_are_passed() -> None:
    one, out = manager(), Out()
    small = [batch(3 * n, [b"%d" % n], end=3 * n + 2) for n in range(300)]
    one.add(*fetched(*small), 900)
    while one.next(out, 256) is not NO_EMITTED:
        pass
    assert out.offsets() == [3 * n for n in range(300)] and out.calls == [128, 128, 44]
    for offset in out.offsets():
        one.ack(offset)
    assert one.last_completed_offset() == one.ledger.position == 899


# -- bounds -----------------------------------------------------------------------------------------------------


def test_t14_at_most_one_whole_answer_waits_behind_the_one_being_emitted() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b"]), size=10), 9)
    assert one.wants_fetch()
    one.add(*fetched(batch(2, [b"c"]), size=20), 9)
    assert not one.wants_fetch()
    assert one.buffer.size_bytes == 30
    drain(one, out)
    assert one.buffer.size_bytes == 0
    assert one.wants_fetch()


def test_large_records_in_flight_are_bounded_by_their_bytes() -> None:
    one, out = manager(max_unacked_bytes=100_000), Out()
    one.add(*fetched(batch(0, [b"x" * 60_000, b"y" * 60_000])), 4)
    one.add(*fetched(batch(2, [b"z" * 60_000])), 4)
    drain(one, out)
    assert out.offsets() == [0, 1]
    assert not one.may_emit()
    one.ack(0)
    assert drain(one, out) == [EMITTED_END]
    one.ack(1)
    one.ack(2)
    assert one.unacked_bytes == 0


def test_large_records_that_wait_do_not_hold_themselves_back() -> None:
    """One batch may hold more than may be in flight: only what is in flight can be acked."""
    one, out = manager(max_unacked_bytes=50_000), Out()
    one.add(*fetched(batch(0, [bytes([65 + n]) * 20_000 for n in range(6)])), 6)
    for offset in range(6):
        one.begin_turn(0.0, 1)
        assert one.next(out) is not NO_EMITTED
        one.ack(offset)
    assert out.offsets() == [0, 1, 2, 3, 4, 5]
    assert one.unacked_bytes == 0


def test_large_records_beyond_the_end_count_for_nothing() -> None:
    """They are never emitted, so nobody would ever ack them."""
    one, out = manager(max_unacked_bytes=50_000, end=1), Out()
    one.add(*fetched(batch(0, [b"a" * 20_000] * 6)), 6)
    drain(one, out)
    one.ack(0)
    assert one.at_end and one.may_emit() and not one._heavy


@pytest.mark.parametrize("sizes", [[70_000], [70_000] * 3, [40_000] * 5])
@pytest.mark.parametrize("most", [1, 10])
@pytest.mark.parametrize("scheme", [StringScheme(), FunctionScheme(lambda record: [["word"]], ["word"])])
def test_batches_behind_the_end_are_never_emitted_however_large(sizes: list[int], most: int, scheme: Any) -> None:
    """Nothing of them waits once they are cut, though they are as much as is unpacked at a time."""
    one, out = manager(scheme, end=2), Out()
    behind = [batch(3 + n, [b"x" * size]) for n, size in enumerate(sizes)]
    one.add(*fetched(batch(0, [b"a", b"b", b"c"]), *behind), 3 + len(sizes))
    while one.next(out, most) is not NO_EMITTED:
        pass
    one.ack_many([0, 1])
    assert out.offsets() == [0, 1] and one.at_end and one.last_completed_offset() == 2
    assert not one._heavy and one.buffer.unpacked_bytes == 0


def test_of_a_compacted_batch_with_records_behind_the_end_alone_none_waits() -> None:
    one, out = manager(end=4), Out()
    gap = batch(1, [b"x" * 70_000], deltas=[9])
    behind = [batch(11 + n, [b"x" * 70_000]) for n in range(2)]
    one.add(*fetched(batch(0, [b"x" * 70_000]), gap, *behind), 13)
    while one.next(out, 10) is EMITTED_MORE_LEFT:
        assert len(one.buffer.waiting), "more is left where something waits"
    assert out.offsets() == [0] and one.at_end and one.ledger.position == 4


def test_a_batch_behind_the_end_is_not_given_to_the_scheme() -> None:
    seen: list[Any] = []

    class Watching(StringScheme):
        def deserialize_columns(self, keys: Any, values: Any) -> Any:
            seen.extend(values)
            return super().deserialize_columns(keys, values)

    one, out = manager(Watching(), end=1), Out()
    one.add(*fetched(batch(0, [b"a"]), batch(1, [b"b"]), batch(2, [b"c"])), 3)
    drain(one, out)
    assert seen == [b"a"] and one.at_end


def turns(one: PartitionManager, out: Out, now_s: float = 0.0, **more: Any) -> int:
    """Turns of ten records as long as any is emitted; how many were."""
    before = len(out.sent)
    while True:
        at = len(out.sent)
        one.begin_turn(now_s, 10, **more)
        for _ in range(10):
            one.next(out)
        if len(out.sent) == at:
            return at - before


def test_small_records_in_flight_or_failed_are_bounded_by_their_bytes_too() -> None:
    """By their usual size, within a turn: what waits for a retry keeps its values, and is nobody's open tree."""
    one, out = manager(limit=0, max_unacked_bytes=100_000), Out()
    for base in (0, 100, 200):
        one.add(*fetched(batch(base, [b"x" * 1000] * 100)), 300)
    assert turns(one, out) == 100
    for offset in range(100):
        one.fail(offset, 0.0)
    assert turns(one, out) == 0, "what failed counts as before"
    assert turns(one, out, 9.0) == 100 and out.offsets() == [*range(100)] * 2, "retries may always come"
    for offset in range(100):
        one.ack(offset)
    assert turns(one, out, 9.0) == 100 and one.unacked_bytes == 100_000
    for offset in range(100, 200):
        one.ack(offset)
    assert one.unacked_bytes == 0


def test_large_and_small_records_are_weighed_apart() -> None:
    """A record of a megabyte makes its thousand neighbours no heavier."""
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"x" * 1_000_000, *[b"y" * 100] * 99])), 100)
    drain(one, out)
    assert one.unacked_bytes == 1_000_000 + 99 * 100
    one.ack(0)
    assert one.unacked_bytes == 99 * 100


def test_records_that_fail_count_by_their_own_size_beside_small_ones_that_do_not() -> None:
    """A hundred of 15 KiB among thousands of ten bytes: the mean of all would say a fortieth of what is kept."""
    one, out = manager(limit=0, max_unacked_bytes=1_000_000), Out()
    for base in range(0, 4000, 40):
        one.add(*fetched(batch(base, [b"x" * 10] * 39 + [b"y" * 15 * 1024])), 4000)
        turns(one, out)
        one.ack_many(range(base, base + 39))
        one.fail(base + 39, 0.0)
    failed = len(set(out.offsets())) // 40
    own = value_bytes("y" * 15 * 1024)
    assert one.unacked_bytes == failed * own and 1_000_000 <= failed * own < 1_000_000 + own
    assert not one.may_emit()
    assert turns(one, out, 99.0) == failed, "as a retry"
    assert one.unacked_bytes == failed * own
    one.ack_many(out.offsets()[-failed:])
    assert one.unacked_bytes == 0 and one.may_emit()


class Line(NamedTuple):
    text: str


def test_a_failed_record_counts_with_all_its_rows_of_whatever_type() -> None:
    scheme = FunctionScheme(lambda record: [Line("x" * 5000), ("y" * 3000,), ["z"]], ["word"])
    one, out = manager(scheme), Out()
    one.add(*fetched(batch(0, [b"a"])), 1)
    drain(one, out)
    one.fail(0, 0.0)
    assert one.unacked_bytes == sum(map(value_bytes, ["x" * 5000, "y" * 3000, "z"]))


class OpenRecords:
    """A manager under random calls, and a plain table of what it should count: offset -> bytes, None for the mean."""

    SIZES = (1, 900, 15_000, HEAVY_RECORD_BYTES, 40_000)

    def __init__(self, seed: int, on_poison: str) -> None:
        self.random = random.Random(seed)
        self.one = manager(limit=1, on_poison=on_poison)
        self.out = Out()
        self.out.as_one = bool(seed % 2)
        self.out.refuse = {"r" * size for size in self.SIZES}
        self.skips = on_poison == "skip"
        self.values: list[bytes | None] = []
        self.open: dict[int, int | None] = {}
        self.in_flight: set[int] = set()
        self.now = 0.0

    def size(self, offset: int) -> int | None:
        value = self.values[offset] or b""
        return len(value) if len(value) >= HEAVY_RECORD_BYTES else None

    def fetch(self) -> None:
        one, start = self.one, self.one.buffer.position
        if not one.wants_fetch():
            return
        while len(self.values) < start + 6:
            kind = self.random.choice([b"v", b"v", b"v", b"v", b"r", b"\xff", None])
            self.values.append(None if kind is None else kind * self.random.choice(self.SIZES))
        one.add(*fetched(batch(start, self.values[start : start + 6])), len(self.values))

    def emit(self) -> None:
        before, position = len(self.out.sent), self.one.ledger.position
        self.one.begin_turn(self.now, 8)
        while self.one.next(self.out, self.random.choice([1, 8])) is not NO_EMITTED:
            if self.random.random() < 0.2:
                break
        for offset in range(position, self.one.ledger.position):
            value = self.values[offset] or b""
            if self.skips:
                continue
            if offset in self.one.passed or value[:1] == b"r":
                self.open[offset] = self.size(offset)
            elif value[:1] == b"\xff":
                record = Record(P.topic, P.number, offset, 0, None, value, batch(0, [value]).headers(0))
                self.open[offset] = sum(map(value_bytes, record))
        for offset in self.out.offsets()[before:]:
            self.in_flight.add(offset)
            self.open.setdefault(offset, self.size(offset))

    def some(self) -> list[int]:
        return self.random.sample(sorted(self.in_flight), self.random.randint(0, len(self.in_flight)))

    def ack(self) -> None:
        done = self.some()
        for offset in done:
            del self.open[offset]
        self.in_flight.difference_update(done)
        late = [offset for offset in range(self.one.ledger.position) if offset not in self.in_flight][:3]
        self.one.ack_many([*done, *late])

    def ack_set(self) -> None:
        for ids in self.out.given[-1:]:
            for offset in self.in_flight.intersection(ids.offsets):
                self.in_flight.remove(offset)
                del self.open[offset]
            self.one.ack_set(ids)

    def fail(self) -> None:
        for offset in self.some()[:3]:
            self.in_flight.remove(offset)
            value = self.values[offset]
            assert value is not None
            self.open[offset] = value_bytes(str(value, "utf-8"))
            how = self.random.choice(["fail", "fail", "lost", "crashed", "dead_letter"])
            given_up = how in ("crashed", "dead_letter")
            if how == "crashed":
                self.one.crashed(offset, FailureCause("count"), 3)
            elif how == "dead_letter":
                self.one.dead_letter(offset, FailureCause("count"))
            else:
                given_up = self.one.fail(offset, self.now, lost=how == "lost") is None and how == "fail"
            if given_up and self.skips:
                del self.open[offset]

    def write_letters(self) -> None:
        letters, self.one.given_up[:] = [*self.one.given_up], []
        for letter in letters:
            del self.open[letter.record.offset]
            if self.random.random() < 0.5:
                self.one.dead_letter_written(letter.record.offset)
            else:
                self.one.letter_written(letter.record.offset)

    def wait(self) -> None:
        self.now += self.random.random() * 5

    def reset(self) -> None:
        self.one.pause(True)
        self.one.pause(False)
        if not self.skips:
            upcoming = range(self.one.ledger.position, self.one.ledger.position + 6)
            self.one.passed = {self.random.choice(upcoming): LastTry(Fault(None, "E", "no"), 2)}

    def check(self) -> None:
        by_mean = [*self.open.values()].count(None)
        own = sum(size for size in self.open.values() if size is not None)
        assert self.one.ledger.open_count == len(self.open)
        assert self.one.unacked_bytes == own + int(by_mean * self.one.buffer.usual_bytes)
        assert len(self.one.buffer.heavy) <= len(self.one.buffer.waiting), "none is noted that does not wait"


@pytest.mark.parametrize("on_poison", ["skip", "dead-letter"])
def test_what_is_open_counts_once_and_by_its_size_in_any_order_of_answers(on_poison: str) -> None:
    for seed in range(150):
        records = OpenRecords(seed, on_poison)
        acts = [records.fetch, records.fetch, records.emit, records.emit, records.ack, records.ack_set]
        acts += [records.fail, records.fail, records.write_letters, records.wait, records.reset]
        for _ in range(80):
            records.random.choice(acts)()
            records.check()
        while records.open or records.one.at_hand:
            records.wait()
            records.emit()
            records.ack()
            records.write_letters()
        records.check()
        assert records.one.unacked_bytes == 0 and not records.one._troubled and not records.one.buffer.heavy


def test_a_spout_that_holds_back_emits_what_failed_and_nothing_new() -> None:
    one, out = manager(limit=0), Out()
    one.add(*fetched(batch(0, [b"x"] * 50)), 50)
    assert turns(one, out, holds_back=True) == 0
    one.begin_turn(0.0, 10)
    one.next(out)
    one.fail(0, 0.0)
    assert turns(one, out, 9.0, holds_back=True) == 1 and out.offsets() == [0, 0]


class Lines(StringScheme):
    """A ready scheme with another ``deserialize``, as one derives a class."""

    def deserialize(self, record: Record) -> list[Any]:
        return [[line] for line in str(record.value, "utf-8").split("|")]


def test_a_derived_scheme_says_what_a_record_becomes() -> None:
    """The columns of the class it is derived from know nothing of it."""
    one, out = manager(Lines()), Out()
    one.add(*fetched(batch(0, [b"a|b"])), 1)
    drain(one, out)
    assert out.sent == [([["a"], ["b"]], (7, 0))]


def test_what_is_uncommitted_is_bounded_and_retries_pass_the_bound() -> None:
    one, out = manager(max_uncommitted_offsets=4), Out()
    for base in (0, 2, 4):
        one.add(*fetched(batch(base, [b"a", b"b"])), 6)
    drain(one, out)
    assert out.offsets() == [0, 1, 2, 3]
    one.fail(0, 0.0)
    one.begin_turn(9.0, 10)
    drain(one, out)
    assert out.offsets() == [0, 1, 2, 3, 0]
    for offset in range(4):
        one.ack(offset)
    assert one.commit_is_pressing
    one.ledger.committed_to(4)
    one.begin_turn(10.0, 10)
    drain(one, out)
    assert out.offsets()[-2:] == [4, 5]


def test_where_one_record_is_stuck_no_commit_presses() -> None:
    """Nothing could be committed here, and the other partitions' commits would follow each other without a pause."""
    one, out = manager(max_uncommitted_offsets=4), Out()
    one.add(*fetched(batch(0, [b"a"] * 4)), 4)
    drain(one, out)
    one.ack_many([1, 2, 3])
    assert not one.commit_is_pressing
    one.ack(0)
    assert one.commit_is_pressing


def test_k7_what_a_kill_brings_again_above_an_open_record_ends_a_turn_past_the_bound() -> None:
    """All others are done and every turn commits, so the open one alone holds the committed offset back."""
    bound, turn = 40, 16
    one, out = manager(max_uncommitted_offsets=bound), Out()
    one.add(*fetched(batch(0, [b"a"] * 200)), 200)
    for now in range(50):
        one.begin_turn(float(now), turn)
        one.next(out, turn)
        one.ack_many(range(1, one.ledger.position))
        one.ledger.committed_to(one.last_completed_offset())
    assert one.ledger.open_count == 1 and one.ledger.committed == 0
    assert bound <= one.ledger.position - one.ledger.committed < bound + turn
    after, again = manager(start=one.ledger.committed), Out()
    after.add(*fetched(batch(0, [b"a"] * 200)), 200)
    while after.ledger.position < one.ledger.position:
        after.next(again)
    assert again.offsets() == out.offsets(), "each of them, done or not"
    one.ack(0)
    one.ledger.committed_to(one.last_completed_offset())
    one.begin_turn(51.0, turn)
    assert one.next(out, turn) is EMITTED_MORE_LEFT


def test_until_caught_up_nothing_past_the_fixed_end_is_emitted() -> None:
    one, out = manager(end=3), Out()
    one.add(*fetched(batch(0, [b"a"] * 5)), 5)
    drain(one, out)
    assert out.offsets() == [0, 1, 2]
    assert one.at_end and one.fetched_all and not one.wants_fetch()
    for offset in range(3):
        one.ack(offset)
    assert one.last_completed_offset() == 3


def test_answers_for_an_offset_never_emitted_are_ignored() -> None:
    one = manager()
    one.ack(5)
    one.fail(6, 0.0)
    assert one.ledger.counts.ignored == 2


def test_the_leader_epoch_of_a_commit_is_that_of_the_record_before_it() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b"], epoch=4), batch(2, [b"c"], epoch=9)), 3)
    drain(one, out)
    assert [one.buffer.leader_epoch_at(offset) for offset in (0, 1, 2, 3)] == [-1, 4, 4, 9]


def test_k9_5_how_far_behind_a_partition_is_counts_from_what_is_committed() -> None:
    one, out = manager(), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 50)
    drain(one, out)
    assert one.lag == 50
    one.ack(0)
    one.ack(1)
    one.ledger.committed_to(2)
    assert one.lag == 48


def test_k9_5_a_partition_that_is_far_behind_goes_on_where_it_stands() -> None:
    """Nothing is passed over to catch up, and no record goes out twice."""
    one, out = manager(), Out()
    for base, log_end in ((0, 1_000_000), (2, 2_000_000), (4, 4_000_000)):
        one.add(*fetched(batch(base, [b"a", b"b"])), log_end)
        drain(one, out)
        assert one.buffer.position == one.ledger.position == base + 2 and one.lag == log_end
    assert out.offsets() == list(range(6))


# -- one invariant, any schedule --------------------------------------------------------------------------------


class ManagerMachine(RuleBasedStateMachine):
    """Records with holes, tombstones and invisible tails; acks, failures, retries, refetches in any order.

    Once every emitted record is acked, the committable offset is the read position; nothing is skipped on the way.
    """

    def __init__(self) -> None:
        super().__init__()
        self.one = manager(limit=0)
        self.out = Out()
        self.now = 0.0
        self.log: list[tuple[int, bytes | None]] = []
        self.log_end = 0
        self.in_flight: set[int] = set()
        self.acked: set[int] = set()
        self.first_seen: list[int] = []

    @rule(gap=st.integers(0, 2), tail=st.integers(0, 2), values=st.lists(st.sampled_from([b"v", None]), max_size=4))
    def append(self, gap: int, tail: int, values: list[bytes | None]) -> None:
        base = self.log_end + gap
        self.log += [(base + index, value) for index, value in enumerate(values)]
        self.log_end = base + len(values) + tail

    @precondition(lambda self: self.one.wants_fetch() and self.one.buffer.position < self.log_end)
    @rule(count=st.integers(1, 5))
    def fetch(self, count: int) -> None:
        start = self.one.buffer.position
        rows = [row for row in self.log if row[0] >= start]
        taken = rows[:count]
        end = self.log_end if len(taken) == len(rows) else taken[-1][0] + 1
        deltas = [offset - start for offset, _ in taken]
        self.one.add(*fetched(batch(start, [value for _, value in taken], deltas=deltas, end=end)), self.log_end)

    @rule(turns=st.integers(1, 4))
    def emit(self, turns: int) -> None:
        self.one.begin_turn(self.now, 4)
        for _ in range(turns):
            before = len(self.out.sent)
            self.one.next(self.out)
            for offset in self.out.offsets()[before:]:
                assert offset not in self.in_flight and offset not in self.acked
                self.in_flight.add(offset)
                if offset not in self.first_seen:
                    assert not self.first_seen or offset > self.first_seen[-1]
                    self.first_seen.append(offset)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), ok=st.booleans())
    def answer(self, data: st.DataObject, ok: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.in_flight.remove(offset)
        if ok:
            self.acked.add(offset)
            self.one.ack(offset)
        else:
            self.one.fail(offset, self.now)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), late=st.lists(st.integers(0, 40), max_size=2))
    def answer_several(self, data: st.DataObject, late: list[int]) -> None:
        """Some are acked at once, among them what is not in flight (any more)."""
        done = data.draw(st.sets(st.sampled_from(sorted(self.in_flight)), min_size=1))
        late = [offset for offset in late if offset not in self.in_flight]
        ignored = self.one.ledger.counts.ignored
        self.in_flight -= done
        self.acked |= done
        self.one.ack_many([*done, *late])
        assert self.one.ledger.counts.ignored == ignored + len(late)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def connection_lost(self) -> None:
        self.one.buffer.refetch()

    @rule()
    def commit(self) -> None:
        self.one.ledger.committed_to(self.one.last_completed_offset())

    @invariant()
    def nothing_undone_lies_below_the_commit(self) -> None:
        done = self.one.last_completed_offset()
        assert all(offset in self.acked for offset, value in self.log if value is not None and offset < done)

    def teardown(self) -> None:
        for _ in range(200):
            self.now += 100
            while self.one.wants_fetch() and self.one.buffer.position < self.log_end:
                self.fetch(5)
            self.emit(4)
            for offset in list(self.in_flight):
                self.in_flight.remove(offset)
                self.acked.add(offset)
                self.one.ack(offset)
            self.commit()
        assert self.one.last_completed_offset() == self.one.ledger.position == self.log_end
        assert self.acked == {offset for offset, value in self.log if value is not None}


ManagerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestManagerUnderRandomSchedules = ManagerMachine.TestCase


def test_a_record_that_was_lost_with_workers_is_tried_as_often_as_it_takes() -> None:
    """``retry_limit`` is for records that fail; a worker that dies has nothing to do with them."""
    one, out = manager(limit=1), Out()
    one.add(*fetched(batch(0, [b"a"])), 1)
    drain(one, out)
    for turn in range(5):
        one.fail(0, turn * 10.0, lost=True)
        one.begin_turn(turn * 10.0 + 5.0, 10)
        drain(one, out)
    assert out.offsets() == [0] * 6 and one.poisoned is None
    one.ack(0)
    assert one.last_completed_offset() == 1


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_record_that_killed_its_worker_too_often_follows_the_policy(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever tries it has left; it is named with the death."""
    one, out = manager(limit=20, on_poison=policy), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    drain(one, out)
    one.ack(1)
    one.crashed(0, FailureCause("parse", "WorkerDied", "the worker was killed by SIGSEGV (3 times so far)"), 3)
    if policy == "skip":
        assert one.ledger.counts.given_up == 1 and one.last_completed_offset() == 2
        assert "lines-3 offset 0 given up (on_poison=skip)" in caplog.text and "SIGSEGV (3 times" in caplog.text
    else:
        assert one.poisoned is not None and "offset 0" in str(one.poisoned) and "SIGSEGV" in str(one.poisoned)
        assert one.last_completed_offset() == 0
    one.crashed(0, FailureCause("parse", "WorkerDied", "once more"), 4)
    assert one.ledger.counts.given_up == (policy == "skip")


# -- a scheme that is not ready ----------------------------------------------------------------------------------


class Lacking:
    """A scheme of columns, or one without, that lacks something for words that begin with ``?``."""

    outputs = ("word",)

    def __init__(self) -> None:
        self.ready = False
        self.asked = 0

    def deserialize(self, record: Record) -> list[list[str]]:
        self.asked += 1
        if record.value == b"bad":
            raise ValueError("no word")
        if bytes(record.value or b"").startswith(b"?") and not self.ready:
            raise SchemeNotReady("the registry is away.")
        return [[str(record.value, "utf-8")]]


class LackingColumns(Lacking):
    def deserialize(self, record: Record) -> list[list[str]]:
        return super().deserialize(record)

    def deserialize_columns(self, keys: Any, values: Any) -> list[list[str]]:
        return [self.deserialize(Record("", 0, 0, 0, None, value, ()))[0] for value in values]


@pytest.mark.parametrize("scheme", [Lacking(), LackingColumns()], ids=["records", "columns"])
@pytest.mark.parametrize("policy", ["stop", "skip", "dead-letter"])
def test_a_record_whose_scheme_is_not_ready_waits_and_nothing_is_lost(
    scheme: Lacking, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheme.ready = False
    one, out = manager(scheme, on_poison=policy), Out()
    one.add(*fetched(batch(0, [b"a", b"?b", b"c", b"?d"])), 4)
    for now in range(20):
        one.begin_turn(float(now), 10)
        drain(one, out)
    assert out.offsets() == [0] and one.ledger.position == 1
    one.ack(0)
    assert one.last_completed_offset() == 1 and one.ledger.counts.given_up == 0 and not one.given_up
    assert one.at_hand and not one.at_end
    said = [row.message for row in caplog.records]
    assert len(said) == 1 and "waits at offset 1" in said[0] and "the registry is away." in said[0]
    scheme.ready = True
    one.begin_turn(100.0, 10)
    drain(one, out)
    assert out.offsets() == [0, 1, 2, 3]
    assert [row.message for row in caplog.records][1:] == [
        "lines-3 goes on at offset 1: " + type(scheme).__name__ + " is ready"
    ]


def test_unpacked_records_that_may_not_leave_are_dropped_at_once_and_not_again_and_again() -> None:
    """At once the first time, again when it is held for a second, or ten seconds after the last time."""
    one, out = manager(max_uncommitted_offsets=2), Out()

    def is_held_from(now_s: float) -> None:
        one.ack_many(range(one.ledger.position))
        one.ledger.committed_to(one.ledger.position)
        one.add(*fetched(batch(one.ledger.position, [b"a", b"b", b"c", b"d"])), 99)
        one.begin_turn(now_s, 10)
        assert [one.next(out), one.next(out)] == [EMITTED_MORE_LEFT] * 2

    def keeps(now_s: float, holds_back: bool = False) -> bool:
        one.begin_turn(now_s, 10, holds_back=holds_back)
        one.drop_unpacked(now_s)
        assert bool(one.buffer.unpacked_bytes) == (one.buffer.position > one.ledger.position)
        return one.buffer.unpacked_bytes > 0

    is_held_from(0.0)
    assert not keeps(0.0)
    is_held_from(1.0)
    assert [keeps(1.0), keeps(1.9), keeps(2.0)] == [True, True, False]
    is_held_from(11.5)
    assert [keeps(11.5), keeps(12.0)] == [True, False]
    is_held_from(30.0)
    one.ack_many([6, 7])
    one.ledger.committed_to(8)
    assert keeps(31.0, holds_back=True), "all of the spout are held back: nobody needs the room"
    assert out.offsets() == [*range(8)]


def test_unpacked_records_whose_scheme_is_not_ready_are_dropped_and_come_again() -> None:
    scheme = Lacking()
    one, out = manager(scheme), Out()
    one.add(*fetched(batch(0, [b"a", b"?b"])), 2)
    for now in range(20):
        one.begin_turn(float(now), 10)
        drain(one, out)
        one.drop_unpacked(float(now))
        if one.buffer.position == 1:
            one.add(*fetched(batch(1, [b"?b"])), 2)
    assert one.at_hand and not one.buffer.unpacked_bytes and 1 < scheme.asked < 15, "held from the first try on"
    scheme.ready = True
    one.begin_turn(100.0, 10)
    drain(one, out)
    assert out.offsets() == [0, 1]


def test_while_a_scheme_is_not_ready_it_is_asked_seldom_and_retries_go_out() -> None:
    scheme = Lacking()
    one, out = manager(scheme), Out()
    one.add(*fetched(batch(0, [b"a", b"?b"])), 2)
    one.begin_turn(0.0, 10)
    drain(one, out)
    one.fail(0, 0.0)
    for turn in range(1000):
        one.begin_turn(turn / 100, 10)
        drain(one, out)
    assert out.offsets() == [0, 0]
    assert scheme.asked < 12


def test_a_record_that_turns_out_poison_after_a_wait_ends_the_wait() -> None:
    class Learns(Lacking):
        def deserialize(self, record: Record) -> list[list[str]]:
            if self.ready and record.value == b"?b":
                raise ValueError("unknown for good")
            return super().deserialize(record)

    scheme = Learns()
    one, out = manager(scheme, on_poison="skip"), Out()
    one.add(*fetched(batch(0, [b"?b", b"c"])), 2)
    one.begin_turn(0.0, 10)
    drain(one, out)
    scheme.ready = True
    one.begin_turn(0.0, 10)
    one.begin_turn(9.0, 10)
    drain(one, out)
    assert out.offsets() == [1] and one.ledger.counts.given_up == 1


# -- streams, and topics that are gone -----------------------------------------------------------------


class TwoOf:
    """Two tuples of each record."""

    outputs = ("value",)

    def deserialize(self, record: Record) -> list[list[Any]]:
        return [[record.value], [record.value]]


@pytest.mark.parametrize("scheme", [StringScheme(), RawScheme(), TwoOf()])
@pytest.mark.parametrize("stream", [None, "others"])
def test_tuples_of_a_topic_go_to_its_stream_retries_too(scheme: Any, stream: str | None) -> None:
    retries = ExponentialBackoffMsgRetryManager(Backoff(1.0, 8.0, 2.0, 0.0), 2)
    one, out = PartitionManager(P, 7, OffsetLedger(0), retries, scheme, EmitLimits(), None, stream), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    drain(one, out)
    one.fail(1, 0.0)
    one.begin_turn(60.0, 10)
    drain(one, out)
    assert len(out.sent) == 3 and set(out.streams) == {stream}
    one.add(*fetched(batch(2, [b"c", b"d"])), 4)
    one.next(out, 100)
    assert set(out.streams) == {stream} and bool(out.calls) == (stream is None and not isinstance(scheme, TwoOf))


def test_a_partition_whose_topic_is_gone_is_finished_when_nothing_is_at_hand_and_nothing_open() -> None:
    one, out = manager(max_uncommitted_offsets=1), Out()
    one.add(*fetched(batch(0, [b"a", b"b"])), 2)
    one.begin_turn(0.0, 10)
    assert one.next(out) is EMITTED_MORE_LEFT
    one.begin_turn(0.0, 10)
    assert one.next(out) is NO_EMITTED and not one.is_finished
    one.end_reading()  # nothing is committed any more: this bound would hold it for ever
    one.begin_turn(0.0, 10)
    drain(one, out)
    assert len(out.sent) == 2 and not one.is_finished
    one.ack_many([0, 1])
    assert one.is_finished


# -- ages --------------------------------------------------------------------------------------------------------------

WALL_MS = 1_700_000_000_000


def timed(base: int, values: list[bytes], age_s: float) -> RecordBatch:
    """A batch whose records are so old at WALL_MS."""
    made = batch(base, values)
    return replace(made, header=replace(made.header, base_timestamp=WALL_MS - int(age_s * 1e3)))


def test_a_record_is_open_since_its_own_emit_also_where_the_partition_was_idle_for_long() -> None:
    one, out = manager(), Out()
    one.begin_turn(0.0, 10)
    one.next(out)
    one.add(*fetched(timed(0, [b"a"], 1.0)), 1)
    one.begin_turn(100.0, 10)
    one.next(out)
    assert one.ages(101.0, WALL_MS).open_s == 1.0


def test_a_partition_is_as_far_behind_as_its_next_record_to_be_done_is_old() -> None:
    one, out = manager(), Out()
    assert one.ages(0.0, WALL_MS) == (0.0, None, None), "nothing is there"
    one.add(*fetched(timed(0, [b"a", b"b"], 90.0)), 4)
    one.add(*fetched(timed(2, [b"c", b"d"], 30.0)), 4)
    assert one.ages(0.0, WALL_MS).behind_s is None, "not read yet"
    one.begin_turn(10.0, 10)
    one.next(out)
    one.begin_turn(12.0, 10)
    drain(one, out)
    assert one.ages(15.0, WALL_MS) == (90.0, 0, 5.0)
    one.ack(0)
    assert one.ages(15.0, WALL_MS) == (90.0, 1, 3.0)
    one.ack_many([1])
    one.fail(2, 12.0)
    assert one.ages(15.0, WALL_MS) == (30.0, 2, 3.0), "one that waits for its retry is open"
    one.ack_many([3])
    one.begin_turn(60.0, 10)
    drain(one, out)
    one.ack(2)
    assert one.ages(61.0, WALL_MS) == (0.0, None, None)
    one.add(iter(()), 0, 4, 9)
    assert one.ages(61.0, WALL_MS).behind_s == 30.0, "of a record that was not fetched: the time of the one before"
    assert one.ages(61.0, WALL_MS - 60_000).behind_s == 0.0, "a producer's clock that is ahead"


def test_how_far_behind_is_not_known_where_no_broker_has_answered_for_long() -> None:
    """Unless it is read to its fixed end: nothing more is asked then."""
    one, bounded = manager(), manager(end=0)
    for each in (one, bounded):
        each.answered_s = 100.0
    assert one.ages(100.0 + SILENT_S, WALL_MS).behind_s == 0.0
    assert one.ages(100.1 + SILENT_S, WALL_MS).behind_s is None
    assert bounded.ages(100.1 + SILENT_S, WALL_MS).behind_s == 0.0


def test_a_record_that_waits_to_be_unpacked_is_as_old_as_its_header_says() -> None:
    """After two idle hours, while nothing may be emitted: the time of the record before would call somebody."""
    one, out = manager(), Out()
    one.add(*fetched(timed(0, [b"a"], 7200.0)), 1)
    drain(one, out)
    one.ack(0)
    one.ledger.committed_to(1)
    one.add(*fetched(timed(1, [b"b"], 1.0)), 2, time_ms=WALL_MS - 1000)
    assert one.ages(0.0, WALL_MS).behind_s == 1.0
    drain(one, out)
    assert one.ages(0.0, WALL_MS).behind_s == 1.0
