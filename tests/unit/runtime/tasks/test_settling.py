"""Batches: columns, trees, acks, failures. An acker's view of each tree says when it is complete."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlet import Batch, Bolt, Stream
from streamlet.base.clock import ManualClock
from streamlet.base.errors import BadEmit
from streamlet.components.columns import Columns
from streamlet.components.tuples import OPEN
from streamlet.model.grouping import Grouping
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.emitter import Emitter, Inbox, Outbox, Run, StreamRoutes, Target, Work
from streamlet.tracking.roots import entry_of, first_root, roots_of_set
from streamlet.tracking.shared_roots import Root, each_root, spread

SETS = [roots_of_set(first_root(5, 1) + at * 5000, 4) for at in range(2)]
TREES = [0, 2, 4, 6, *SETS[0], *SETS[1]]
"""Trees of their own, and of two sets."""


class Acker:
    """The values of trees, from what tasks leave behind."""

    def __init__(self) -> None:
        self.trees: dict[int, int] = defaultdict(int)
        self.acks: dict[Root, int] = {}
        self.fails: list[int] = []
        self.failed: set[int] = set()

    def settle(self) -> None:
        """As ``Ledgers.settle``: failures first."""
        self.failed.update(self.fails)
        self.fails.clear()
        for root, delta in spread(self.acks).items():
            self.trees[entry_of(root)] ^= delta
        self.acks.clear()

    def open(self) -> set[int]:
        """The entries of trees that are open, and of sets of which some tuple is not done."""
        return {root for root, value in self.trees.items() if root and value and root not in own(self.failed)}

    def task(self, bolt: Bolt, boxes: list[Outbox], grouping: Grouping, seed: int) -> BoltTask:
        targets = [Target(grouping, (0,), tuple(boxes), ())] if boxes else []
        streams = [StreamRoutes(Stream(["v"]), targets, lambda: 0.0)] if boxes else []
        return BoltTask(
            bolt,
            Emitter("bolt", streams),
            self.acks,
            self.fails,
            random.Random(seed).getrandbits,
            {5: "source", 1: "first"},
            ManualClock(),
            lambda error, tup, called: None,
            fields={("source", "default"): ["v"], ("first", "default"): ["v"]},
            boxes=boxes,
        )


def name(roots: set[int], number: int) -> str:
    return " ".join(map(str, sorted(roots))) + f"/{number}"


def meant(value: str) -> set[int]:
    return {entry_of(int(root)) for root in value.split("/")[0].split()}


def own(roots: set[int]) -> set[int]:
    """Those that are trees of their own. A set lives on when a tree of it has failed."""
    return {root for root in roots if not root & 1}


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_tree_is_complete_exactly_when_all_its_tuples_are_done(data: st.DataObject) -> None:
    """Batches of any size, emits for the whole, a part or one of it, then bolts of any kind, in any order of tasks."""
    acker = Acker()
    seed = data.draw(st.integers(0, 1 << 16))
    rng = random.Random(seed)
    size = data.draw(st.integers(1, 7))
    split = data.draw(st.booleans())
    raising = data.draw(st.sets(st.integers(0, 11), max_size=2))
    ways = st.sampled_from(["all", "columns", "one", "some", "each", "none"])
    emits = data.draw(st.lists(st.tuples(ways, st.integers(1, 4))))
    number = iter(range(1 << 20))

    class First(Bolt):
        batch_size = size
        on_batch_error = "split" if split else "fail"

        def process_batch(self, batch: Batch) -> None:
            roots = {root for root in batch.roots if root}
            for how, count in emits:
                some = rng.sample(batch.tuples, rng.randint(1, len(batch)))
                if how == "all":
                    self.emit_many([[name(roots, next(number))] for _ in range(count)])
                elif how == "columns":
                    self.emit_columns([name(roots, next(number)) for _ in range(count)])
                elif how == "one":
                    tup = rng.choice(batch.tuples)
                    self.emit_many([[name({tup.root} - {0}, next(number))] for _ in range(count)], anchors=[tup])
                elif how == "some":
                    self.emit([name({tup.root for tup in some} - {0}, next(number))], anchors=some)
                elif how == "each":
                    self.emit([name(roots, next(number))])
                else:
                    self.emit_many([[name(set(), next(number))]], anchors=[])
            if raising.intersection(int(value) for value in batch.values("v")):
                raise ValueError("at fault")

    by_batch, by_hand, fails_one = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))

    class Second(Bolt):
        auto_ack = not by_hand
        batch_size = 3

        def __init__(self) -> None:
            self.kept: list[Any] = []
            self.done: list[str] = []

        def process(self, tup: Any) -> None:
            if fails_one and rng.random() < 0.05:
                raise ValueError("it fails")
            (self.kept.append if by_hand else lambda tup: self.done.append(tup.values[0]))(tup)

    class SecondByBatch(Second):
        def process_batch(self, batch: Batch) -> None:
            for tup in batch:
                self.process(tup)

    boxes = [Outbox(1, 9, "default"), Outbox(1, 10, "default")]
    grouping = data.draw(st.sampled_from([Grouping.SHUFFLE, Grouping.fields("v"), Grouping.ALL, Grouping.GLOBAL]))
    first = acker.task(First(), boxes, grouping, seed)
    seconds = {}
    for task_id in (9, 10):
        bolt = SecondByBatch() if by_batch else Second()
        seconds[task_id] = (bolt, acker.task(bolt, [], grouping, seed + task_id))
    trees = data.draw(st.sampled_from([TREES, [*SETS[0]], [*SETS[0], *SETS[1]], [0, 2, 4, 6]]))
    roots = [rng.choice(trees) for _ in range(12)]
    edges = [rng.getrandbits(64) if root else 0 for root in roots]
    for root, edge in zip(roots, edges, strict=True):
        acker.trees[entry_of(root)] ^= edge
    first.execute(Work(Run(1, 5, "default", False, roots, edges, [[str(n)] for n in range(12)])), until=1e9)
    acker.settle()
    if split:  # only what was at fault has failed
        assert acker.failed == {roots[n] for n in raising if roots[n]}
    waiting = [(run.target, row) for box in boxes for run in box.take() for row in _rows(run)]
    undone = [value for _, (_, _, (value,)) in waiting]
    assert acker.open() == set().union(*map(meant, undone)) - own(acker.failed)
    queues = {task: [row for target, row in waiting if target == task] for task in (9, 10)}
    while any(queues.values()):
        task_id = rng.choice([task for task, rows in queues.items() if rows])
        count = rng.randint(1, len(queues[task_id]))
        taken, queues[task_id] = queues[task_id][:count], queues[task_id][count:]
        bolt, task = seconds[task_id]
        for run in _runs(task_id, taken):
            task.execute(Work(run), until=1e9)
        acker.settle()
        if by_hand and rng.random() < 0.5:
            rng.shuffle(bolt.kept)
            while len(bolt.kept) > 1:
                tup = bolt.kept.pop()
                task.ack(tup)
                acker.settle()
                bolt.done.append(tup.values[0])
                assert acker.open() == _still_open(seconds, queues) - own(acker.failed)
        assert acker.open() == _still_open(seconds, queues) - own(acker.failed)
    for bolt, task in seconds.values():
        for tup in bolt.kept:
            task.ack(tup)
    acker.settle()
    assert acker.open() == set()


def _still_open(seconds: Any, queues: Any) -> set[int]:
    """Trees of what waits, or is kept by a bolt that acks by hand."""
    waiting = [row[2][0] for rows in queues.values() for row in rows]
    kept = [tup.values[0] for bolt, _ in seconds.values() for tup in bolt.kept if tup.state == OPEN]
    return set().union(*map(meant, waiting + kept))


def _rows(run: Run) -> list[tuple[Any, Any, list[Any]]]:
    assert run.has_untracked == (0 in run.roots) or not run.roots
    return list(zip(run.roots, run.edges, run.values, strict=True))


def _runs(target: int, rows: list[tuple[Any, Any, list[Any]]]) -> list[Run]:
    """Rows of one task as runs, of one kind each."""
    made: list[Run] = []
    for root, edge, values in rows:
        multi = isinstance(root, list)
        if not made or made[-1].multi != multi:
            made.append(Run(target, 1, "default", multi, [], [], []))
        made[-1].roots.append(root)
        made[-1].edges.append(edge)
        made[-1].values.append(values)
    return made


class Sums(Bolt):
    outputs = ["v"]
    batch_size = 4

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def process_batch(self, batch: Batch) -> None:
        self.sizes.append(len(batch))
        self.emit([str(sum(map(int, batch.values("v"))))])


def test_a_batch_is_what_waits_up_to_its_size_and_its_emit_belongs_to_all_of_it() -> None:
    acker = Acker()
    box, bolt = Outbox(1, 9, "default"), Sums()
    task = acker.task(bolt, [box], Grouping.SHUFFLE, 1)
    task.execute(Work(Run(1, 5, "default", False, [*range(4, 44, 4)], [0] * 10, [[str(n)] for n in range(10)])), 1e9)
    assert bolt.sizes == [4, 4, 2]
    (run,) = box.take()
    assert [[*each_root([root])] for root in run.roots] == [[4, 8, 12, 16], [20, 24, 28, 32], [36, 40]]
    assert run.values == [["6"], ["22"], ["17"]]


def test_under_suspicion_a_batch_has_one_tuple() -> None:
    acker, bolt = Acker(), Sums()
    task = acker.task(bolt, [Outbox(1, 9, "default")], Grouping.SHUFFLE, 1)
    task.slices.be_careful(until=1.0)
    task.execute(Work(Run(1, 5, "default", False, [1, 2, 3], [0] * 3, [["1"]] * 3)), 1e9)
    assert bolt.sizes == [1, 1, 1]


def test_split_gives_each_tuple_again_alone_and_sends_nothing_of_the_first_try() -> None:
    class Odd(Bolt):
        on_batch_error = "split"

        def process_batch(self, batch: Batch) -> None:
            self.emit_many([[value] for value in batch.values("v")])
            if "3" in batch.values("v"):
                raise ValueError("3")

    acker, box = Acker(), Outbox(1, 9, "default")
    task = acker.task(Odd(), [box], Grouping.SHUFFLE, 1)
    task.execute(Work(Run(1, 5, "default", False, [1, 2, 3, 4], [0] * 4, [[str(n)] for n in range(1, 5)])), 1e9)
    acker.settle()
    assert acker.failed == {3}
    assert task.stats.acked == 3 and task.stats.failed == 1 and task.stats.errors == 1
    sent = [value for run in box.take() for (value,) in run.values]
    assert sorted(sent) == ["1", "2", "3", "4"], "the failed one's are late, and its tree is closed"


@pytest.mark.parametrize(
    "rows", [list, lambda rows: Columns([*map(list, zip(*rows, strict=True))])], ids=["rows", "columns"]
)
def test_split_gives_each_tuple_again_as_it_came(rows: Any) -> None:
    """The call that raised had changed the values of those before in place: they were counted twice."""

    class Adds(Bolt):
        on_batch_error = "split"
        done: ClassVar[list[Any]] = []

        def process_batch(self, batch: Batch) -> None:
            for tup in batch:
                n, order = tup.values
                tup.values[0] += 1
                order["parts"].append(n)
                if n == 3:
                    raise ValueError(n)
                self.done.append([tup.values, len(batch)])

    acker = Acker()
    task = acker.task(Adds(), [], Grouping.SHUFFLE, 1)
    given = rows([[n, {"parts": []}] for n in range(1, 5)])
    task.execute(Work(Run(1, 5, "default", False, [1, 2, 3, 4], [0] * 4, given)), 1e9)
    alone = [values for values, size in Adds.done if size == 1]
    assert alone == [[n + 1, {"parts": [n]}] for n in (1, 2, 4)]


def test_what_a_tuple_raises_alone_is_told_without_the_error_of_its_batch() -> None:
    """The error of the batch as its context would show the framework's own calls to the user."""

    class Odd(Bolt):
        on_batch_error = "split"

        def process_batch(self, batch: Batch) -> None:
            if "3" in batch.values("v"):
                raise ValueError(len(batch))

    acker, reported = Acker(), []
    task = acker.task(Odd(), [], Grouping.SHUFFLE, 1)
    task.report = lambda error, tup, called: reported.append(error)
    task.execute(Work(Run(1, 5, "default", False, [1, 2, 3, 4], [0] * 4, [[str(n)] for n in range(1, 5)])), 1e9)
    (error,) = reported
    assert error.args == (1,) and error.__context__ is None


