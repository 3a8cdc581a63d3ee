"""The user's calls that wait for a transaction's coordinator, and from where no call may wait. Any thread."""

from __future__ import annotations

from collections.abc import Callable

from streamlet.kafka.errors import ClientTimeout, copy_of
from streamlet.kafka.producer.append import Appender
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerClosed
from streamlet.kafka.producer.sender import Sender
from streamlet.kafka.producer.transaction_manager import TransactionManager
from streamlet.kafka.producer.transaction_state import TransactionResult


class TransactionCalls:
    """One producer's."""

    def __init__(self, sender: Sender, appender: Appender) -> None:
        self._sender = sender
        self._appender = appender
        self._max_block_s = sender.config.max_block_ms / 1000

    def may_lock(self, call: str) -> None:
        """IllegalProducerState in a signal handler that interrupts another call: it holds the lock."""
        if self._sender.holds_lock():
            raise self._sender.interrupted(call)

    def may_wait(self, call: str) -> None:
        """IllegalProducerState there and in a callback, which the thread runs that would be waited for."""
        self.may_lock(call)
        if self._sender.is_own_thread:
            raise self._in_callback(call)

    @staticmethod
    def _in_callback(call: str) -> IllegalProducerState:
        return IllegalProducerState(
            f"{call} was called in a callback of the same producer: it waits for what only the thread that runs "
            "the callback can do."
        )

    def begin_transaction(self) -> None:
        """Waits only for the epoch that a transaction before made necessary."""
        call = "begin_transaction()"
        self.may_lock(call)
        with self._sender.lock:
            self._appender.check_open()
            manager = self._manager()
            if manager.takes_epoch:
                self._await(call, lambda: not manager.takes_epoch)
            manager.begin_transaction()

    def transact(self, call: str, begin: Callable[[TransactionManager], TransactionResult]) -> None:
        """Begin something, and wait for its end; its error, if there is one, is raised."""
        self.may_wait(call)
        with self._sender.lock:
            self._appender.check_open()
            manager = self._manager()
            result = begin(manager)
            self._sender.wake()
            self._await(call, lambda: result.done)
            manager.claimed(result)
        if result.error is not None:
            raise copy_of(result.error)

    def end(self, call: str, begin: Callable[[TransactionManager], TransactionResult]) -> None:
        """A commit or an abort: no open batch takes more."""

        def close_and_begin(manager: TransactionManager) -> TransactionResult:
            self._sender.accumulator.close_open_batches()
            return begin(manager)

        self.transact(call, close_and_begin)

    def _await(self, call: str, done: Callable[[], bool]) -> None:
        """With the lock held; ClientTimeout after ``max_block_ms``."""
        sender = self._sender
        if sender.is_own_thread:
            raise self._in_callback(call)
        deadline = sender.clock.monotonic() + self._max_block_s
        while not done():
            left = deadline - sender.clock.monotonic()
            if left <= 0:
                raise ClientTimeout(
                    f"{call} has had no answer for {self._max_block_s:.3g} s (max_block_ms); it is still under way: "
                    f"call it again to wait on. {sender.client.connections()}"
                )
            if sender.died is not None or sender.forced:
                raise ProducerClosed(f"The producer was closed during {call}.")
            sender.changed.wait(left)

    def _manager(self) -> TransactionManager:
        manager = self._sender.manager
        if manager is None or not manager.is_transactional:
            raise IllegalProducerState("Transactions need a producer with transactional_id set, and this one has none.")
        return manager
