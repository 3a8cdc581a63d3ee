"""Fetches: one in flight a broker, bounded, never waiting, stale answers dropped."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownTopicId
from streamlet.kafka.client.leader_requests import FetchSettings
from streamlet.kafka.errors import CorruptRecord, Disconnected
from streamlet.kafka.fetch.nearer_replica import SOON_S
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.protocol.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from streamlet.kafka.records.record_batch import HEADER
from streamlet.spouts.kafka.broker_connections import DynamicPartitionConnections
from streamlet.spouts.kafka.manager import EmitLimits, PartitionManager
from streamlet.spouts.kafka.offset_ledger import OffsetLedger
from streamlet.spouts.kafka.partition import Broker, Partition
from streamlet.spouts.kafka.read_sources import NEARER_S
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager
from streamlet.spouts.kafka.schemes.scheme import StringScheme
from streamlet.spouts.kafka.spout_fetcher import BUSY_WAIT_MS, SpoutFetcher

A, B, C = Broker("a"), Broker("b"), Broker("c")


class Client:
    """Keeps what was asked, answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, RequestFuture[Any]]] = []
        self.closed: list[str] = []
        self.cluster = SimpleNamespace(topic_id=lambda topic: None, brokers={2: B, 3: C})
        self.metadata = SimpleNamespace(request_update=self.note_update)
        self.updates = 0
        self.config = SimpleNamespace(request_timeout_ms=1000)

    def send(self, request: Any, to: Any = None, timeout_s: float | None = None) -> RequestFuture[Any]:
        future: RequestFuture[Any] = RequestFuture()
        self.asked.append((to.host, request, future))
        return future

    def note_update(self, **_: Any) -> None:
        self.updates += 1

    def disconnect(self, broker: Any) -> None:
        self.closed.append(broker.host)

    def offsets(self, index: int = -1) -> dict[int, int]:
        (topic,) = self.asked[index][1].topics
        return {row.partition: row.fetch_offset for row in topic.partitions}

    def answer(self, index: int, nearer: int = -1, **rows: tuple[int, bytes]) -> None:
        """``p0=(error, records)``; ``nearer``: the replica that the leader names."""
        partitions = tuple(
            FetchPartitionResponse(
                partition_index=int(name[1:]),
                error_code=error,
                high_watermark=100,
                last_stable_offset=100,
                preferred_read_replica=nearer,
                records=memoryview(data),
            )
            for name, (error, data) in rows.items()
        )
        self.asked[index][2].complete(FetchResponse(topics=(FetchTopicResponse(topic="t", partitions=partitions),)))


def empty_batch(base: int, last: int) -> bytes:
    """A batch of which compaction left nothing but its offsets."""
    data = HEADER.pack(base, HEADER.size - 12, 0, 2, 0, 0, last - base, 0, 0, -1, -1, -1, 0)
    return data[:17] + crc32c.crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def manager(number: int, start: int = 0) -> PartitionManager:
    retries = ExponentialBackoffMsgRetryManager(Backoff(1, 1), 0)
    return PartitionManager(Partition("t", number), number, OffsetLedger(start), retries, StringScheme(), EmitLimits())


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def parts(client: Client) -> Iterator[tuple[SpoutFetcher, DynamicPartitionConnections]]:
    connections = DynamicPartitionConnections(client)  # type: ignore[arg-type]
    yield SpoutFetcher(connections, FetchSettings(), 1000), connections


