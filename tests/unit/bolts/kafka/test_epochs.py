"""Epochs: which tuples are written, when the transaction is committed, and what an abort means for whom."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence, Set
from functools import partial
from typing import Any

import pytest

from streamlet.base.backoff import Backoff
from streamlet.bolts.kafka.epochs import CommitPhase, Epochs, Told, Tuples
from streamlet.components.epoch_tuples import ASK, BEGIN, COMMIT, END, EndOfEpoch
from streamlet.components.spout import FailureCause
from streamlet.spouts.kafka.attempt import Attempt, AttemptPhase
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.retry import NextTry
from streamlet.tracking.roots import STEP, first_root
from streamlet.tracking.shared_roots import SharedRoots


class Recorder:
    """A port that writes down what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))

    def taken(self) -> list[Any]:
        calls, self.calls = self.calls, []
        return [call[0] if len(call) == 1 else call for call in calls]


def told(kind: str, task: int = 1, number: int = 0, name: str = "") -> Told:
    end = EndOfEpoch("group", 1, "member", None, [("lines", task, 7, -1, "")]).told() if kind == END else None
    return Told(kind, task, first_root(task, 1) + number * STEP, name or f"{kind} {task}", end)


def tuples(*numbers: int, task: int = 1) -> Tuples:
    return Tuples([first_root(task, 1) + number * STEP for number in numbers], numbers)


@pytest.fixture
def port() -> Recorder:
    return Recorder()


@pytest.fixture
def epochs(port: Recorder) -> Epochs:
    """Two spout tasks have begun."""
    made = Epochs(port)
    made.take(told(BEGIN, 1))
    made.ended()
    made.take(told(BEGIN, 2))
    assert port.taken() == ["open_session", ("ack", "begin 1"), ("ack", "begin 2")]
    return made


def test_a_transaction_begins_with_a_tuple_and_is_committed_with_the_end_of_its_only_task(
    epochs: Epochs, port: Recorder
) -> None:
    batch = tuples(1, 2)
    epochs.take(batch)
    assert port.taken() == ["begin", ("write", batch, ())]
    epochs.take(told(END, 1, 3))
    epochs.take(told(COMMIT, 1, 4))
    assert port.taken() == [("ack", "end 1"), ("commit", [EndOfEpoch.of(told(END).told)])]
    epochs.ended()
    assert port.taken() == [("ack", "commit 1")]
    assert epochs.phase is CommitPhase.READY


def test_a_transaction_waits_for_the_end_of_each_task_of_whose_tuples_it_has_some(
    epochs: Epochs, port: Recorder
) -> None:
    epochs.take(tuples(1))
    epochs.take(tuples(1, task=2))
    epochs.take(told(END, 1, 3))
    epochs.take(told(COMMIT, 1, 4))
    port.taken()
    assert epochs.phase is CommitPhase.OPEN
    epochs.take(told(END, 2, 3))
    calls = port.taken()
    assert calls[:2] == [("ack", "end 1"), ("ack", "end 2")]
    assert [end.rows[0][1] for end in calls[2][1]] == [1, 2]
    epochs.ended()
    epochs.take(told(COMMIT, 2, 4))
    assert port.taken() == [("ack", "commit 1"), ("ack", "commit 2")]


def test_an_end_without_a_tuple_commits_offsets_alone(epochs: Epochs, port: Recorder) -> None:
    epochs.take(told(END, 1, 3))
    assert [call if isinstance(call, str) else call[0] for call in port.taken()] == ["begin", "ack", "commit"]


def test_what_comes_while_a_transaction_is_committed_belongs_to_the_next(epochs: Epochs, port: Recorder) -> None:
    epochs.take(tuples(1))
    epochs.take(told(END, 1, 3))
    port.taken()
    late = tuples(5)
    epochs.take(late)
    assert port.taken() == []
    epochs.ended()
    assert port.taken() == ["begin", ("write", late, ())]


def test_a_tuple_of_an_earlier_attempt_is_never_written(epochs: Epochs, port: Recorder) -> None:
    epochs.take(told(BEGIN, 1, 10))
    port.taken()
    batch = tuples(9, 11)
    epochs.take(batch)
    assert port.taken() == ["begin", ("write", batch, [0])]
    other = tuples(5, task=3)
    epochs.take(other)
    assert port.taken() == [("write", other, [0])]
    assert epochs.contributors == {1}


