"""Fetches, and the records they brought (Java: ``Fetcher`` and ``CompletedFetch``).

One request to a broker at a time, for the partitions it leads that have nothing waiting here. A partition whose records
wait is not asked for again, nor is a broker whose waiting answers reach ``fetch_max_bytes``: so less than twice that
waits of each broker.

Handing out goes in two steps, so that the brokers work while this process unpacks:

1. the batch headers say which answers this poll uses up whole (``kafka/records/record_batch.py``); the positions move
   past them, and the next fetches are sent;
2. the answers are unpacked. If that fails, positions go back, and answers that come for the wrong ones are dropped.

An answer counts only for the position it was asked for: a seek, a revocation or a way back makes it stale.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from streamlet.kafka.broker_errors import (
    CorruptMessage,
    GroupAuthorizationFailed,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownServerError,
    may_pass,
)
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import (
    FetchedPartition,
    FetchPosition,
    FetchSettings,
    SessionAnswer,
    fetch_in_session,
)
from streamlet.kafka.consumer.consumer_config import READ_COMMITTED, ConsumerConfig
from streamlet.kafka.consumer.metrics import ConsumerMetrics
from streamlet.kafka.consumer.positions import Positions
from streamlet.kafka.consumer.records import Chunk
from streamlet.kafka.consumer.subscription_state import AssignedPartition, Position, SubscriptionState
from streamlet.kafka.errors import BrokerError, KafkaError
from streamlet.kafka.fetch.fetch_session import FetchSession
from streamlet.kafka.fetch.nearer_replica import SOON_S
from streamlet.kafka.fetch.pauses import Pauses
from streamlet.kafka.fetch.unknown_errors import UNKNOWN_ERROR_S, UnknownErrors
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.records.record_batch import RecordBatch, scan_headers

_log = logging.getLogger(__name__)


class CompletedFetch:
    """One partition's part of a fetch answer, handed out batch by batch."""

    def __init__(self, fetched: FetchedPartition, epoch: int, node: int) -> None:
        """Take the epoch of the record before the position, and the broker."""
        self.node = node
        self.fetched = fetched
        self.topic_partition = fetched.topic_partition
        self.next_offset = fetched.position
        self.next_epoch = epoch
        self.exhausted = False
        self._batches: Iterator[RecordBatch] | None = None
        self._batch: RecordBatch | None = None
        self._index = 0
        self.scan = scan_headers(fetched.records, fetched.position, epoch)

    def take(self, limit: int) -> list[Chunk]:
        """Return at most ``limit`` records and move ``next_offset`` past them.

        Raises the error of a bad batch (CorruptRecord and kin) when nothing stands before it; ``next_offset`` stays at
        that batch.
        """
        chunks: list[Chunk] = []
        left = limit
        while left > 0 and not self.exhausted:
            batch = self._batch
            if batch is None:
                try:
                    batch = self._next_batch()
                except Exception:
                    if chunks:
                        return chunks  # the next call raises the error again
                    raise
                if batch is None:
                    break
            start = self._index
            stop = min(start + left, len(batch))
            if stop > start:
                chunks.append(Chunk(self.topic_partition, batch, start, stop))
                left -= stop - start
            self.next_epoch = batch.leader_epoch
            if stop == len(batch):
                self._batch = None
                self.next_offset = max(self.next_offset, batch.next_offset)  # never back before the position
            else:
                self._index = stop
                self.next_offset = batch.base_offset + batch.offset_deltas[stop]
        return chunks

    def _next_batch(self) -> RecordBatch | None:
        if self._batches is None:
            self._batches = self.fetched.batches()
        try:
            batch = next(self._batches, None)
        except Exception:
            # A generator that raised is over. A new one from here on raises the error again, each time.
            offset = self.next_offset
            self._batches = (batch for batch in self.fetched.batches() if batch.next_offset > offset)
            raise
        if batch is None:
            self.exhausted = True
            return None
        self._batch, self._index = batch, 0
        return batch


def _handed_out(row: AssignedPartition, only: Collection[TopicPartition] | None) -> bool:
    return row.fetchable and (only is None or row.topic_partition in only)


