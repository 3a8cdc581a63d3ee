"""Ends that nobody plans: a dropped producer, a signal in the middle of a call, a thread that cannot end."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerClosed
from streamlet.kafka.protocol.messages.transactions import InitProducerIdResponse
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import scripted, until

_DROPPED = """
import gc, sys
from streamlet.kafka import Producer

def work():
    producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=10_000)
    producer.send("t", b"dropped")

work()
gc.collect()
"""

_SIGNALLED = """
import signal, sys
from streamlet.kafka import Producer
from streamlet.kafka.producer.errors import IllegalProducerState

producer = Producer(bootstrap_servers=sys.argv[1])
producer.send("t", b"first").get(10)
refused = taken = 0

def handle(number, frame):
    global refused, taken
    try:
        producer.metrics()
        producer.send("t", b"from the handler")
        taken += 1
    except IllegalProducerState:
        refused += 1
    if refused >= 3 and taken >= 3:
        signal.setitimer(signal.ITIMER_REAL, 0)
        producer.close(5)
        sys.exit(0)

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
sent = 1
try:
    while True:
        producer.send("t", b"from the loop")
        sent += 1
finally:
    print(sent, taken, flush=True)
"""


def _run(program: str, address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, address], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_what_a_dropped_producer_has_is_sent_before_the_program_ends() -> None:
    """Its thread is a daemon: the end of the program waits for it all the same."""
    with scripted() as (broker, log, _producer):

        def slow(_request: Any) -> InitProducerIdResponse:
            threading.Event().wait(0.3)  # the program is at its end long before
            return InitProducerIdResponse(error_code=0, producer_id=500, producer_epoch=0)

        until(lambda: broker.seen(ApiKey.INIT_PRODUCER_ID))
        broker.on(ApiKey.INIT_PRODUCER_ID, slow)
        ended = _run(_DROPPED, broker.address)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert log.values == {("t", 0): [b"dropped"]}


def test_an_ended_thread_leaves_nothing_to_the_end_of_the_program() -> None:
    """The hook for it is taken back, or each producer would be kept for ever."""
    with scripted() as (_broker, _log, producer):
        sender = producer._sender
        with producer._lock:
            producer.close()
        hook = sender.at_exit
        assert hook is not None and hook.func.__name__ == "end_within"  # type: ignore[attr-defined]
        sender.join(PATIENCE_S)
        assert sender.over
        hook()  # and were it called, it would find the end


def test_a_signal_in_the_middle_of_a_send_hangs_nothing_and_costs_no_record() -> None:
    """The handler is refused there, may close, and what was taken by then is written."""
    with scripted() as (broker, counts, _producer):
        ended = _run(_SIGNALLED, broker.address)
        assert (ended.returncode, ended.stderr) == (0, "")
        sent, taken = map(int, ended.stdout.split())
        values = counts.values[("t", 0)]
        # The send that was interrupted by the exit may have been taken, too.
        assert values.count(b"from the handler") == taken
        assert sent <= len(values) - taken <= sent + 1


def _in_a_thread(act: Any) -> None:
    """Run it with a deadline: what hangs would hang the whole run."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for its own thread"


def test_calls_in_a_thread_that_holds_the_lock_are_refused_and_a_close_is_done_afterwards() -> None:
    """As in a signal handler, or in a __del__, in the middle of a send."""
    with scripted(linger_ms=60_000, delivery_timeout_ms=100_000) as (_broker, log, producer):
        producer.partitions_for("t")
        open_one = producer.send("t", b"x")
        refused: list[str] = []

        def interrupt() -> None:
            with producer._lock:
                for call in (
                    lambda: producer.send("t", b"y"),
                    lambda: producer.send("t", b"y", key=b"k", headers=[("h", b"")]),
                    lambda: producer.send_many("t", [b"y"]),
                    lambda: producer.flush(),
                    lambda: producer.metrics(),
                    lambda: producer.partitions_for("t"),
                    lambda: producer.init_transactions(),
                    lambda: producer.begin_transaction(),
                    lambda: producer.commit_transaction(),
                    lambda: open_one.get(),
                ):
                    with pytest.raises(IllegalProducerState, match="signal handler") as caught:
                        call()
                    refused.append(caught.value.message)
                producer.close(5)

        _in_a_thread(interrupt)
        assert len(refused) == 10
        assert open_one.get(PATIENCE_S).offset == 0
        until(lambda: not producer._sender._thread.is_alive())
        assert log.values == {("t", 0): [b"x"]}
        with pytest.raises(ProducerClosed):
            producer.send("t", b"z")


def test_a_close_that_gives_up_on_a_stuck_thread_says_what_is_open(caplog: pytest.LogCaptureFixture) -> None:
    """A callback that does not return keeps the sender from its end: the futures stay open, and the log says so."""
    with scripted() as (_broker, _log, producer):
        gate = threading.Event()
        reached = threading.Event()

        def stuck(_metadata: Any) -> None:
            reached.set()
            gate.wait(PATIENCE_S)

        producer.send("t", b"x").add_callback(stuck)
        assert reached.wait(PATIENCE_S)
        behind = producer.send("t", b"y")
        with caplog.at_level(logging.WARNING, "streamlet.kafka.producer"):
            producer.close(0.1)
        assert not behind.is_done
        assert "gives up" in caplog.text and "1 record, of t, is not acknowledged yet" in caplog.text
        gate.set()
        until(lambda: not producer._sender._thread.is_alive())
        assert behind.failed()