def test_a_begin_of_a_task_in_the_transaction_aborts_it_and_every_task_must_begin_again(
    epochs: Epochs, port: Recorder
) -> None:
    epochs.take(tuples(1))
    epochs.take(told(END, 2, 3))
    port.taken()
    epochs.take(told(BEGIN, 1, 10, "again"))
    assert port.taken() == [("fail", "end 2"), "abort"]
    epochs.ended()
    assert port.taken() == [("ack", "again")]
    batch = tuples(4, task=2)
    epochs.take(batch)
    assert port.taken() == [("write", batch, [0])]
    epochs.take(told(ASK, 2, 5))
    assert port.taken() == [("fail", "ask 2")]


def test_a_begin_of_a_task_without_tuples_in_it_leaves_the_transaction_alone(epochs: Epochs, port: Recorder) -> None:
    epochs.take(tuples(1))
    epochs.take(told(BEGIN, 2, 10, "again"))
    assert port.taken()[-1] == ("ack", "again")
    assert epochs.phase is CommitPhase.OPEN


def test_a_record_that_failed_keeps_all_else_waiting_until_its_spout_has_asked(epochs: Epochs, port: Recorder) -> None:
    epochs.take(tuples(1))
    epochs.record_failed()
    epochs.take(tuples(1, task=2))
    epochs.take(told(END, 2, 3))
    port.taken()
    epochs.take(told(ASK, 1, 9))
    assert port.taken() == [("ack", "ask 1"), "abort"]
    epochs.ended()
    calls = port.taken()
    assert [call[0] for call in calls] == ["write", "fail"]
    assert calls[0][2] == [0], "of an attempt that is over"


def test_a_commit_that_was_refused_fails_all_that_wait_for_it_and_is_aborted(epochs: Epochs, port: Recorder) -> None:
    epochs.take(tuples(1))
    epochs.take(told(END, 1, 3))
    epochs.take(told(COMMIT, 1, 4))
    port.taken()
    epochs.ended(failed=True)
    assert port.taken()[-1] == "abort"
    epochs.ended()
    assert port.taken() == [("fail", "commit 1")]


def test_a_lost_producer_is_opened_again_by_the_next_begin_and_by_nothing_else(epochs: Epochs, port: Recorder) -> None:
    epochs.take(tuples(1))
    port.taken()
    epochs.lost()
    assert port.taken() == ["close_session"]
    epochs.take(tuples(2))
    epochs.take(told(END, 1, 3))
    assert [call[0] for call in port.taken()] == ["write", "fail"]
    assert epochs.phase is CommitPhase.CLOSED
    epochs.take(told(BEGIN, 1, 10))
    assert port.taken() == ["open_session"]


def test_a_session_that_cannot_be_opened_fails_the_begins_that_wait(port: Recorder) -> None:
    epochs = Epochs(port)
    epochs.take(told(BEGIN, 1))
    epochs.take(told(BEGIN, 2))
    epochs.lost()
    assert port.taken() == ["open_session", "close_session", ("fail", "begin 1"), ("fail", "begin 2")]


def test_a_tuple_without_a_root_is_refused(epochs: Epochs, port: Recorder) -> None:
    batch = Tuples([first_root(1, 1) + STEP, 0], "batch")
    epochs.take(batch)
    assert port.taken() == [("untracked", batch)]


def test_a_tuple_of_several_trees_needs_all_of_them(epochs: Epochs, port: Recorder) -> None:
    one, two, stranger = (first_root(task, 1) + STEP for task in (1, 2, 3))
    shared, half = SharedRoots([one, two]), SharedRoots([one, stranger])
    batch = Tuples([shared, half, half], "batch")
    epochs.take(batch)
    assert port.taken() == ["begin", ("write", batch, [1, 2])]
    assert epochs.contributors == {1, 2}


