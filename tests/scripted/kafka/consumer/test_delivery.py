"""What counts as handed out, and as worked on: iterations, pauses and errors of the user's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.base.errors import WrongArgument
from streamlet.kafka import Consumer, OffsetAndMetadata, TopicPartition
from streamlet.kafka.consumer.delivery import Deserializers
from streamlet.kafka.consumer.errors import NotAssigned
from streamlet.kafka.consumer.records import Chunk
from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.protocol.messages.fetch import FetchResponse, FetchTopicResponse
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.kafka.records.record_batch import ReadOptions, read_batches
from tests.scripted.fake_broker import SILENCE, FakeBroker
from tests.scripted.kafka.consumer.scripted import ONE, PATIENCE_S, ZERO, poll_until
from tests.whole_batches import NewRecord, encode_batch


@pytest.fixture
def commits(broker: FakeBroker) -> list[dict[int, int]]:
    """Each commit that the broker took, by partition; partition 0 has 20 records, ten a batch."""
    found: list[dict[int, int]] = broker.cluster.fill("t", 20, 20).commits
    return found


@pytest.fixture
def reader(broker: FakeBroker, commits: list[dict[int, int]]) -> Iterator[Consumer]:
    """Of partition 0, committing by itself, but not by its timer."""
    consumer = Consumer(
        bootstrap_servers=broker.address, group_id="g", auto_commit_interval_ms=3_600_000, fetch_max_wait_ms=50
    )
    consumer.assign([ZERO])
    consumer.seek(ZERO, 0)
    yield consumer
    consumer.close(2)


class Fails(Exception):
    pass


def by_iteration(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == 7:
            raise Fails


def by_poll(consumer: Consumer) -> None:
    while True:
        for records in consumer.poll(50, max_records=5).values():
            if records[-1].offset >= 7:
                raise Fails


def by_columns(consumer: Consumer) -> None:
    while True:
        for columns in consumer.poll_columns(50, max_records=5).values():
            if columns.offsets[-1] >= 7:
                raise Fails


@pytest.mark.parametrize(("read", "committed"), [(by_iteration, 7), (by_poll, 5), (by_columns, 5)])
def test_c7_what_was_in_hand_when_an_error_ended_the_block_is_not_committed(
    read: Callable[[Consumer], Any], committed: int, reader: Consumer, commits: list[dict[int, int]]
) -> None:
    """The error may be of the work on these very records: they are read again, and not lost."""
    with pytest.raises(Fails), reader:
        read(reader)
    assert commits == [{0: committed}]


def test_c7_a_block_that_ends_well_or_while_it_polls_commits_all_that_was_given(
    reader: Consumer, commits: list[dict[int, int]]
) -> None:
    """Who came back for more has worked on what it had."""
    with pytest.raises(Fails), reader:
        assert len(poll_until(reader, lambda: reader.position(ZERO) == 20)) == 20
        reader.poll(0)
        raise Fails
    assert commits == [{0: 20}]


def test_c7_what_the_user_committed_is_not_taken_back(reader: Consumer, commits: list[dict[int, int]]) -> None:
    """A commit of its own says that the work is done."""
    with pytest.raises(Fails), reader:
        while not reader.poll(50, max_records=5):
            pass
        reader.commit()
        raise Fails
    assert commits[-1] == {0: 5}


@pytest.mark.parametrize(
    ("named", "committed"), [([3], 3), ([8], 8), ([None, 3], 3), ([3, None], 5), ([4, 3], 3), ([None, 3, "seek"], 1)]
)
def test_c7_the_last_offset_committed_by_name_holds_when_an_error_ends_the_block(
    named: list[Any], committed: int, reader: Consumer, commits: list[dict[int, int]]
) -> None:
    """Before what was given or behind it, and after a commit of all; a seek is a newer word."""
    with pytest.raises(Fails), reader:
        while not reader.poll(50, max_records=5):
            pass
        for offset in named:
            if offset == "seek":
                reader.seek(ZERO, 1)
            else:
                reader.commit(None if offset is None else {ZERO: OffsetAndMetadata(offset, metadata="mine")})
        raise Fails
    assert commits[-1] == {0: committed}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("read", [by_poll, by_iteration])
def test_c7_a_commit_of_some_records_leaves_the_others_in_hand(
    read: Callable[..., Any], asynchronous: bool, reader: Consumer, commits: list[dict[int, int]]
) -> None:
    """Of the same partition: an error at the next record must not commit it, nor those behind it."""

    def work() -> None:
        if read is by_iteration:
            for record in reader:
                done(record.offset)
        while True:
            for records in reader.poll(50, max_records=10).values():
                for record in records:
                    done(record.offset)

    def done(offset: int) -> None:
        if offset == 7:
            raise Fails
        if offset == 6:
            reader.commit_async({ZERO: 7}) if asynchronous else reader.commit({ZERO: 7})

    with pytest.raises(Fails), reader:
        work()
    assert commits == [{0: 7}, {0: 7}]


def test_a_poll_takes_no_more_than_it_was_told_from_what_an_iteration_left(reader: Consumer) -> None:
    """The rest comes with the next poll, in order; none is missing."""
    first = next(reader)
    assert [row.offset for row in reader.poll(0, max_records=4)[ZERO]] == [1, 2, 3, 4]
    rest = poll_until(reader, lambda: reader.position(ZERO) == 20)
    assert [first.offset, 1, 2, 3, 4, *rest] == list(range(20))


def test_c2_a_pause_inside_an_iteration_holds_what_waits_back_too(reader: Consumer) -> None:
    """Nothing more of that partition comes, and after resume() nothing is missing or twice."""
    reader.assign([ZERO, ONE])
    reader.seek(ONE, 0)
    assert next(reader).partition == 0
    reader.pause(ZERO)
    assert [next(reader).partition for _ in range(5)] == [1] * 5
    assert reader.position(ZERO) == 1
    reader.pause(ONE)
    reader.resume(ZERO)
    assert [next(reader).offset for _ in range(19)] == list(range(1, 20))


def test_only_the_partitions_that_are_named_are_handed_out_and_the_others_keep_what_they_have(
    broker: FakeBroker,
) -> None:
    """Their positions stand still, whatever was fetched; a poll takes both up again."""
    broker.cluster.fill("t", 20, 20)
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        consumer.assign([ZERO, ONE])
        found: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < 20 and time.monotonic() < deadline:
            rows = consumer.getmany(ONE, timeout_ms=50, max_records=7)
            assert rows.keys() <= {ONE} and len(rows.get(ONE, ())) <= 7
            found += [record.offset for record in rows.get(ONE, ())]
        assert found == list(range(20)) and consumer.position(ZERO) == 0
        assert consumer.getone(ONE, timeout_ms=50) is None
        record = consumer.getone(ZERO, ONE, timeout_ms=30_000)
        assert record is not None and (record.partition, record.offset) == (0, 0)
        assert poll_until(consumer, lambda: consumer.position(ZERO) == 20) == list(range(1, 20))
        with pytest.raises(NotAssigned):
            consumer.getmany(TopicPartition("t", 7))


def test_c7_a_commit_after_getmany_leaves_out_what_the_others_keep(broker: FakeBroker) -> None:
    """Of an iteration that was broken off, too; an interrupt in between loses none of it."""
    commits = broker.cluster.fill("t", 20, 20).commits
    settings = {"group_id": "g", "enable_auto_commit": False, "fetch_max_wait_ms": 50, "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=broker.address, **settings) as consumer:
        consumer.assign([ZERO, ONE])
        for tp in (ZERO, ONE):
            consumer.seek(tp, 0)
        given = next(consumer)
        left, other = TopicPartition("t", given.partition), TopicPartition("t", 1 - given.partition)
        taken: list[int] = []
        while len(taken) < 20:
            taken += [record.offset for record in consumer.getmany(other, timeout_ms=50).get(other, ())]
        assert taken == list(range(20))
        consumer.commit()
        assert commits[-1] == {left.partition: 1, other.partition: 20}

        class Interrupt(BaseException):
            pass

        def interrupted(_timeout_s: float) -> None:
            raise Interrupt

        poll, consumer._client.poll = consumer._client.poll, interrupted  # type: ignore[method-assign]
        with pytest.raises(Interrupt):
            consumer.getmany(other, timeout_ms=50)
        collect = consumer._fetcher.collect
        consumer._fetcher.collect = lambda limit, only=None: interrupted(0)  # type: ignore[assignment,method-assign]
        with pytest.raises(Interrupt):
            consumer.getmany(other, timeout_ms=50)
        consumer._client.poll, consumer._fetcher.collect = poll, collect  # type: ignore[method-assign]
        assert consumer.position(left) == 1 and next(consumer).offset == 1
        (rest,) = consumer.getmany(left, max_records=3).values()
        assert [record.offset for record in rest] == [2, 3, 4]


def test_the_end_of_a_partition_is_told_after_its_records_and_once(broker: FakeBroker) -> None:
    """Not while an iteration's records wait, nor of a paused partition; an error of the callback leaves the poll."""
    broker.cluster.fill("t", 20, 20)
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        ends: list[tuple[int, int]] = []

        def told(tp: TopicPartition, offset: int) -> None:
            ends.append((tp.partition, offset))
            if len(ends) == 1:
                raise Fails

        consumer.on_partition_end(told)
        consumer.assign([ZERO])
        for number in range(20):
            assert next(consumer).offset == number and not ends
        row = consumer._subscriptions.require(ZERO)
        row.high_watermark = 20  # the scripted answers speak of more
        row.end_reached = 20
        consumer.pause(ZERO)
        assert consumer.poll(50) == {} and not ends
        consumer.resume(ZERO)
        with pytest.raises(Fails):
            consumer.poll(50)
        assert consumer.poll(50) == {} and ends == [(0, 20)]
        with pytest.raises(WrongArgument):
            consumer.on_partition_end(3)  # type: ignore[arg-type]


