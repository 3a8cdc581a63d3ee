"""The thread that sends (Java: Sender): it owns the connections, runs the callbacks, and comes to its own end.

One turn (:meth:`Sender.run_once`) looks at metadata and the transaction, drains batches that are due, packs and sends
them, expires old ones, and polls the sockets; answers arrive within that poll. Which batch is settled how is decided by
:class:`BatchLedger`, not here.

All state that the thread shares with callers stands behind one lock, :attr:`Sender.lock`. Under it nothing of the
user's runs: no callback, no partitioner, and no handler of the log, since each of them may call this very producer and
would wait for the lock, or keep everybody else from it. Packing and all I/O happen without it, too. So whatever is
decided under the lock and touches the user is put into the ledger's ``ended``, ``failures`` and ``notes``, and
:meth:`Sender._run_callbacks` and :meth:`Sender._tell_log` take it from there after the lock is released.

The lock is never taken twice by one thread. It is reentrant for one reason: that kind knows its holder. A signal
handler, or a ``__del__``, may run in the middle of a call that holds it; with :attr:`Sender.holds_lock` every call
asks first, and refuses with the reason. ``close`` alone is allowed there: it leaves the work to the thread and to the
program's end.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from functools import partial

from streamlet.base.clock import Clock
from streamlet.base.printable import many
from streamlet.kafka.broker_errors import forces_update
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.closing import TOLD_AFTER_S
from streamlet.kafka.errors import KafkaError, MalformedFrame
from streamlet.kafka.future import RequestFuture, supervised
from streamlet.kafka.metadata.cluster import Broker, Cluster, TopicPartition
from streamlet.kafka.producer.accumulator import (
    AccumulatorSettings,
    BufferPool,
    PartitionQueue,
    ReadyNodes,
    RecordAccumulator,
    Topics,
)
from streamlet.kafka.producer.batch_ledger import (
    BatchLedger,
    Outcome,
    RetryLimits,
    endpoints,
    produce_request,
    read_response,
)
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerClosed
from streamlet.kafka.producer.metrics import ProducerMetrics
from streamlet.kafka.producer.partitioners import all_replicas_down, other_partition
from streamlet.kafka.producer.producer_batch import ProducerBatch, Sequences
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.producer.record_future import SenderThread, run_callbacks
from streamlet.kafka.producer.transaction import ProducerState, TransactionManager
from streamlet.kafka.producer.transaction_requests import FEATURE, TransactionRequest
from streamlet.kafka.protocol.messages.produce import ProduceResponse

_log = logging.getLogger(__name__)

RECORDS_FAILED = "%s for topic %r failed: %s"
"""The line about records whose futures failed, too; who tells of each leaves it out."""

EXIT_S = 30.0
"""Seconds that the end of the program waits for records that were taken."""
_FORCED_S = 1.0
"""Seconds that a close waits for the thread after it gave up open batches."""
_LONGEST_WAIT_S = 3600.0
"""Seconds of the longest poll, when nothing is due."""


class Sender:
    """One producer's sender. Callers hold :attr:`lock` for all they touch but :meth:`start` and :meth:`join`."""

    # Long: everything in it is the state of one thread behind one lock. Decisions that need no thread are elsewhere:
    # batches (`batch_ledger`, `accumulator`), transactions (`transaction`), partitions.

    def __init__(self, config: ProducerConfig, clock: Clock, uniform: Callable[[], float]) -> None:
        self.config = config
        self.clock = clock
        self.uniform = uniform
        self.lock = threading.RLock()
        """Guards all state that callers share with the thread. No call takes it twice (see the module)."""
        self.holds_lock: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # Condition's, too
        """Whether the calling thread holds the lock, in a call that it now interrupts."""
        self.changed = threading.Condition(self.lock)
        """Notified of every change that a caller may wait for: metadata, memory, batches, transactions."""
        self._thread = SenderThread(self.holds_lock, target=self._run, name=f"producer-{config.client_id}")
        self.metrics = ProducerMetrics()
        self.sequences = Sequences(config.transactional_id is not None) if config.idempotent else None
        self.manager = self._make_manager()
        self.accumulator = self._make_accumulator()
        self.topics = Topics(config, self.accumulator, uniform)
        self.client = self._make_client()
        self.ledger = self._make_ledger()
        self.touched: set[str] = set()
        """Topics that were sent to since the last turn. Written by callers, taken by the thread."""
        self.wanted_update = False
        """A caller waits for newer metadata."""
        self.sleeping = False
        """True while the thread waits in a poll: a caller that adds work must wake it."""
        self.heard: Callable[[], None] | None = None
        """Called on the thread, without the lock, after news of the transaction."""
        self._transaction_news = False
        self._has_work = False
        """Something happened that the next turn must look at before it sleeps."""
        self.closing = False
        self.forced = False
        """The thread must give up open batches, and end now."""
        self._done = threading.Event()
        """Set once the thread has done all it will do."""
        self.at_exit: Callable[[], None] | None = None
        """The hook at the program's end, where nobody else waits for this thread. Written by :meth:`leave`."""
        self.died: BaseException | None = None
        self.refusal: KafkaError | None = None
        """The reason why no broker lets us in, while that is so: callers that wait for metadata raise it at once."""
        self._listener_error: Exception | None = None
        """An error that a listener of ours raised."""
        self._cluster_is_news = False
        self.looks = 0
        """The full updates of metadata that ``topics`` has taken in; under the lock."""
        self._seen_refresh: tuple[float | None, int] = (None, 0)
        self._moved: dict[tuple[TopicPartition, TopicPartition], int] = {}
        """Records by the dead partition that was theirs and the one that they go to, since the log was told."""
        self.client.metadata.add_listener(self._note_cluster)

    def _make_manager(self) -> TransactionManager | None:
        config = self.config
        if self.sequences is None:
            return None
        return TransactionManager(
            self.sequences, config.transactional_id, config.transaction_timeout_ms, config.retry_backoff, self.uniform
        )

    def _make_client(self) -> KafkaClient:
        return KafkaClient(
            self.config,
            self.clock,
            self.uniform,
            topic_idle_s=self.config.metadata_max_idle_ms / 1000,
            allow_auto_topic_creation=self.config.allow_auto_create_topics,
        )

    def _make_ledger(self) -> BatchLedger:
        return BatchLedger(
            self.accumulator,
            RetryLimits(self.config.retries, self.config.delivery_timeout_s),
            self.manager,
            self.metrics,
            failed_try=self.topics.send_failed,
            memory_served=self.changed.notify_all,
            connections=self.client.connections,
            one_at_a_time=self.config.max_in_flight_requests_per_connection == 1,
        )

    def _make_accumulator(self) -> RecordAccumulator:
        config, manager = self.config, self.manager
        settings = AccumulatorSettings(
            batch_size=config.batch_bytes,
            linger_s=config.linger_ms / 1000,
            delivery_timeout_s=config.delivery_timeout_s,
            retry=config.retry_backoff,
            max_request_size=config.max_request_size,
            transactional=config.transactional_id is not None,
        )
        pool = BufferPool(config.buffer_memory)
        may_send = (lambda _tp: True) if manager is None else manager.may_send_to
        return RecordAccumulator(settings, pool, self.sequences, self.uniform, may_send, self._thread)

    # -- for callers, with the lock held

    def wake(self) -> None:
        """Have the thread look for new work."""
        self._has_work = True
        if self.sleeping:
            self.sleeping = False
            self.client.wakeup()

    def moved(self, home: TopicPartition, to: TopicPartition, count: int) -> None:
        """Count records that go elsewhere, as their partition is dead.

        The log is told at the end of the turn.
        """
        self.metrics.records_moved += count
        self._moved[home, to] = self._moved.get((home, to), 0) + count

    def begin_close(self) -> None:
        """Take nothing more, send everything that is left, and end."""
        self.closing = True
        self.accumulator.closed = True
        # The short paths of send() look at nothing but the open batch: while one is open, records are still taken.
        self.accumulator.close_open_batches()
        self.changed.notify_all()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is a callback: it must not wait."""
        return threading.current_thread() is self._thread

    def may_lock(self, call: str) -> None:
        """Raise IllegalProducerState in a signal handler within a call."""
        if self.holds_lock():
            raise IllegalProducerState(
                f"{call} was called in a signal handler (or a __del__) that interrupts another call of the same "
                "producer in this thread, and would wait for that call for ever: only close() may be called there."
            )

    def may_wait(self, call: str) -> None:
        """Raise IllegalProducerState there, and in a callback."""
        self.may_lock(call)
        self.may_not_be_callback(call)

    def may_not_be_callback(self, call: str) -> None:
        """Raise IllegalProducerState in a callback of this producer."""
        if self.is_own_thread:
            raise IllegalProducerState(
                f"{call} was called in a callback of the same producer: it waits for what only the thread that runs "
                "the callback can do."
            )

    # -- the end, as callers see it

    def start(self) -> None:
        """Start the thread; once, before the first record."""
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether the thread has done all it will do."""
        return self._done.is_set()

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the thread's end; True when it has ended."""
        # Rule: by an event, not by Thread.join alone. A signal handler that raises within Thread.join makes Python 3.11
        # take the thread for ended, and a second close() would return at once, with records on their way.
        if not self._done.wait(timeout_s):
            return False
        self._thread.join()
        return True

    def end_within(self, limit_s: float) -> None:
        """Wait for the thread's end; after ``limit_s`` seconds give open batches up.

        A thread that does not even do that (a callback that does not return, a name that is looked up) is named in
        the log and left alone: nothing of ours may hang.
        """
        if self._thread.is_of_parent or self._joined(limit_s):
            return
        with self.lock:
            self.forced = True
            self.wake()
        if not self.join(_FORCED_S):
            _log.warning("close() gives up, and the producer's thread is not at its end: %s", self._still_open())

    def _joined(self, limit_s: float) -> bool:
        if limit_s <= TOLD_AFTER_S or self.join(TOLD_AFTER_S):
            return self.join(limit_s)
        _log.warning("close() waits, at most %.0f s more: %s", limit_s - TOLD_AFTER_S, self._still_open())
        return self.join(limit_s - TOLD_AFTER_S)

    def leave(self, limit_s: float = EXIT_S) -> None:
        """Have the thread send everything and end; the program's end waits for it.

        May run anywhere, in a signal handler or in a garbage collection too: it takes no lock.
        """
        # The thread is a daemon: a program that ends before it would kill it, and lose its records without a word.
        # So the program's end waits for it, and the thread takes the hook back when it is done; otherwise each
        # dropped producer would be kept until then.
        if self.at_exit is None:
            self.at_exit = partial(self.end_within, limit_s)
            atexit.register(self.at_exit)
        # ``begin_close`` needs the lock, so the thread does it itself as soon as it sees ``closing``.
        self.closing = True
        self.accumulator.closed = True
        self.client.wakeup()
        if self.over:  # it ended between the look and the registration, and could not take the hook back
            atexit.unregister(self.at_exit)

    def _still_open(self) -> str:
        """Describe what a close waits for. Takes the lock itself."""
        with self.lock:
            batches = self.accumulator.incomplete
            count = sum(batch.count for batch in batches)
            called = sum(batch.count for batch in self.accumulator.live if batch.is_over)
            ending = self.manager is not None and self.manager.result is not None
        topics = ", ".join(sorted({batch.topic_partition.topic for batch in batches}))
        if batches:
            what = f"{many(count, 'record')}, of {topics}, {'is' if count == 1 else 'are'} not acknowledged yet."
        elif called:
            what = f"the callbacks of {many(called, 'record')} have not all returned."
        else:
            what = "a transaction is to be ended." if ending else "nothing is open."
        return f"{what} {self.client.connections()}"

    # -- the thread

    def _run(self) -> None:
        try:
            while not self.closing:
                self.run_once()
            with self.lock:
                self.begin_close()
            self._begin_last_abort()
            while not self.forced and not self._is_drained():
                self.run_once()
        except BaseException as err:  # the thread's end must be seen: every caller that waits would wait for ever
            _log.exception("the producer's sender thread died")
            self.died = err
            raise
        finally:
            try:
                self._end()
            finally:
                self._done.set()
                if self.at_exit is not None:
                    atexit.unregister(self.at_exit)

    def _begin_last_abort(self) -> None:
        with self.lock:
            if self.manager is not None and self.manager.state in (
                ProducerState.IN_TRANSACTION,
                ProducerState.ABORTABLE_ERROR,
            ):
                self.manager.begin_abort()

    def _is_drained(self) -> bool:
        with self.lock:
            ending = self.manager is not None and self.manager.state in (
                ProducerState.COMMITTING,
                ProducerState.ABORTING,
            )
            return not self.accumulator.incomplete and not ending

    def _end(self) -> None:
        """Resolve every future, wake every waiter, close every socket, whatever happened before."""
        with self.lock:
            self.closing = self.forced = True
            gone = self._closed_error()
            aborted = self.ledger.abort_all(gone, self.clock.monotonic())
        try:
            self._run_callbacks()
            self._tell_log()
            if aborted:
                _log.warning(
                    "the producer was closed with %s not acknowledged, of %s: the outcome is unknown.",
                    many(sum(batch.count for batch in aborted), "record"),
                    ", ".join(sorted({batch.topic_partition.topic for batch in aborted})),
                )
        finally:
            self.client.close()
            # Only now is their memory free: until its connection was closed, a socket could still send from a batch.
            with self.lock:
                self.ledger.release_all(aborted)
                if self.manager is not None:
                    self.manager.end(gone)
                self.changed.notify_all()

    def _closed_error(self) -> KafkaError:
        if self.died is not None:
            return ProducerClosed(
                f"The producer's sender thread died of {type(self.died).__name__}: {self.died}. Records that were on "
                "their way may or may not have been written."
            )
        return ProducerClosed(
            "The producer was closed before the record was acknowledged; if it was on its way, it may be written all "
            "the same. Give close() more time, or call flush() first."
        )

    def run_once(self) -> None:
        """Take one turn of eight steps. Callbacks, packing and sockets come without the lock."""
        # Long: which steps hold the lock, and what stands between them, is seen only where all eight stand in a row.
        if self._listener_error is not None:
            raise self._listener_error
        now = self.clock.monotonic()
        # 1. Decide: take new metadata, give up what was aborted, choose the transaction's next request and the brokers
        #    that can be sent to.
        with self.lock:
            self._has_work = False
            self._refresh_topics()
            self.ledger.abort_queued(now)
            self.ledger.settle_sequences()
            asked = self._next_ask(now)
            hurry = self.manager is not None and self.manager.hurries
            ready = self.accumulator.ready(self.client.cluster, now, hurry)
            self._look_at_leaderless(ready)
        self._run_callbacks()
        # 2. Send the transaction's request: it may be what batches of step 3 wait for.
        if asked is not None:
            self._send_ask(asked)
        # 3. Drain batches (under the lock), pack and send them (without it).
        wait = min(self._send_ready(ready, now), ready.next_check_s)
        # 4. Expire batches. The clock is read again: packing and sending took time.
        with self.lock:
            wait = min(wait, self.ledger.expire(self.client.cluster, self.clock.monotonic()))
        self._run_callbacks()
        # 5. Choose how long to sleep.
        with self.lock:
            if self.manager is not None:
                wait = min(wait, self.manager.wait_s(now))
            # Both under one lock: a caller that adds work after this look finds ``sleeping`` set, and ends the poll.
            if self._has_work or self.ledger.failures:
                wait = 0.0
            self.sleeping = wait > 0
        # 6. Poll: write, read, and settle batches in the listeners of their answers.
        self.client.poll(min(max(wait, 0.0), _LONGEST_WAIT_S))
        self.sleeping = False
        # 7. Write to the log what the steps before noted under the lock.
        self._tell_log()
        self._tell_transaction()
        self._count_refreshes()
        refusal = self.client.hopeless()
        # 8. Callers that wait for metadata hear at once that no broker lets us in, not after max_block_ms.
        if refusal is not self.refusal:
            with self.lock:
                self.refusal = refusal
                self.changed.notify_all()

    # -- metadata

    def _note_cluster(self, cluster: Cluster) -> None:
        self._cluster_is_news = True

    def _refresh_topics(self) -> None:
        if self._cluster_is_news:
            self._cluster_is_news = False
            self.topics.take_cluster(self.client.cluster)
            self.looks = self.client.metadata.full_updates
            self.changed.notify_all()
        # Only the thread may touch the client; callers leave their wishes in ``touched`` and ``wanted_update``.
        for topic in self.touched:
            self.client.add_topic(topic)
        self.touched.clear()
        if self.wanted_update:
            self.wanted_update = False
            self.client.request_update()

    def _count_refreshes(self) -> None:
        metadata = self.client.metadata
        seen = (metadata.last_refresh_s, metadata.update_version)
        if seen[0] is not None and seen[0] != self._seen_refresh[0] and seen[1] == self._seen_refresh[1]:
            self.metrics.metadata_failures += 1
        self._seen_refresh = seen

    def _look_at_leaderless(self, ready: ReadyNodes) -> None:
        if not ready.leaderless:
            return
        for queue in ready.leaderless:
            self.client.add_topic(queue.topic_partition.topic)
            if self.config.partition_failover != "off":
                self._fail_over(queue, self.client.cluster)
        self.client.metadata.request_update(reset_equivalent=False)

    def _fail_over(self, queue: PartitionQueue, cluster: Cluster) -> None:
        tp = queue.topic_partition
        if not all_replicas_down(cluster, cluster.partition(tp)):
            return
        number = other_partition(cluster, tp.topic, self.uniform())
        if number is None:
            return
        moved = self.accumulator.move(queue, tp._replace(partition=number), self.config.partition_failover == "all")
        if moved:
            if self.manager is not None:
                self.manager.add_partition(tp._replace(partition=number))
            self.moved(tp, tp._replace(partition=number), sum(batch.count for batch in moved))
            self._has_work = True

    # -- transactions

    def _next_ask(self, now: float) -> TransactionRequest | None:
        if self.manager is None:
            return None
        self._learn_version(self.manager)
        settled = self.manager.hurries and self.ledger.is_settled
        # No answer wakes the thread for the next turn then: it would sleep for as long as the settings allow, with
        # close() waiting for it.
        if self.manager.end_untold(settled):
            self._has_work = self._transaction_news = True
            self.changed.notify_all()
        return self.manager.next_ask(now, settled)

    def _learn_version(self, manager: TransactionManager) -> None:
        manager.offers_version_2 = self.client.feature_level(FEATURE) >= 2

    def _send_ask(self, asked: TransactionRequest) -> None:
        manager = self.manager
        assert manager is not None

        def on_answer(future: RequestFuture[object]) -> None:
            with self.lock:
                now = self.clock.monotonic()
                self._learn_version(manager)
                if future.exception is not None:
                    manager.failed(asked, future.exception, now)
                else:
                    manager.answered(asked, future.value, now)
                self._has_work = self._transaction_news = True
                self.changed.notify_all()

        self.client.send(asked.request, asked.to).add_listener(supervised(on_answer, self._note_error))
        self.client.send_queued()

    # -- records

    def _send_ready(self, ready: ReadyNodes, now: float) -> float:
        """Send to every broker that can take something; return the seconds until another one may."""
        cluster = self.client.cluster
        wait = float("inf")
        for node_id, queues in ready.nodes.items():
            broker = cluster.brokers.get(node_id)
            if broker is None:
                continue
            until = self.client.readiness_s(broker)
            # Several requests in one turn, each with the next batch of its partitions, up to max_in_flight.
            while until <= 0:
                with self.lock:
                    batches = self.ledger.drain(queues, cluster)
                    queues = self.accumulator.still_due(ready, queues, cluster, now)
                if not batches:
                    break
                self._send_batches(batches, broker)
                until = self.client.readiness_s(broker)
            else:
                wait = min(wait, until)
        return wait

    def _send_batches(self, batches: list[ProducerBatch], broker: Broker) -> None:
        config = self.config
        request = produce_request(
            {batch.topic_partition: batch.encode(config.compression) for batch in batches},
            config.acks_number,
            config.request_timeout_ms,
            config.transactional_id,
            # Without the lock: it changes between transactions alone, when no batch is left.
            version_2=self.manager is not None and self.manager.version_2,
        )
        self.metrics.requests += 1
        self.metrics.batches_sent += len(batches)
        future = self.client.send(request, broker)
        future.add_listener(supervised(lambda ended: self._answered(batches, broker, ended), self._note_error))
        self.client.send_queued()
        for batch in batches:
            batch.sent_as(future.correlation_id)

    def _answered(self, batches: list[ProducerBatch], broker: Broker, future: RequestFuture[ProduceResponse]) -> None:
        now = self.clock.monotonic()
        outcomes = self._outcomes(batches, broker, future)
        with self.lock:
            self.ledger.answered(batches, outcomes, now)
            for tp, outcome in outcomes.items():
                self._learn(tp, outcome, future)
            self._has_work = True
        self._run_callbacks()

    def _outcomes(
        self, batches: list[ProducerBatch], broker: Broker, future: RequestFuture[ProduceResponse]
    ) -> dict[TopicPartition, Outcome]:
        asked = [batch.topic_partition for batch in batches]
        if future.exception is not None:
            return dict.fromkeys(asked, Outcome(future.exception))
        if self.config.acks_number == 0:  # no answer comes: it is done when it is handed to the socket
            return dict.fromkeys(asked, Outcome(None))
        found = {} if future.value is None else read_response(future.value)
        return {tp: found.get(tp) or Outcome(MalformedFrame(f"{broker} answered nothing about {tp}.")) for tp in asked}

    def _learn(self, tp: TopicPartition, outcome: Outcome, future: RequestFuture[ProduceResponse]) -> None:
        """Take an error's news: the partition's new leader, or that metadata must be asked for."""
        if outcome.error is None or not forces_update(type(outcome.error)):
            return
        metadata = self.client.metadata
        if outcome.leader is not None and future.value is not None:
            metadata.update_leader(tp, *outcome.leader, endpoints(future.value))
        metadata.request_update(reset_equivalent=False)

    def _note_error(self, error: Exception) -> None:
        """Note an error of a listener: the next turn raises it, and the thread ends."""
        # The batches of that answer would otherwise stay open for ever; a dead thread resolves them all.
        self._listener_error = error
        self._has_work = True

    # -- without the lock

    def _run_callbacks(self) -> None:
        """Run the callbacks of batches that are over, in order; wake their waiters."""
        if not self.ledger.ended:
            return
        ended, self.ledger.ended = self.ledger.ended, []
        raised = 0
        for batch in ended:
            raised += run_callbacks(batch)
        with self.lock:
            for batch in ended:
                self.accumulator.forget(batch)
            self.metrics.callback_errors += raised
            self.changed.notify_all()

    def _tell_transaction(self) -> None:
        """Tell who waits for the transaction without blocking that something has happened."""
        if self._transaction_news:
            self._transaction_news = False
            if self.heard is not None:
                self.heard()

    def _tell_log(self) -> None:
        """Write the ledger's notes, and lines for failures and moves."""
        # Each failure goes to the log although its future has it too: many programs look at no future.
        ledger = self.ledger
        if not ledger.failures and not ledger.notes and not self._moved:
            return
        with self.lock:
            failures, ledger.failures = ledger.failures, []
            notes, ledger.notes = ledger.notes, []
            moves, self._moved = self._moved, {}
        for level, text, values in notes:
            _log.log(level, text, *values)
        for (home, to), count in moves.items():
            text = "every replica of %s is down: %d %s to partition %d instead"
            _log.warning(text, home, count, "record goes" if count == 1 else "records go", to.partition)
        for topic in dict.fromkeys(name for name, _count, _error in failures):
            failed = [(count, error) for name, count, error in failures if name == topic]
            records = sum(count for count, _error in failed)
            _log.warning(RECORDS_FAILED, many(records, "record"), topic, failed[0][1].message)
