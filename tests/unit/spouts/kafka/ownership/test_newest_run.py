"""Who has a topic of a group: what the leader of the group decides from what its members say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.consumer.assignors.base import Subscription, decode_told_assignment
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.spouts.kafka.chosen_topics import share, shift_of
from streamlet.spouts.kafka.ownership.newest_run import (
    FORGOTTEN,
    NEWCOMER,
    Claim,
    NewestRunAssignor,
    Verdict,
    decode_claim,
    decode_verdict,
    member_name,
    newest,
)

OWNER = Claim("run-a", "words", 0, 1, started_ms=1_000, since=5)
NEW = Claim("run-b", "words", 0, 1, started_ms=2_000)


def run_of(*claims: Claim) -> str:
    found = newest(claims)
    assert found is not None
    return found.run


def test_a_run_that_comes_to_the_group_has_the_topic_whatever_its_clock_says() -> None:
    assert run_of(OWNER, NEW) == run_of(NEW, OWNER) == "run-b"
    assert run_of(OWNER, replace(NEW, started_ms=1)) == "run-b"


def test_a_run_that_slept_through_its_successors_start_has_nothing() -> None:
    assert run_of(OWNER, replace(NEW, since=6, started_ms=1)) == "run-b"


def test_the_replacement_of_a_worker_makes_its_run_no_newcomer() -> None:
    """Its own claim knows nothing of the past; that of another task of its run does."""
    replacement = replace(OWNER, task=1, since=NEWCOMER, started_ms=9_000)
    assert run_of(OWNER, replacement, replace(NEW, since=6)) == "run-b"
    assert run_of(OWNER, replacement, NEW) == "run-b"
    forgotten = replace(OWNER, since=FORGOTTEN, started_ms=9_000)
    assert run_of(forgotten, replace(NEW, since=6)) == run_of(forgotten, NEW) == "run-b"


def test_of_two_runs_that_come_at_once_the_one_that_started_later_has_the_topic() -> None:
    assert run_of(replace(OWNER, since=NEWCOMER), NEW) == "run-b"
    assert run_of(replace(NEW, run="run-c"), NEW) == "run-c"


claims = st.builds(
    Claim,
    run=st.sampled_from(["a", "b", "c"]),
    topology=st.text(max_size=3),
    task=st.integers(0, 3),
    count=st.just(4),
    started_ms=st.integers(0, 5),
    since=st.integers(NEWCOMER, 3),
)


@given(st.lists(claims, min_size=1), st.randoms())
def test_every_member_would_decide_alike_in_whatever_order_it_hears_of_the_others(
    rows: list[Claim], random: st.DataObject
) -> None:
    mixed = list(rows)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert run_of(*mixed) == run_of(*rows) in {row.run for row in rows}


@given(claims)
def test_a_claim_reads_as_it_was_written(claim: Claim) -> None:
    assert decode_claim(claim.encode()) == claim
    assert decode_claim(replace(claim, numbers=(3, 1)).encode()) == replace(claim, numbers=(3, 1))


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{", b'{"run": 1}', b"\xff", b'{"run":"a","topology":"t"}'])
def test_what_is_no_claim_and_no_verdict_is_none(data: bytes | None) -> None:
    assert decode_claim(data) is None and decode_verdict(data) is None


def shared(counts: dict[str, int], members: Iterable[tuple[str, Subscription]]) -> dict[str, tuple[list[int], Verdict]]:
    """By member: the partitions given, and what is told."""
    assignor, rows = NewestRunAssignor(), dict(members)
    found = {}
    for member, data in assignor.encode(assignor.assign(counts, rows), rows).items():
        partitions, told = decode_told_assignment(data)
        verdict = decode_verdict(told)
        assert verdict is not None
        found[member] = ([number for _, number in partitions], verdict)
    return found


def of(claim: Claim, topic: str = "lines") -> Subscription:
    return Subscription((topic,), claim.encode())


def test_the_tasks_of_the_newest_run_get_what_the_arithmetic_of_tasks_gives_them_and_older_runs_nothing() -> None:
    tasks = [replace(NEW, task=task, count=3) for task in range(3)]
    members = {f"m{task.task}": of(task) for task in tasks} | {"old": of(OWNER)}
    found = shared({"lines": 7}, members.items())
    assert {member: numbers for member, (numbers, _) in found.items()} == {
        "m0": [0, 3, 6],
        "m1": [1, 4],
        "m2": [2, 5],
        "old": [],
    }
    assert {verdict for _, verdict in found.values()} == {Verdict("run-b", "words", NEWCOMER, 3)}


def test_a_task_without_a_partition_is_told_that_its_run_has_the_topic() -> None:
    found = shared({"lines": 1}, {"m1": of(replace(NEW, task=1, count=2))}.items())
    assert found["m1"] == ([], Verdict("run-b", "words", NEWCOMER, 1))


def test_a_component_with_an_odd_name_has_a_member_with_a_name_that_kafka_takes() -> None:
    assert member_name("run-1", "lines", 7, 0) == "run-1-lines-0"
    assert member_name("run-1", "häufige wörter", 7, 0) == "run-1-task-7"
    assert member_name("run-1", "x" * 250, 8, 1) == "run-1-task-8"


def test_each_topic_has_a_run_of_its_own() -> None:
    """Two spouts may share an id while they read different topics."""
    found = shared({"lines": 1, "words": 2}, {"a": of(OWNER), "b": of(NEW, "words")}.items())
    assert (found["a"][0], found["b"][0]) == ([0], [0, 1])


def test_partitions_of_a_list_written_by_hand_are_given_as_it_says() -> None:
    assert shared({"lines": 9}, {"a": of(replace(NEW, numbers=(4, 8)))}.items())["a"][0] == [4, 8]


def test_a_member_whose_claim_cannot_be_read_gets_nothing_and_stops_nobody() -> None:
    rows = {"a": of(OWNER), "odd": Subscription(("lines",), b"odd")}
    assert NewestRunAssignor().assign({"lines": 1}, rows) == {"a": [TopicPartition("lines", 0)], "odd": []}


def several(claim: Claim, *topics: str) -> Subscription:
    return Subscription(topics, replace(claim, several=True).encode())


def test_of_several_topics_each_is_shared_out_from_a_task_of_its_own() -> None:
    tasks = {f"m{task}": several(replace(NEW, task=task, count=3), "a", "b") for task in range(3)}
    rows = dict(tasks)
    shares = NewestRunAssignor().assign({"a": 4, "b": 5}, rows)
    for topic, count in (("a", 4), ("b", 5)):
        for task in range(3):
            numbers = [number for name, number in shares[f"m{task}"] if name == topic]
            assert numbers == share(range(count), 3, task, shift_of(topic))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((several, ("a", "b")), (several, ("b", "c"))),
        ((several, ("a",)), (several, ("b",))),
        ((several, ()), (several, ("a",))),
        ((several, ("a", "b")), (of, ("a",))),
        ((of, ("a",)), (several, ("a", "b"))),
    ],
)
def test_runs_with_one_id_have_one_newest_whatever_topics_each_of_them_sees(old: Any, new: Any) -> None:
    """A pattern matches others from day to day. Judged topic by topic, both would have a part."""
    found = shared({"a": 1, "b": 1, "c": 1}, {"x": old[0](OWNER, *old[1]), "y": new[0](NEW, *new[1])}.items())
    assert {verdict.run for _, verdict in found.values()} == {NEW.run}
    assert found["x"][0] == []
