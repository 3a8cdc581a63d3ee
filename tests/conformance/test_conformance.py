"""What a topology may rely on, whatever runs it. One run a backend; each test is one rule."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from tests.conformance.conftest import Outcome

VALUE_NAMES = [
    "none", "true", "zero", "least", "most", "float", "infinite", "empty", "text", "lone surrogate", "bytes", "long",
    "list", "tuple", "dict", "int keys", "bytes key", "instant", "other zone",
]  # fmt: skip
REFUSED_NAMES = [
    "set", "big int", "tuple key", "naive datetime", "object", "bytearray", "complex", "int subclass",
]  # fmt: skip


def test_the_run_ends_by_itself_with_nothing_open(outcome: Outcome) -> None:
    """Caught up means: every spout done, every tree closed. What failed and was not sent again has been given up."""
    spouts = [row for row in outcome.result.status.components if row.kind == "spout"]
    assert (outcome.result.reason, outcome.result.drained) == ("caught_up", False)
    assert outcome.result.status.pending == sum(row.open for row in spouts) == 0
    assert sum(row.given_up for row in spouts) == sum(row.unreplayed for row in spouts) > 1


def test_what_failed_for_good_is_told_at_the_end(outcome: Outcome) -> None:
    """How many trees of which spout, and what components raised; what was replayed with success is not among them."""
    assert f"{len(REFUSED_NAMES)} tuple trees of the spout refused" in outcome.said
    assert "8 tuple trees of the spout failing" in outcome.said
    assert "1 tuple tree of the spout replaying" in outcome.said, "it gave up one of ten"
    assert "10 untracked tuples at untracked_fail" in outcome.said
    assert "spout fanned" not in outcome.said and "spout slowed" not in outcome.said
    assert "raised" in outcome.said and "\n" not in outcome.said
    rows = {row.name: row for row in outcome.result.status.components}
    assert (rows["replaying"].failed, rows["replaying"].unreplayed) == (5, 1)


@pytest.mark.parametrize("name", VALUE_NAMES)
def test_a_value_arrives_as_it_was_sent(outcome: Outcome, name: str) -> None:
    """Every type, at a task of the same worker and at one of another; tuples as lists."""
    lines = [line for line in outcome.lines("compare", "value") if line["name"] == name]
    assert [line["same"] for line in lines] == [True, True]
    assert {line["shape"] for line in lines} == {"list"}


def test_values_crossed_a_process_boundary(outcome: Outcome) -> None:
    """The two comparing tasks sit in different workers wherever there are two, on two hosts if there are hosts."""
    pids = {line["pid"] for line in outcome.lines("compare", "value")}
    assert len(pids) == (1 if outcome.backend == "inline" else 2)
    assert outcome.crossed > 100 or outcome.backend != "spark-hosts"


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_a_value_that_cannot_travel_is_refused_by_its_emit(outcome: Outcome, name: str) -> None:
    """The error names component, stream and field, whether the receiver is near or far."""
    (line,) = [line for line in outcome.lines("refuser", "refused") if line["name"] == name]
    assert line["kind"] == "ValueCannotTravel"
    assert all(word in line["text"] for word in ("refuser", "default", "thing"))


def test_a_refused_value_fails_its_own_tree_only(outcome: Outcome) -> None:
    """The trees after it complete."""
    assert sorted(outcome.ids("refused", "fail")) == list(range(len(REFUSED_NAMES)))
    assert sorted(outcome.ids("refused", "ack")) == list(range(len(REFUSED_NAMES), len(REFUSED_NAMES) + 5))


def by_task(outcome: Outcome, component: str) -> dict[int, list[Any]]:
    tasks: dict[int, list[Any]] = defaultdict(list)
    for line in outcome.lines(component, "tuple"):
        tasks[line["task"]].append(line["values"])
    return tasks


def test_shuffle_spreads_evenly(outcome: Outcome) -> None:
    """90 tuples over three tasks of a worker are thirty each. Of two workers, the one with room takes more."""
    counts = sorted(map(len, by_task(outcome, "shuffle_seen").values()))
    assert counts == [30, 30, 30] or (outcome.backend != "inline" and sum(counts) == 90)
    assert sorted(n for (n,) in outcome.values("shuffle_seen")) == list(range(90))


def test_none_is_any_task_once(outcome: Outcome) -> None:
    """Grouping.NONE loses and doubles nothing."""
    assert sorted(n for (n,) in outcome.values("none_seen")) == list(range(90))


def test_local_or_shuffle_stays_in_the_worker(outcome: Outcome) -> None:
    """There are tasks in the sender's worker, so nothing leaves it."""
    spout = outcome.lines("shuffled", "initialize")[0]["pid"]
    assert {line["pid"] for line in outcome.lines("local_seen", "tuple")} == {spout}
    assert sorted(n for (n,) in outcome.values("local_seen")) == list(range(90))


