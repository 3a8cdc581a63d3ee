"""Whether the topic for dead letters is compacted: what an answer, or none, means for the start."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.kafka.errors import ClientTimeout
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.protocol.messages.configs import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from streamlet.spouts.kafka.dead_letters import compaction
from streamlet.spouts.kafka.dead_letters.compaction import refuse_compaction
from streamlet.spouts.kafka.errors import CompactedDeadLetterTopic


class Client:
    """Answers at the second poll, if it does."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[DescribeConfigsRequest] = []
        self._future: RequestFuture[Any] = RequestFuture()
        self._polls = 0

    def send(self, request: Any, to: Any = None, timeout_s: float | None = None) -> RequestFuture[Any]:
        self.asked.append(request)
        return self._future

    def poll(self, timeout_s: float = 0.0) -> None:
        self._polls += 1
        if self._polls == 2 and self._answer is not None:
            (self._future.fail if isinstance(self._answer, Exception) else self._future.complete)(self._answer)


def described(policy: str | None, error_code: int = 0) -> DescribeConfigsResponse:
    row = DescribeConfigsResourceResult(name="cleanup.policy", value=policy, read_only=False, is_sensitive=False)
    rows = () if policy is None else (row,)
    result = DescribeConfigsResult(
        error_code=error_code, error_message=None, resource_type=TOPIC, resource_name="dead", configs=rows
    )
    return DescribeConfigsResponse(throttle_time_ms=0, results=(result,))


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_start_with_a_compacted_topic_for_letters_is_refused(policy: str) -> None:
    client = Client(described(policy))
    with pytest.raises(
        CompactedDeadLetterTopic, match=rf"spout 'read' .* topic 'dead' \(dead_letter_topic\).*policy={policy}\."
    ) as refused:
        refuse_compaction(client, "dead", "read", 60.0)
    assert refused.value.exit_status == 2
    (asked,) = client.asked
    assert [(row.resource_name, row.configuration_keys) for row in asked.resources] == [("dead", ("cleanup.policy",))]


@pytest.mark.parametrize(
    "answer",
    [described("delete"), described(None, error_code=29), described(None), ClientTimeout("no answer"), None],
    ids=["deleted by time", "no right", "no such setting", "a failure", "no answer"],
)
def test_a_start_goes_on_where_nobody_says_that_the_topic_is_compacted(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "ASK_S", 0.05)
    refuse_compaction(Client(answer), "dead", "read", 60.0)