class BrokersSession:
    """A broker's fetch session: it leaves out what has no records and no news since it was asked for (KIP-227)."""

    def __init__(self, broker: FakeBroker) -> None:
        self._cluster = broker.cluster
        self._wanted: dict[tuple[str, int], Any] = {}
        self._told: dict[tuple[str, int], Any] = {}

    def __call__(self, asked: Any) -> FetchResponse:
        if asked.session_epoch <= 0:
            self._wanted, self._told = {}, {}
        self._wanted |= {(topic.topic, row.partition): row for topic in asked.topics for row in topic.partitions}
        for topic in asked.forgotten_topics_data:
            for number in topic.partitions:
                del self._wanted[topic.topic, number], self._told[topic.topic, number]
        topics = []
        for (name, number), row in self._wanted.items():
            answer = self._cluster._rows(name, row)
            news = answer.high_watermark, answer.last_stable_offset
            if len(answer.records) or self._told.get((name, number)) != news:
                topics.append(FetchTopicResponse(topic=name, partitions=(answer,)))
            self._told[name, number] = news
        if not topics:
            time.sleep(0.05)
        return FetchResponse(session_id=77, topics=tuple(topics))


def test_the_end_of_an_idle_partition_is_told_again_when_it_comes_back(broker: FakeBroker) -> None:
    """In a fetch session a broker has no news of it: who waits for all ends after a rebalance would wait for ever."""
    broker.cluster.fill("t", 20)
    broker.on(ApiKey.FETCH, BrokersSession(broker))
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        ends: list[int] = []
        consumer.on_partition_end(lambda tp, offset: ends.append(offset))
        consumer.assign([ZERO])
        poll_until(consumer, lambda: ends == [20])
        for _ in range(3):
            consumer.assign([])
            consumer.assign([ZERO])
            consumer.seek(ZERO, 20, 0)
            ends.clear()
            poll_until(consumer, lambda: ends == [20])
            assert (consumer.highwater(ZERO), consumer.lag(ZERO)) == (20, 0)


