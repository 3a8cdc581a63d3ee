"""What users give to a client's calls, looked at before anything is asked of a broker. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from streamlet.base.errors import WrongArgument
from streamlet.kafka.broker_errors import InvalidTopic
from streamlet.kafka.metadata.cluster import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def by_name_only(client: str, misplaced: tuple[object, ...]) -> None:
    """WrongArgument when settings were given by place, as clients of other libraries take them in one dict."""
    if misplaced:
        raise WrongArgument(
            f"{client} takes its settings by name: write {client}(bootstrap_servers='host:port', ...), or "
            f"{client}(**settings) where they stand in a dict."
        )


def check_topic(topic: object, note: str = "") -> None:
    """InvalidTopic for a name that no broker takes, and that perhaps could not even be written into a request."""
    if not isinstance(topic, str) or _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        remedy = "Give a str of 1 to 249 letters (a-z, A-Z), digits, '.', '_' and '-', other than '.' and '..'."
        raise InvalidTopic(f"topic = {topic!r}", f"{remedy} {note}".rstrip())


def seconds(timeout: float) -> float:
    """WrongArgument for what is no number of seconds. One below 0 is none that is left, as after a deadline."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout != timeout:
        raise WrongArgument(f"timeout = {timeout!r} must be a number of seconds.")
    return timeout


def check_callable(name: str, given: object) -> None:
    """WrongArgument for what is neither a function nor None: found when it is given, not when it is called."""
    if given is not None and not callable(given):
        raise WrongArgument(f"{name} = {given!r} must be a function, or left out.")


def several(given: Iterable[V], what: str, example: str, where: str = "") -> Iterable[V]:
    """What is given where several are wanted. WrongArgument for one by itself, and for a str, which is its letters."""
    if isinstance(given, (str, bytes, TopicPartition)) or not isinstance(given, Iterable):
        raise WrongArgument(f"{where and where + ': '}{given!r} is no list of {what}: write {example}.")
    return given


def partitions_of(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Several partitions, in order. WrongArgument for what is none, or no list of them."""
    return [
        TopicPartition.of(tp)
        for tp in several(partitions, "partitions", "[TopicPartition(topic, number), ...], numbered from 0")
    ]


def by_partition(given: Mapping[TopicPartition, V], what: str) -> dict[TopicPartition, V]:
    """What is given for each of several partitions. WrongArgument for what is no mapping of them."""
    return {TopicPartition.of(tp): value for tp, value in mapping(given, "TopicPartition(topic, number)", what).items()}


def mapping(given: Mapping[K, V], key: str, value: str, where: str = "") -> Mapping[K, V]:
    """WrongArgument for what is no mapping; ``key`` and ``value`` say what it should have."""
    if not isinstance(given, Mapping):
        raise WrongArgument(f"{where and where + ': '}{given!r} is no mapping: write {{{key}: {value}, ...}}.")
    return given
