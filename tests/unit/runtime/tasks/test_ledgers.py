"""Acks and failures on their way to the ledger that opened the tree: here, or in another worker."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamlet import Bolt, Spout, Stream, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.components.spout import FailReason, FailureCause
from streamlet.model.grouping import Grouping
from streamlet.model.plan import make_plan
from streamlet.runtime.tasks.emitter import Emitter, Outbox, Outgoing, Run, StreamRoutes, Target
from streamlet.runtime.tasks.failure_causes import FailureCauses
from streamlet.runtime.tasks.in_hand import InHand, holding
from streamlet.runtime.tasks.ledgers import Ledgers
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.tracking.roots import owner_task, roots_of_set
from streamlet.tracking.shared_roots import SharedRoots
from streamlet.tracking.window import PendingWindow


class Numbers(Spout):
    outputs = ["n"]

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.reasons: list[FailReason] = []
        self.causes: list[tuple[FailureCause | None, bool]] = []
        self.at_end = False

    def next_tuple(self) -> None: ...

    def ack(self, tup_id: Any) -> None:
        self.heard.append(("ack", tup_id))

    def fail(self, tup_id: Any) -> None:
        if tup_id == "bad":
            raise ValueError("a slip")
        self.heard.append(("fail", tup_id))
        self.reasons.append(self.fail_reason)
        self.causes.append((self.fail_cause, self.fail_final))

    def caught_up(self) -> bool:
        return self.at_end

    def lasting_id(self, tup_id: Any) -> Any:
        return f"message {tup_id}"


class Count(Bolt):
    def process(self, tup: Tuple) -> None: ...


class Two(Topology):
    """Two spouts: with two workers, one on each."""

    near = Numbers.spec()
    far = Numbers.spec()
    count = Count.spec(inputs={near: Grouping.SHUFFLE, far: Grouping.SHUFFLE})


class One(Topology):
    near = Numbers.spec()
    count = Count.spec(inputs={near: Grouping.SHUFFLE})


class Rig:
    """The ledgers of worker 0, with one spout task there."""

    def __init__(self, topology: Any = Two, causes: FailureCauses | None = None) -> None:
        plan = make_plan(topology.__topology__, 2)
        (self.near,) = (task.task_id for task in plan.spout_tasks if task.component == "near")
        self.far = next((task.task_id for task in plan.spout_tasks if task.component == "far"), 0)
        self.elsewhere = next((task.worker for task in plan.spout_tasks if task.component == "far"), 1)
        self.acks: dict[int, int] = {}
        self.fails: list[int] = []
        self.sent: dict[int, Outgoing] = {}
        self.page = bytearray(8192)
        clock, self.spout = ManualClock(), Numbers()
        self.ledgers = Ledgers(
            plan, clock, self.acks, self.fails, lambda w: self.sent.setdefault(w, Outgoing()), InHand(self.page), causes
        )
        box = Outbox(self.near, 9, "default")
        routes = StreamRoutes(Stream(["n"]), [Target(Grouping.SHUFFLE, (), (box,), ())], lambda: 0.0)
        self.task = self.ledgers.spouts[self.near] = SpoutTask(
            self.spout,
            self.near,
            1,
            Emitter("near", [routes]),
            random.Random(1).getrandbits,
            clock,
            tracked=True,
            window=PendingWindow(100, target_s=7.5),
            timeout_s=30.0,
        )

    def open(self, *ids: Any) -> dict[Any, tuple[int, int]]:
        """Open a tree for each message; return root and edge by message."""
        for each in ids:
            self.task.emit([0], each)
        return {
            self.task.pending.ids[root]: (root, edge)
            for root, edge in self.task.ledger.open.items()
            if self.task.pending.ids[root] in ids
        }

    def foreign_root(self, number: int = 2) -> int:
        return (self.far << 48) + number


def test_what_bolts_acked_and_failed_reaches_the_spout_when_the_turn_is_settled() -> None:
    """Once: the columns are empty afterwards, and what untracked tuples left under root 0 is nobody's."""
    rig = Rig()
    trees = rig.open("a", "b", "c")
    rig.acks.update({0: 99, trees["a"][0]: trees["a"][1]})
    rig.fails.append(trees["b"][0])
    rig.ledgers.settle()
    rig.ledgers.settle()
    assert rig.spout.heard == [("fail", "b"), ("ack", "a")] and rig.spout.reasons == [FailReason.FAILED]
    assert (rig.acks, rig.fails, rig.sent) == ({}, [], {}) and rig.ledgers.pending() == 1


