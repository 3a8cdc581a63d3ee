"""Which errors of a record leave it open whether it was written."""

from __future__ import annotations

import pytest

from streamlet.bolts.kafka.errors import outcome_is_unknown
from streamlet.kafka import broker_errors as broker
from streamlet.kafka.errors import Disconnected, KafkaError, MalformedFrame, RequestTimedOut
from streamlet.kafka.producer import errors


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (errors.OutcomeUnknown("sent, and no answer"), True),
        (errors.BatchExpired("never sent"), False),
        (Disconnected("lost on the way"), True),
        (RequestTimedOut("no answer to the last try"), True),
        (MalformedFrame("an answer to something else"), True),
        (errors.ProducerClosed("closed meanwhile"), True),
        (broker.BrokerRequestTimedOut(), True),
        (broker.NotEnoughReplicasAfterAppend(), True),
        (broker.NotEnoughReplicas(), False),
        (broker.TopicAuthorizationFailed(), False),
        (errors.RecordTooLarge("too large"), False),
        (ValueError("no error of Kafka's"), False),
    ],
)
def test_a_record_may_be_written_unless_its_error_says_that_it_was_not(error: KafkaError, unknown: bool) -> None:
    assert outcome_is_unknown(error) is unknown
