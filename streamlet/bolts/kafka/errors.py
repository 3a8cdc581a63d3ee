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


class LetterRefused(StreamletError):
    """The brokers refuse a dead letter for good.

    With ``topology.delivery: exactly-once``.
    """

    def __init__(self, record: str, topic: str, why: str, *, is_invalid: bool = False) -> None:
        remedy = (
            "A topic that is compacted takes no letter of a record without a key: set cleanup.policy=delete for "
            f"{topic!r}, if it has another one, or name another topic in dead_letter_topic,"
            if is_invalid
            else "Correct what the error names (the rights of the bolt's user, max_request_size of the KafkaBolt and "
            "max.message.bytes of the topic: a dead letter is a little larger than its record)"
        )
        super().__init__(
            f"The dead letter of {record}, was refused by topic {topic!r}: {why} It belongs to the transaction that "
            "passes over its record, so nothing past this record is committed, and it comes again at the next start. "
            f"{remedy} and start again."
        )


class LetterTopicGone(StreamletError):
    """The topic for dead letters is not there any more.

    With ``topology.delivery: exactly-once``.
    """

    def __init__(self, topic: str, seconds: float, connections: str) -> None:
        super().__init__(
            f"Dead letters wait for topic {topic!r} (dead_letter_topic), and for {seconds:g} s the brokers that the "
            f"KafkaBolt writes to have said that there is no such topic. {connections} A letter belongs to the "
            "transaction that passes over its record, so nothing past these records is committed, and they come again "
            "at the next start. Create the topic on the cluster of the KafkaBolt, which is to be the spout's, too, and "
            "start again."
        )


class StaleTuple(StreamletError):
    """A tuple of an attempt that is over (``topology.delivery: exactly-once``): it is not written."""


class UntrackedTuple(StreamletError):
    """A tuple belongs to no record of a spout."""

    def __init__(self, where: str, component: str, stream: str) -> None:
        super().__init__(
            f"{component} emitted a tuple on stream {stream!r} that belongs to no record of a spout, and it came to a "
            f"KafkaBolt ({where}). With topology.delivery=exactly-once each record is committed with the offsets of "
            "what it was made of, and this one is made of nothing: it would be written again by each run that repeats "
            "it. Emit in process, not in process_tick or initialize, and without anchors=[]."
        )


class TransactionsRefused(StreamletError):
    """Kafka does not let the bolt write in transactions."""


class TransactionTimeoutRefused(TransactionsRefused):
    """The brokers allow no transaction to take so long."""

    def __init__(self, bolt: str, where: str, timeout_ms: int) -> None:
        super().__init__(
            f"The KafkaBolt {bolt} ({where}) has transaction_timeout_ms = {timeout_ms}, and the brokers allow no more "
            "than their setting transaction.max.timeout.ms (900000, which is 15 minutes, unless set). Nothing was "
            "written. Give a smaller transaction_timeout_ms (in KafkaBolt.spec, or "
            f"`-c {bolt}.transaction_timeout_ms=...`; 60000 unless set), or have transaction.max.timeout.ms raised on "
            "all brokers."
        )


class TwoClusters(StreamletError):
    """Spouts read one cluster, and the bolt writes to another."""

    def __init__(self, where: str, group: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"{where} is in another Kafka cluster (id {ours}) than the topics that are read as {group!r} (id "
            f"{theirs}). A transaction reaches one cluster: with topology.delivery exactly-once nothing could ever be "
            "committed. Nothing was written for readers of committed records. Give the KafkaBolt and the spouts the "
            "brokers of one cluster, or leave exactly-once out: then a record may be written more than once."
        )


class TransactionalIdShared(StreamletError):
    """Two producers have one transactional id, and fence each other."""

    def __init__(self, where: str, times: int, seconds: float, timeout_s: float) -> None:
        super().__init__(
            f"The producer of {where} was fenced {times} times within {seconds:g} s. Either another program writes "
            "with its transactional id, and each takes over from the other for ever. The id is made of the names of "
            "topology and bolt; where two deployments share these and a cluster, give each its own: "
            'KafkaBolt.spec(transactional_id="..."). Or its transactions take nearly as long as '
            f"transaction_timeout_ms ({timeout_s:g} s) allows: raise that."
        )
