"""Errors of the client itself, and the base of brokers' errors.

Two flags decide what callers do, so that no caller lists codes of its own: ``retriable`` (the same act may succeed
later) and ``stale_metadata`` (the metadata is out of date: refresh it first).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Never, TypeVar

from streamlet.base.errors import BadInput, StreamletError

E = TypeVar("E", bound=Exception)


class KafkaError(StreamletError):
    """Base of all errors of this client.

    ``stale_metadata`` asks for a metadata refresh before the next try.
    """

    stale_metadata = False


class Disconnected(KafkaError):
    """The connection broke or could not be made; the outcome is unknown."""

    retriable = True
    stale_metadata = True


class RequestTimedOut(Disconnected):
    """No answer came in time; the connection was closed, the outcome is unknown."""


class ClientTimeout(KafkaError):
    """A call waited as long as its caller allows."""

    retriable = True


class NoLeader(KafkaError):
    """The partition has no known leader at the moment."""

    retriable = True
    stale_metadata = True


class CannotBeWritten(KafkaError, BadInput):
    """A request has a value that does not fit into Kafka's protocol; it was not sent."""


class ClientClosed(KafkaError):
    """The client was closed while the request was unsent or in flight."""


class MalformedFrame(KafkaError):
    """Bytes that are no answer to the request; their connection is closed."""


# Errors that are BadInput too end a command with the exit status of wrong input: what its user gave cannot work.


class HungUp(Disconnected, BadInput):
    """The broker closes each fresh connection unanswered.

    A listener of another protocol does that. A broker that stops does it too, and a proxy before its broker is there:
    for three seconds the error is Disconnected.
    """


class AuthenticationFailed(KafkaError, BadInput):
    """The broker refuses user, password or mechanism, or does not prove itself."""


class TokenFailed(AuthenticationFailed):
    """There is no token to show to the broker: who refused it, and why."""


class TokenUnavailable(Disconnected):
    """There is no token at the moment: its source does not answer."""


class TlsFailed(AuthenticationFailed):
    """The TLS handshake failed: whose certificate was refused, and why."""


class ForeignProtocol(MalformedFrame, BadInput):
    """The port answers in another protocol than Kafka's, or than this listener's."""


class UnsupportedVersion(KafkaError, BadInput):
    """Broker and client share no version of an API."""


class BootstrapFailed(KafkaError, BadInput):
    """No address of ``bootstrap_servers`` gave metadata; ``causes`` has each one's reason."""

    retriable = True

    def __init__(self, message: str, causes: Mapping[str, str]) -> None:
        super().__init__(message)
        self.causes = dict(causes)


class CorruptRecord(KafkaError):
    """The log holds invalid records; the message names topic, partition, offset."""


class UnsupportedRecordFormat(KafkaError):
    """The log holds records in a format before v2 (Kafka 0.11)."""


class DecompressedTooLarge(CorruptRecord):
    """A compressed batch unpacks to more than the client's limit."""


class BrokerError(KafkaError):
    """An error code in a broker's answer; subclasses are in ``broker_errors``."""

    code: int = -1
    """Kafka's number."""
    remedy: str = ""
    """The remedy, where it is the same for every act."""

    def __init__(self, what: str = "", remedy: str = "") -> None:
        """Make the text; ``what``: the act, without a full stop; ``remedy``: a sentence."""
        reason = (type(self).__doc__ or "").strip().removesuffix(".")
        text = f"{what}: {reason[0].lower()}{reason[1:]}" if what else reason
        super().__init__(f"{text} (Kafka error {self.code}, {type(self).__name__}). {remedy or self.remedy}".strip())


def with_sentence(error: KafkaError, sentence: str) -> KafkaError:
    """Add a sentence to an error, and return it."""
    error.message = f"{error.message} {sentence}"
    error.args = (error.message,)
    return error


def copy_of(error: E) -> E:
    """Return an equal error, without the traceback, for one more caller."""
    # An error that several callers get, or one gets again, is copied for each: every raise adds frames to the
    # traceback of its object, and these keep all locals of all callers alive.
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    copy.args = error.args
    if error.__cause__ is not None:  # setting it, even to None, would hide the context
        copy.__cause__ = error.__cause__
    return copy