def test_a_batch_whose_call_emitted_for_another_is_not_split() -> None:
    """Withdrawn, the other's tree would keep an edge whose row is nowhere, and never be complete."""

    class Keeps(Bolt):
        auto_ack = False
        on_batch_error = "split"
        kept: Batch | None = None

        def process_batch(self, batch: Batch) -> None:
            if self.kept is None:
                self.kept = batch
                return
            self.emit(["for the first"], anchors=[self.kept.tuples[0]])
            self.emit_many([["and the second"]], anchors=batch)
            raise ValueError("at fault")

    acker, bolt, box = Acker(), Keeps(), Outbox(1, 9, "default")
    task = acker.task(bolt, [box], Grouping.SHUFFLE, 1)
    acker.trees.update({8: 11, 16: 22, 24: 33})
    task.execute(Work(Run(1, 5, "default", False, [8], [11], [["1"]])), 1e9)
    task.execute(Work(Run(1, 5, "default", False, [16, 24], [22, 33], [["2"], ["3"]])), 1e9)
    acker.settle()
    assert acker.failed == {16, 24} and acker.open() == {8}
    assert bolt.kept is not None
    task.ack(bolt.kept)
    acker.settle()
    assert acker.open() == {8}, "what was emitted for it is under way"
    rows = [row for run in box.take() for row in _rows(run)]
    acker.acks[rows[0][0]] = rows[0][1]
    acker.settle()
    assert acker.open() == set()


