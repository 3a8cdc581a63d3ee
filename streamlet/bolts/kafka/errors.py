"""Errors of a KafkaBolt: each names the record, the cause and the remedy."""

from __future__ import annotations

from streamlet.base.errors import BadInput, StreamletError
from streamlet.kafka.broker_errors import BrokerRequestTimedOut, NotEnoughReplicasAfterAppend
from streamlet.kafka.errors import Disconnected, MalformedFrame
from streamlet.kafka.producer.errors import BatchExpired, OutcomeUnknown, ProducerClosed


class BoltCannotStart(BadInput):
    """No broker told in time which partitions the topic has."""

    retriable = True


class OutputTopicMissing(BadInput):
    """The topic to write to does not exist."""


class RecordsLeft(StreamletError):
    """A run ended before records of untracked tuples were acknowledged."""


class RecordNotMade(StreamletError):
    """A tuple gave no record: a function of the user's raised, or a value has no bytes."""


class RecordNotTaken(StreamletError):
    """A record found no topic or partition to go to for ``max_block_ms``; it was not sent."""

    retriable = True


_MAY_BE_WRITTEN = (
    *(OutcomeUnknown, Disconnected, MalformedFrame, ProducerClosed),
    *(BrokerRequestTimedOut, NotEnoughReplicasAfterAppend),
)


def outcome_is_unknown(error: Exception) -> bool:
    """Tell whether a record with this error may be written."""
    # A batch that expired was never sent, unless it says so; it counts as a request without an answer.
    never_sent = isinstance(error, BatchExpired) and not isinstance(error, OutcomeUnknown)
    return isinstance(error, _MAY_BE_WRITTEN) and not never_sent
