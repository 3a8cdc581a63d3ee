"""What a user may give to a consumer, looked at before anything is done, as what it means. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from streamlet.base.errors import WrongArgument
from streamlet.kafka.arguments import by_name_only, check_topic, several
from streamlet.kafka.consumer.errors import IllegalSubscription
from streamlet.kafka.consumer.rebalance_listener import ConsumerRebalanceListener
from streamlet.kafka.metadata.cluster import TopicPartition

Wanted = list[str] | re.Pattern[str]


def wanted(topics: str | Iterable[str] | None, pattern: str | re.Pattern[str] | None, group_id: str | None) -> Wanted:
    """Topics by name (none of them: nothing any more), or a pattern of their whole names.

    Raises IllegalSubscription, InvalidTopic, WrongArgument.
    """
    if group_id is None:
        raise IllegalSubscription(
            "subscribe() shares topics out among a group, and this consumer has no group_id: give one, or read "
            "partitions by name with assign([TopicPartition(topic, 0)])."
        )
    if pattern is not None:
        if topics is not None and topics not in ((), []):
            raise IllegalSubscription("subscribe() takes topics or a pattern, not both.")
        return _pattern(pattern)
    if isinstance(topics, re.Pattern):
        raise WrongArgument(f"subscribe() takes a pattern by name: write subscribe(pattern={topics.pattern!r}).")
    if topics is None:
        raise WrongArgument("subscribe() was given nothing: name topics, subscribe(['lines']), or give a pattern.")
    names = [topics] if isinstance(topics, str) else list(several(topics, "topics", "subscribe(['lines', ...])"))
    for name in names:
        check_topic(name)
    return names


def constructor_topics(topics: tuple[object, ...]) -> None:
    """Of ``Consumer(*topics)``: WrongArgument for a list, or settings, where names are wanted; InvalidTopic."""
    for topic in topics:
        if isinstance(topic, Mapping):
            by_name_only("Consumer", (topic,))
        if isinstance(topic, (list, tuple, set, frozenset)):
            raise WrongArgument(f"Consumer takes topics one by one: write Consumer(*{topic!r}, ...).")
        check_topic(topic)


def listener_of(given: ConsumerRebalanceListener | None) -> ConsumerRebalanceListener:
    """The user's listener, or one that does nothing. WrongArgument for what is none."""
    if given is None:
        return ConsumerRebalanceListener()
    for name in ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"):
        if not callable(getattr(given, name, None)):
            raise WrongArgument(f"listener = {given!r} has no {name}: derive its class from ConsumerRebalanceListener.")
    return given


def poll_limits(timeout_ms: object, max_records: int | None) -> int | None:
    """``max_records`` as it may be. WrongArgument or ValueError for what no poll can heed."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)):
        raise WrongArgument(f"timeout_ms = {timeout_ms!r} must be a number of milliseconds.")
    if not timeout_ms >= 0:
        raise ValueError(f"timeout_ms = {timeout_ms!r} must be a number of milliseconds, and not negative.")
    if max_records is not None:
        if isinstance(max_records, bool) or not isinstance(max_records, int):
            raise WrongArgument(f"max_records = {max_records!r} must be a whole number, or None.")
        if max_records < 1:
            raise ValueError(f"max_records = {max_records!r} must be at least 1, or None.")
    return max_records


def check_offset(tp: TopicPartition, offset: object, leader_epoch: object) -> None:
    """WrongArgument or ValueError for what is no place to read on at."""
    for what, number, least, most in (("offset", offset, 0, 1 << 63), ("leader_epoch", leader_epoch, -1, 1 << 31)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise WrongArgument(f"seek() in {tp}: {what} = {number!r} must be a whole number.")
        if not least <= number < most:
            raise ValueError(f"seek() in {tp}: {what} = {number!r} must be a whole number from {least} to {most - 1}.")


def _pattern(given: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        found = re.compile(given)
    except (re.error, TypeError) as error:
        raise IllegalSubscription(
            f"pattern = {given!r} is no regular expression ({error}): correct it; re.escape() takes names as they are."
        ) from error
    if not isinstance(found.pattern, str) or not found.pattern:
        raise IllegalSubscription(f"pattern = {given!r} matches no topic: give a str that is not empty, as 'lines.*'.")
    return found