def test_a_batch_that_was_kept_is_acked_or_failed_whole_later() -> None:
    class Keeps(Bolt):
        auto_ack = False

        def process_batch(self, batch: Batch) -> None:
            self.kept = batch

    acker, bolt = Acker(), Keeps()
    task = acker.task(bolt, [Outbox(1, 9, "default")], Grouping.SHUFFLE, 1)
    acker.trees.update({8: 11, 16: 22})
    task.execute(Work(Run(1, 5, "default", False, [8, 16], [11, 22], [["1"], ["2"]])), 1e9)
    acker.settle()
    assert acker.open() == {8, 16} and len(task.held) == 2
    bolt.emit(["x"], anchors=bolt.kept)
    bolt.fail(bolt.kept.tuples[0])
    bolt.ack(bolt.kept)
    acker.settle()
    assert acker.failed == {8} and acker.open() == {16}, "what was emitted for it is under way"
    assert not task.held and (task.stats.acked, task.stats.failed) == (1, 1)


@pytest.mark.parametrize("auto_ack", [True, False])
def test_whatever_is_acked_twice_counts_once(auto_ack: bool) -> None:
    """A second delta would undo the first, or complete another's tree."""

    class Twice(Bolt):
        def process_batch(self, batch: Batch) -> None:
            self.batch = batch
            self.ack(batch)
            self.ack(batch)
            for tup in batch:
                self.ack(tup)
                self.fail(tup)
            self.fail(batch)

    acker, bolt = Acker(), Twice()
    vars(bolt)["auto_ack"] = auto_ack
    task = acker.task(bolt, [Outbox(1, 9, "default")], Grouping.SHUFFLE, 1)
    acker.trees.update({8: 11, 16: 22})
    task.execute(Work(Run(1, 5, "default", False, [8, 16], [11, 22], [["1"], ["2"]])), 1e9)
    bolt.ack(bolt.batch)
    bolt.ack(bolt.batch.tuples[0])
    acker.settle()
    assert acker.trees == {8: 0, 16: 0} and not acker.failed and task.stats.acked == 2
    with pytest.raises(BadEmit, match="already acked"):
        bolt.emit(["x"], anchors=bolt.batch)