_OWN = "streamlet.kafka.errors"
_BROKERS = "streamlet.kafka.broker_errors"
_FOREIGN = {
    "NoBrokersAvailable": f"{_OWN}.BootstrapFailed",
    "KafkaTimeoutError": f"{_OWN}.ClientTimeout",
    "KafkaConnectionError": f"{_OWN}.Disconnected",
    "NodeNotReadyError": f"{_OWN}.Disconnected",
    "Cancelled": f"{_OWN}.ClientClosed",
    "CorruptRecordError": f"{_OWN}.CorruptRecord",
    "AuthenticationFailedError": f"{_OWN}.AuthenticationFailed",
    "SaslAuthenticationFailedError": f"{_OWN}.AuthenticationFailed",
    "UnsupportedVersionError": f"{_OWN}.UnsupportedVersion",
    "IncompatibleBrokerVersion": f"{_OWN}.UnsupportedVersion",
    "MessageSizeTooLargeError": "streamlet.kafka.producer.errors.RecordTooLarge",
    "ProducerFencedError": "streamlet.kafka.producer.errors.ProducerFenced",
    "CommitFailedError": "streamlet.kafka.consumer.errors.CommitFailed",
    "IllegalStateError": "streamlet.kafka.consumer.errors.IllegalSubscription",
    "NoOffsetForPartitionError": "streamlet.kafka.consumer.errors.NoOffsetForPartition",
    "IllegalArgumentError": "streamlet.base.errors.WrongArgument",
    "BrokerResponseError": f"{_OWN}.BrokerError",
    "KafkaProtocolError": f"{_OWN}.MalformedFrame",
    "CorrelationIdError": f"{_OWN}.MalformedFrame",
    "KafkaUnavailableError": f"{_OWN}.BootstrapFailed",
    "MetadataEmptyBrokerList": f"{_OWN}.BootstrapFailed",
    "UnrecognizedBrokerVersion": f"{_OWN}.UnsupportedVersion",
    "UnsupportedCodecError": f"{_OWN}.CorruptRecord",
    "CorruptRecordException": f"{_OWN}.CorruptRecord",
    "InvalidMessageError": f"{_OWN}.CorruptRecord",
    "ChecksumError": f"{_OWN}.CorruptRecord",
    "KafkaConfigurationError": "streamlet.base.errors.SettingError",
    "TransactionAbortedError": "streamlet.kafka.producer.errors.TransactionAborted",
    "UnknownError": f"{_BROKERS}.UnknownServerError",
    "InvalidFetchRequestError": f"{_BROKERS}.InvalidFetchSize",
    "NotLeaderForPartitionError": f"{_BROKERS}.NotLeaderOrFollower",
    "RequestTimedOutError": f"{_BROKERS}.BrokerRequestTimedOut",
    "GroupLoadInProgressError": f"{_BROKERS}.CoordinatorLoadInProgress",
    "GroupCoordinatorNotAvailableError": f"{_BROKERS}.CoordinatorNotAvailable",
    "NotCoordinatorForGroupError": f"{_BROKERS}.NotCoordinator",
    "InvalidReplicationAssignmentError": f"{_BROKERS}.InvalidReplicaAssignment",
    "InvalidConfigurationError": f"{_BROKERS}.InvalidConfig",
    "InvalidTxnStateError": f"{_BROKERS}.InvalidTransactionState",
    "AuthenticationMethodNotSupported": f"{_BROKERS}.UnsupportedSaslMechanism",
    "QuotaViolationError": f"{_BROKERS}.ThrottlingQuotaExceeded",
    "PositionOutOfRangeError": f"{_BROKERS}.SnapshotPositionOutOfRange",
    "LogTruncationError": "streamlet.kafka.consumer.errors.LogTruncated",
    "ProtocolError": f"{_OWN}.MalformedFrame",
    "InvalidReceiveError": f"{_OWN}.MalformedFrame",
    "StaleLeaderEpochCodeError": f"{_BROKERS}.NetworkException",
    "AsyncProducerQueueFull": "streamlet.kafka.producer.errors.BufferExhausted",
}
"""kafka-python's errors that have another name here. A broker's errors only lose the ``Error`` at their end."""

_ABSENT = {
    "ConsumerTimeout": "an iteration ends by itself after consumer_timeout_ms, and raises nothing",
    "InvalidMetadataError": "an error's stale_metadata says that the client asks for metadata before the next try",
    "FailedPayloadsError": "the future of each record has its own error",
    "StaleMetadata": "an error's stale_metadata says that the client asks for metadata before the next try",
    "TooManyInFlightRequests": "a request waits for its turn, and nothing is raised",
    "RetriableError": "an error's retriable says whether the same call may succeed later",
    "AuthorizationError": f"{_BROKERS} has one for each kind, as TopicAuthorizationFailed and GroupAuthorizationFailed",
    "UnknownBrokerIdError": "brokers are addressed by the client itself",
    "NoError": "an answer without an error raises nothing",
}
"""kafka-python's errors without a counterpart, and the way to the same end here."""


if not TYPE_CHECKING:  # with it a type checker would accept every name

    def __getattr__(name: str) -> Never:
        # Rule: loaded here. Which names are a broker's would else hang on what the program has imported before, and
        # the first line of most is the one that imports an error.
        import_module(_BROKERS)
        brokers = {error.__name__ for error in BrokerError.__subclasses__()}
        own = name if name in brokers else name.removesuffix("Error")
        ours = _FOREIGN.get(name) or (f"{_BROKERS}.{own}" if own in brokers else None)
        instead = f"it is called {ours} here" if ours else _ABSENT.get(name)
        if instead is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # An AttributeError would be replaced by the import system's own text, which names nothing of ours.
        raise ImportError(
            f"{__name__} has no {name}: {instead}; `streamlet docs migrating-from-kafka-python` lists the differences.",
            name=__name__,
        )
