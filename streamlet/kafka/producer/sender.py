"""The thread that sends (Java: Sender): it owns the connections, settles batches, and runs their callbacks.

All state that it shares with the callers stands behind one lock, :attr:`Sender.lock`. Callbacks, packing and all I/O
happen without it.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from streamlet.base.clock import Clock
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, Cluster
from streamlet.kafka.producer.accumulator import PartitionQueue, ReadyNodes
from streamlet.kafka.producer.batch import ProducerBatch
from streamlet.kafka.producer.errors import IllegalProducerState, OutcomeUnknown, ProducerClosed, TransactionAborted
from streamlet.kafka.producer.partitioners import all_replicas_down, elsewhere
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.producer.record_future import SenderThread
from streamlet.kafka.producer.responses import produce_request
from streamlet.kafka.producer.settlement import Settlement
from streamlet.kafka.producer.transaction_state import Ask, State

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 3600.0
_T = TypeVar("_T")


class Sender(Settlement):
    """One producer's sender. Callers hold :attr:`lock` for whatever they touch but :meth:`start` and :meth:`join`."""

    def __init__(self, config: ProducerConfig, clock: Clock, uniform: Callable[[], float]) -> None:
        super().__init__(config, clock, uniform)
        self.touched: set[str] = set()
        """Topics that were sent to since the last turn."""
        self.wanted_update = False
        self.sleeping = False
        """In a poll that nothing of ours ends: who adds something must wake it."""
        self.closing = False
        self.forced = False
        self.over = False
        """The thread has done all it will do."""
        self.at_exit: Callable[[], None] | None = None
        """What the program's end calls, where nobody else waits for this thread (``ending``)."""
        self.died: BaseException | None = None
        self.refusal: KafkaError | None = None
        """Why no broker lets us in, while that is so: who waits for metadata is told at once."""
        self.on_cluster: Callable[[Cluster], None] = lambda cluster: None
        """Told of each new view of the cluster."""
        self._mistake: Exception | None = None
        """What a listener of ours raised."""
        self._cluster_is_news = False
        self._seen_refresh: tuple[float | None, int] = (None, 0)
        self.client.metadata.add_listener(self._note_cluster)
        self._thread = SenderThread(self.holds_lock, target=self._run, name=f"producer-{config.client_id}", daemon=True)
        self.accumulator.settler = self._thread

    # -- for callers, with the lock held

    def wake(self) -> None:
        """There is something new to do."""
        self._poked = True
        if self.sleeping:
            self.sleeping = False
            self.client.wakeup()

    def begin_close(self) -> None:
        """Take nothing more, send what there is, and end."""
        self.closing = True
        self.accumulator.closed = True
        self.accumulator.close_open_batches()
        self.changed.notify_all()

    def abandon(self) -> None:
        """Like :meth:`begin_close`, which the thread then does itself: may run anywhere, so without :attr:`lock`."""
        self.closing = True
        self.accumulator.closed = True
        self.client.wakeup()

    @property
    def is_own_thread(self) -> bool:
        """Called from a callback: whatever would wait for the sender must not."""
        return threading.current_thread() is self._thread

    def interrupted(self, call: str) -> IllegalProducerState:
        """What a call says in a thread that holds the lock already: it would wait for itself."""
        return IllegalProducerState(
            f"{call} was called in a signal handler (or a __del__) that interrupts another call of the same producer "
            "in this thread, and would wait for that call for ever: only close() may be called there."
        )

    def still_open(self) -> str:
        """What a close waits for. Takes the lock itself."""
        with self.lock:
            batches = list(self.accumulator.incomplete)
            count = sum(batch.count for batch in batches)
            called = sum(batch.count for batch in self.unfired)
            ending = self.manager is not None and self.manager.result is not None
        topics = ", ".join(sorted({batch.topic_partition.topic for batch in batches}))
        if batches:
            what = f"{count} records, of {topics}, are not acknowledged yet."
        elif called:
            what = f"the callbacks of {called} records have not all returned."
        else:
            what = "a transaction is to be ended." if ending else "nothing is open."
        return f"{what} {self.client.connections()}"

    # -- the thread

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the thread's end; True when it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

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
            self._end()
            self.over = True
            if self.at_exit is not None:
                atexit.unregister(self.at_exit)

    def _begin_last_abort(self) -> None:
        with self.lock:
            if self.manager is not None and self.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                self.manager.begin_abort()

    def _is_drained(self) -> bool:
        with self.lock:
            ending = self.manager is not None and self.manager.state in (State.COMMITTING, State.ABORTING)
            return not self.accumulator.incomplete and not ending

    def _end(self) -> None:
        """Whatever happened: every future is resolved, every waiter told, every socket closed."""
        with self.lock:
            self.closing = self.forced = True
            gone = self._closed_error()
            ended = list(self.accumulator.incomplete)
            self.accumulator.take_undrained()
            for batch in ended:
                batch.abort(gone)
                self._forget(batch)
            unfired = list(self.unfired)
        self._fire(unfired)
        self._tell_failures()
        if ended:
            _log.warning(
                "the producer was closed with %d records not acknowledged, of %s: their outcome is unknown.",
                sum(batch.count for batch in ended),
                ", ".join(sorted({batch.topic_partition.topic for batch in ended})),
            )
        self.client.close()
        with self.lock:
            for batch in ended:
                batch.on_wire = False
                self._release(batch)
            if self.manager is not None and self.manager.result is not None:
                self.manager.result.settle(gone)
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
        """One turn: metadata, transactions, ready, drain, send, expire, poll."""
        if self._mistake is not None:
            raise self._mistake
        now = self.clock.monotonic()
        with self.lock:
            self._poked = False
            self._refresh_topics()
            ended = self._abort_by_state()
            self._settle_sequences()
            asked = self._next_ask(now)
            hurry = self.manager is not None and self.manager.hurries
            ready = self.accumulator.ready(self.client.cluster, now, hurry)
            self._look_at_leaderless(ready)
        self._fire(ended)
        if asked is not None:
            self._send_ask(asked)
        wait = min(self._send_ready(ready, now), ready.next_check_s)
        wait = min(wait, self._expire(self.clock.monotonic()))
        with self.lock:
            if self.manager is not None:
                wait = min(wait, self.manager.wait_s(now))
            if self._poked or self.untold:
                wait = 0.0
            self.sleeping = wait > 0
        self.client.poll(min(max(wait, 0.0), _LONGEST_WAIT_S))
        self.sleeping = False
        self._tell_failures()
        self._count_refreshes()
        refusal = self.client.hopeless()
        if refusal is not self.refusal:
            with self.lock:
                self.refusal = refusal
                self.changed.notify_all()

    # -- the parts of a turn

    def _next_ask(self, now: float) -> Ask | None:
        if self.manager is None:
            return None
        before = self.manager.state
        asked = self.manager.next_ask(now, self._is_settled())
        if self.manager.state is not before:  # a transaction that no broker had to be told of: no answer will wake us
            self._poked = True
            self.changed.notify_all()
        return asked

    def _note_cluster(self, cluster: Cluster) -> None:
        self._cluster_is_news = True

    def _refresh_topics(self) -> None:
        if self._cluster_is_news:
            self._cluster_is_news = False
            self.on_cluster(self.client.cluster)
            self.changed.notify_all()
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

    def _is_settled(self) -> bool:
        return not self.accumulator.incomplete and not self._on_wire

    def _abort_by_state(self) -> list[ProducerBatch]:
        """What is queued while the transaction can only be aborted, or nothing more: tries again would help nobody."""
        if self.manager is None:
            return []
        state = self.manager.state
        if state in (State.FATAL_ERROR, State.ABORTING, State.ABORTABLE_ERROR):
            ended = self.accumulator.take_undrained()
        else:
            return []
        error = self.manager.error or TransactionAborted("The record's transaction was aborted.")
        for batch in ended:
            batch.abort(error)
            if self.sequences is not None:
                self.sequences.failed(batch, error)
            self._forget(batch)
        return ended

    def _settle_sequences(self) -> None:
        if self.sequences is None or self.manager is None:
            return
        lost = self.sequences.settle_unresolved()
        if lost and self.manager.is_transactional:
            self.manager.sequences_lost()
            self.manager.batch_failed(OutcomeUnknown(f"Whether {lost[0]} has records that expired is not known."))
        if self.sequences.bump_wanted and not self.manager.is_transactional:
            self.sequences.bump_epoch()
            self.metrics.epoch_bumps += 1

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
        number = elsewhere(cluster, tp.topic, self.uniform())
        if number is None:
            return
        moved = self.accumulator.move(queue, tp._replace(partition=number), self.config.partition_failover == "all")
        if moved:
            if self.manager is not None:
                self.manager.add_partition(tp._replace(partition=number))
            count = sum(batch.count for batch in moved)
            self.metrics.records_moved += count
            text = "every replica of %s is down: %d records go to partition %d instead"
            self.unlogged.append((logging.WARNING, text, (tp, count, number)))
            self._poked = True

    def _send_ask(self, asked: Ask) -> None:
        manager = self.manager
        assert manager is not None

        def on_answer(future: RequestFuture[object]) -> None:
            with self.lock:
                now = self.clock.monotonic()
                if future.exception is not None:
                    manager.failed(asked, future.exception, now)
                else:
                    manager.answered(asked, future.value, now)
                self._poked = True
                self.changed.notify_all()

        self.client.send(asked.request, asked.to).add_listener(self._supervised(on_answer))
        self.client.send_queued()

    def _send_ready(self, ready: ReadyNodes, now: float) -> float:
        """Send to every broker that can take something; seconds until another one may."""
        cluster = self.client.cluster
        wait = float("inf")
        for node_id, queues in ready.nodes.items():
            broker = cluster.brokers.get(node_id)
            if broker is None:
                continue
            until = self.client.readiness_s(broker)
            while until <= 0:
                with self.lock:
                    batches = self.accumulator.drain(queues, cluster, now)
                    for batch in batches:
                        self.in_flight.add(batch)
                        self._on_wire.add(batch)
                        if self.config.max_in_flight_requests_per_connection == 1:
                            self.accumulator.queue(batch.topic_partition).muted = True
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
        )
        self.metrics.requests += 1
        self.metrics.batches_sent += len(batches)
        future = self.client.send(request, broker)
        future.add_listener(self._supervised(lambda ended: self._answered(batches, broker, ended)))
        self.client.send_queued()

    def _supervised(self, listener: Callable[[RequestFuture[_T]], None]) -> Callable[[RequestFuture[_T]], None]:
        """A listener whose own mistake ends this thread: a future would log it, and its records would stay open."""

        def call(future: RequestFuture[_T]) -> None:
            try:
                listener(future)
            except Exception as err:  # noqa: BLE001 - whatever it is, the next turn raises it
                self._mistake = err
                self._poked = True

        return call