@pytest.mark.parametrize("settle", ["ack", "fail", "dead_letter"])
@pytest.mark.parametrize("emit", [("emit", ["x"]), ("emit_many", [["x"]]), ("emit_columns", ["x"])])
@pytest.mark.parametrize("untracked", [False, True])
def test_nothing_is_emitted_for_a_batch_that_the_same_call_has_settled(
    settle: str, emit: tuple[str, Any], untracked: bool
) -> None:
    """An edge that is given then reaches no tree: one would be done too early, or a set never."""

    class SettlesFirst(Bolt):
        outputs = ["v"]

        def process_batch(self, batch: Batch) -> None:
            getattr(self, settle)(batch, *(["why"] if settle == "dead_letter" else []))
            getattr(self, emit[0])(emit[1])

    acker, box = Acker(), Outbox(1, 9, "default")
    task = acker.task(SettlesFirst(), [box], Grouping.SHUFFLE, 1)
    acker.trees.update({8: 11, 16: 22})
    roots = [0, 0] if untracked else [8, 16]
    if untracked and settle == "dead_letter":
        return  # refused for another reason
    task.execute(Work(Run(1, 5, "default", False, roots, [11, 22], [["1"], ["2"]])), 1e9)
    acker.settle()
    if untracked:
        assert box.take() and task.stats.errors == 0, "no tree waits for it"
    else:
        assert not box.take() and task.stats.errors == 1
        assert acker.open() == set() and acker.failed == (set() if settle == "ack" else {8, 16})