def test_all_copies_to_every_task_of_each_backend(outcome: Outcome) -> None:
    """Each task sees each tuple, in order."""
    assert [[n for (n,) in seen] for seen in by_task(outcome, "all_seen").values()] == [list(range(90))] * 2


def test_global_goes_to_the_lowest_task(outcome: Outcome) -> None:
    """One task sees the whole stream: the one with index 0."""
    (task,) = by_task(outcome, "global_seen")
    assert task == min(line["task"] for line in outcome.lines("global_seen", "initialize"))


def label_of(key: Any) -> str:
    """One name for all spellings of a key: the suite has one list, one dict and one number in several."""
    if isinstance(key, (list, dict)):
        return type(key).__name__
    return "one" if key == 1 else repr(key)


def test_fields_sends_equal_keys_to_one_task(outcome: Outcome) -> None:
    """From four senders in two workers, and 1, 1.0 and True are one key, nested too."""
    owners: dict[str, set[int]] = defaultdict(set)
    for task, seen in by_task(outcome, "fields_seen").items():
        for key, _, _ in seen:
            owners[label_of(key)].add(task)
    assert {label: len(tasks) for label, tasks in owners.items()} == dict.fromkeys(owners, 1)
    assert len({next(iter(tasks)) for tasks in owners.values()}) > 1


def test_fields_loses_nothing(outcome: Outcome) -> None:
    """Two spout tasks of 240 each."""
    assert Counter(n for _, n, _ in outcome.values("fields_seen")) == dict.fromkeys(range(240), 2)


def test_order_of_a_key_from_one_sender_holds(outcome: Outcome) -> None:
    """What a sending task sends with a key arrives in the order it was sent: its own count of that only grows."""
    turns: dict[tuple[int, str], list[int]] = defaultdict(list)
    for line in outcome.lines("fields_seen", "tuple"):
        key, _, turn = line["values"]
        turns[line["sender"], label_of(key)].append(turn)
    keys = {key for _, key in turns}
    assert len({sender for sender, _ in turns}) == 2 and len(keys) == 8
    for place, seen in turns.items():
        assert all(before < after for before, after in pairwise(seen)), (place, seen)
    assert sum(map(len, turns.values())) == 480
    assert min(map(len, turns.values())) > 1, "an order of one shows nothing"


def test_direct_goes_where_the_producer_says(outcome: Outcome) -> None:
    """And emit with need_task_ids tells the same."""
    sent = {line["n"]: line for line in outcome.lines("directing", "sent")}
    assert all(line["told"] == [line["to"]] for line in sent.values())
    got = {line["values"][0]: line["task"] for line in outcome.lines("direct_seen", "tuple")}
    assert got == {n: line["to"] for n, line in sent.items()}


@pytest.mark.parametrize("component", ["order_seen", "order_far"])
def test_order_between_two_tasks_holds_across_streams(outcome: Outcome, component: str) -> None:
    """Alternating streams arrive alternating, near and far."""
    for seen in by_task(outcome, component).values():
        assert [n for (n,) in seen] == list(range(200))


def test_streams_keep_their_names(outcome: Outcome) -> None:
    """A tuple knows its stream and its sender."""
    lines = outcome.lines("order_seen", "tuple")
    assert {(line["values"][0] % 2, line["stream"]) for line in lines} == {(0, "even"), (1, "odd")}
    assert {line["source"] for line in lines} == {"two_streams"}


def test_a_tree_is_acked_once_after_all_its_tuples(outcome: Outcome) -> None:
    """50 trees of six tuples."""
    assert sorted(outcome.ids("fanned", "ack")) == list(range(50))
    assert sorted(n for (n,) in outcome.values("fan_seen")) == sorted(
        10 * n + copy for n in range(50) for copy in range(5)
    )


