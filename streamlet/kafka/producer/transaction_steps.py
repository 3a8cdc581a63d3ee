"""A transaction's calls for a caller that may not wait: each begins something, and a callback says when to look again.

The calls of :class:`Producer` wait; a loop that serves others cannot. Both work on the same machine (``transaction``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer.errors import TransactionFailed
from streamlet.kafka.producer.sender import Sender
from streamlet.kafka.producer.transaction import ProducerState, TransactionManager, TransactionResult
from streamlet.kafka.producer.transaction_requests import ABORT

GroupRows = tuple[Mapping[TopicPartition, OffsetAndMetadata], ConsumerGroupMetadata]


class TransactionSteps:
    """The transactions of one producer. ``heard`` is called on its thread when something may have ended."""

    def __init__(self, sender: Sender, heard: Callable[[], None]) -> None:
        assert sender.manager is not None
        self._sender = sender
        self._manager: TransactionManager = sender.manager
        self._result: TransactionResult | None = None
        sender.heard = heard

    def initialize(self) -> None:
        """Begin to fence other producers of the transactional id."""
        with self._sender.lock:
            self._result = self._manager.begin_initialize()
            self._sender.wake()

    def begin(self) -> None:
        """Begin a transaction. Raises IllegalProducerState, and the error of a producer that failed for good."""
        with self._sender.lock:
            self._manager.begin_transaction()

    def commit(self, offsets: Iterable[GroupRows]) -> None:
        """Begin to store offsets and to commit. Raises the error of a transaction that failed."""
        with self._sender.lock:
            for rows, group in offsets:
                if rows:
                    self._manager.send_offsets(rows, group)
            self._end(self._manager.begin_commit)

    def give_up_offsets(self, cause: Exception) -> None:
        """Fail a commit whose offsets cannot be stored; nothing once its end was asked for."""
        failed = TransactionFailed(f"{cause} {ABORT}")
        failed.__cause__ = cause
        with self._sender.lock:
            self._manager.give_up_offsets(failed)

    def abort(self) -> None:
        """Begin to abort. Raises the error of a producer that failed for good."""
        with self._sender.lock:
            self._end(self._manager.begin_abort)

    def _end(self, begin: Callable[[], TransactionResult]) -> None:
        # The short paths of send() ask nothing while a batch is open: it would take records after the end.
        self._sender.accumulator.close_open_batches()
        self._result = begin()
        self._sender.wake()

    def ended(self) -> TransactionResult | None:
        """Take the result of the last call; None while it, or the epoch after it, is under way."""
        with self._sender.lock:
            result = self._result
            if result is None or not result.done or self._manager.takes_epoch:
                return None
            self._manager.claimed(result)
            self._result = None
            return result

    @property
    def cluster_id(self) -> str | None:
        """The id of the producer's cluster; None until a broker has named it."""
        return self._sender.client.cluster.cluster_id

    @property
    def is_lost(self) -> bool:
        """Whether the producer has failed for good: another one took over, or it was refused."""
        return self._manager.state is ProducerState.FATAL_ERROR

    @property
    def trouble(self) -> Exception | None:
        """Why the last request is asked again, if it is."""
        return self._manager.trouble

    @property
    def error(self) -> Exception | None:
        """Why the transaction, or the producer, has failed."""
        return self._manager.error
