"""The right to emit, with offsets in ZooKeeper: tasks, each a session on one tree. The test is loop and thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamlet.base.clock import ManualClock
from streamlet.base.errors import StreamletError
from streamlet.coordination.node_store import ANY_VERSION, NodeStoreUnavailable
from streamlet.spouts.kafka.activity import NextPoll, Steps
from streamlet.spouts.kafka.errors import RunDeposed, TaskReplaced
from streamlet.spouts.kafka.ownership.emit_gate import FLUSH_S, LEASE_SHARE
from streamlet.spouts.kafka.ownership.owner_nodes import NewestRun, TaskNode
from streamlet.spouts.kafka.ownership.zookeeper_owner import ZooKeeperOwner
from tests.memory_nodes import MemoryNodeStore, MemoryTree
from tests.patience import PATIENCE_S

SESSION_S = 10.0
OWNERS = "/root/id/owners"


class OddNodes(MemoryNodeStore):
    """Writes go by way of the test."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.before_set: Callable[[], None] = lambda: None
        self.after_create: Callable[[], None] = lambda: None

    def create(self, path: str, data: bytes = b"", *, makepath: bool = True, ephemeral: bool = False) -> int:
        super().create(path, data, makepath=makepath, ephemeral=ephemeral)
        self.after_create()
        return 0

    def set(self, path: str, data: bytes, version: int) -> int:
        self.before_set()
        return super().set(path, data, version)


class Player:
    """One task: its session, its owner, and what the loop does."""

    def __init__(self, tree: MemoryTree, clock: ManualClock, run: str, task: int = 0, epoch: int = 1) -> None:
        self.clock, self.nodes = clock, OddNodes(tree)
        me = TaskNode(run, "words", f"lines-{task}", epoch)
        self.owner = ZooKeeperOwner(self.nodes, "/root/id", me, "topic 'lines'", "zk:2181", lambda: None, clock)
        self.owner.gate.flush = self.flush
        self.flushed, self.flushes = True, 0

    def flush(self) -> Steps[None]:
        self.flushes += 1
        again = NextPoll()
        while not self.flushed:
            yield again

    def beat(self) -> bool:
        """What the owner's thread does when it is woken, or after a while."""
        return self.owner.beat()

    def turn(self) -> bool:
        """What the loop does; whether tuples may be emitted then."""
        self.owner.gate.poll(self.clock.monotonic())
        return self.owner.gate.may_emit(self.clock.monotonic())

    def may_emit(self) -> bool:
        return self.owner.gate.may_emit(self.clock.monotonic())

    def started(self) -> Player:
        self.beat()
        assert self.turn()
        return self


class Scene:
    def __init__(self) -> None:
        self.tree, self.clock = MemoryTree(), ManualClock()

    def task(self, run: str, task: int = 0, epoch: int = 1) -> Player:
        return Player(self.tree, self.clock, run, task, epoch)

    def children(self) -> list[str]:
        return self.tree.children(OWNERS)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def error_of(player: Player) -> StreamletError:
    with pytest.raises(StreamletError) as caught:
        player.turn()
    return caught.value


def test_all_tasks_of_the_only_run_emit_at_once(scene: Scene) -> None:
    for task in (0, 1):
        scene.task("a", task).started()
    assert scene.children() == ["a-lines-0-1", "a-lines-1-1"]


def test_a_newer_run_emits_only_when_every_task_of_the_older_one_has_stopped_and_committed(scene: Scene) -> None:
    older = [scene.task("a", task).started() for task in (0, 1)]
    newer = scene.task("b")
    newer.beat()
    assert not newer.turn() and "task lines-0 of topology 'words' (run a)" in newer.owner.waiting_for()
    for player in older:
        assert not player.beat(), "tuples are still being emitted: the loop has to stop first"
        assert not player.turn() and player.flushes == 1
        newer.beat()
        assert not newer.turn()
        assert player.beat(), "it has left"
        said = error_of(player)
        assert isinstance(said, RunDeposed) and "Run b of topology 'words' took over topic 'lines'" in said.message
    newer.beat()
    assert newer.turn() and scene.children() == ["b-lines-0-1"]


def test_a_commit_that_takes_too_long_does_not_hold_the_newer_run_up(scene: Scene) -> None:
    older, newer = scene.task("a").started(), scene.task("b")
    older.flushed = False
    newer.beat()
    older.beat()
    older.turn()
    assert not older.beat()
    scene.clock.advance(FLUSH_S)
    older.turn()
    assert older.beat()


def test_a_task_whose_loop_stands_still_gives_the_topic_up_when_its_lease_is_over(scene: Scene) -> None:
    """Its session lives on, kept by a thread: the newer run waits for a session time-out and not for the bolt."""
    older, newer = scene.task("a").started(), scene.task("b")
    newer.beat()
    for _ in range(9):
        scene.clock.advance(1.0)
        assert not older.beat()
        newer.beat()
        assert not newer.turn()
    assert not older.may_emit(), "no beat counts any more once another run is there"
    scene.clock.advance(1.1)
    assert older.beat()
    newer.beat()
    assert newer.turn() and isinstance(error_of(older), RunDeposed)


