"""What all calls of an administrator share: the client, the deadline, one call at a time. One thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Never, Self

from streamlet.base.backoff import Backoff
from streamlet.base.clock import SystemClock
from streamlet.base.errors import BadInput
from streamlet.kafka.admin.admin_config import AdminConfig
from streamlet.kafka.admin.calls import Calls, Deadline
from streamlet.kafka.arguments import by_name_only
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.errors import ClientClosed, KafkaError


class Session:
    """A client and its calls."""

    def __init__(self, *misplaced: Never, **settings: object) -> None:
        by_name_only("Admin", misplaced)
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
