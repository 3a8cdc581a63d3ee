"""One producer for all KafkaBolt tasks of a worker that have the same settings.

The last of them that leaves closes it. A worker that ends without a clean stop drops its bolts, and with them the
producer, which then ends by itself.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from streamlet.base.notices import told_if_slow
from streamlet.bolts.kafka.errors import BoltCannotStart, OutputTopicMissing
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer import Producer, ProducerConfig
from streamlet.kafka.producer.topic_wait import await_topic

TOLD_AFTER_S = 1.0
"""Seconds before a start says what it is waiting for."""

# Tasks of one worker share a thread, but a program may have several inline runs in threads of its own.
_lock = threading.Lock()
_shared: weakref.WeakValueDictionary[Any, SharedProducer] = weakref.WeakValueDictionary()


class SharedProducer:
    """A producer whose calls never wait, and the number of its users."""

    def __init__(self, config: ProducerConfig, settings: dict[str, Any]) -> None:
        # Calls run on the worker's loop, so none of them may wait: what finds no room or no topic is offered again.
        self.producer = Producer(**{**settings, "max_block_ms": 0})
        self.max_block_s = config.max_block_ms / 1000
        self.users = 0

    def await_topic(self, topic: str, limit_s: float, bolt: str, say: Callable[[str], None]) -> None:
        """Wait until the topic's partitions are known. Raises BoltCannotStart, OutputTopicMissing, KafkaError.

        ``bolt``: the component's name. ``say`` gets a sentence about the wait after a second of it.
        """
        with told_if_slow(TOLD_AFTER_S, lambda: say(self._waiting(topic, limit_s))):
            error = await_topic(self.producer, topic, limit_s)
        if error is not None:
            raise self._no_topic(topic, limit_s, error, bolt) from error

    def _waiting(self, topic: str, limit_s: float) -> str:
        left_s = limit_s - TOLD_AFTER_S
        return f"waiting for the topic {topic}, for up to {left_s:.0f} s more. {self.producer.connections()}"

    def _no_topic(self, topic: str, limit_s: float, error: KafkaError, bolt: str) -> Exception:
        if isinstance(error, UnknownTopicOrPartition):
            return OutputTopicMissing(
                f"The KafkaBolt {bolt}: the topic {topic!r} does not exist, say the brokers at "
                f"{', '.join(self.producer.config.bootstrap_servers)}. Create it (`streamlet dev topic {topic}`, or "
                "Admin.create_topics), or correct `topic`."
            )
        return BoltCannotStart(
            f"The KafkaBolt {bolt}: no broker has said within {limit_s:g} s which partitions topic {topic!r} has. "
            f"{self.producer.connections()} Check `hosts` (host and port of the brokers' listener), and that the "
            "brokers run (`streamlet dev up` starts one on this machine)."
        )

    def leave(self, limit_s: float) -> None:
        """Take one task off; the last one closes the producer, within so many seconds."""
        with _lock:
            self.users -= 1
            if self.users:
                return
            for key in [key for key, one in _shared.items() if one is self]:
                del _shared[key]
        self.producer.close(limit_s)


class ProducerPlace:
    """One task's place at a shared producer; taken again after it was given up."""

    def __init__(self, config: ProducerConfig, settings: dict[str, Any], run: str) -> None:
        self._made_of = config, settings, run
        self._shared: SharedProducer | None = None

    def take(self) -> SharedProducer:
        """Return the producer; join it where the task has none."""
        if self._shared is None:
            self._shared = share(*self._made_of)
        return self._shared

    @property
    def producer(self) -> Producer:
        """The producer. The task has one."""
        assert self._shared is not None
        return self._shared.producer

    def leave(self, limit_s: float) -> None:
        """Give the place up, if there is one; the last task closes the producer, within so many seconds."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave(limit_s)


def share(config: ProducerConfig, settings: dict[str, Any], run: str) -> SharedProducer:
    """Return the producer of these settings in this run; make it for the first task that asks."""
    key = (run, tuple(sorted((name, _hashable(value)) for name, value in settings.items())))
    with _lock:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = SharedProducer(config, settings)
        found.users += 1
        return found


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return (type(value).__name__, value) if value is None or isinstance(value, (str, int, float)) else id(value)