def test_get_is_refused_in_a_callback_of_its_own_producer_alone() -> None:
    """Another producer's thread goes on meanwhile."""
    with scripted() as (_one, _log, producer), scripted() as (_two, _log2, other):
        heard: list[Any] = []

        def relay(_metadata: Any) -> None:
            try:
                heard.append(other.send("t", b"on").get(20).offset)
            except (IllegalProducerState, ClientTimeout) as err:
                heard.append(err)

        other.partitions_for("t")
        producer.send("t", b"x").add_callback(relay)
        producer.flush(PATIENCE_S)
        assert heard == [0]


def test_a_callback_that_calls_exit_costs_no_other_record_and_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """Also while the producer ends: what waits there would wait for ever."""
    with scripted({"t": 3}) as (broker, _log, producer):
        heard: list[int] = []
        for number in range(3):
            record = producer.send("t", b"x", partition=number)
            record.add_callback(lambda _metadata: sys.exit(1)).add_callback(lambda row: heard.append(row.partition))
        producer.flush(PATIENCE_S)
        assert sorted(heard) == [0, 1, 2] and producer.metrics()["callback_errors"] == 3
        broker.on(ApiKey.PRODUCE, SILENCE)
        open_ones = [producer.send("t", b"y", partition=number) for number in range(3)]
        for record in open_ones:
            record.add_errback(lambda _error: sys.exit(1))
        producer.close(0.2)
        assert all(record.failed() for record in open_ones)
        assert "a callback of a record for t-0 raised" in caplog.text


_INTERRUPTED = """
import logging, signal, sys, time
from streamlet.kafka import Producer

def interrupt(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
producer = Producer(bootstrap_servers=sys.argv[1])
producer.send("t", b"interrupted")
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    producer.close()
except KeyboardInterrupt:
    began = time.monotonic()
    producer.close(0.3)
    print("waited" if time.monotonic() - began > 0.2 else "returned at once", flush=True)
"""


def test_a_close_that_ctrl_c_interrupts_loses_nothing_in_silence() -> None:
    """A second close waits as it says, and what is given up then is told."""
    with scripted() as (broker, _log, _producer):
        held = threading.Event()

        def slow(_request: Any) -> InitProducerIdResponse:
            held.wait(PATIENCE_S)
            return InitProducerIdResponse(error_code=0, producer_id=500, producer_epoch=0)

        until(lambda: broker.seen(ApiKey.INIT_PRODUCER_ID))
        broker.on(ApiKey.INIT_PRODUCER_ID, slow)
        ended = _run(_INTERRUPTED, broker.address)
        held.set()
        assert (ended.returncode, ended.stdout) == (0, "waited\n")
        assert "closed with 1 record not acknowledged, of t" in ended.stderr


def test_what_a_close_that_ctrl_c_interrupts_has_is_sent_before_the_program_ends() -> None:
    with scripted() as (broker, log, _producer):

        def slow(_request: Any) -> InitProducerIdResponse:
            threading.Event().wait(1.0)
            return InitProducerIdResponse(error_code=0, producer_id=500, producer_epoch=0)

        until(lambda: broker.seen(ApiKey.INIT_PRODUCER_ID))
        broker.on(ApiKey.INIT_PRODUCER_ID, slow)
        ended = _run(_INTERRUPTED.replace("producer.close(0.3)", "pass"), broker.address)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert log.values == {("t", 0): [b"interrupted"]}


def test_records_of_a_producer_that_is_refused_an_id_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """Their futures may have nobody who looks at them."""
    with FakeCluster({"t": 1}) as cluster:
        gate = threading.Event()

        def refuse(_request: Any) -> InitProducerIdResponse:
            # Not by waiting here: the broker would not answer for the topic, which the records wait for.
            still_loading, refused = 14, 31
            return InitProducerIdResponse(
                error_code=refused if gate.is_set() else still_loading, producer_id=-1, producer_epoch=-1
            )

        cluster.broker.on(ApiKey.INIT_PRODUCER_ID, refuse)
        producer = Producer(bootstrap_servers=cluster.broker.address)
        futures = producer.send_many("t", [b"x"] * 10)
        gate.set()
        producer.flush(PATIENCE_S)
        found = producer.metrics()
        producer.close(1)
        assert all(future.failed() for future in futures)
        assert (found["records_failed"], found["failed_by_topic"]) == (10, {"t": 10})
        assert "10 records for topic 't' failed: " in caplog.text


def test_a_transaction_without_waiting_ends_with_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bolt that asks whether its commit has ended would ask for ever."""
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    with scripted(transactional_id="x") as (_broker, _log, producer):
        steps = producer.transaction_steps(lambda: None)
        steps.initialize()
        until(steps.ended)
        steps.begin()
        producer.send("t", b"x")
        monkeypatch.setattr(producer._sender.ledger, "settle_sequences", lambda: 1 / 0)
        producer._sender.client.wakeup()
        until(lambda: producer._sender.over)
        assert steps.is_lost and isinstance(steps.error, ProducerClosed)
        with pytest.raises(ProducerClosed, match="ZeroDivisionError"):
            steps.commit([])