def test_fail_and_raise_both_fail_the_tree_once(outcome: Outcome) -> None:
    """Numbers ending in 3 are failed, those ending in 7 raise; all others are acked."""
    bad = [n for n in range(40) if n % 10 in (3, 7)]
    assert sorted(outcome.ids("failing", "fail")) == bad
    assert sorted(outcome.ids("failing", "ack")) == [n for n in range(40) if n not in bad]


def test_an_exception_is_told_with_component_and_place(outcome: Outcome) -> None:
    """One paragraph, then counted: no flood, no traceback."""
    told = [text for text in outcome.watcher.texts if text.startswith("fail_some (task")]
    assert told and all("RuntimeError" in text and "suite.py:" in text for text in told)
    assert len(told) <= 2


def test_a_swallowed_tuple_times_out(outcome: Outcome) -> None:
    """What is never acked fails after the message time-out; acking twice does no harm."""
    assert sorted(outcome.ids("swallowed", "fail")) == [0, 5]
    assert sorted(outcome.ids("swallowed", "ack")) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_an_unanchored_tuple_is_in_no_tree(outcome: Outcome) -> None:
    """It fails below; above all is well."""
    assert sorted(outcome.ids("loose", "ack")) == list(range(10))
    assert len(outcome.lines("always_fail", "failing")) == 10


def test_a_tuple_with_two_anchors_belongs_to_both_trees(outcome: Outcome) -> None:
    """The pair that fails fails both of its trees; all other trees complete."""
    failed = sorted(outcome.ids("paired", "fail"))
    assert len(failed) == 2 and 4 in failed
    assert sorted(outcome.ids("paired", "ack") + failed) == list(range(10))


def test_two_anchors_of_one_tree_do_not_cancel(outcome: Outcome) -> None:
    """A diamond: one tree splits and is joined again, and is acked only after the join's receiver."""
    assert sorted(outcome.ids("doubled", "ack")) == list(range(10))
    assert outcome.ids("doubled", "fail") == []
    assert len(outcome.values("rejoined")) == 10


def test_many_tuples_of_one_root_end_once(outcome: Outcome) -> None:
    """Three tuples of message 5, one of which fails: one fail, no ack. No tuples at all: acked."""
    assert outcome.ids("many", "fail") == [5]
    assert sorted(outcome.ids("many", "ack")) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_message_without_receivers_is_acked(outcome: Outcome) -> None:
    """After next_tuple has returned: the id was known by then."""
    lines = outcome.lines("nobody", "ack")
    assert sorted(line["id"] for line in lines) == list(range(10))
    assert all(line["inside"] for line in lines)


def test_an_untracked_tuple_is_heard_of_no_more(outcome: Outcome) -> None:
    """It fails in the bolt, and the spout hears nothing."""
    assert len(outcome.lines("untracked_fail", "failing")) == 10
    assert outcome.lines("nobody", "fail") == []


def test_a_reliable_spout_replays(outcome: Outcome) -> None:
    """What failed twice is tried three times and acked."""
    assert [line["time"] for line in outcome.lines("fail_twice", "try") if line["n"] == 3] == [1, 2, 3]
    assert sorted(outcome.ids("replaying", "ack")) == [0, 1, 2, 3, 4, 5, 6, 7, 9]


def test_what_is_given_up_is_named(outcome: Outcome) -> None:
    """After max_fails replays, with the number of failures; it is never called acked."""
    (line,) = outcome.lines("replaying", "given up")
    assert (line["id"], line["fails"]) == (8, 3)


def test_a_cycle_is_one_tree(outcome: Outcome) -> None:
    """A bolt that reads itself: the tree completes when the last round is done."""
    assert sorted(outcome.ids("looped", "ack")) == [0, 1, 2, 3, 4]
    rounds = Counter(line["n"] for line in outcome.lines("loop", "round"))
    assert rounds == {0: 5, 1: 4, 2: 3, 3: 2, 4: 1}


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (0, ["misuse", "2 field(s)", "one, two"]),
        (1, ["misuse", "'no'"]),
        (2, ["misuse", "'elsewhere'", "declared: 'default'"]),
        (3, ["misuse", "already acked"]),
        (4, ["misuse", "direct_task=1"]),
    ],
)
def test_a_wrong_emit_says_what_is_wrong(outcome: Outcome, n: int, words: list[str]) -> None:
    """The error is raised by the emit, and names what was declared."""
    (line,) = [line for line in outcome.lines("misuse", "mistake") if line["n"] == n]
    assert line["kind"] == "BadEmit"
    assert all(word in line["text"] for word in words), line["text"]