def test_a_batch_is_an_anchor_where_nothing_is_anchored_by_itself() -> None:
    class Unanchored(Bolt):
        auto_anchor = False

        def process_batch(self, batch: Batch) -> None:
            self.emit(["free"])
            self.emit_many([["tied"]], anchors=batch)

    acker, box = Acker(), Outbox(1, 9, "default")
    task = acker.task(Unanchored(), [box], Grouping.SHUFFLE, 1)
    acker.trees.update({8: 11, 16: 22})
    task.execute(Work(Run(1, 5, "default", False, [8, 16], [11, 22], [["1"], ["2"]])), 1e9)
    acker.settle()
    (free, tied) = [row for run in box.take() for row in _rows(run)]
    assert free[0] == 0 and [*each_root([tied[0]])] == [8, 16]
    assert acker.open() == {8, 16}


class Keeps(Bolt):
    auto_ack = False

    def process(self, tup: Any) -> None: ...


class KeepsBatches(Bolt):
    auto_ack = False
    batch_size = 2

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def process_batch(self, batch: Batch) -> None:
        self.batches.append(batch)


BLOCK = [["a"], ["b"], ["c"], ["d"]]


def test_a_bolt_that_acks_by_hand_parts_each_row_of_a_block_once() -> None:
    acker = Acker()
    task = acker.task(Keeps(), [], Grouping.SHUFFLE, 1)
    work = Work(Run(9, 1, "default", False, [2] * 4, [0, 0, 0, 8], BLOCK))
    task.execute(work, until=0.0)
    edges = [*work.run.edges]
    assert work.left and all(edges) and len(set(edges)) == 4
    assert not acker.acks, "the rows share out the edge: their tree need not hear of it"
    assert edges[0] ^ edges[1] ^ edges[2] ^ edges[3] == 8
    task.execute(work, until=0.0)
    assert work.run.edges == edges


def test_of_a_block_that_a_frame_has_cut_the_tree_hears() -> None:
    acker = Acker()
    task = acker.task(Keeps(), [], Grouping.SHUFFLE, 1)
    work = Work(Run(9, 1, "default", False, [2] * 3, [0, 8, 0], BLOCK[:3]))
    task.execute(work, until=1e9)
    assert all(work.run.edges) and acker.acks == {2: work.run.edges[2]}