class Fetcher:
    """Fetches of one consumer, and their records. User's thread."""

    # Long: what is asked, what has come and what is handed out are one account of each partition. Sessions, header
    # scan, pauses and verdicts are pure, in `kafka/fetch`.

    def __init__(
        self,
        client: KafkaClient,
        subscriptions: SubscriptionState,
        positions: Positions,
        config: ConsumerConfig,
        now_s: Callable[[], float],
        metrics: ConsumerMetrics,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._subscriptions = subscriptions
        self._positions = positions
        self._now_s = now_s
        self._sessions_enabled = config.enable_fetch_sessions
        self._retry = config.retry_backoff
        self._nearer_s = config.metadata_max_age_ms / 1000
        self.settings = FetchSettings(
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_min_bytes=config.fetch_min_bytes,
            fetch_max_bytes=config.fetch_max_bytes,
            max_partition_fetch_bytes=config.max_partition_fetch_bytes,
            read_committed=config.isolation_level == READ_COMMITTED,
            check_crcs=config.check_crcs,
            client_rack=config.client_rack,
        )
        self._completed: deque[CompletedFetch] = deque()
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: set[int] = set()
        self._pauses: Pauses[int] = Pauses(self._retry)
        self._unknown_errors: UnknownErrors[TopicPartition] = UnknownErrors()
        self.requests_sent = 0
        self.notes_ends = False
        """Whether somebody wants to hear of the ends of partitions."""
        self.prefetch = True
        """False: the next fetch waits for the next poll. For benchmarks."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the answers that wait here."""
        return sum(len(done.fetched.records) for done in self._completed)

    # -- asking

    def send_fetches(self, only: Collection[TopicPartition] | None = None) -> None:
        """Ask each free broker for its partitions that have nothing waiting.

        ``only``: the partitions that the poll hands out; None: all.
        """
        now = self._now_s()
        waiting = {done.topic_partition for done in self._completed}
        # Rule: one fetch to a broker at a time, as its session demands. Paused after a failure, or with enough waiting
        # here, a broker is not asked either; its partitions are asked for in a later poll.
        closed = self._full_nodes(only) | self._in_flight | self._pauses.active(now)
        wanted: dict[int, dict[TopicPartition, FetchPosition]] = {}
        brokers: dict[int, Broker] = {}
        for row in self._subscriptions.fetchable():
            if row.topic_partition in waiting or row.next_retry_s > now:
                continue
            broker = self._broker_for(row, now)
            if broker is None:
                self._client.metadata.request_update(reset_equivalent=False)
                continue
            node = broker.node_id
            if node in closed:
                continue
            position = row.position
            assert position is not None
            brokers[node] = broker
            wanted.setdefault(node, {})[row.topic_partition] = FetchPosition(
                position.offset, position.leader_epoch, position.offset_epoch
            )
        for node, rows in wanted.items():
            self._send(brokers[node], rows)
        if wanted:
            self._client.send_queued()

    def _full_nodes(self, only: Collection[TopicPartition] | None) -> set[int]:
        """Return the brokers whose waiting answers reach ``fetch_max_bytes``."""
        # Records of partitions that are paused, or not asked for in this poll, do not count: they may wait for ever,
        # and must not stop the others.
        held: dict[int, int] = {}
        for done in self._completed:
            row = self._subscriptions.get(done.topic_partition)
            if row is not None and _handed_out(row, only):
                held[done.node] = held.get(done.node, 0) + len(done.fetched.records)
        return {node for node, size in held.items() if size >= self.settings.fetch_max_bytes}

    def next_wake_s(self, now_s: float) -> float:
        """Return seconds until a paused broker or partition may be asked again."""
        pause_end_s = self._pauses.next_end_s(now_s)
        waits = [] if pause_end_s is None else [pause_end_s - now_s]
        waits += [row.next_retry_s - now_s for row in self._subscriptions.fetchable() if row.next_retry_s > now_s]
        return min(waits, default=float("inf"))

    def _broker_for(self, row: AssignedPartition, now: float) -> Broker | None:
        cluster = self._client.cluster
        node = row.nearer.at(now)
        if node is not None:
            replica = cluster.brokers.get(node)
            if replica is not None:
                return replica
            # It was away when the metadata came, or is new.
            row.nearer.failed(now + SOON_S)
            self._client.metadata.request_update(reset_equivalent=False)
        return cluster.leader_for(row.topic_partition)

    def _send(self, broker: Broker, wanted: dict[TopicPartition, FetchPosition]) -> None:
        node = broker.node_id
        session = self._sessions.setdefault(node, FetchSession(self._sessions_enabled))
        ids = {tp.topic: self._client.cluster.topic_id(tp.topic) for tp in wanted}
        part = session.build(wanted, ids)
        self._in_flight.add(node)
        self.requests_sent += 1
        settings = self.settings
        if settings.client_rack and self._hides_rack(wanted):
            settings = replace(settings, client_rack="")  # it is of the whole request
        future = fetch_in_session(self._client, broker, part, settings)
        future.add_listener(lambda done: self._answered(node, session, wanted, done))

    def _hides_rack(self, wanted: Collection[TopicPartition]) -> bool:
        now, rows = self._now_s(), map(self._subscriptions.get, wanted)
        return any(row is not None and row.nearer.hides_rack(now) for row in rows)

    # -- answers

    def _answered(
        self,
        node: int,
        session: FetchSession,
        wanted: dict[TopicPartition, FetchPosition],
        done: RequestFuture[SessionAnswer],
    ) -> None:
        self._in_flight.discard(node)
        if done.exception is not None:
            self._metrics.failed_fetches += 1
            session.lost()
            self._pauses.failed(node, self._now_s())
            for tp in wanted:
                row = self._subscriptions.get(tp)
                if row is not None and row.nearer.node == node:
                    row.nearer.failed(self._now_s() + self._nearer_s)
            if isinstance(done.exception, UnknownServerError):
                self._note_unknown_error(node, wanted)
            elif not may_pass(done.exception):
                self._positions.tell(done.exception)
            return
        answer = done.value
        if answer.error is not None:
            self._metrics.failed_fetches += 1
            session.refused(answer.error)
            self._pauses.failed(node, self._now_s())
            if answer.error is UnknownServerError:
                self._note_unknown_error(node, wanted)
            return
        session.answered(answer.session_id)
        self._pauses.ended(node)
        size = sum(len(fetched.records) for fetched in answer.partitions.values())
        self._metrics.fetches += 1
        self._metrics.empty_fetches += not size
        self._metrics.bytes += size
        for tp, fetched in answer.partitions.items():
            self._take_in(tp, fetched, wanted[tp], node)
        if self.notes_ends:
            self._note_ends(answer, wanted)

    def _note_unknown_error(self, node: int, wanted: Iterable[TopicPartition]) -> None:
        """Note an unexpected error as the whole of an answer."""
        for tp in wanted:
            row = self._subscriptions.get(tp)
            if row is not None and row.nearer.node != node and not self._unknown_error_passes(tp):
                self._unknown_errors.ended(tp)  # raised once a minute
                self._positions.tell(UnknownServerError(f"Fetching {tp}"))

    def _note_ends(self, answer: SessionAnswer, wanted: dict[TopicPartition, FetchPosition]) -> None:
        # Rule: an end is an answer without records from the position on, and not the end that came with the last
        # records: the log may have grown since. In a fetch session a partition without news is left out of the answer,
        # so its last seen end still holds. A throttled answer is empty, whatever there is.
        if answer.throttled:
            return
        for tp, asked in wanted.items():
            row, fetched = self._subscriptions.get(tp), answer.partitions.get(tp)
            if row is None or row.position is None or row.position.offset != asked.offset:
                continue
            if fetched is not None and (fetched.error is not None or len(fetched.records)):
                continue
            end = row.last_stable_offset if self.settings.read_committed else row.high_watermark
            if 0 <= end <= asked.offset:
                row.end_reached = asked.offset

    def _take_in(self, tp: TopicPartition, fetched: FetchedPartition, asked: FetchPosition, node: int) -> None:
        # Rule: an answer to another position than the present one is dropped. The partition was revoked, sought, or its
        # position went back when a batch in front of this one could not be read.
        row = self._subscriptions.get(tp)
        if row is None or row.position is None or row.position.offset != asked.offset:
            return
        if fetched.high_watermark >= 0:
            row.high_watermark = fetched.high_watermark
        if fetched.last_stable_offset >= 0:
            row.last_stable_offset = fetched.last_stable_offset
        if fetched.log_start_offset >= 0:
            row.log_start_offset = fetched.log_start_offset
        if fetched.new_leader is not None:
            self._client.metadata.update_leader(tp, *fetched.new_leader)
        if fetched.preferred_read_replica >= 0:
            row.nearer.named(fetched.preferred_read_replica, self._now_s() + self._nearer_s)
        if fetched.error is not UnknownServerError:
            self._unknown_errors.ended(tp)
        if fetched.error is not None or len(fetched.records) or fetched.diverging_epoch is not None:
            self._completed.append(CompletedFetch(fetched, row.position.offset_epoch, node))

    # -- handing out

    def collect(self, limit: int, only: Collection[TopicPartition] | None = None) -> list[Chunk]:
        """Return up to ``limit`` records, move positions, send the next fetches.

        ``only``: of these partitions; what waits of the others stays, errors too. None: of all.

        Raises a partition's error that retrying does not fix, when no records stand before it.
        """
        chunks: list[Chunk] = []
        aside: list[CompletedFetch] = []
        try:
            while self._completed and limit > 0:
                run = self._whole_answers(limit, aside, only)
                if run:
                    limit -= self._unpack_all(run, chunks)
                    continue
                if not self._completed or (chunks and self._has_fault(self._completed[0])):
                    break
                head = self._completed[0]
                # Errors come in order, too: one is acted on only when all records before it are handed out.
                if self._settle_fault(head):
                    continue
                taken = self._take(head, limit, chunks)
                if not taken and not head.exhausted:
                    break
                limit -= taken
        finally:
            self._completed.extendleft(reversed(aside))
        if self.prefetch and chunks:  # without chunks the poll itself sends fetches, before it waits
            self.send_fetches(only)
        return chunks

    def _current(self, done: CompletedFetch) -> AssignedPartition | None:
        """Return the partition's state if this answer still fits it."""
        row = self._subscriptions.get(done.topic_partition)
        if row is None or row.position is None or row.position.offset != done.next_offset:
            return None
        return row

    @staticmethod
    def _has_fault(done: CompletedFetch) -> bool:
        return done.fetched.error is not None or done.fetched.diverging_epoch is not None

    def _whole_answers(
        self, limit: int, aside: list[CompletedFetch], only: Collection[TopicPartition] | None
    ) -> list[CompletedFetch]:
        """Remove and return the answers that this poll uses up whole.

        The fetches after them are sent. Answers that are paused, or not of ``only``, go to ``aside``.
        """
        run: list[CompletedFetch] = []
        while self._completed:
            head = self._completed[0]
            row = self._current(head)
            if row is None or head.exhausted:
                self._completed.popleft()
                continue
            if not _handed_out(row, only):  # the records wait until it is resumed, or asked for
                aside.append(self._completed.popleft())
                continue
            if self._has_fault(head) or head.scan.records_at_most > limit:
                break
            limit -= head.scan.records_at_most
            self._completed.popleft()
            run.append(head)
        if run and self.prefetch:
            for done in run:
                self._move(done.topic_partition, done.scan.next_offset, done.scan.leader_epoch)
            self.send_fetches(only)
        return run

    def _unpack_all(self, run: list[CompletedFetch], chunks: list[Chunk]) -> int:
        taken = 0
        for index, done in enumerate(run):
            tp = done.topic_partition
            try:
                while not done.exhausted:
                    part = done.take(1 << 62)
                    chunks += part
                    taken += sum(chunk.stop - chunk.start for chunk in part)
            except KafkaError as err:
                # Rule: positions go back to the batches that could not be unpacked. Otherwise damage is passed over.
                # Answers to the fetches after them do not fit these positions and are dropped.
                for later in run[index:]:
                    self._move(later.topic_partition, later.next_offset, later.next_epoch)
                self._completed.extendleft(reversed(run[index + 1 :]))
                if self._leaves_replica(done, err):
                    return taken
                if chunks:
                    self._positions.tell(err)
                    return taken
                raise
            self._move(tp, done.next_offset, done.next_epoch)
            self._subscriptions.move_to_end(tp)
        return taken

    def _take(self, head: CompletedFetch, limit: int, chunks: list[Chunk]) -> int:
        tp = head.topic_partition
        try:
            part = head.take(limit)
        except KafkaError as err:
            if chunks:
                return 0
            self._completed.popleft()
            if self._leaves_replica(head, err):
                head.exhausted = True
                return 0
            raise
        chunks += part
        self._move(tp, head.next_offset, head.next_epoch)
        if head.exhausted:
            self._completed.popleft()
            self._subscriptions.move_to_end(tp)
        return sum(chunk.stop - chunk.start for chunk in part)

    def _leaves_replica(self, done: CompletedFetch, error: KafkaError) -> bool:
        """Leave a nearer replica that sent what cannot be read; False: the leader sent it."""
        # Rule: what a nearer replica has damaged is fetched again from the leader, whose copy may be whole.
        row = self._subscriptions.get(done.topic_partition)
        if row is None or row.nearer.node != done.node:
            return False
        row.nearer.failed(self._now_s() + self._nearer_s)
        _log.warning("%s is read from its leader for %g s. %s", done.topic_partition, self._nearer_s, error.message)
        return True

    def _move(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        row = self._subscriptions.get(tp)
        if row is not None and row.position is not None:
            row.position = Position(offset, epoch, row.position.leader_epoch)

    def _settle_fault(self, done: CompletedFetch) -> bool:
        """Act on an answer's error; return whether it had one. Raises the user's."""
        fetched, row = done.fetched, self._current(done)
        if not self._has_fault(done) or row is None:
            return False
        self._completed.popleft()
        tp, error = done.topic_partition, fetched.error
        if error is None:
            assert fetched.diverging_epoch is not None
            self._positions.parted(tp, *fetched.diverging_epoch)
        elif error is OffsetOutOfRange:
            if row.nearer.node == done.node:
                row.nearer.failed(self._now_s() + self._nearer_s)  # a follower may be late: the leader decides
            else:
                self._positions.out_of_range(tp)
        elif self._passes(row, error, done.node):
            if row.nearer.node == done.node:  # of an election a replica may know before us
                row.nearer.failed(self._now_s() + (SOON_S if error.stale_metadata else self._nearer_s))
            row.next_retry_s = self._now_s() + self._retry.initial
            _log.debug("fetching %s: %s", tp, error.__name__)
        else:
            assert row.position is not None
            remedy = ""
            if error in (TopicAuthorizationFailed, GroupAuthorizationFailed):
                remedy = "An administrator must grant READ on the topic."
            raise error(f"Fetching {tp} from offset {row.position.offset}", remedy)
        return True

    def _passes(self, row: AssignedPartition, error: type[BrokerError], node: int) -> bool:
        """Return whether the partition is asked for again after a pause."""
        if row.nearer.node == node:  # the leader may answer better
            return may_pass(error)
        if error is not UnknownServerError:
            return error.retriable and error is not CorruptMessage
        return self._unknown_error_passes(row.topic_partition)

    def _unknown_error_passes(self, tp: TopicPartition) -> bool:
        """Note an unexpected error, warn of the first; return whether to go on."""
        lasts_s = self._unknown_errors.failed(tp, self._now_s())
        if not lasts_s:
            what = UnknownServerError(f"Fetching {tp}").message
            _log.warning("%s cannot be read at the moment, trying again. %s", tp, what)
        return lasts_s < UNKNOWN_ERROR_S

    def forget_unassigned(self) -> None:
        """Drop the records of partitions that are no longer assigned."""
        for session in self._sessions.values():
            session.keep(self._subscriptions)
        self._completed = deque(row for row in self._completed if row.topic_partition in self._subscriptions)
