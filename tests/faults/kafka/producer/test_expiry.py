"""Expired batches on a broker that is paused past the delivery time-out; the log is read by librdkafka."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import BatchExpired, OutcomeUnknown, TransactionFailed
from tests.far_ends import RealFarEnd, a_late_success_is_counted_and_changes_nothing, until
from tests.patience import PATIENCE_S
from tests.read_back import read_back

pytestmark = pytest.mark.real

MakeTopic = Callable[..., str]
SHORT = {"delivery_timeout_ms": 4000, "request_timeout_ms": 3000}


@pytest.fixture(scope="module", params=["3.9", "4"])
def cluster(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    """One broker of this module's own, which may be paused."""
    with DevCluster(request.param) as cluster:
        yield cluster


def sent_at_last(producer: Producer, topic: str, value: bytes) -> int:
    """The offset of a record that the broker takes once it is itself again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return producer.send(topic, value).get(PATIENCE_S).offset
        except BatchExpired:
            assert time.monotonic() < deadline


def test_e1_what_was_never_sent_expires_as_such_and_is_not_in_the_log(
    cluster: DevCluster, make_topic: MakeTopic
) -> None:
    """One request at a time: the first batch is on its way, those behind it expire where they wait."""
    topic = make_topic(cluster)
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, max_in_flight_requests_per_connection=1, **SHORT
    ) as producer:
        producer.send(topic, b"before").get(PATIENCE_S)
        requests: Any = producer.metrics()["requests"]
        cluster.pause(0)
        try:
            first = producer.send(topic, b"first")
            until(lambda: producer.metrics()["requests"] == requests + 1)
            behind = [producer.send(topic, b"behind") for _ in range(20)]
            for future in behind:
                with pytest.raises(BatchExpired, match="never sent, so they are not in the log") as caught:
                    future.get(PATIENCE_S)
                assert not isinstance(caught.value, OutcomeUnknown)
            with pytest.raises(OutcomeUnknown, match="may be in the log"):
                first.get(PATIENCE_S)
        finally:
            cluster.resume(0)
        sent_at_last(producer, topic, b"after")
        assert producer.metrics()["failed_by_topic"][topic] >= 21  # type: ignore[index]
    found = Counter(row.value for row in read_back(cluster, topic, 2))
    assert found[b"behind"] == 0 and found[b"before"] == 1 and found[b"first"] <= 1


def test_e2_e4_every_record_sent_to_a_paused_broker_ends_once_and_memory_comes_back(
    cluster: DevCluster, make_topic: MakeTopic
) -> None:
    """Unknown for the batches that were in flight, expired for those behind: what the log has is of the former.

    Each record's callback runs once, and with the error that its future has. All bytes are given back while the
    broker is still silent, for then no socket may send from them any more.
    """
    topic, count = make_topic(cluster), 1000
    with Producer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=2_000_000, **SHORT) as producer:
        producer.send(topic, b"before").get(PATIENCE_S)
        before = producer.metrics()
        told: list[tuple[int, Any]] = []
        cluster.pause(0)
        try:
            futures = producer.send_many(topic, [b"%d " % n + b"x" * 1000 for n in range(count)])
            for n, future in enumerate(futures):
                future.add_both(lambda outcome, n=n: told.append((n, outcome)))
            until(lambda: len(told) == count)
            until(lambda: producer.metrics()["buffer_bytes_in_use"] == 0)
        finally:
            cluster.resume(0)
        assert [n for n, _outcome in told] == list(range(count)), "each once, in the order of the records"
        assert all(futures[n].exception is outcome for n, outcome in told)
        kinds = [type(future.exception) for future in futures]
        unknown = kinds.count(OutcomeUnknown)
        assert 0 < unknown < count
        assert kinds == [OutcomeUnknown] * unknown + [BatchExpired] * (count - unknown)
        sent_at_last(producer, topic, b"after")
        after = producer.metrics()
        assert after["failed_by_topic"][topic] >= count  # type: ignore[index]
        assert after["records_sent"] == before["records_sent"] + 1  # type: ignore[operator]
        assert len(told) == count and all(futures[n].exception is outcome for n, outcome in told)
        assert after["callback_errors"] == 0 and after["buffer_bytes_in_use"] == 0
    rows = Counter((row.value or b"").split(b" ")[0] for row in read_back(cluster, topic, 2))
    assert set(rows) - {b"before", b"after"} <= {b"%d" % n for n in range(unknown)}


def test_e3_a_late_success_is_counted_and_changes_nothing(
    cluster: DevCluster, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """Expired in flight while the broker is paused; resumed, it writes the record and says so, and the future stays."""
    a_late_success_is_counted_and_changes_nothing(RealFarEnd(cluster, make_topic), caplog)


def test_e5_the_duplicate_happens_and_a_transaction_makes_it_impossible(
    cluster: DevCluster, make_topic: MakeTopic, topic_name: Callable[[], str]
) -> None:
    """A broker stops after the record reached its socket: it expires, lands, and its user sends it again.

    Idempotence does not help, for the second is another record to it. A transaction that is aborted and repeated
    leaves one that a read_committed reader sees.
    """
    plain, inside = make_topic(cluster), make_topic(cluster)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **SHORT) as producer:
        producer.send(plain, b"before").get(20)
        cluster.pause(0)
        try:
            future = producer.send(plain, b"twice")
            with pytest.raises(OutcomeUnknown, match="may be in the log"):
                future.get(20)
        finally:
            cluster.resume(0)
        # The second copy has a new epoch: where it reached the broker first, the other would be refused, by chance.
        assert [row.value for row in read_back(cluster, plain, 2)] == [b"before", b"twice"]
        sent_at_last(producer, plain, b"twice")
        assert producer.metrics()["buffer_bytes_in_use"] == 0
    found = Counter(row.value for row in read_back(cluster, plain, 3))
    assert found[b"before"] == 1 and found[b"twice"] >= 2, "the duplicate that idempotence does not prevent"

    settings = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": topic_name(), **SHORT}
    with Producer(**settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(inside, b"before").get(20)
        cluster.pause(0)
        try:
            future = producer.send(inside, b"once")
            with pytest.raises(OutcomeUnknown):
                future.get(20)
        finally:
            cluster.resume(0)
        with pytest.raises(TransactionFailed, match=r"abort_transaction\(\)"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_many(inside, [b"before", b"once"])
        producer.commit_transaction()
    assert [row.value for row in read_back(cluster, inside, 2)] == [b"before", b"once"]
    everything = Counter(row.value for row in read_back(cluster, inside, 3, isolation="read_uncommitted"))
    assert everything[b"before"] == 2