def test_a_tuple_of_several_trees_may_name_them_in_a_list(epochs: Epochs, port: Recorder) -> None:
    one, two, stranger = (first_root(task, 1) + STEP for task in (1, 2, 3))
    lists = Tuples([[one, two], [two, stranger]], "batch")
    epochs.take(lists)
    assert port.taken() == ["begin", ("write", lists, [1])]


def test_a_tuple_of_a_stale_and_a_present_tree_blames_no_present_record(epochs: Epochs, port: Recorder) -> None:
    one, stranger = (first_root(task, 1) + STEP for task in (1, 3))
    epochs.take(Tuples([SharedRoots([one, stranger])], "batch"))
    port.taken()
    epochs.take(told(ASK, 1, 5))
    epochs.take(told(ASK, 2, 5))
    assert port.taken() == [("fail", "ask 1"), ("ack", "ask 2")]


def test_a_replacement_of_a_worker_counts_after_its_predecessor_whatever_the_number_of_its_epoch() -> None:
    port = Recorder()
    epochs = Epochs(port)
    epochs.take(Told(BEGIN, 1, first_root(1, 64), "begin"))  # 64 starts: counted from 0 again
    epochs.ended()
    port.taken()
    old = Tuples([first_root(1, 63) + 5 * STEP], "old")
    epochs.take(old)
    assert port.taken() == [("write", old, [0])]


def test_an_error_in_what_was_held_leaves_all_behind_it_in_order(epochs: Epochs, port: Recorder) -> None:
    epochs.take(tuples(1))
    epochs.take(told(END, 1, 3))
    for number in (5, 6, 7):
        epochs.take(tuples(number))

    class Breaks(Recorder):
        def begin(self) -> None:
            raise RuntimeError("begin")

    epochs.port = Breaks()
    with pytest.raises(RuntimeError):
        epochs.ended()
    assert [item.batch for item in epochs.held if isinstance(item, Tuples)] == [(6,), (7,)]


def test_roots_of_the_next_task_just_above_the_last_of_a_task_are_told_apart(port: Recorder) -> None:
    epochs = Epochs(port)
    epochs.take(Told(BEGIN, 1, first_root(1, 63) + 10 * STEP, "begin"))
    epochs.ended()
    port.taken()
    batch = Tuples([first_root(1, 63) + 11 * STEP, first_root(2, 0) + STEP], "batch")
    epochs.take(batch)
    assert port.taken() == ["begin", ("write", batch, [1])]


# -- with the spouts: whatever happens in whatever order, each record's effect is there once --------------------------


