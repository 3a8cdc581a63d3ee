"""Waiting, at a start, until a producer knows its topic's partitions."""

from __future__ import annotations

import time
from typing import Any, Protocol

from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.errors import KafkaError

LOOK_S = 0.02
"""Seconds between two looks whether the topic is known."""

UNKNOWN_S = 3.0
"""Seconds that brokers must say that there is no such topic: of one just made, not all know at once."""


class KnowsTopics(Protocol):
    """The one call of a producer that is needed here."""

    def partitions_for(self, topic: str) -> Any:
        """Return the topic's partitions, without waiting. Raises KafkaError."""


def await_topic(producer: KnowsTopics, topic: str, limit_s: float) -> KafkaError | None:
    """Wait until the topic's partitions are known; return the last error if they are not. Blocks.

    UnknownTopicOrPartition: brokers say that there is none. Raises errors that time does not mend.
    """
    deadline = time.monotonic() + limit_s
    believed = deadline
    while True:
        try:
            producer.partitions_for(topic)
            return None
        except KafkaError as error:
            if not error.retriable:
                raise
            now = time.monotonic()
            missing = isinstance(error, UnknownTopicOrPartition)
            believed = min(believed, now + UNKNOWN_S) if missing else deadline
            if now >= believed:
                return error
        time.sleep(LOOK_S)
