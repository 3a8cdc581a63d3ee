"""Whether the topic for dead letters is compacted: asked once, at a task's start."""

from __future__ import annotations

import time
from typing import Any, Protocol

from streamlet.kafka.future import RequestFuture
from streamlet.kafka.protocol.messages.configs import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from streamlet.spouts.kafka.errors import CompactedDeadLetterTopic

SETTING = "cleanup.policy"

ASK_S = 3.0
"""Seconds that a start waits for the answer; without one it goes on."""

POLL_S = 0.02
"""Seconds of one wait for it."""


class Asks(Protocol):
    """The calls of a client that are needed here."""

    def send(self, request: Any, to: Any = None, timeout_s: float | None = None) -> RequestFuture[Any]:
        """Queue a request."""

    def poll(self, timeout_s: float = 0.0) -> None:
        """Send requests and take answers in."""


def refuse_compaction(client: Asks, topic: str, spout: str, limit_s: float) -> None:
    """Ask for the topic's ``cleanup.policy``. Blocks. Raises CompactedDeadLetterTopic.

    Where nobody says it (no right to read settings, no answer within ``limit_s`` and three seconds), nothing is done.
    """
    # Rule: refuse it before anything is emitted. A compacted topic drops all letters of a key but the last one, after
    # they were acknowledged and their records committed; and the first record without a key would end the run.
    asked = (DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=(SETTING,)),)
    wait_s = min(limit_s, ASK_S)
    answer = client.send(DescribeConfigsRequest(resources=asked), timeout_s=wait_s)
    deadline_s = time.monotonic() + wait_s
    while not answer.done and time.monotonic() < deadline_s:
        client.poll(POLL_S)
    if answer.succeeded and (policy := _policy(answer.value)) is not None and "compact" in policy:
        raise CompactedDeadLetterTopic(topic, spout, policy)


def _policy(response: DescribeConfigsResponse) -> str | None:
    rows = [row for result in response.results if not result.error_code for row in result.configs]
    return next((row.value for row in rows if row.name == SETTING), None)