class World:
    """Spout tasks, bolts between them and the one that commits, and a Kafka whose transactions are all or nothing.

    Time passes by steps; what is under way arrives in any order, but for what one task tells of its epochs. So do the
    answers, acks and failures, to the spouts.
    """

    def __init__(
        self,
        chance: random.Random,
        tasks: int,
        records: int,
        poison: int = 0,
        bad: Set[int] = frozenset(),
        retry_limit: int = 0,
    ) -> None:
        self.chance = chance
        self.poison = poison
        """One record in so many is sent to the dead letters; 0: none. The letter of offset n has the number -n."""
        self.bad = bad
        """Offsets of records that a bolt fails each time."""
        self.retry_limit = retry_limit
        self.given_up: dict[tuple[int, int], int] = {}
        """Task and offset -> tries."""
        self.joins = 0.2
        """How often a tuple is made of two records."""
        self.records = records
        self.now = 0.0
        self.output: Counter[tuple[int, int]] = Counter()
        self.committed = dict.fromkeys(range(1, tasks + 1), 0)
        self.epochs = Epochs(self)
        self.transaction: list[tuple[int, int]] = []
        self.ends: Sequence[EndOfEpoch] = ()
        self.asked: str | None = None
        self.spouts = {task: Task(self, task) for task in self.committed}
        self.on_way: list[list[tuple[int, int, int]]] = []
        """Tuples between the bolts: (task, root, offset) of each tree that one belongs to."""
        self.unanswered: list[list[tuple[int, int, int]]] = []
        """Written, and not acknowledged."""
        self.homeward: list[Callable[[], None]] = []
        """Answers under way to the spouts."""
        self.troubles = True
        self.doomed = 0
        """Steps since when a transaction waits for a spout's question."""

    def step(self) -> None:
        self.now += 0.01
        chance = self.chance
        acts = [spout.step for spout in self.spouts.values()] + [spout.deliver for spout in self.spouts.values()]
        acts += [self.arrive, self.acknowledge, self.answer, self.go_home, self.go_home]
        if self.troubles:
            acts += [self.trouble] * (chance.random() < 0.15)
        chance.choice(acts)()
        self.doomed = self.doomed + 1 if self.epochs.phase is CommitPhase.DOOMED else 0
        if self.doomed == 500:  # as `Transactions` does
            self.epochs.give_up()

    def go_home(self) -> None:
        if self.homeward:
            self.homeward.pop(self.chance.randrange(len(self.homeward)))()

    # bolts between

    def arrive(self) -> None:
        if self.on_way:
            some = [self.on_way.pop(self.chance.randrange(len(self.on_way)))]
            task, root, offset = some[0][0]
            if offset in self.bad:
                self.fail_tree(task, root, offset)
                return
            if self.is_poison(offset):
                self.spouts[task].dead_letter(root, offset)
                if self.chance.random() < 0.5:  # the bolt emitted nothing before
                    return
            elif offset >= 0 and self.on_way and self.chance.random() < self.joins:  # made of both
                other = self.on_way.pop(self.chance.randrange(len(self.on_way)))
                if other[0][2] < 0 or self.is_poison(other[0][2]) or other[0][2] in self.bad:
                    self.on_way.append(other)
                else:
                    some = [some[0] + other]
            roots = [SharedRoots([root for _, root, _ in one]) if len(one) > 1 else one[0][1] for one in some]
            self.epochs.take(Tuples(roots, some))

    def fail_tree(self, task: int, root: int, offset: int) -> None:
        self.homeward.append(partial(self.spouts[task].tree_failed, root, offset))

    def is_poison(self, offset: int) -> bool:
        return self.poison > 0 and offset > 0 and offset % self.poison == 0

    def trouble(self) -> None:
        chance = self.chance
        kind = chance.randrange(6)
        spout = chance.choice([*self.spouts.values()])
        if kind == 0 and self.on_way:  # a bolt fails
            for task, root, offset in self.on_way.pop(chance.randrange(len(self.on_way))):
                self.fail_tree(task, root, offset)
        elif kind == 1:  # a link is lost
            self.on_way = [one for one in self.on_way if chance.random() < 0.5]
            for each in self.spouts.values():
                each.everything_lost()
        elif kind == 2:  # the bolt's worker is replaced
            self.epochs, self.transaction, self.asked, self.unanswered = Epochs(self), [], None, []
            for each in self.spouts.values():
                each.sent.clear()
                each.everything_lost()
        elif kind == 3:
            spout.restart()
        elif kind == 4 and self.unanswered:  # the record cannot be written
            for task, root, offset in self.unanswered.pop():
                self.fail_tree(task, root, offset)
            chance.choice([self.epochs.record_failed, self.epochs.give_up])()
        elif kind == 5 and self.epochs.phase is not CommitPhase.CLOSED:  # fenced
            if self.asked == "commit" and chance.random() < 0.5:
                self.commit_now()
            self.asked = None
            self.epochs.lost()

    # Kafka

    def acknowledge(self) -> None:
        if self.unanswered:
            for task, root, _ in self.unanswered.pop(self.chance.randrange(len(self.unanswered))):
                self.homeward.append(partial(self.spouts[task].tree_done, root))

    def answer(self) -> None:
        asked, self.asked = self.asked, None
        if asked == "commit":
            if self.troubles and self.chance.random() < 0.2:
                self.epochs.ended(failed=True)
                return
            self.commit_now()
        if asked is not None:
            self.transaction = []
            self.epochs.ended()

    def commit_now(self) -> None:
        assert not self.unanswered, "a commit while records are under way"
        self.output.update(self.transaction)
        self.transaction = []
        for end in self.ends:
            for _, task, offset, _, _ in end.rows:
                assert offset >= self.committed[task]
                self.committed[task] = offset

    # the port

    def open_session(self) -> None:
        self.asked, self.transaction = "open", []

    def begin(self) -> None:
        assert self.transaction == []

    def commit(self, ends: Sequence[EndOfEpoch]) -> None:
        self.asked, self.ends = "commit", ends

    def abort(self) -> None:
        self.close_session()
        self.asked = "abort"

    def close_session(self) -> None:
        dropped, self.unanswered = self.unanswered, []
        for one in dropped:
            for task, root, offset in one:
                self.fail_tree(task, root, offset)

    def write(self, tuples: Tuples, refused: Sequence[int]) -> None:
        for at, one in enumerate(tuples.batch):
            if at in refused:
                for task, root, offset in one:
                    self.fail_tree(task, root, offset)
            else:
                self.transaction += [(task, offset) for task, _, offset in one]
                self.unanswered.append(one)

    def untracked(self, tuples: Tuples) -> None:
        raise AssertionError("all are tracked")

    def ack(self, token: Hashable) -> None:
        self._answer(token, acked=True)

    def fail(self, token: Hashable) -> None:
        self._answer(token, acked=False)

    def _answer(self, token: Any, acked: bool) -> None:
        self.homeward.append(partial(self._answered, token, acked))

    def _answered(self, token: Any, acked: bool) -> None:
        task, life, number = token
        spout = self.spouts[task]
        if life == spout.life and number in spout.told:
            spout.told.discard(number)
            (spout.attempt.acked if acked else spout.attempt.failed)(number, self.now)


