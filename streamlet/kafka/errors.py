"""What the client itself finds wrong, and the base of what a broker answers.

Two flags decide what callers do, so that no caller lists codes of its own: ``retriable`` (the same act may
succeed later) and ``stale_metadata`` (what is known of the cluster is out of date: refresh it first).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from streamlet.base.errors import BadInput, StreamletError

E = TypeVar("E", bound=Exception)


class KafkaError(StreamletError):
    """Anything this client raises. ``stale_metadata`` asks for a metadata refresh before the next try."""

    stale_metadata = False


class Disconnected(KafkaError):
    """The connection went away while the request was on it, or could not be made; outcome unknown."""

    retriable = True
    stale_metadata = True


class RequestTimedOut(Disconnected):
    """No answer came within the request time-out; the connection was closed, so the outcome is unknown."""


class ClientTimeout(KafkaError):
    """A call of ours that waits gave up at the caller's limit."""

    retriable = True


class NoLeader(KafkaError):
    """The partition has no known leader at the moment."""

    retriable = True
    stale_metadata = True


class CannotBeWritten(KafkaError, BadInput):
    """A request holds what Kafka's protocol has no room for: nothing of it was sent."""

    exit_status = BadInput.exit_status


class ClientClosed(KafkaError):
    """The client was closed while the request was unsent or in flight."""


class MalformedFrame(KafkaError):
    """Bytes that are no answer to what was asked; the connection that brought them is closed."""


class HungUp(Disconnected, BadInput):
    """The broker closes each fresh connection without a word: what a listener does that speaks another protocol.

    One that is being stopped does it too, and a proxy whose broker is not there yet: for seconds it is Disconnected.
    """

    exit_status = BadInput.exit_status


class AuthenticationFailed(KafkaError, BadInput):
    """The broker refuses who we say we are (user, password, mechanism), or does not prove who it is."""

    exit_status = BadInput.exit_status


class TlsFailed(AuthenticationFailed):
    """The TLS handshake failed: whose certificate was refused, and why."""


class ForeignProtocol(MalformedFrame, BadInput):
    """The port answers, but not in Kafka's protocol (or in TLS where plain text was spoken)."""

    exit_status = BadInput.exit_status


class UnsupportedVersion(KafkaError, BadInput):
    """Broker and client share no version of an API: the broker is too old, or far too new."""

    exit_status = BadInput.exit_status


class BootstrapFailed(KafkaError, BadInput):
    """No address of ``bootstrap_servers`` gave the cluster's metadata; the message has a cause for each."""

    exit_status = BadInput.exit_status
    retriable = True

    def __init__(self, message: str, causes: Mapping[str, str]) -> None:
        super().__init__(message)
        self.causes = dict(causes)


class CorruptRecord(KafkaError):
    """Bytes in the log that are no valid records, named by topic, partition and offset."""


class UnsupportedRecordFormat(KafkaError):
    """The log holds records in a format before v2 (written before Kafka 0.11)."""


class DecompressedTooLarge(CorruptRecord):
    """A compressed batch unpacks to more than the client was told to hold."""


class BrokerError(KafkaError):
    """An error code in a broker's answer. Subclasses are in ``broker_errors``; ``code`` is Kafka's number."""

    code: int = -1
    remedy: str = ""
    """What to do, where that is the same whatever was being done."""

    def __init__(self, what: str = "", remedy: str = "") -> None:
        """``what`` was being done, without a full stop; ``remedy`` is a sentence of its own."""
        reason = (type(self).__doc__ or "").strip().removesuffix(".")
        text = f"{what}: {reason[0].lower()}{reason[1:]}" if what else reason
        super().__init__(f"{text} (Kafka error {self.code}, {type(self).__name__}). {remedy or self.remedy}".strip())


def also(error: KafkaError, sentence: str) -> KafkaError:
    """The same error, saying one thing more."""
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
