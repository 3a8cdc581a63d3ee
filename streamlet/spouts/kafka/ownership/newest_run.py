"""Choose the run that reads a group's topic: the newest, by what the members tell the group's leader.

A task joins with a :class:`Claim`. The assignor gives the tasks of one run all partitions of the topic, each task what
the arithmetic of tasks gives it, and those of any other run nothing. Each member is told whose the topic is
(:class:`Verdict`), so a task that has no partition by arithmetic does not take itself for deposed.

The newest run is the one that came to the group last, by the group's own count of generations and not by the clocks of
hosts: a run that no generation has given the topic to yet is newer than one that has it. Clocks decide only between two
runs that come at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from streamlet.kafka.consumer.assignors.base import PartitionAssignor, Subscription, encode_assignment
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.spouts.kafka.chosen_topics import share, shift_of

NEWCOMER = -1
"""The generation of a run that has not been given its topic yet."""

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")

FORGOTTEN = 0
"""The generation that the replacement of a worker names: before all that a run was given its topic in."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a task says when it joins: its run, its place among the run's tasks."""

    run: str
    topology: str
    task: int
    count: int
    started_ms: int
    since: int = NEWCOMER
    """The generation that gave the run the topic."""
    numbers: tuple[int, ...] | None = None
    """Partitions of a list written by hand; None: by arithmetic."""
    several: bool = False
    """Whether the task reads several topics, each with a shift of its own."""

    def encode(self) -> bytes:
        """Return the user data of a subscription."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The leader's answer to a member: the run that has the topic, since when, with how many members so far."""

    run: str
    topology: str
    since: int
    members: int

    def encode(self) -> bytes:
        """Return the user data of an assignment."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def member_name(run: str, component: str, task_id: int, task_index: int) -> str:
    """Return the instance id of a task's member; a component with an odd name goes by its task's number."""
    # Kafka takes for an instance id what it takes for a topic's name.
    name = f"{run}-{component}-{task_index}"
    return name if _LEGAL.fullmatch(name) else f"{run}-task-{task_id}"


def decode_claim(data: bytes | None) -> Claim | None:
    """Read a claim; None for anything else."""
    row = _fields(data)
    if row is None or not _are(row, str, "run", "topology") or not _are(row, int, "task", "count", "started_ms"):
        return None
    numbers = row.get("numbers")
    if not (numbers is None or (isinstance(numbers, list) and all(isinstance(one, int) for one in numbers))):
        return None
    since = row.get("since", NEWCOMER)
    return Claim(
        row["run"],
        row["topology"],
        row["task"],
        row["count"],
        row["started_ms"],
        since if isinstance(since, int) else NEWCOMER,
        None if numbers is None else tuple(numbers),
        row.get("several") is True,
    )


def decode_verdict(data: bytes | None) -> Verdict | None:
    """Read a verdict; None for anything else."""
    row = _fields(data)
    if row is None or not _are(row, str, "run", "topology") or not _are(row, int, "since", "members"):
        return None
    return Verdict(row["run"], row["topology"], row["since"], row["members"])


def _fields(data: bytes | None) -> dict[str, Any] | None:
    try:
        row = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _are(row: Mapping[str, Any], kind: type, *names: str) -> bool:
    return all(isinstance(row.get(name), kind) and not isinstance(row[name], bool) for name in names)


def newest(claims: Iterable[Claim]) -> Verdict | None:
    """Return the run that has the topic; None without any claim."""
    runs: dict[str, list[Claim]] = {}
    for claim in claims:
        runs.setdefault(claim.run, []).append(claim)
    ranked = [(_rank(rows), rows) for rows in runs.values()]
    if not ranked:
        return None
    (_, since, _, run), rows = max(ranked, key=lambda each: each[0])
    return Verdict(run, rows[0].topology, since, len(rows))


def _rank(rows: list[Claim]) -> tuple[bool, int, int, str]:
    # The replacement of a worker does not know since when its run has the topic: the others of the run do.
    since = max(row.since for row in rows)
    return (since == NEWCOMER, since, min(row.started_ms for row in rows), rows[0].run)


class NewestRunAssignor(PartitionAssignor):
    """Gives the topics to the tasks of the newest run, by arithmetic."""

    name: ClassVar[str] = "streamlet"
    quiet: ClassVar[bool] = True  # each task says itself what it reads

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        verdicts = _verdicts(subscriptions)
        shares: dict[str, list[TopicPartition]] = {}
        for member, row in subscriptions.items():
            claim, shares[member] = decode_claim(row.user_data), []
            verdict = verdicts.get(member)
            if claim is not None and verdict is not None and claim.run == verdict.run:
                for topic in row.topics:
                    shares[member] += _share(claim, topic, partition_counts.get(topic, 0))
        return shares

    def encode(
        self, shares: Mapping[str, Iterable[TopicPartition]], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, bytes]:
        verdicts = _verdicts(subscriptions)
        told = {member: None if (found := verdicts.get(member)) is None else found.encode() for member in subscriptions}
        return {member: encode_assignment(partitions, told[member]) for member, partitions in shares.items()}


def _verdicts(subscriptions: Mapping[str, Subscription]) -> dict[str, Verdict]:
    """Return by member the run that has its topics."""
    claims = {member: claim for member, row in subscriptions.items() if (claim := decode_claim(row.user_data))}
    # Rule: one place for all tasks with several topics, and for those with one of these topics. A pattern matches
    # others from day to day, or none yet: judged topic by topic, two runs would have a part each, and both emit.
    shared = {topic for member, claim in claims.items() if claim.several for topic in subscriptions[member].topics}
    places: dict[str, list[str]] = {}
    for member, claim in claims.items():
        topics = subscriptions[member].topics
        place = "" if claim.several or shared.intersection(topics) else ",".join(topics)
        places.setdefault(place, []).append(member)
    verdicts: dict[str, Verdict] = {}
    for members in places.values():
        verdict = newest(claims[member] for member in members)
        if verdict is not None:
            verdicts |= dict.fromkeys(members, verdict)
    return verdicts


def _share(claim: Claim, topic: str, partitions: int) -> list[TopicPartition]:
    # By arithmetic, as the task itself computes it: an assignor that balanced would move partitions at each
    # rebalance, and each move costs what was read and not committed.
    numbers: Iterable[int] | None = claim.numbers
    if numbers is None:
        shift = shift_of(topic) if claim.several else 0
        numbers = share(range(partitions), max(1, claim.count), claim.task, shift)
    return [TopicPartition(topic, number) for number in numbers]
