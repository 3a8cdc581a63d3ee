"""One batch: its bytes, its one final state, its memory, and what a split keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.accumulator import BufferPool
from streamlet.kafka.producer.producer_batch import BatchState, ProducerBatch, increment_sequence
from streamlet.kafka.producer.record_future import FutureRecordMetadata, run_callbacks, split_batch
from streamlet.kafka.records.appending import HEADER_SIZE, encode_plain, encode_record, upper_bound
from streamlet.kafka.records.compression import Compression
from streamlet.kafka.records.record_batch import ReadOptions, read_batches

TP = TopicPartition("t", 3)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple),
        st.integers(-50_000, 50_000),
    ),
    min_size=1,
    max_size=40,
)
Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def batch_of(records: list[Record], start: int = 1_700_000_000_000) -> ProducerBatch:
    batch = ProducerBatch(TP, start + records[0][3], 0.0)
    for index, (key, value, headers, shift) in enumerate(records):
        part = encode_record(key, value, headers, start + shift - batch.base_timestamp, index)
        assert len(part) <= upper_bound(key, value, headers)
        batch.append(part, start + shift)
    return batch


def answered(batch: ProducerBatch) -> ProducerBatch:
    """Send a batch, and have its request end."""
    batch.move(BatchState.IN_FLIGHT)
    batch.answered()
    return batch


def decoded(batch: ProducerBatch, codec: Compression = Compression.NONE) -> list[tuple[object, ...]]:
    raw = batch.encode(codec)
    (found,) = read_batches(memoryview(raw), ReadOptions("t", 3, 0, True, True, 1 << 26), ())
    rows = zip(found.keys, found.values, found.timestamps(), strict=True)
    return [(key, value, when) for key, value, when in rows]


@given(RECORDS, st.sampled_from(Compression))
def test_a_batch_is_read_back_as_it_was_appended(records: list[Record], codec: Compression) -> None:
    """By the reader, with its checksum; times may go backwards."""
    batch = batch_of(records)
    start = 1_700_000_000_000
    assert decoded(batch, codec) == [(key, value, start + shift) for key, value, _headers, shift in records]
    assert batch.size == HEADER_SIZE + sum(map(len, batch.parts))


@given(
    st.none() | st.binary(max_size=9000),
    st.none() | st.binary(max_size=9000),
    st.integers(-10, 9000),
    st.integers(0, 9000),
)
def test_the_fast_form_of_a_record_is_the_same(key: bytes | None, value: bytes | None, delta: int, offset: int) -> None:
    """Byte for byte, on both sides of every limit."""
    assert encode_plain(key, value, delta, offset) == encode_record(key, value, (), delta, offset)


@given(RECORDS, st.integers(HEADER_SIZE + 1, 2000), st.integers(0, 0x7FFFFFFF))
def test_a_split_keeps_records_order_sequences_and_futures(records: list[Record], size: int, sequence: int) -> None:
    """The parts together are the whole; every future follows to its part."""
    batch = batch_of(records)
    whole = decoded(batch)
    batch.set_producer_state(7, 1, sequence)
    called: list[int] = []
    futures = [FutureRecordMetadata(batch, index, 0) for index in range(len(records))]
    for index in (0, len(records) - 1):
        futures[index].add_callback(lambda metadata: called.append(metadata.offset))
    parts = split_batch(batch, lambda one: one.split(size))
    assert [row for part in parts for row in decoded(part)] == whole
    assert all(part.count == 1 or part.size <= size for part in parts)
    expected = sequence
    for part in parts:
        assert part.base_sequence == expected
        expected = increment_sequence(expected, part.count)
    offset = 100
    for part in parts:
        assert answered(part).complete(offset, -1)
        offset += part.count
        run_callbacks(part)
    assert [future.get(0).offset for future in futures] == list(range(100, 100 + len(records)))
    assert called == [100, 99 + len(records)]


ENDS = (
    (ProducerBatch.fail, BatchState.FAILED),
    (ProducerBatch.abort, BatchState.ABORTED),
)


def stays_over(batch: ProducerBatch) -> None:
    """A success and a failure that come later change nothing; it is never aborted twice."""
    assert batch.is_over and not batch.complete(5, -1) and not batch.fail(KafkaError("y"))
    with pytest.raises(RuntimeError, match="its final state is set once"):
        batch.abort(KafkaError("z"))
    assert batch.base_offset == -1 and str(batch.error) == "x"


def test_e3_the_first_final_state_stays() -> None:
    """A late success after a failure is false, a second failure too; after success anything is a mistake of ours."""
    for end, state in ENDS:
        batch = batch_of([(None, b"v", (), 0)])
        end(batch, KafkaError("x"))
        assert batch.state is state
        stays_over(batch)
        assert batch.state is state
    batch = batch_of([(None, b"v", (), 0)])
    assert answered(batch).complete(5, -1) and batch.state is BatchState.SUCCEEDED
    for again in (
        lambda: batch.complete(6, -1),
        lambda: batch.fail(KafkaError("x")),
        lambda: batch.abort(KafkaError("x")),
    ):
        with pytest.raises(RuntimeError, match="its final state is set once"):
            again()


def test_e3_what_is_given_up_in_flight_ends_as_it_was_given_up() -> None:
    """Expired: FAILED; aborted: ABORTED. It is over for its futures at once, and for the socket with its request."""
    for end, state in ENDS:
        batch = batch_of([(None, b"v", (), 0)])
        batch.move(BatchState.IN_FLIGHT)
        end(batch, KafkaError("x"))
        stays_over(batch)
        assert batch.state is BatchState.GIVEN_UP and batch.on_wire
        batch.answered()
        stays_over(batch)
        assert batch.state is state and not batch.on_wire


def test_e4_callbacks_run_once_in_order_and_one_that_raises_hurts_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """In the order of records whatever the order of registration; who waits is released after them."""
    batch = batch_of([(None, b"v", (), n) for n in range(3)])
    futures = [FutureRecordMetadata(batch, index, 0) for index in range(3)]
    seen: list[object] = []

    def broken(metadata: object) -> None:
        seen.append("broken")
        raise ValueError("mine")

    futures[2].add_callback(lambda metadata: seen.append(metadata.offset))
    futures[0].add_callback(lambda metadata: seen.append((metadata.offset, futures[0].is_done)))
    futures[1].add_callback(broken)
    futures[1].add_errback(lambda error: seen.append("never"))
    futures[0].add_callback(lambda metadata: futures[2].add_callback(lambda again: seen.append("late")))
    assert not futures[0].is_done and futures[0].value is None and futures[0].exception is None
    answered(batch).complete(10, -1)
    assert run_callbacks(batch) == 1
    assert seen == [(10, False), "broken", 12, "late"]
    assert all(future.is_done and future.succeeded() and not future.failed() for future in futures)
    futures[1].add_callback(
        seen.append,
    )
    assert seen[-1] == futures[1].get()
    assert "raised" in caplog.text and "mine" in caplog.text


def test_e4_errbacks_get_the_error() -> None:
    """add_both too, and extra arguments come first, as in kafka-python."""
    batch = batch_of([(None, b"v", (), 0)])
    future = FutureRecordMetadata(batch, 0, 0)
    seen: list[object] = []
    future.add_errback(lambda *args, **kwargs: seen.append((args, kwargs)), "a", b=1)
    future.add_both(seen.append)
    error = KafkaError("no")
    batch.fail(error)
    run_callbacks(batch)
    assert seen == [(("a", error), {"b": 1}), error]
    assert future.failed() and future.exception is error
    with pytest.raises(KafkaError, match="no"):
        future.get(0)


@given(st.lists(st.integers(1, 100), max_size=60), st.data())
def test_e4_memory_is_served_in_order_and_never_lost(wants: list[int], data: st.DataObject) -> None:
    """Whoever waits longest is served first; what is taken, waited for and given back adds up."""
    pool = BufferPool(100)
    held: list[int] = []
    waiting: list[tuple[int, object]] = []
    for want in wants:
        if pool.try_take(want):
            assert not waiting
            held.append(want)
        else:
            waiting.append((want, pool.wait(want)))
        if held and data.draw(st.booleans()):
            pool.free(held.pop())
        if waiting and data.draw(st.integers(0, 5)) == 0:
            _want, gone = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            pool.leave(gone)  # type: ignore[arg-type]
        served = [row for row in waiting if row[1].served]  # type: ignore[attr-defined]
        assert served == waiting[: len(served)]
        held += [want for want, _ in served]
        waiting = waiting[len(served) :]
        assert pool.available >= 0 and pool.exhausted == bool(waiting)
        assert sum(held) + sum(row[1].got for row in waiting) == pool.in_use  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="given back twice"):
        pool.free(101)


def test_the_parts_of_a_batch_that_was_sent_before_may_be_in_the_log() -> None:
    """An earlier try may have been written: they do not expire as never sent."""
    whole = ProducerBatch(TopicPartition("t", 0), 0, 0.0)
    for index in range(4):
        whole.append(encode_record(None, b"x" * 10, (), 0, index), 0)
    whole.attempts, whole.last_attempt_s = 2, 3.0
    parts = whole.split(100)
    assert all(part.was_sent and part.attempts == 2 and part.last_attempt_s == 3.0 for part in parts)