def test_a_throttled_answer_is_no_end_of_a_partition(broker: FakeBroker) -> None:
    """It is empty whatever there is: with the end that an earlier answer brought it would look like one."""
    broker.cluster.fill("t", 10)
    throttled = iter([False] + [True] * 3)
    broker.on(
        ApiKey.FETCH,
        lambda asked: (
            FetchResponse(topics=(), throttle_time_ms=1) if next(throttled, False) else broker.cluster.fetch(asked)
        ),
    )
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        ends: list[int] = []
        consumer.on_partition_end(lambda tp, offset: ends.append(len(broker.seen(ApiKey.FETCH))))
        consumer.assign([ZERO])
        poll_until(consumer, lambda: bool(ends))
        assert ends[0] >= 5


def test_what_a_consumer_did_is_counted(broker: FakeBroker, commits: list[dict[int, int]], reader: Consumer) -> None:
    """Records by poll, answers by fetch, commits by request, and the distance to the end of the log."""
    assert reader.metrics()["lag_max"] is None
    poll_until(reader, lambda: reader.position(ZERO) == 20)
    reader.commit()
    counts: dict[str, Any] = reader.metrics()
    assert (counts["records"], counts["commits"], counts["failed_commits"]) == (20, 1, 0)
    assert counts["fetches"] - counts["empty_fetches"] == 2 and counts["bytes"] > 0  # ten records a batch
    assert counts["lag_max"] == reader.lag(ZERO) and counts["buffered_bytes"] == 0
    broker.on(ApiKey.OFFSET_COMMIT, SILENCE)
    with pytest.raises(ClientTimeout):
        reader.commit({ZERO: OffsetAndMetadata(3)}, timeout=0.2)
    reader.poll(0)
    counts = reader.metrics()
    assert counts["empty_polls"] >= 1 and counts["polls"] > counts["empty_polls"] and counts["poll_wait_s"] > 0
    assert (counts["rebalances"], counts["memberships_lost"], counts["failed_fetches"]) == (0, 0, 0)


