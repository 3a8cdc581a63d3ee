"""Code of the user's in the producer's way: partitioners and handlers of the log may do what they like."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamlet.kafka.broker_errors import ClusterAuthorizationFailed
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import OutcomeUnknown
from streamlet.kafka.protocol.messages.transactions import InitProducerIdResponse
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import scripted, take_leader, until

NOT_LEADER = 6


def _in_a_thread(act: Any) -> None:
    """With a deadline: what waits for its own thread would hang the whole run."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for its own thread"


def test_p9_a_partitioner_may_call_its_producer() -> None:
    """It is asked without the producer's lock."""
    made: list[Producer] = []
    asked: list[Any] = []

    def curious(key: Any, count: int) -> int:
        asked.append((key, count, len(made[0].partitions_for("t")), made[0].metrics()["batches_open"]))
        made[0].send("t", b"its own", partition=0)
        return 1

    with scripted({"t": 2}, partitioner=curious) as (_broker, log, producer):
        made.append(producer)

        def work() -> None:
            producer.send("t", b"x", key=b"k")
            producer.send_many("t", [b"y", b"z"])
            producer.flush(PATIENCE_S)

        _in_a_thread(work)
        assert [(key, count, known) for key, count, known, _open in asked] == [(b"k", 2, 2), (None, 2, 2), (None, 2, 2)]
        assert log.values == {("t", 1): [b"x", b"y", b"z"], ("t", 0): [b"its own"] * 3}


def test_p9_a_slow_partitioner_stops_nobody_else() -> None:
    """Neither other threads nor the sender."""
    gate, reached = threading.Event(), threading.Event()

    def slow(key: Any, count: int) -> int:
        reached.set()
        gate.wait(PATIENCE_S)
        return 0

    with scripted(partitioner=slow) as (_broker, log, producer):
        thread = threading.Thread(target=lambda: producer.send("t", b"slow"), daemon=True)
        thread.start()
        assert reached.wait(PATIENCE_S)
        _in_a_thread(lambda: producer.send("t", b"quick", partition=0).get(PATIENCE_S))
        gate.set()
        thread.join(PATIENCE_S)
        producer.flush(PATIENCE_S)
        assert log.values == {("t", 0): [b"quick", b"slow"]}


def test_p9_a_partitioner_is_asked_again_when_partitions_came_meanwhile() -> None:
    """Its index is one of the partitions there are when the record is taken."""
    counts: list[int] = []
    made: list[Producer] = []
    clusters: list[FakeCluster] = []

    def last(key: Any, count: int) -> int:
        counts.append(count)
        if count == 1:
            clusters[0].log("t", 2)
            made[0]._sender.client.request_update()
            made[0]._sender.client.wakeup()
            until(lambda: len(made[0].partitions_for("t")) == 3)
        return count - 1

    with scripted(partitioner=last) as (_broker, log, producer):
        made.append(producer)
        clusters.append(log)
        producer.partitions_for("t")
        _in_a_thread(lambda: producer.send("t", b"x"))
        producer.flush(PATIENCE_S)
        assert counts == [1, 3] and log.values == {("t", 2): [b"x"]}


class _Sending(logging.Handler):
    """Sends what is logged with the producer that logs it, and notes whether that one's lock was held."""

    def __init__(self, producer: Producer) -> None:
        super().__init__(logging.DEBUG)
        self.producer = producer
        self.lines: list[str] = []
        self.held = False

    def emit(self, record: logging.LogRecord) -> None:
        self.held = self.held or self.producer._holds_lock()
        self.lines.append(record.getMessage())
        if not self.held:
            self.producer.send("t", b"logged")


@contextmanager
def _logging_to(producer: Producer) -> Iterator[_Sending]:
    log = logging.getLogger("streamlet.kafka.producer")
    handler, before = _Sending(producer), log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def test_a_handler_of_the_log_may_send_with_the_producer_that_logs() -> None:
    """A try that failed, a late success, a record that failed: none is told under the producer's lock."""
    with (
        scripted(delivery_timeout_ms=20_000, request_timeout_ms=20_000) as (broker, log, producer),
        _logging_to(producer) as told,
    ):
        producer.send("t", b"x").get(10)
        log.answers = [NOT_LEADER]
        producer.send("t", b"again").get(10)
        until(lambda: any("is sent again after" in line for line in told.lines))
        producer.flush(PATIENCE_S)
        gate = threading.Event()

        def late(request: Any) -> Any:
            gate.wait(20)
            return log.produce(request)

        broker.on(ApiKey.PRODUCE, late, log.produce)
        sender = producer._sender
        future = producer.send("t", b"y")
        until(lambda: bool(sender.ledger.on_wire))
        with sender.lock:
            (batch,) = sender.ledger.on_wire
            batch.created_s -= 100  # its time is up, the request's is not
        sender.client.wakeup()
        with pytest.raises(OutcomeUnknown):
            future.get(10)
        until(lambda: any("1 record for topic 't' failed" in line for line in told.lines))
        gate.set()
        until(lambda: any("were written at offset" in line for line in told.lines))
        assert not told.held
        producer.flush(PATIENCE_S)


def test_p8_that_records_go_elsewhere_is_told_without_the_lock() -> None:
    """By the turn that moves them, and so at once."""
    with scripted({"t": 2}, partition_failover="keyless", linger_ms=10_000) as (broker, _log, producer):
        producer.partitions_for("t")
        future = producer.send("t", b"x")
        place = future._batch.topic_partition.partition
        with _logging_to(producer) as told:
            take_leader(producer, broker, place)
            until(lambda: any("every replica of" in line for line in told.lines))
            assert not told.held
        producer.close(10)
        assert future.get(0).partition == 1 - place


def test_an_error_that_lasts_is_told_again_each_time() -> None:
    """One object would gather the frames of all who were told, and keep their records."""
    with scripted() as (broker, _log, producer):
        broker.on(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(error_code=31, producer_id=-1, producer_epoch=-1))
        manager = producer._sender.manager
        assert manager is not None
        with contextlib.suppress(ClusterAuthorizationFailed):  # the refusal may come before the first record
            producer.send("t", b"x")
        until(lambda: manager.error is not None)
        depths = []
        for _ in range(3):
            with pytest.raises(ClusterAuthorizationFailed) as caught:
                producer.send("t", b"x")
            assert caught.value is not manager.error and caught.value.args == manager.error.args
            depths.append(len(caught.traceback))
        assert len(set(depths)) == 1 and manager.error.__traceback__ is None


@pytest.mark.parametrize("quick", [{}, {"key": b"k"}])
def test_a_full_batch_does_not_linger_whoever_filled_it(quick: dict[str, Any]) -> None:
    """A record with headers gives it more room, and those that come after it fill that without a look at the size."""
    settings = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000, "batch_size": 10_000}
    with scripted(**settings) as (_broker, log, producer):
        producer.partitions_for("t")
        if quick:
            producer.send("t", b"first", **quick)
        sender = producer._sender
        futures = [producer.send("t", b"x" * 9_700, **quick)]
        until(lambda: sender.sleeping)
        futures.append(producer.send("t", b"x" * 100, headers=[("h" * 50, b"")], **quick))
        batch = futures[-1]._batch
        assert batch is futures[0]._batch and batch.size < 10_000 < batch.room
        until(lambda: sender.sleeping or batch.on_wire or futures[0].is_done)
        futures.append(producer.send("t", b"x" * 1_000, **quick))
        assert futures[0].get(20).offset >= 0
        assert log.values