def test_k9_3_one_fetch_a_broker_asks_for_all_its_partitions(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    managers = [manager(0, 5), manager(1, 6), manager(2, 7)]
    for one, broker in zip(managers, (A, A, B), strict=True):
        connections.register(one.partition, broker)
    fetcher.send(managers, lambda topic: None, 0.0)
    assert [(host, client.offsets(index)) for index, (host, _, _) in enumerate(client.asked)] == [
        ("a", {0: 5, 1: 6}),
        ("b", {2: 7}),
    ]
    assert client.asked[0][1].isolation_level == 1
    assert client.asked[0][1].min_bytes == 1
    fetcher.send(managers, lambda topic: None, 0.0)
    assert len(client.asked) == 2, "one in flight each"


def test_t11_a_broker_that_does_not_answer_holds_up_no_other(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    managers = [manager(0), manager(1)]
    connections.register(managers[0].partition, A)
    connections.register(managers[1].partition, B)
    fetcher.send(managers, lambda topic: None, 0.0)
    for _ in range(5):
        client.answer(
            len(client.asked) - 1, p1=(0, empty_batch(managers[1].buffer.position, managers[1].buffer.position))
        )
        assert fetcher.collect(0.0) == []
        managers[1]._load()
        fetcher.send(managers, lambda topic: None, 0.0)
    assert [host for host, _, _ in client.asked] == ["a", "b", "b", "b", "b", "b", "b"]
    assert managers[1].ledger.position == 5


def test_t11_after_a_failure_a_broker_has_a_growing_pause(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    one = manager(0)
    connections.register(one.partition, A)
    now, sent = 0.0, []
    while now < 5.0:
        fetcher.send([one], lambda topic: None, now)
        if len(client.asked) > len(sent):
            sent.append(now)
            client.asked[-1][2].fail(Disconnected("refused"))
        assert all(isinstance(failed.error, Disconnected) for failed in fetcher.collect(now))
        now += 0.01
    assert len(sent) < 10
    assert sent[1] - sent[0] < sent[4] - sent[3] <= 1.05


def test_t14_k9_3_nothing_is_asked_for_beyond_the_budget(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    managers = [manager(0), manager(1)]
    for one in managers:
        connections.register(one.partition, A)
    managers[0].buffer.size_bytes = 700
    fetcher.send(managers, lambda topic: None, 0.0)
    assert client.asked[0][1].max_bytes == 300
    client.answer(0)
    fetcher.collect(0.0)
    managers[1].buffer.size_bytes = 300
    fetcher.send(managers, lambda topic: None, 0.0)
    assert len(client.asked) == 1


def in_flight(client: Client) -> int:
    return sum(request.max_bytes for _, request, future in client.asked if not future.done)


def test_t14_the_budget_is_the_tasks_and_not_each_brokers(client: Client, parts: Any) -> None:
    """Three brokers were asked for all of it each."""
    fetcher, connections = parts
    managers = [manager(number) for number in range(6)]
    for one, broker in zip(managers, (A, A, B, B, C, C), strict=True):
        connections.register(one.partition, broker)
    fetcher.send(managers, lambda topic: None, 0.0)
    assert [request.max_bytes for _, request, _ in client.asked] == [333, 333, 333]
    client.answer(1)
    fetcher.collect(0.0)
    managers[2].buffer.size_bytes = 300
    fetcher.send(managers, lambda topic: None, 0.0)
    assert client.asked[-1][1].max_bytes == 33, "what it has sent, and no other has, is taken off its share"
    client.answer(0)
    fetcher.collect(0.0)
    managers[4].buffer.size_bytes = 5000
    fetcher.send(managers, lambda topic: None, 0.0)
    assert client.asked[-1][1].max_bytes == 333, "a record larger than all of it holds up no other broker"


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), max_size=40))
def test_t14_what_is_buffered_and_what_is_in_flight_never_exceed_the_budget(steps: list[tuple[int, float]]) -> None:
    """Brokers answer, and partitions drain, in any order."""
    client = Client()
    connections = DynamicPartitionConnections(client)  # type: ignore[arg-type]
    fetcher = SpoutFetcher(connections, FetchSettings(), 1000)
    managers = [manager(number) for number in range(3)]
    for one, broker in zip(managers, (A, B, C), strict=True):
        connections.register(one.partition, broker)
    for what, part in steps:
        fetcher.send(managers, lambda topic: None, 0.0)
        assert sum(one.buffer.size_bytes for one in managers) + in_flight(client) <= 1000
        if what < 3:
            managers[what].buffer.size_bytes = int(managers[what].buffer.size_bytes * part)
            continue
        for index, (host, request, future) in enumerate(client.asked):
            if host == "abc"[what - 3] and not future.done:
                client.answer(index)
                managers[what - 3].buffer.size_bytes += int(request.max_bytes * part)
        fetcher.collect(0.0)


@pytest.mark.parametrize("why", ["a bolt that is to be mended", "a pause"])
def test_partitions_that_may_emit_nothing_starve_no_other(client: Client, parts: Any, why: str) -> None:
    """They may hold the whole share for hours: the others still get a batch at a time."""
    fetcher, connections = parts
    held, free = manager(0), manager(1)
    for one in (held, free):
        connections.register(one.partition, A)
    held.buffer.size_bytes = 1200
    if why == "a pause":
        held.paused = True
    else:
        held._limits = EmitLimits(max_uncommitted_offsets=0)
    fetcher.send([held, free], lambda topic: None, 0.0)
    assert client.offsets() == {1: 0}
    assert client.asked[0][1].max_bytes == 1, "of which Kafka makes one batch, however large"
    client.answer(0)
    fetcher.collect(0.0)
    free.buffer.size_bytes = 50
    fetcher.send([held, free], lambda topic: None, 0.0)
    assert len(client.asked) == 1, "no second one before that is out"


def test_what_a_partition_without_a_leader_holds_is_counted_too(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    orphan, one = manager(0), manager(1)
    connections.register(one.partition, A)
    orphan.buffer.size_bytes = 400
    fetcher.send([orphan, one], lambda topic: None, 0.0)
    assert client.asked[0][1].max_bytes == 600


def test_a_full_partition_does_not_wait_behind_a_quiet_one(client: Client, parts: Any) -> None:
    """The broker answers one fetch after the other: while one partition is full, it may not hold the fetch for long."""
    fetcher, connections = parts
    full, quiet = manager(0), manager(1)
    for one in (full, quiet):
        connections.register(one.partition, A)
    fetcher.send([full, quiet], lambda topic: None, 0.0)
    assert client.asked[0][1].max_wait_ms == 500
    full.buffer._fetched.extend([object(), object()])  # type: ignore[list-item]
    client.answer(0)
    fetcher.collect(0.0)
    fetcher.send([full, quiet], lambda topic: None, 0.0)
    assert client.offsets() == {1: 0}
    assert client.asked[1][1].max_wait_ms == BUSY_WAIT_MS


def test_an_answer_for_where_reading_is_no_more_is_dropped(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    moved, closed = manager(0), manager(1)
    for one in (moved, closed):
        connections.register(one.partition, A)
    fetcher.send([moved, closed], lambda topic: None, 0.0)
    moved.buffer.skip_to(50)
    closed.close()
    client.answer(0, p0=(0, empty_batch(0, 9)), p1=(0, empty_batch(0, 9)))
    assert fetcher.collect(0.0) == []
    assert moved.buffer.position == 50
    assert closed.buffer.position == 0


def test_an_answer_that_comes_in_a_pause_is_dropped_and_fetched_again_afterwards(client: Client, parts: Any) -> None:
    """Kept for hours it would take the bytes of other partitions."""
    fetcher, connections = parts
    one = manager(0)
    connections.register(one.partition, A)
    fetcher.send([one], lambda topic: None, 0.0)
    one.pause(True)
    client.answer(0, p0=(0, empty_batch(0, 4)))
    assert fetcher.collect(0.0) == []
    assert (one.buffer.size_bytes, one.buffer.position) == (0, 0)
    one.pause(False)
    fetcher.send([one], lambda topic: None, 0.0)
    assert client.offsets() == {0: 0}


def test_an_answer_that_was_asked_for_under_another_leadership_is_dropped(client: Client, parts: Any) -> None:
    """The log may have been truncated since, and its records be those of nobody (KIP-320)."""
    fetcher, connections = parts
    one = manager(0, 5)
    one.current_leader_epoch = 3
    connections.register(one.partition, A)
    fetcher.send([one], lambda topic: None, 0.0)
    one.current_leader_epoch = 4
    client.answer(0, p0=(0, empty_batch(5, 9)))
    assert fetcher.collect(0.0) == [] and one.buffer.position == 5
    fetcher.send([one], lambda topic: None, 0.0)
    client.answer(1, p0=(0, empty_batch(5, 9)))
    assert fetcher.collect(0.0) == [] and one.buffer.position == 10


def test_a_partitions_error_is_reported_and_pauses_that_partition_alone(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    managers = [manager(0), manager(1)]
    for one in managers:
        connections.register(one.partition, A)
    fetcher.send(managers, lambda topic: None, 0.0)
    client.answer(0, p0=(6, b""), p1=(0, b""))
    (failed,) = fetcher.collect(0.0)
    assert failed.partition == Partition("t", 0)
    assert isinstance(failed.error, NotLeaderOrFollower)
    fetcher.send(managers, lambda topic: None, 0.0)
    assert client.offsets() == {1: 0}
    client.answer(1, p1=(0, b""))
    fetcher.collect(0.2)
    fetcher.send(managers, lambda topic: None, 0.2)
    assert client.offsets() == {0: 0, 1: 0}


def test_offsets_of_a_former_topic_are_never_asked_of_the_new_one(client: Client, parts: Any) -> None:
    fetcher, connections = parts
    one = manager(0)
    one.topic_id = "old"
    connections.register(one.partition, A)
    fetcher.send([one], lambda topic: "new", 0.0)
    assert client.asked == []
    (failed,) = fetcher.collect(0.0)
    assert isinstance(failed.error, UnknownTopicId)


def test_the_next_offset_is_read_off_the_headers() -> None:
    """Behind gaps and empty batches; a cut tail is left; what is no batch is left to the reader."""

    def read_on_at(data: bytes) -> int:
        client = Client()
        connections = DynamicPartitionConnections(client)  # type: ignore[arg-type]
        fetcher, one = SpoutFetcher(connections, FetchSettings(), 1000), manager(0, 10)
        connections.register(one.partition, A)
        fetcher.send([one], lambda topic: None, 0.0)
        client.answer(0, p0=(0, data))
        assert fetcher.collect(0.0) == []
        return one.buffer.position

    whole = empty_batch(10, 14) + empty_batch(20, 29)
    assert read_on_at(b"") == 10
    assert read_on_at(whole) == 30
    assert read_on_at(whole + empty_batch(30, 39)[:40]) == 30
    assert read_on_at(empty_batch(10, 14)[:40]) == 11
    assert read_on_at(b"\0" * 5) == 11
    old = bytearray(empty_batch(10, 14))
    old[16] = 1
    assert read_on_at(bytes(old)) == 11
    assert read_on_at(empty_batch(10, 14) + bytes(old)) == 16


class Near:
    """One partition of leader A, in a spout of the rack "here"."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.connections = DynamicPartitionConnections(client)  # type: ignore[arg-type]
        self.fetcher = SpoutFetcher(self.connections, FetchSettings(client_rack="here"), 1000)
        self.one = manager(0)
        self.connections.register(self.one.partition, A)

    def ask(self, now: float = 0.0) -> tuple[str, str]:
        """Send; return whom it asked last, and with which rack."""
        self.fetcher.send([self.one], lambda topic: None, now)
        host, request, _ = self.client.asked[-1]
        return host, request.rack_id

    def hear(self, now: float = 0.0, **rows: Any) -> list[Any]:
        """Answer the last fetch; return what failed."""
        self.client.answer(-1, **rows)
        return self.fetcher.collect(now)


@pytest.fixture
def near(client: Client) -> Near:
    return Near(client)


def test_records_come_from_the_replica_that_the_leader_names_for_a_time(near: Near) -> None:
    """The answer that names it has no records; the leader is asked again when the time is over."""
    assert near.ask() == ("a", "here")
    assert near.hear(p0=(0, b""), nearer=2) == []
    assert near.fetcher.sources.nearer(near.one.partition) == B
    assert near.ask() == ("b", "here")
    assert near.hear(p0=(0, empty_batch(0, 9))) == []
    assert near.one.buffer.position == 10
    near.one._load()
    assert near.ask(NEARER_S - 1) == ("b", "here")
    # Not beside a fetch under way, and the connection is kept, for mostly the same one is named again.
    assert near.ask(NEARER_S + 1) == ("b", "here")
    near.hear(NEARER_S + 1, p0=(0, b""))
    assert near.ask(NEARER_S + 1) == ("a", "here")
    near.hear(NEARER_S + 1, p0=(0, b""), nearer=2)
    assert near.client.closed == []
    assert near.ask(NEARER_S + 1) == ("b", "here")
    near.hear(2 * NEARER_S + 2, p0=(0, b""))
    assert near.ask(2 * NEARER_S + 2) == ("a", "here")
    near.hear(2 * NEARER_S + 2, p0=(0, empty_batch(10, 19)))
    assert near.client.closed == ["b"]
    assert {one.broker for one in near.connections.connections()} == {A}


@pytest.mark.parametrize("how", ["its connection ends", "its log is behind"])
def test_after_a_failure_of_the_nearer_replica_the_leader_is_read_from_without_a_rack(
    near: Near, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No look for leaders follows. With the rack the leader would name the same replica again, and send no records."""
    near.ask()
    near.hear(p0=(0, b""), nearer=2)
    near.ask()
    if how == "its connection ends":
        near.client.asked[-1][2].fail(Disconnected("refused"))
        assert near.fetcher.collect(0.0) == []
    else:
        assert near.hear(p0=(1, b"")) == []
    assert near.ask() == ("a", "")
    assert near.fetcher.sources.nearer(near.one.partition) is None
    assert "t-0 is read from its leader for 300 s. " in caplog.text
    assert near.hear(p0=(0, empty_batch(0, 0))) == []
    near.one._load()
    assert near.ask(NEARER_S + 1) == ("a", "here")


def test_a_replica_without_an_address_is_not_waited_for(near: Near) -> None:
    """The metadata is asked for, and soon the leader is asked again."""
    near.ask()
    near.hear(p0=(0, b""), nearer=7)
    assert near.client.updates == 1
    assert near.ask() == ("a", "")
    near.hear(p0=(0, b""))
    assert near.ask(SOON_S) == ("a", "here")


def test_a_replica_that_knows_of_an_election_before_us_is_heard(near: Near) -> None:
    """The leader of before may be gone: it is looked for again, and the new one names a replica at once."""
    near.ask()
    near.hear(p0=(0, b""), nearer=2)
    near.ask()
    (failed,) = near.hear(p0=(74, b""))
    assert isinstance(failed.error, FencedLeaderEpoch)
    near.connections.register(near.one.partition, C)
    assert near.ask(SOON_S) == ("c", "here")


def test_what_is_damaged_at_the_nearer_replica_is_fetched_from_the_leader(near: Near) -> None:
    near.ask()
    near.hear(p0=(0, b""), nearer=2)
    near.fetcher.sources.avoid_nearer(near.one.partition, CorruptRecord("bytes"), 0.0)
    assert near.ask() == ("a", "")


def test_a_new_leader_is_read_from_and_asked_for_a_nearer_replica_again(near: Near) -> None:
    """A fetch under way at the replica ends with its connection, and nobody hears of it."""
    near.ask()
    near.hear(p0=(0, b""), nearer=2)
    near.ask()
    near.connections.register(near.one.partition, C)
    near.client.asked[-1][2].fail(Disconnected("closed"))
    assert near.fetcher.collect(0.0) == []
    assert near.ask() == ("c", "here")


def test_all_is_asked_where_each_broker_that_is_read_from_owes_an_answer(near: Near) -> None:
    """The leader of a partition that is read elsewhere owes none."""
    assert not near.fetcher.all_asked
    near.ask()
    assert near.fetcher.all_asked
    near.hear(p0=(0, b""), nearer=2)
    near.ask()
    assert near.fetcher.all_asked
    near.hear(p0=(0, b""))
    assert not near.fetcher.all_asked