def test_an_iteration_ends_when_the_consumer_is_closed(reader: Consumer) -> None:
    """Also with records waiting: what is given afterwards would be in no commit."""
    next(reader)
    reader.close(2)
    assert list(reader) == []


def test_c7_asking_for_a_position_commits_nothing(broker: FakeBroker, commits: list[dict[int, int]]) -> None:
    """It may be asked for while the records of the last poll are worked on; the timer is for polls alone."""
    consumer = Consumer(bootstrap_servers=broker.address, group_id="g", auto_commit_interval_ms=0, fetch_max_wait_ms=50)
    consumer.assign([ZERO, ONE])
    consumer.seek(ZERO, 0)
    consumer.seek(ONE, 0)
    while not consumer.poll(50, max_records=5):
        pass
    timer = consumer._rebalancer.commits
    assert timer is not None
    timer.wait_for_async(5)
    before = len(commits)
    consumer.seek_to_beginning(ONE)
    assert consumer.position(ONE) == 0
    timer.wait_for_async(5)
    assert all(row.get(0, 0) < 5 for row in commits[before:])
    consumer.close(2)


def test_a_chunk_ends_before_its_first_bad_record() -> None:
    """Its bounds give the position: one too many, and the bad record would be passed over and committed."""
    data = encode_batch([NewRecord(value) for value in (b"1", b"2", b"no number", b"4")])
    (batch,) = read_batches(data, ReadOptions("t", 0))
    decoded, (failed,) = Deserializers(None, int).apply([Chunk(TopicPartition("t", 0), batch, 0, 4)])
    assert [(made.chunk.start, made.chunk.stop, list(made.values)) for made in decoded] == [(0, 2, [1, 2])]
    assert failed.offset == 2