class Task:
    """One spout task: its log, its trees, its attempts."""

    def __init__(self, world: World, task: int) -> None:
        self.world, self.task = world, task
        self.life = 0
        self.restart()

    def restart(self) -> None:
        self.life += 1
        self.root = first_root(self.task, self.life)
        self.attempt = Attempt(self, 0.3, Backoff(0.02, 0.1), self.world.retry_limit, lambda: 0.5)
        self.trees: dict[int, tuple[int, int]] = {}
        """Root -> offset, and which opening it was read in."""
        self.told: set[int] = set()
        self.sent: list[Told] = []
        self.passed: set[int] = set()
        """Sent to the dead letters; a replacement of the worker has to hear of them again."""
        self.opening = 0
        self.position = self.stored = self.ending = self.spoilt = 0

    def step(self) -> None:
        self.attempt.poll(self.world.now)
        # In a drain the runtime asks for no tuple.
        last = self.position if self.attempt.draining else self.world.records
        while self.attempt.may_emit and self.position < last and self.world.chance.random() < 0.7:
            root = self._next_root()
            self.trees[root] = self.position, self.opening
            filtered = self.position % 5 == 4
            passed = self.position in self.passed
            if not filtered:
                self.world.on_way.append([(self.task, root, -self.position if passed else self.position)])
            self.position += 1
            self.attempt.records += not passed
            if filtered:
                self.tree_done(root)

    def _next_root(self) -> int:
        self.root += STEP
        return self.root

    def deliver(self) -> None:
        if self.sent:
            self.world.epochs.take(self.sent.pop(0))

    def tree_done(self, root: int) -> None:
        self.trees.pop(root, None)

    def dead_letter(self, root: int, offset: int) -> None:
        found = self.trees.pop(root, None)
        if found is not None:
            self.passed.add(offset)
            if found[1] == self.opening:
                self.spoilt += 1
                self.attempt.spoil(self.world.now)

    def tree_failed(self, root: int, offset: int) -> None:
        found = self.trees.pop(root, None)
        if found is not None and found[1] == self.opening and offset < 0:
            self.attempt.letter_failed(self.world.now)
        elif found is not None and found[1] == self.opening:
            self.attempt.record_failed(Partition("lines", self.task), offset, FailureCause(""), self.world.now)

    def everything_lost(self) -> None:
        if self.trees or self.told:
            self.trees.clear()
            self.told.clear()
            self.attempt.lost(self.world.now)

    # the work of Attempt

    def may_emit(self) -> bool:
        return True

    def hold(self) -> None:
        self.opening += 1
        self.spoilt = 0

    def reopen(self) -> None:
        self.position = self.stored = self.world.committed[self.task]
        self.ending = self.stored

    def is_open(self) -> bool:
        return True

    def has_moved(self) -> bool:
        return self.position > self.ending

    def is_done(self) -> bool:
        return self.is_settled() and not self.spoilt

    def begins(self) -> None: ...

    def is_settled(self) -> bool:
        return not any(opening == self.opening for _, opening in self.trees.values())

    def has_read_all(self) -> bool:
        return self.position == self.world.records

    def end(self) -> Any:
        self.ending = self.position
        return EndOfEpoch("g", 1, "m", None, [("lines", self.task, self.position, -1, "")]).told()

    def committed(self) -> None:
        self.stored = self.ending
        self.attempt.forget_below(Partition("lines", self.task), self.stored)

    def count_failure(self, partition: Partition) -> None: ...

    def comes_again(self, partition: Partition, offset: int, cause: FailureCause, coming: NextTry) -> None: ...

    def give_up(self, partition: Partition, offset: int, cause: FailureCause, tries: int) -> None:
        self.passed.add(offset)
        self.world.given_up[self.task, offset] = tries

    def tell(self, kind: str, told: Any) -> int:
        number = self._next_root()
        self.told.add(number)
        self.sent.append(Told(kind, self.task, number, (self.task, self.life, number), told))
        return number


