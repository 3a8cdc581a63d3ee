"""Ctrl-C in the middle of a poll: nothing counts as handed out that was not."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.consumer.errors import ConsumerClosed
from streamlet.kafka.protocol.messages.fetch import FetchRequest
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE, Act
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.consumer.scripted import poll_until

ZERO = TopicPartition("t", 0)


@pytest.mark.parametrize("records", [10, 500])
def test_positions_go_back_when_a_poll_is_interrupted(records: int) -> None:
    """A commit at close would else cover records that nobody has seen. With less than an answer a poll, and more."""
    interrupts = iter([7])

    def slow(data: bytes) -> int:
        number = int(data)
        if number == 7 and next(interrupts, None):
            raise KeyboardInterrupt
        return number

    with (
        FakeCluster({"t": 1}).fill("t", 20) as cluster,
        Consumer(
            bootstrap_servers=cluster.broker.address,
            auto_offset_reset="earliest",
            value_deserializer=slow,
            max_poll_records=records,
            fetch_max_wait_ms=50,
        ) as consumer,
    ):
        consumer.assign([ZERO])
        with pytest.raises(KeyboardInterrupt):
            poll_until(consumer, lambda: False)
        assert consumer.position(ZERO) == 0
        assert poll_until(consumer, lambda: consumer.position(ZERO) == 20) == list(range(20))


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], None]], None]]:
    """``on_signal(act)``: what SIGUSR1 does until the test ends."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda act: signal.signal(signal.SIGUSR1, lambda *_: act()) and None
    signal.signal(signal.SIGUSR1, before)


def by_poll(consumer: Consumer) -> None:
    poll_until(consumer, lambda: False)


def by_iteration(consumer: Consumer) -> None:
    for _record in consumer:
        pass


@pytest.mark.parametrize("read", [by_poll, by_iteration])
@pytest.mark.parametrize("ending", ["close", "commit"])
@pytest.mark.parametrize("records", [10, 500])
def test_c7_a_signals_handler_commits_no_record_that_nobody_got(
    records: int, ending: str, read: Callable[[Consumer], None], on_signal: Callable[[Callable[[], None]], None]
) -> None:
    """It runs on the thread that polls, in the middle of the unpacking, when positions have moved already."""
    signals = iter([17])

    def slow(data: bytes) -> int:
        number = int(data)
        if number == 17 and next(signals, None):
            signal.raise_signal(signal.SIGUSR1)
        return number

    with FakeCluster({"t": 1}).fill("t", 20) as cluster:
        consumer = Consumer(
            bootstrap_servers=cluster.broker.address,
            group_id="g",
            auto_commit_interval_ms=3_600_000,
            value_deserializer=slow,
            max_poll_records=records,
            fetch_max_wait_ms=50,
        )

        def handler() -> None:
            if ending == "commit":
                consumer.commit()
            consumer.close(5)
            raise SystemExit

        on_signal(handler)
        consumer.assign([ZERO])
        consumer.seek(ZERO, 0)
        with pytest.raises(SystemExit):
            read(consumer)
    assert cluster.commits and all(row == {0: 10} for row in cluster.commits)


@pytest.mark.parametrize("by_iteration", [True, False])
def test_a_handler_that_closes_ends_the_poll_it_interrupts(
    by_iteration: bool, on_signal: Callable[[Callable[[], None]], None]
) -> None:
    """``close()`` may be all it does. An iteration ends then, and a poll says that the consumer was closed."""
    with FakeCluster({"t": 1}) as cluster:
        waits = threading.Event()

        def fetch(_request: FetchRequest) -> Act:
            waits.set()
            return SILENCE

        cluster.broker.on(ApiKey.FETCH, fetch)
        consumer = Consumer(bootstrap_servers=cluster.broker.address)
        on_signal(lambda: consumer.close(5))
        consumer.assign([ZERO])
        consumer.seek(ZERO, 0)

        def interrupt() -> None:
            waits.wait(PATIENCE_S)
            time.sleep(0.2)  # for it to wait for the answer; earlier it must end as well
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        thread = threading.Thread(target=interrupt)
        thread.start()
        if by_iteration:
            assert list(consumer) == []
        else:
            with pytest.raises(ConsumerClosed):
                poll_until(consumer, lambda: False)
        thread.join()
