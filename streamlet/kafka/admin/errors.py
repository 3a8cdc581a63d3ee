"""Outcomes of an administrator's items, and the texts of their errors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from streamlet.kafka import broker_errors as e
from streamlet.kafka.errors import BrokerError, KafkaError

K = TypeVar("K")
V = TypeVar("V")

_LISTED = 10


class AdminError(KafkaError):
    """Some items of a call failed.

    ``errors`` has each failed item with its own error, ``results`` what the others gave: those succeeded. When all
    failed in one way, the error raised is of that class too: ``except TopicAlreadyExists`` works.
    """

    def __init__(self, message: str, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        Exception.__init__(self, message)
        self.message = message
        self.errors = dict(errors)
        self.results = dict(results)
        self.retriable = all(error.retriable for error in errors.values())


class NoController(KafkaError):
    """No broker is the controller at the moment."""

    retriable = True
    stale_metadata = True


class TopicBeingDeleted(KafkaError):
    """A topic of this name is being deleted; its name is free soon."""

    retriable = True


class NewerGroupProtocol(KafkaError):
    """The group is of the newer protocol (KIP-848), unknown to the call."""


class Unanswered(KafkaError):
    """The broker's answer has no row for an item."""


@dataclass(slots=True)
class Answers(Generic[K, V]):
    """The outcome of each item so far."""

    results: dict[K, V] = field(default_factory=dict)
    errors: dict[K, KafkaError] = field(default_factory=dict)

    def put(self, item: K, result: V, error: KafkaError | None) -> None:
        """Record the outcome of an item: its error, or without one its result."""
        if error is None:
            self.results[item] = result
        else:
            self.errors[item] = error

    def add(self, others: Answers[K, V]) -> None:
        """Take over the outcomes of other items."""
        self.results.update(others.results)
        self.errors.update(others.errors)

    def value(self) -> dict[K, V]:
        """Return the results. Raises AdminError when there is any error."""
        if self.errors:
            raise admin_error(self.errors, self.results)
        return self.results


def for_each(items: Iterable[K], rows: Answers[K, V], fault: KafkaError | None) -> Answers[K, V]:
    """Return an answer's rows, or its error for each item."""
    return rows if fault is None else Answers({}, dict.fromkeys(items, fault))


_combined: dict[type[KafkaError], type[AdminError]] = {}


def admin_error(errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> AdminError:
    """Return one error for all of these, with one paragraph."""
    kinds = {type(error) for error in errors.values()}
    kind: type[AdminError] = AdminError
    if len(kinds) == 1:
        only = kinds.pop()
        kind = only if issubclass(only, AdminError) else _combined_with(only)
    told = _told(errors)
    if len(errors) == 1 and not results:
        return kind(told[0], errors, results)
    message = f"{len(errors)} of {len(errors) + len(results)} failed"
    message += "; the others succeeded. " if results else ". "
    message += " ".join(told[:_LISTED])
    if len(told) > _LISTED:
        message += f" ({len(told) - _LISTED} more: see the error's attribute `errors`.)"
    return kind(message, errors, results)


def _combined_with(kind: type[KafkaError]) -> type[AdminError]:
    # So that `except TopicAlreadyExists` works as with the client's other calls. The class is made once for each kind:
    # two classes of one name would not catch each other.
    found = _combined.get(kind)
    if found is None:
        found = _combined[kind] = type(kind.__name__, (AdminError, kind), {"__doc__": kind.__doc__})
    return found


def _told(errors: Mapping[Any, KafkaError]) -> list[str]:
    """Return each message once, after the items it does not name."""
    items: dict[str, list[str]] = {}
    for item, error in errors.items():
        items.setdefault(error.message, []).append(str(item))
    told = []
    for message, names in items.items():
        # Names are looked for as whole words: "t1" is not named by a message about "t10".
        said = f"{message} {message[:1].lower()}{message[1:]}"  # "broker 7" may begin the sentence
        if any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", said) for name in names):
            told.append(message)
        else:
            listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
            told.append(f"{listed}: {message}")
    return told


# -- one item

_SAYS_NOTHING_NEW = {
    e.TopicAlreadyExists,
    e.UnknownTopicOrPartition,
    e.TopicAuthorizationFailed,
    e.ClusterAuthorizationFailed,
    e.GroupAuthorizationFailed,
    e.NotController,
}
"""Errors where the broker's own message only repeats the code."""

_UNAUTHORIZED = {e.TopicAuthorizationFailed, e.ClusterAuthorizationFailed, e.GroupAuthorizationFailed}

_REMEDIES: dict[type[BrokerError], str] = {
    e.TopicAlreadyExists: "Choose another name, or use the topic as it is: describe_topics shows it.",
    e.UnknownTopicOrPartition: "Correct its name: list_topics shows what there is.",
    e.InvalidTopic: (
        "A name has at most 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'."
    ),
    e.InvalidConfig: "Correct the setting's name or value: describe_configs shows those that there are.",
    e.PolicyViolation: "Ask for something the policy admits, or ask its administrator.",
    e.TopicDeletionDisabled: "The brokers' setting delete.topic.enable forbids it.",
    e.NonEmptyGroup: "Stop its members first: describe_groups names them.",
    e.GroupIdNotFound: "Correct its name: list_groups shows what there is.",
    e.UnknownMemberId: (
        "The group has members at the moment, and only they may commit: stop them first; describe_groups names them."
    ),
    e.GroupSubscribedToTopic: "Stop the members that are subscribed to it first: describe_groups names them.",
    e.OffsetOutOfRange: "An offset must lie between the partition's first one and its end: list_offsets shows both.",
    e.ClusterAuthorizationFailed: "",
    e.SecurityDisabled: "The brokers keep no ACLs: their setting authorizer.class.name names who does.",
    e.ResourceNotFound: "Correct its name: describe_user_scram_credentials shows what there is.",
    e.PreferredLeaderNotAvailable: "Its first replica is not in sync: describe_topics shows which ones are.",
    e.EligibleLeadersNotAvailable: "No living replica may lead it: start one of its brokers.",
    e.NoReassignmentInProgress: "It may be done already: describe_topics shows who has the partition.",
    e.InvalidReplicaAssignment: "describe_cluster shows which brokers there are.",
}


def item_error(code: int, what: str, said: str | None = None, needs: str = "", brokers: int = 0) -> KafkaError | None:
    """Return the error of one item, None for code 0.

    ``what``: the act, without a full stop; ``said``: the broker's own message; ``needs``: the ACL operations
    it takes, as "CREATE on the topic"; ``brokers``: how many the cluster has, 0 for unknown.
    """
    kind = e.error_class(code)
    if kind is None:
        return None
    # A broker in ZooKeeper mode answers a deletion before the name is free. For a quarter of a second it then calls the
    # topic existing, and only the text shows that waiting helps.
    if kind is e.TopicAlreadyExists and said and "marked for deletion" in said:
        return TopicBeingDeleted(f"{what}: the topic of this name is still being deleted.")
    remedy = _REMEDIES.get(kind, "")
    if kind in _UNAUTHORIZED and needs:
        remedy = f"It takes the ACL operation {needs}."
    if kind is e.InvalidReplicationFactor and brokers:
        plural = "broker, so there can be 1 copy" if brokers == 1 else f"brokers, so there can be 1 to {brokers} copies"
        remedy = f"The cluster has {brokers} {plural}."
    if said and kind not in _SAYS_NOTHING_NEW:
        remedy = f"The broker says: {said.strip().rstrip('.')}. {remedy}".strip()
    return kind(what, remedy)