def test_a_lease_counts_from_the_request_and_is_over_before_the_session(scene: Scene) -> None:
    player = scene.task("a").started()
    scene.clock.advance(LEASE_SHARE * SESSION_S - 0.01)
    assert player.turn()
    scene.clock.advance(0.02)
    assert not player.turn() and LEASE_SHARE < 1
    player.beat()
    assert player.turn(), "the node is there still: nobody else can have had the place"


def test_without_an_answer_nothing_is_emitted_once_the_lease_is_over(scene: Scene) -> None:
    player = scene.task("a").started()
    player.nodes.suspend()
    with pytest.raises(NodeStoreUnavailable):
        player.beat()
    assert player.turn()
    scene.clock.advance(SESSION_S)
    assert not player.turn()
    player.nodes.resume()
    player.beat()
    assert player.turn()


def test_an_hour_without_an_answer_is_a_pause_that_is_told_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """D6: it emits for 0.9 of a session, then not once; what ends it is the first answer and nothing else."""
    player = scene.task("a").started()
    player.nodes.suspend()
    emitted = 0
    with caplog.at_level("INFO"):
        for _ in range(3600):
            with pytest.raises(NodeStoreUnavailable):
                player.beat()
            scene.clock.advance(1.0)
            emitted += player.turn()
        assert emitted == int(LEASE_SHARE * SESSION_S) - 1
        assert [record.getMessage().count("nothing is emitted") for record in caplog.records] == [1]
        player.nodes.expire()  # the server has ended the session long ago
        player.nodes.resume()
        for _ in range(2):
            player.beat()
            player.turn()
    assert player.may_emit() and scene.children() == ["a-lines-0-1"]


def test_a_task_whose_session_ended_while_nobody_came_makes_its_node_again_and_goes_on(scene: Scene) -> None:
    player = scene.task("a").started()
    player.nodes.expire()
    scene.clock.advance(SESSION_S)
    player.nodes.resume()
    player.beat()
    assert not player.may_emit() and not player.turn() and player.flushes == 0
    player.beat()
    assert player.turn() and scene.children() == ["a-lines-0-1"]


def test_a_run_that_slept_through_its_successors_start_emits_nothing_and_leaves(scene: Scene) -> None:
    """Also when the successor is gone again; and its workers that are started anew do not take the topic back."""
    older = scene.task("a").started()
    older.nodes.expire()
    scene.clock.advance(SESSION_S)
    newer = scene.task("b").started()
    older.nodes.resume()
    assert not older.may_emit()
    older.beat()
    assert not older.may_emit()
    older.beat()
    assert isinstance(error_of(older), RunDeposed)
    newer.nodes.close()
    again = scene.task("a", epoch=2)
    assert again.beat() and isinstance(error_of(again), RunDeposed) and scene.children() == []
    assert newer.owner.gate.grant is not None


def test_a_run_that_comes_while_another_waits_is_the_one_that_gets_the_topic(scene: Scene) -> None:
    first, second, third = scene.task("a").started(), scene.task("b"), scene.task("c")
    second.beat()
    third.beat()
    assert second.beat() and isinstance(error_of(second), RunDeposed), "it never emitted: nobody waits for its loop"
    first.beat()
    first.turn()
    assert first.beat()
    third.beat()
    assert third.turn()


def test_the_replacement_of_a_worker_takes_its_place_without_waiting_for_the_session(scene: Scene) -> None:
    """And a predecessor that lives all the same stops at its next beat."""
    dead = scene.task("a").started()
    scene.task("a", 1).started()
    scene.task("a", epoch=2).started()
    assert scene.children() == ["a-lines-0-2", "a-lines-1-1"]
    with pytest.raises(TaskReplaced, match="taken for dead and replaced"):
        dead.beat()
    assert not dead.may_emit()


def test_of_two_processes_with_one_place_the_later_one_has_it(scene: Scene) -> None:
    first, second = scene.task("a").started(), scene.task("a")
    second.started()
    with pytest.raises(TaskReplaced):
        first.beat()
    assert not first.may_emit()
    second.beat()
    assert second.turn()


def test_a_node_whose_making_was_not_answered_is_known_as_our_own(scene: Scene) -> None:
    player = scene.task("a")

    def unanswered() -> None:
        raise NodeStoreUnavailable("a test", outcome_unknown=True)

    player.nodes.after_create = unanswered
    with pytest.raises(NodeStoreUnavailable):
        player.beat()
    player.started()


def test_words_written_in_between_are_looked_at_again(scene: Scene) -> None:
    player = scene.task("a")
    others = [NewestRun("b", "words"), NewestRun("c", "words", ("b",))]

    def another_writes() -> None:
        if others:
            MemoryNodeStore(scene.tree).set(OWNERS, others.pop(0).encode(), ANY_VERSION)

    player.nodes.before_set = another_writes
    player.started()
    words = NewestRun.decode(scene.tree.nodes[OWNERS][0])
    assert words == NewestRun("a", "words", ("c", "b"))