def test_a_wrong_emit_fails_its_tree_only(outcome: Outcome) -> None:
    """Message 3 was acked before its mistake; the others failed; what followed went well."""
    assert sorted(outcome.ids("misused", "fail")) == [0, 1, 2, 4]
    assert sorted(outcome.ids("misused", "ack")) == [3, 5, 6, 7]


def test_ticks_come_and_are_ticks(outcome: Outcome) -> None:
    """A bolt that acks at its ticks completes every tree, well before the time-out."""
    ticks = outcome.lines("ticking", "tick")
    assert ticks and all(line["tick"] for line in ticks)
    assert sorted(outcome.ids("ticked", "ack")) == list(range(30))


def test_a_component_sees_its_own_config(outcome: Outcome) -> None:
    """``spec(config=)`` reaches that component's conf, and no other's."""
    assert {line["tag"] for line in outcome.lines("ticking", "initialize")} == {"own"}
    assert {line["tag"] for line in outcome.lines("slow", "initialize")} == {None}


def test_a_slow_bolt_fails_nothing(outcome: Outcome) -> None:
    """Slowness below the time-out is not failure."""
    assert sorted(outcome.ids("slowed", "ack")) == list(range(40))
    assert outcome.ids("slowed", "fail") == []


def test_what_is_changed_after_emit_arrives_as_emitted(outcome: Outcome) -> None:
    """In one worker too: nothing is shared between sender and receiver."""
    boxes = sorted(box for (box,) in outcome.values("alias_seen"))
    assert boxes == [[0], [0], [1], [1], [2], [2], [3], [3], [4], [4]]


def test_what_a_bolt_does_to_its_tuple_no_other_reader_sees(outcome: Outcome) -> None:
    """Not in the same worker, and not in another that the row had yet to leave for; of a spout's row and a bolt's."""
    assert sorted(outcome.values("meddle")) == sorted([[f"t{n}"] for n in range(5)] * 4)
    assert sorted(outcome.values("unmeddled")) == sorted([[f"T{n}", {"n": [n]}] for n in range(5)] * 4)


def test_indexes_and_counts_are_dense(outcome: Outcome) -> None:
    """Tasks of a component are numbered from 0, and know how many they are."""
    lines = outcome.lines("shuffle_seen", "initialize")
    assert sorted((line["index"], line["count"]) for line in lines) == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize("spout", ["shuffled", "failing", "two_streams"])
def test_a_spouts_calls_come_in_order_and_once(outcome: Outcome, spout: str) -> None:
    """initialize, activate, tuples, deactivate, close: each once."""
    order = [
        line["what"]
        for name in ("initialize", "activate", "deactivate", "close")
        for line in outcome.lines(spout, name)
    ]
    assert order == ["initialize", "activate", "deactivate", "close"]


def test_cleanup_is_called_once_a_task(outcome: Outcome) -> None:
    """After a clean stop."""
    assert len(outcome.lines("shuffle_seen", "cleanup")) == 3


def test_metrics_and_counts_reach_the_observer(outcome: Outcome) -> None:
    """The last status is exact."""
    rows = {row.name: row for row in outcome.result.status.components}
    assert rows["metrics"].metrics["last"] == 4
    assert (rows["fanned"].emitted, rows["fanned"].acked, rows["fanout"].executed) == (50, 50, 50)
    assert (rows["fanout"].emitted, rows["failing"].failed) == (250, 8)


def test_the_neighbour_of_the_file_was_imported(outcome: Outcome) -> None:
    """Its code ran in every process that has a bolt, imported there and not carried over from here."""
    lines = [
        line for bolt in ("compare", "relay", "fields_seen", "metrics") for line in outcome.lines(bolt, "initialize")
    ]
    assert [line["neighbour"] for line in lines] == [
        ["imported from beside the topology", line["pid"]] for line in lines
    ]
    pids = {line["pid"] for line in lines}
    assert (pids == {os.getpid()}) if outcome.backend == "inline" else (len(pids) == 2 and os.getpid() not in pids)