def test_a_failure_counts_though_the_last_ack_of_its_tree_comes_in_the_same_turn() -> None:
    """Rows of a block have one edge, on the last: its ack completes the tree though a row before it has failed."""
    rig = Rig()
    root, edge = rig.open("a")["a"]
    rig.acks[root] = edge
    rig.fails.append(root)
    rig.ledgers.settle()
    assert rig.spout.heard == [("fail", "a")]


def test_what_a_bolt_said_reaches_the_spout_here_or_leaves_with_the_failure() -> None:
    causes = FailureCauses()
    rig = Rig(causes=causes)
    trees, far = rig.open("a", "b"), rig.foreign_root()
    said, final = FailureCause("count", "ValueError", "no"), FailureCause("count", "", "not wanted", True)
    causes.note([trees["a"][0], far], said)
    causes.note([trees["b"][0]], final)
    rig.fails += [trees["a"][0], trees["b"][0], far, far + 2]
    rig.ledgers.settle()
    assert rig.spout.causes == [(said, False), (final, True)]
    assert rig.spout.reasons == [FailReason.FAILED, FailReason.DEAD_LETTER]
    (sent,) = rig.sent.values()
    assert (sent.fails, sent.causes) == ([far, far + 2], {far: said})
    rig.open("c")
    rig.ledgers.fail_everything()
    assert rig.spout.causes[-1] == (None, False), "of a loss nobody said anything"


def test_deltas_of_another_workers_tree_leave_with_the_turn() -> None:
    """By the high bits of its root; those of a task that is no spout go nowhere."""
    rig = Rig()
    trees, far = rig.open("a"), rig.foreign_root()
    rig.ledgers.apply_acks([far, trees["a"][0], 77 << 48], [5, trees["a"][1], 6])
    rig.ledgers.apply_fails([far + 1, 77 << 48])
    (out,) = rig.sent.values()
    assert owner_task(far) == rig.far and list(rig.sent) == [rig.elsewhere]
    assert (out.roots, out.deltas, out.fails) == ([far], [5], [far + 1])
    assert rig.spout.heard == [("ack", "a")]


def test_with_one_spout_task_every_delta_is_its_own() -> None:
    rig = Rig(One)
    trees = rig.open("a", "b")
    rig.ledgers.apply_acks(*map(list, zip(*trees.values(), strict=True)))
    assert rig.spout.heard == [("ack", "a"), ("ack", "b")] and not rig.sent


def test_trees_that_could_not_be_sent_are_lost_ones_and_only_those_of_spouts_here() -> None:
    """A frame says that a tree failed, not why: for another worker's spout it would count against the message."""
    rig = Rig()
    trees, far = rig.open("a", "b"), rig.foreign_root()
    rig.ledgers.fail_unsendable(
        [
            Run(9, 1, "default", False, [trees["a"][0], far], [1, 2], [["x"], ["y"]]),
            Run(9, 1, "default", True, [[trees["b"][0], far + 1]], [[3, 4]], [["z"]]),
        ]
    )
    assert sorted(rig.spout.heard) == [("fail", "a"), ("fail", "b")]
    assert rig.spout.reasons == [FailReason.LOST] * 2 and not rig.sent


def test_what_could_not_be_sent_leaves_no_edge_in_sets_here_and_tells_others_nothing() -> None:
    """For another worker's spout the set would be done without the failure, and its records acked that are lost."""
    rig = Rig()
    here = roots_of_set(rig.task.pending.next_root, 20)
    far = roots_of_set(rig.foreign_root(2), 20)
    run = Run(9, 1, "default", False, [here[3], SharedRoots([*far[:3], here[4]]), far[5]], [1, 2, 4], [["x"]] * 3)
    rig.ledgers.fail_unsendable([run])
    assert rig.acks == {here[3]: 1, here.start: 2} and not rig.sent