def test_a_watch_wakes_the_task_that_waits_and_the_one_that_is_waited_for(scene: Scene) -> None:
    older, newer = scene.task("a").started(), scene.task("b")
    older.owner._news.clear()
    newer.beat()
    assert older.owner._news.is_set()
    newer.owner._news.clear()
    older.beat()
    older.turn()
    older.beat()
    assert newer.owner._news.is_set()


def test_a_task_that_leaves_gives_its_place_up_while_its_session_lives(scene: Scene) -> None:
    """Whether its thread has come to a beat or not; and it deletes nobody else's node."""
    player = scene.task("a")
    player.owner.start()
    deadline = time.monotonic() + PATIENCE_S
    while player.owner.gate.grant is None:
        assert time.monotonic() < deadline
    player.owner.leave()
    player.owner.close()
    assert scene.children() == [] and not player.may_emit()
    scene.task("b").started()
    late = scene.task("a", epoch=2)
    late.owner.leave()
    late.owner.start()
    late.owner.close()
    assert scene.children() == ["b-lines-0-1"]


def test_a_server_that_is_cut_off_from_its_leader_extends_no_lease(scene: Scene) -> None:
    """It answers reads from its own memory while the leader ends the session, and the next run begins."""
    older = scene.task("a").started()
    older.nodes.fall_behind()
    for _ in range(10):
        scene.clock.advance(SESSION_S / 10)
        with pytest.raises(NodeStoreUnavailable):
            older.beat()
    older.nodes.forget_session()
    scene.task("b").started()
    assert not older.may_emit()
    older.nodes.resume()
    older.beat()
    assert isinstance(error_of(older), RunDeposed)


def test_no_run_is_granted_the_topic_by_an_old_list_of_nodes(scene: Scene) -> None:
    older, newer = scene.task("a").started(), scene.task("b")
    newer.beat()
    older.beat()
    assert not older.turn() and older.beat()
    newer.nodes.fall_behind()
    with pytest.raises(NodeStoreUnavailable):
        newer.owner._ask_for_grant(scene.clock.monotonic())
    assert newer.owner.gate.grant is None


def test_an_owners_node_that_was_deleted_is_made_again_at_the_next_beat(scene: Scene) -> None:
    """Also where it goes between two requests of a beat; no beat repeats requests without end."""
    player = scene.task("a").started()
    for goes_after in (player.owner._path, None):
        scene.tree.remove(OWNERS)
        if goes_after is None:
            scene.tree.remove(player.owner._path)
        assert not player.beat()
    player.turn()
    player.beat()
    assert player.turn() and scene.children() == ["a-lines-0-1"]


def test_an_error_that_nobody_expects_ends_the_run_and_is_told(scene: Scene) -> None:
    player = scene.task("a").started()

    def broken() -> None:
        raise ZeroDivisionError("a test")

    woken: list[int] = []
    player.owner._wake = lambda: woken.append(1)
    player.owner.beat = broken  # type: ignore[method-assign,assignment]
    assert player.owner._is_over() and woken
    with pytest.raises(ZeroDivisionError, match="a test"):
        player.turn()


def test_a_predecessor_that_lives_finds_the_replacement_when_it_makes_its_node_again(scene: Scene) -> None:
    """Whichever of them comes first: the replacement has its own node before it deletes the other's."""
    dead, heir = scene.task("a").started(), scene.task("a", epoch=2)
    dead.turn()
    seen: list[list[str]] = []
    delete = heir.nodes.delete

    def noted(path: str, version: int = ANY_VERSION) -> None:
        seen.append(scene.children())
        delete(path, version)

    heir.nodes.__dict__["delete"] = noted
    heir.started()
    assert seen == [["a-lines-0-1", "a-lines-0-2"]]
    with pytest.raises(TaskReplaced):
        dead.beat()
    assert not dead.may_emit() and scene.children() == ["a-lines-0-2"]


def test_a_replacement_that_comes_while_the_node_is_made_again_is_seen(scene: Scene) -> None:
    dead, heir = scene.task("a").started(), scene.task("a", epoch=2)
    dead.nodes.expire()
    dead.nodes.resume()

    def comes() -> None:
        dead.nodes.after_create = lambda: None
        heir.nodes.create(f"{OWNERS}/a-lines-0-2", heir.owner._words, ephemeral=True)

    dead.nodes.after_create = comes
    with pytest.raises(TaskReplaced):
        dead.beat()
    assert scene.children() == ["a-lines-0-2"]


def test_a_predecessors_node_that_could_not_be_deleted_is_deleted_at_the_next_beat(scene: Scene) -> None:
    dead, heir = scene.task("a").started(), scene.task("a", epoch=2)
    heir.nodes.after_create = heir.nodes.suspend
    with pytest.raises(NodeStoreUnavailable):
        heir.beat()
    heir.nodes.after_create = lambda: None
    heir.nodes.resume()
    heir.started()
    assert scene.children() == ["a-lines-0-2"]
    with pytest.raises(TaskReplaced):
        dead.beat()