@pytest.mark.parametrize("poison", [0, 7])
@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_record_has_its_effect_once(seed: int, poison: int) -> None:
    """Of poison the effect is its letter, and nothing that a bolt emitted before it knew."""
    chance = random.Random(seed)
    world = World(chance, tasks=1 + seed % 3, records=chance.choice([5, 40, 120]), poison=poison)
    for _ in range(4000):
        world.step()
    finish(world)


def finish(world: World) -> None:
    """Go on without troubles until all is committed; look at what there is."""
    world.troubles = False
    for _ in range(60_000):
        if all(s.attempt.is_idle and s.has_read_all() and not s.has_moved() for s in world.spouts.values()):
            break
        world.step()
    offsets = [offset for offset in range(world.records) if offset % 5 != 4]
    effects = [-offset if world.is_poison(offset) or offset in world.bad else offset for offset in offsets]
    wanted = {(task, effect) for task in world.committed for effect in effects}
    assert world.output == Counter(wanted)
    assert set(world.committed.values()) == {world.records}
    assert all(spout.attempt.phase is AttemptPhase.RUNNING for spout in world.spouts.values())


@pytest.mark.parametrize("seed", range(90))
def test_records_that_always_fail_are_found_by_their_own_failures_whatever_their_neighbours(seed: int) -> None:
    """Each failed attempt is one try of one of them: nothing that an abort fails takes the place of the answer."""
    chance = random.Random(seed)
    records = chance.choice([4, 9, 40])
    able = [offset for offset in range(1, records) if offset % 5 != 4]
    first = chance.randrange(len(able))
    bad = {*able[first : first + chance.choice([2, 3, 8])], *chance.sample(able, 2)}
    world = World(chance, 1 + seed % 3, records, bad=bad, retry_limit=chance.choice([1, 2]))
    world.joins = 0.0  # with a tuple of an earlier attempt: that is no record's own failure
    finish(world)
    tries = world.retry_limit + 1
    assert world.given_up == {(task, offset): tries for task in world.spouts for offset in bad}
    assert world.epochs.aborted <= tries * len(world.given_up)
    assert all(spout.attempt.attempts <= 1 + tries * len(world.given_up) for spout in world.spouts.values())


@pytest.mark.parametrize("seed", range(30))
def test_a_drain_leaves_no_transaction_open_whatever_happened_before(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance, tasks=1 + seed % 3, records=400, poison=7 * (seed % 2))
    for _ in range(chance.randrange(100, 2000)):
        world.step()
    world.troubles = False
    while not all(spout.attempt.attempts for spout in world.spouts.values()):  # each worker has joined the run
        world.step()
    for spout in world.spouts.values():
        spout.attempt.draining = True
    for _ in range(5000):
        world.step()
    assert world.epochs.phase in (CommitPhase.READY, CommitPhase.CLOSED)
    assert all(s.attempt.phase is AttemptPhase.OFF or s.attempt.is_idle for s in world.spouts.values())
