"""What all calls of an administrator share: the client, the deadline, one call at a time. One thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from streamlet.base.backoff import Backoff
from streamlet.base.clock import SystemClock
from streamlet.base.errors import BadInput
from streamlet.kafka.admin.calls import Calls, Deadline
from streamlet.kafka.admin.config import AdminConfig
from streamlet.kafka.client import KafkaClient
from streamlet.kafka.errors import ClientClosed, KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition


class Session:
    """A client and its calls."""

    def __init__(self, **settings: object) -> None:
        config = AdminConfig.of(settings)
        self.config = config
        self._clock = SystemClock()
        self._client = KafkaClient(config, self._clock)
        retry = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._calls = Calls(self._client, retry, random.random, config.request_timeout_ms / 1000)
        self._busy = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._client!r}>"

    def close(self) -> None:
        """Close the connections. Never waits; may be called twice."""
        self._closed = True
        self._client.close()

    @contextmanager
    def _call(self, timeout: float | None) -> Iterator[Deadline]:
        """One call: nobody else's meanwhile, the cluster known, a deadline."""
        limit = self.config.default_api_timeout_ms / 1000 if timeout is None else timeout
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit < 0:
            raise BadInput(f"timeout = {timeout!r} must be a number of seconds, not negative.")
        if self._closed:
            raise ClientClosed("This Admin is closed: make another.")
        if not self._busy.acquire(blocking=False):
            raise KafkaError("This Admin is at work for another thread: it is not thread-safe. Make one for each.")
        try:
            deadline = Deadline.after(limit, self._clock)
            self._client.bootstrap(deadline.left_s())
            yield deadline
        finally:
            self._busy.release()


def several(names: str | Iterable[str]) -> list[str]:
    """One name or many, each once."""
    found = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    for name in found:
        if not isinstance(name, str) or not name:
            raise BadInput(f"{name!r} is no name: give a string that is not empty.")
    return found


def offset_of(tp: TopicPartition, spec: object) -> int:
    if isinstance(spec, bool) or not isinstance(spec, int) or spec < 0:
        raise BadInput(f"{tp}: {spec!r} is no offset: write a number from 0 on, or one of the words that are allowed.")
    return spec