def test_a_batch_parts_its_block_only_when_it_is_asked_for_its_tuples() -> None:
    acker, bolt = Acker(), KeepsBatches()
    bolt.answers_for_held = True  # type: ignore[misc]  # of this bolt: as a KafkaBolt's, whose tuples nobody asks for
    task = acker.task(bolt, [], Grouping.SHUFFLE, 1)
    run = Run(9, 1, "default", False, [8] * 7, [0, 0, 0, 8, 0, 0, 0], [*BLOCK, *BLOCK[:3]])
    acker.trees[8] = 8
    task.execute(Work(run), until=1e9)
    acker.settle()
    kept = bolt.batches
    assert [[bool(edge) for edge in batch.edges] for batch in kept] == [[False, True]] * 2 + [[False, True], [True]]
    whole = [*kept[0].edges]
    threads = [threading.Thread(target=lambda: kept[0].tuples) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = kept[0].tuples
    assert all(tup.edge for tup in asked) and asked[0].edge ^ asked[1].edge == whole[1]
    for settle in (partial(task.ack, asked[1]), *(partial(task.ack, one) for one in (kept[1], kept[3], kept[2]))):
        settle()
        acker.settle()
        assert acker.open() == {8}, "one tuple of the first batch is open"
    task.ack(asked[0])
    acker.settle()
    assert acker.open() == set()


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_batches_of_blocks_may_be_settled_in_any_order_whole_or_by_the_tuple(data: st.DataObject) -> None:
    acker, bolt = Acker(), KeepsBatches()
    bolt.batch_size = data.draw(st.integers(1, 5))  # type: ignore[misc]  # of this bolt
    task = acker.task(bolt, [], Grouping.SHUFFLE, data.draw(st.integers(0, 99)))
    blocks = data.draw(st.lists(st.tuples(st.sampled_from(TREES), st.integers(1, 6)), min_size=1, max_size=5))
    roots = [root for root, rows in blocks for _ in range(rows)]
    edges, bits = [], random.Random("edges").getrandbits
    for root, rows in blocks:
        edges += [0] * (rows - 1) + [bits(64) if root else 0]
        acker.trees[entry_of(root)] ^= edges[-1]
    if data.draw(st.booleans()) and roots[-1]:  # a frame that was cut: the rest of the block is elsewhere
        acker.trees[entry_of(roots[-1])] ^= edges.pop()
        roots.pop()
    task.execute(Work(Run(9, 1, "default", False, roots, edges, [["v"] for _ in roots])), until=1e9)
    left = [(batch, at) for batch in bolt.batches for at in range(len(batch))]
    parts: list[list[tuple[Batch, int]]] = [[one] for one in left]
    for batch in bolt.batches:
        if data.draw(st.booleans()):  # settled whole
            parts = [part for part in parts if part[0][0] is not batch]
            parts.append([(batch, at) for at in range(len(batch))])
    for part in data.draw(st.permutations(parts)):
        batch, at = part[0]
        if len(part) == len(batch):
            task.ack(batch)
        else:
            task.ack(batch.tuples[at])
        left = [one for one in left if one not in part]
        acker.settle()
        assert acker.open() == {entry_of(batch.roots[at]) for batch, at in left} - {0}


def test_an_int_takes_the_short_way_and_one_of_more_than_64_bits_is_refused() -> None:
    class Ints(Bolt):
        def process_batch(self, batch: Batch) -> None:
            self.emit_many([[1], [True], [None], [1 << 63]])
            self.emit_many([[1], [1 << 64]])

    errors: list[BaseException] = []
    acker, box = Acker(), Outbox(1, 9, "default")
    task = acker.task(Ints(), [box], Grouping.SHUFFLE, 1)
    task.report = lambda error, tup, called: errors.append(error)
    task.execute(Work(Run(1, 5, "default", False, [1], [1], [["1"]])), 1e9)
    assert [values for run in box.take() for values in run.values] == [[1], [True], [None], [1 << 63]]
    assert "65 bits" in str(errors[0])


def test_runs_for_a_bolt_that_takes_batches_are_joined_where_they_are_of_one_kind() -> None:
    inbox = Inbox([3], 1 << 20, 1 << 30, [3])
    for source, values in ((1, ["a"]), (1, ["b", "c"]), (2, ["d"]), (1, ["e"])):
        inbox.add(Run(3, source, "default", False, [0] * len(values), [0] * len(values), [[v] for v in values]))
    found = []
    while (work := inbox.next()) is not None:
        found.append([value for (value,) in work.run.values])
        before, work.left = work.left, 0
        inbox.ran(work, before)
    assert found == [["a", "b", "c"], ["d"], ["e"]]
    assert not inbox and inbox.bytes == 0