def test_after_a_lost_link_every_open_tree_fails_once() -> None:
    rig = Rig()
    rig.open("a", "b")
    assert rig.ledgers.fail_everything() == 2
    assert rig.ledgers.fail_everything() == 0
    assert rig.spout.reasons == [FailReason.LOST] * 2


def test_a_tuple_that_killed_its_worker_is_charged_to_its_own_spout_only() -> None:
    rig = Rig()
    trees = rig.open("a", "b")
    rig.ledgers.apply_crashes([trees["a"][0], rig.foreign_root()], "was killed by SIGSEGV", "parse")
    assert rig.spout.heard == [("fail", "a")] and rig.spout.reasons == [FailReason.CRASHED]
    assert rig.spout.fail_detail == "was killed by SIGSEGV (1 time so far)" and not rig.sent
    text = "the worker was killed by SIGSEGV (1 time so far)"
    assert rig.spout.fail_cause == FailureCause("parse", "WorkerDied", text) and rig.spout.fail_deaths == 1


def test_spouts_have_caught_up_only_without_an_open_tree() -> None:
    rig = Rig()
    rig.spout.at_end = True
    trees = rig.open("a")
    assert not rig.ledgers.caught_up()
    rig.ledgers.apply_acks([trees["a"][0]], [trees["a"][1]])
    assert rig.ledgers.caught_up()
    rig.spout.at_end = False
    assert not rig.ledgers.caught_up()


def test_a_failure_that_nobody_sent_again_is_unfinished_until_its_message_is_acked() -> None:
    rig = Rig()
    trees = rig.open("a", "b")
    rig.ledgers.apply_fails([trees["a"][0]])
    assert (rig.ledgers.pending(), rig.ledgers.unfinished()) == (1, 2)
    rig.ledgers.note_open()
    assert (rig.task.stats.open, rig.task.stats.unreplayed, rig.task.stats.given_up) == (2, 1, 0)
    again = rig.open("a")["a"]
    rig.ledgers.apply_acks([again[0]], [again[1]])
    assert (rig.ledgers.pending(), rig.ledgers.unfinished()) == (1, 1)


@pytest.mark.parametrize("count", [-1, 1.5, "many"])
def test_a_count_of_a_spout_that_is_none_is_named_with_its_method(count: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went into memory of ours, and the error named a line of ours. A turn is not ended by it."""
    rig = Rig()
    rig.open("a")
    monkeypatch.setattr(rig.spout, "unfinished_count", lambda: count, raising=False)
    rig.ledgers.note_unfinished(rig.task)
    with pytest.raises(ComponentFailed, match=r"raised ValueError in unfinished_count.*unfinished_count\(\) returned"):
        rig.ledgers.note_open()


def test_the_message_of_a_root_is_known_while_its_tree_is_open_here() -> None:
    rig = Rig()
    trees = rig.open("a")
    assert rig.ledgers.message_of(trees["a"][0]) == "message a"
    assert rig.ledgers.message_of(rig.foreign_root()) is None
    rig.ledgers.apply_fails([trees["a"][0]])
    assert rig.ledgers.message_of(trees["a"][0]) is None


def test_a_spout_that_raises_ends_the_run_by_name_and_the_call_is_over() -> None:
    """While the call runs it stands on the page, where a hang can be looked up."""
    rig, seen = Rig(), []
    trees = rig.open("bad")
    with pytest.raises(ComponentFailed, match=r"The spout near \(task \d\) raised ValueError in fail.*a slip"):
        rig.ledgers.apply_fails([trees["bad"][0]])
    assert holding(rig.page) is None
    rig.ledgers.guard(rig.task, "ack", lambda: seen.append(holding(rig.page)))
    assert [(held.task, held.call) for held in seen if held is not None] == [(rig.near, "ack")]
