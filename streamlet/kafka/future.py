"""The result of a request, resolved by a poll (Java: ``RequestFuture``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamlet.kafka.errors import KafkaError

_log = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")


def supervised(
    listener: Callable[[RequestFuture[T]], None], failed: Callable[[Exception], None]
) -> Callable[[RequestFuture[T]], None]:
    """Return a listener that passes its own error to ``failed``."""
    # A future only logs what its listener raises, and its owner would wait for the answer for ever.

    def call(done: RequestFuture[T]) -> None:
        try:
            listener(done)
        except Exception as err:  # noqa: BLE001 - ``failed`` has it raised where the thread can end
            failed(err)

    return call


class RequestFuture(Generic[T]):
    """Resolves once, in the thread that polls; then its listeners run in order.

    A listener that raises is logged, and the others run.
    """

    __slots__ = ("_done", "_error", "_listeners", "_value", "correlation_id")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: KafkaError | None = None
        self._listeners: list[Callable[[RequestFuture[T]], None]] = []
        self.correlation_id = -1
        """That of its request, once the request is written to a connection."""

    @property
    def done(self) -> bool:
        """Whether it is resolved, either way."""
        return self._done

    @property
    def succeeded(self) -> bool:
        """Whether it is resolved with a value."""
        return self._done and self._error is None

    @property
    def failed(self) -> bool:
        """Whether it is resolved with an error."""
        return self._error is not None

    @property
    def exception(self) -> KafkaError | None:
        """The error; None while it is open, or after a success."""
        return self._error

    @property
    def value(self) -> T:
        """The value. Raises the error of a failed future, RuntimeError on one still open."""
        if not self._done:
            raise RuntimeError("the request is not answered yet: poll the client, or wait for it")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None only where T allows it

    def complete(self, value: T) -> None:
        """Resolve with a value. Raises RuntimeError if it is resolved already."""
        self._resolve(value, None)

    def fail(self, error: KafkaError) -> None:
        """Resolve with an error. Raises RuntimeError if it is resolved already."""
        self._resolve(None, error)

    def add_listener(self, listener: Callable[[RequestFuture[T]], None]) -> RequestFuture[T]:
        """Call ``listener`` with this future, once it is resolved."""
        if self._done:
            self._call(listener)
        else:
            self._listeners.append(listener)
        return self

    def then(self, change: Callable[[T], U]) -> RequestFuture[U]:
        """Return a future of ``change(value)`` (Java: ``compose``).

        A KafkaError that ``change`` raises fails it.
        """
        after: RequestFuture[U] = RequestFuture()
        self.settle(after, lambda before: _hand_on(before, after, change))
        return after

    def chain(self, after: RequestFuture[T]) -> None:
        """Resolve ``after`` like this future."""
        self.settle(after, lambda before: _hand_on(before, after, lambda value: value))

    def settle(self, after: RequestFuture[U], step: Callable[[RequestFuture[T]], None]) -> None:
        """Call ``step`` when this future is resolved; it must resolve ``after``.

        ``step`` resolves ``after`` now, or by a request that it sends. A KafkaError that it raises fails ``after`` (the
        error of this future too); any other exception is a bug, which fails ``after`` and is logged.
        """
        # Use this, not a plain listener, where a listener must resolve another future. A plain listener that raises is
        # only logged, and the caller that waits for the other future would wait until a time-out.

        def supervised(before: RequestFuture[T]) -> None:
            try:
                step(before)
            except KafkaError as err:
                if not after._done:
                    after.fail(err)
            except BaseException as err:
                if not after._done:
                    after.fail(KafkaError(f"Reading an answer raised {type(err).__name__}: {err}."))
                if not isinstance(err, Exception):  # Ctrl-C is not a bug: it goes on to the poll
                    raise
                _log.exception("reading an answer raised")

        self.add_listener(supervised)

    def _resolve(self, value: T | None, error: KafkaError | None) -> None:
        if self._done:
            raise RuntimeError("a request future is resolved once")
        self._done, self._value, self._error = True, value, error
        listeners, self._listeners = self._listeners, []
        interrupt: BaseException | None = None
        for listener in listeners:
            try:
                self._call(listener)
            except BaseException as err:  # noqa: BLE001 - Ctrl-C in one listener: those after it are heard first
                interrupt = interrupt or err
        if interrupt is not None:
            raise interrupt

    def _call(self, listener: Callable[[RequestFuture[T]], None]) -> None:
        try:
            listener(self)
        except Exception:  # noqa: BLE001 - foreign code: its fault must not cost the other listeners
            _log.exception("a listener of a request future raised")


def failed_future(error: KafkaError) -> RequestFuture[Any]:
    """Return a future that has failed already; it fits any type."""
    future: RequestFuture[Any] = RequestFuture()
    future.fail(error)
    return future


def _hand_on(before: RequestFuture[T], after: RequestFuture[U], change: Callable[[T], U]) -> None:
    if before.exception is not None:
        after.fail(before.exception)
    else:
        after.complete(change(before.value))
