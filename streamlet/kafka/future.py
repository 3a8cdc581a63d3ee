"""The result of a request that has not come yet (C8; Java: ``RequestFuture``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamlet.kafka.errors import KafkaError

_log = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")
Listener = Callable[["RequestFuture[Any]"], None]


class RequestFuture(Generic[T]):
    """Resolves once, in the thread that polls.

    Listeners run in order; one that raises is logged and hurts no other.
    """

    __slots__ = ("_done", "_error", "_listeners", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: KafkaError | None = None
        self._listeners: list[Callable[[RequestFuture[T]], None]] = []

    @property
    def done(self) -> bool:
        """Resolved, either way."""
        return self._done

    @property
    def succeeded(self) -> bool:
        """Resolved with a value."""
        return self._done and self._error is None

    @property
    def failed(self) -> bool:
        """Resolved with an error."""
        return self._error is not None

    @property
    def exception(self) -> KafkaError | None:
        """The error; None while it is open or when it succeeded."""
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
        """Resolve with a value; RuntimeError when it is resolved already."""
        self._resolve(value, None)

    def fail(self, error: KafkaError) -> None:
        """Resolve with an error; RuntimeError when it is resolved already."""
        self._resolve(None, error)

    def add_listener(self, listener: Callable[[RequestFuture[T]], None]) -> RequestFuture[T]:
        """Call ``listener`` with this future once it is resolved; at once when it is."""
        if self._done:
            self._call(listener)
        else:
            self._listeners.append(listener)
        return self

    def then(self, change: Callable[[T], U]) -> RequestFuture[U]:
        """A future of ``change(value)`` (Java: ``compose``). A KafkaError that ``change`` raises fails it."""
        after: RequestFuture[U] = RequestFuture()

        def relay(before: RequestFuture[T]) -> None:
            if before._error is not None:
                after.fail(before._error)
                return
            try:
                value = change(before.value)
            except KafkaError as err:
                after.fail(err)
            except Exception as err:  # noqa: BLE001 - whatever it is, who waits for the result must hear of it
                _log.exception("reading an answer raised")
                after.fail(KafkaError(f"Reading an answer raised {type(err).__name__}: {err}."))
            else:
                after.complete(value)

        self.add_listener(relay)
        return after

    def chain(self, after: RequestFuture[T]) -> None:
        """Resolve ``after`` as this one is resolved."""
        self.add_listener(
            lambda before: after.complete(before.value) if before.succeeded else after.fail(_error_of(before))
        )

    def _resolve(self, value: T | None, error: KafkaError | None) -> None:
        if self._done:
            raise RuntimeError("a request future is resolved once")
        self._done, self._value, self._error = True, value, error
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._call(listener)

    def _call(self, listener: Callable[[RequestFuture[T]], None]) -> None:
        try:
            listener(self)
        except Exception:  # noqa: BLE001 - foreign code: its fault must not cost the other listeners
            _log.exception("a listener of a request future raised")


def failed_future(error: KafkaError) -> RequestFuture[Any]:
    """A future that has failed already; fits any type."""
    future: RequestFuture[Any] = RequestFuture()
    future.fail(error)
    return future


def _error_of(future: RequestFuture[Any]) -> KafkaError:
    error = future.exception
    assert error is not None
    return error
