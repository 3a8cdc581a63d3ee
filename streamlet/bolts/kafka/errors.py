"""Errors of a KafkaBolt: each names the record, the cause and the remedy."""

from __future__ import annotations

from streamlet.base.errors import BadInput, StreamletError


class BoltCannotStart(StreamletError):
    """No broker told in time which partitions the topic has."""

    retriable = True


class OutputTopicMissing(BadInput):
    """The topic to write to does not exist."""


class RecordNotMade(StreamletError):
    """A tuple gave no record: a function of the user's raised, or a value has no bytes."""


class RecordNotTaken(StreamletError):
    """A record found no topic or partition to go to for ``max_block_ms``; it was not sent."""

    retriable = True
