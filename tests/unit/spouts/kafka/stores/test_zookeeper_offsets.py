"""Progress in a node store: takeovers, former owners, uncertain writes, nodes that are none of ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from streamlet.coordination.node_store import NodeStoreUnavailable
from streamlet.spouts.kafka.activity import Activity, Background, Steps
from streamlet.spouts.kafka.errors import Deposed, OffsetsLost, TopicInTheWay, UnusableOffset
from streamlet.spouts.kafka.partition import Broker, OffsetRange, Partition
from streamlet.spouts.kafka.stores.offset_store import CommitPosition, Owner, Reason, StartDecision, StoredOffset
from streamlet.spouts.kafka.stores.zookeeper_offsets import ZooKeeperOffsets
from tests.memory_nodes import MemoryNodeStore, MemoryTree, Place

P = Partition("lines", 0)
PATH = "/streamlet/demo/partition_0"


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def background() -> Iterator[Background]:
    thread = Background("test", lambda: None)
    yield thread
    thread.close()


def offsets(nodes: Any, background: Background, run: str = "run-1", place: Place | None = None) -> ZooKeeperOffsets:
    return ZooKeeperOffsets(nodes, background, "/streamlet/demo", Owner(run, "words"), "zk:2181", place or Place())


def finish(steps: Steps[Any]) -> Any:
    activity = Activity(steps)
    while not activity.poll():
        pass
    return activity.take()


def begin_at(offset: int) -> Any:
    def decide(stored: StoredOffset | None) -> Steps[StartDecision]:
        yield from ()
        if stored is None:
            return StartDecision(offset, Reason.FIRST_EARLIEST)
        return StartDecision(stored.offset, Reason.STORED)

    return decide


def node(tree: MemoryTree) -> dict[str, Any]:
    found = MemoryNodeStore(tree).get(PATH)
    assert found is not None
    return json.loads(found[0])  # type: ignore[no-any-return]


def opened(tree: MemoryTree, background: Background, run: str = "run-1", nodes: Any = None) -> ZooKeeperOffsets:
    store = offsets(nodes or MemoryNodeStore(tree), background, run)
    finish(store.open(P, Broker("k", 9092), "topic-id", begin_at(5)))
    return store


def commit(store: ZooKeeperOffsets, offset: int) -> Any:
    return finish(store.commit({P: CommitPosition(offset, 3, Broker("k", 9092))}))[P]


def test_t04_the_start_is_stored_before_anything_else(tree: MemoryTree, background: Background) -> None:
    opened(tree, background)
    assert node(tree) == {
        "topology": {"id": "run-1", "name": "words"},
        "offset": 5,
        "partition": 0,
        "broker": {"host": "k", "port": 9092},
        "topic": "lines",
        "leader_epoch": -1,
        "topic_id": "topic-id",
        "owner_epoch": 1,
    }


def test_k7_commits_are_read_back_by_the_next_owner(tree: MemoryTree, background: Background) -> None:
    assert commit(opened(tree, background), 42) is None
    assert node(tree)["offset"] == 42
    store = offsets(MemoryNodeStore(tree), background, "run-2")
    decision = finish(store.open(P, None, "topic-id", begin_at(0)))
    assert (decision.offset, decision.reason) == (42, Reason.STORED)
    assert node(tree)["owner_epoch"] == 2
    assert node(tree)["leader_epoch"] == 3


def test_a_former_owner_writes_nothing_and_is_told_who_took_over(tree: MemoryTree, background: Background) -> None:
    old = opened(tree, background, "run-1")
    commit(old, 10)
    opened(tree, background, "run-2")
    before = MemoryNodeStore(tree).get(PATH)
    told = commit(old, 99)
    assert isinstance(told, Deposed)
    assert told.message.startswith("Run run-2 of topology 'words' took over topic 'lines', partition 0: ")
    assert "has owner epoch 2, and this spout, of run run-1, had 1." in told.message
    assert "give each its own `id`" in told.message
    assert MemoryNodeStore(tree).get(PATH) == before


def test_a_worker_whose_successor_took_over_is_not_told_of_another_run(
    tree: MemoryTree, background: Background
) -> None:
    old = opened(tree, background, "run-1")
    opened(tree, background, "run-1")
    told = commit(old, 99)
    assert isinstance(told, Deposed)
    assert told.message.startswith("Another worker of the same run took over topic 'lines', partition 0: ")
    assert "`id`" not in told.message, "it is its own run, and a second id would help nobody"


def test_beginning_again_takes_nothing_back_from_a_new_owner(tree: MemoryTree, background: Background) -> None:
    old = opened(tree, background, "run-1")
    finish(old.open(P, None, "another topic id", begin_at(0)))
    assert node(tree)["owner_epoch"] == 2, "it may begin again while it is the owner"
    opened(tree, background, "run-2")
    with pytest.raises(Deposed):
        finish(old.open(P, None, "topic-id", begin_at(0)))
    assert node(tree)["topology"]["id"] == "run-2"


def test_storm_kafkas_own_node_is_taken_over(tree: MemoryTree, background: Background) -> None:
    """It has neither owner epoch nor topic id."""
    storm = {
        "topology": {"id": "a-1", "name": "a"},
        "offset": 17,
        "partition": 0,
        "broker": {"host": "h", "port": 1},
        "topic": "lines",
    }
    MemoryNodeStore(tree).create(PATH, json.dumps(storm).encode())
    store = offsets(MemoryNodeStore(tree), background)
    assert finish(store.open(P, None, None, begin_at(0))).offset == 17
    assert node(tree)["owner_epoch"] == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\xffgarbage", "that is not the JSON of an offset"),
        (b"[1]", "that is not the JSON of an offset"),
        (b"", "that is not the JSON of an offset"),
        (b"[" * 100_000, "that is not the JSON of an offset"),
        (b'{"offset": -1, "topic": "lines", "partition": 0}', 'no usable "offset"'),
        (b'{"offset": "7", "topic": "lines", "partition": 0}', 'no usable "offset"'),
        (b'{"offset": true, "topic": "lines", "partition": 0}', 'no usable "offset"'),
        (b'{"offset": 99999999999999999999, "topic": "lines", "partition": 0}', 'no usable "offset"'),
        (b'{"offset": 7, "topic": "other", "partition": 0}', "it belongs to topic 'other'"),
        (b'{"offset": 7, "topic": "lines", "partition": 1}', "it belongs to partition 1"),
        (b'{"offset": 7, "topic": "lines", "partition": 0, "owner_epoch": "x"}', "is not a whole number"),
    ],
)
def test_a_foreign_node_is_refused_and_left_alone(
    data: bytes, why: str, tree: MemoryTree, background: Background
) -> None:
    MemoryNodeStore(tree).create(PATH, data)
    store = offsets(MemoryNodeStore(tree), background)
    with pytest.raises(UnusableOffset) as refused:
        finish(store.open(P, None, None, begin_at(0)))
    assert why in refused.value.message
    assert f"ZooKeeper zk:2181, node {PATH}" in refused.value.message
    assert not data.isascii() or f"It holds: '{data[:20].decode()}" in refused.value.message
    assert data.isascii() or "garbage'." in refused.value.message
    assert len(refused.value.message) < 800
    assert MemoryNodeStore(tree).get(PATH) == (data, 0)


class LostAnswers(MemoryNodeStore):
    """Carries the next write out, and loses its answer."""

    lose = False

    def set_async(self, path: str, data: bytes, version: int) -> Future[int]:
        future = super().set_async(path, data, version)
        if not self.lose:
            return future
        self.lose = False
        lost: Future[int] = Future()
        lost.set_exception(NodeStoreUnavailable("no answer", outcome_unknown=True))
        return lost


class LostClaims(MemoryNodeStore):
    """Carries the next claim out and loses its answer; then the look behind it fails so many times."""

    lose = False
    blind = 0

    def get(self, path: str, changed: Any = None, *, fresh: bool = False) -> tuple[bytes, int] | None:
        if self.blind and not self.lose:
            self.blind -= 1
            raise NodeStoreUnavailable("no connection")
        return super().get(path, changed, fresh=fresh)

    def set(self, path: str, data: bytes, version: int) -> int:
        return self._lost(super().set(path, data, version))

    def create(self, path: str, data: bytes = b"", *, makepath: bool = True) -> int:
        return self._lost(super().create(path, data, makepath=makepath))

    def _lost(self, version: int) -> int:
        if self.lose:
            self.lose = False
            raise NodeStoreUnavailable("no answer", outcome_unknown=True)
        return version


def lost_from(first: int, end: int) -> Any:
    """As an opening decides that finds its offset below the log; once it is stored there is nothing to be told."""

    def decide(stored: StoredOffset | None) -> Steps[StartDecision]:
        yield from ()
        if stored is not None and stored.offset == end:
            return StartDecision(end, Reason.STORED)
        return StartDecision(end, Reason.BELOW_START, OffsetRange(first, end))

    return decide


def test_a_claim_whose_answer_was_lost_deposes_nobody(tree: MemoryTree, background: Background) -> None:
    """A partition that begins again finds its own epoch in the node, one above the one it knows."""
    nodes = LostClaims(tree)
    store = opened(tree, background, nodes=nodes)
    nodes.lose = True
    decision = finish(store.open(P, None, "topic-id", lost_from(5, 70)))
    assert decision == StartDecision(70, Reason.BELOW_START, OffsetRange(5, 70)), "the loss is still told"
    assert (node(tree)["owner_epoch"], node(tree)["offset"]) == (2, 70)
    assert commit(store, 71) is None
    assert node(tree)["offset"] == 71


def test_a_claim_whose_answer_was_lost_is_known_when_it_is_opened_again(
    tree: MemoryTree, background: Background
) -> None:
    """The look behind the lost answer fails too, so the opening as a whole is tried again."""
    nodes = LostClaims(tree)
    store = opened(tree, background, nodes=nodes)
    nodes.lose, nodes.blind = True, 1
    with pytest.raises(NodeStoreUnavailable):
        finish(store.open(P, None, "topic-id", lost_from(5, 70)))
    assert finish(store.open(P, None, "topic-id", lost_from(5, 70))).lost == OffsetRange(5, 70)
    assert commit(store, 71) is None


def test_a_first_claim_whose_answer_was_lost_is_not_made_twice(tree: MemoryTree, background: Background) -> None:
    nodes = LostClaims(tree)
    nodes.lose = True
    store = offsets(nodes, background)
    assert finish(store.open(P, None, None, begin_at(5))) == StartDecision(5, Reason.FIRST_EARLIEST)
    assert node(tree)["owner_epoch"] == 1
    assert commit(store, 6) is None


def test_who_took_over_behind_a_lost_answer_is_believed(tree: MemoryTree, background: Background) -> None:
    nodes = LostClaims(tree)
    store = opened(tree, background, nodes=nodes)
    nodes.lose, nodes.blind = True, 1
    with pytest.raises(NodeStoreUnavailable):
        finish(store.open(P, None, "topic-id", begin_at(0)))
    opened(tree, background, "run-2")
    with pytest.raises(Deposed, match="has owner epoch 3"):
        finish(store.open(P, None, "topic-id", begin_at(0)))


def test_a_write_whose_answer_was_lost_is_read_back_before_the_next(tree: MemoryTree, background: Background) -> None:
    nodes = LostAnswers(tree)
    store = opened(tree, background, nodes=nodes)
    nodes.lose = True
    assert isinstance(commit(store, 10), NodeStoreUnavailable)
    assert commit(store, 12) is None
    assert node(tree)["offset"] == 12


def test_a_lost_answer_and_a_new_owner_are_told_apart(tree: MemoryTree, background: Background) -> None:
    nodes = LostAnswers(tree)
    store = opened(tree, background, nodes=nodes)
    nodes.lose = True
    commit(store, 10)
    opened(tree, background, "run-2")
    assert isinstance(commit(store, 12), Deposed)
    assert node(tree)["offset"] == 10


class Contended(MemoryNodeStore):
    """Somebody else writes between this one's look and its write, ``times`` times."""

    times = 0

    def get(self, path: str, changed: Any = None, *, fresh: bool = False) -> tuple[bytes, int] | None:
        found = super().get(path, changed, fresh=fresh)
        if found is not None and self.times:
            self.times -= 1
            super().set(path, found[0].replace(b'"owner_epoch":1', b'"owner_epoch":5'), found[1])
        return found


def test_a_claim_that_lost_the_race_claims_above_the_winner(tree: MemoryTree, background: Background) -> None:
    opened(tree, background)
    nodes = Contended(tree)
    nodes.times = 1
    opened(tree, background, "run-2", nodes)
    assert node(tree)["owner_epoch"] == 6


def test_a18_of_eight_claims_made_at_once_one_writes_and_all_others_are_told(tree: MemoryTree) -> None:
    """Each claims the same node, and each writes under what it claimed."""
    count = 8
    barrier = threading.Barrier(count)
    threads = [Background(f"run-{number}", lambda: None) for number in range(count)]

    def start(number: int) -> ZooKeeperOffsets:
        barrier.wait()
        return opened(tree, threads[number], f"run-{number}")

    try:
        with ThreadPoolExecutor(count) as pool:
            stores = list(pool.map(start, range(count)))
            told = list(pool.map(lambda pair: commit(pair[1], 100 + pair[0]), enumerate(stores)))
    finally:
        for thread in threads:
            thread.close()
    (winner,) = (number for number, error in enumerate(told) if error is None)
    assert node(tree)["offset"] == 100 + winner and node(tree)["topology"]["id"] == f"run-{winner}"
    assert node(tree)["owner_epoch"] == count, "each claim is above the one before it"
    for error in told:
        assert error is None or (isinstance(error, Deposed) and f"owner epoch {count}" in error.message)


def test_a_node_deleted_while_running_stops_the_spout(tree: MemoryTree, background: Background) -> None:
    store = opened(tree, background)
    MemoryNodeStore(tree).delete(PATH)
    told = commit(store, 9)
    assert told is not None
    assert not told.retriable and PATH in told.message, told.message
    assert MemoryNodeStore(tree).get(PATH) is None


class Slow(MemoryNodeStore):
    """Answers writes when it is told to."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.held: list[tuple[Future[int], Future[int]]] = []

    def set_async(self, path: str, data: bytes, version: int) -> Future[int]:
        held: Future[int] = Future()
        self.held.append((held, super().set_async(path, data, version)))
        return held


def test_a_commit_of_an_earlier_claim_changes_nothing_of_the_later_one(
    tree: MemoryTree, background: Background
) -> None:
    """The answer is for the claim that was written by, and for nothing that came after it."""
    nodes = Slow(tree)
    store = opened(tree, background, nodes=nodes)
    activity = Activity(store.commit({P: CommitPosition(5)}))
    assert not activity.poll()
    finish(store.open(P, None, None, begin_at(0)))
    held, written = nodes.held.pop()
    held.set_result(written.result())
    assert activity.poll() and activity.take() == {P: None}
    nodes.held.clear()
    later = Activity(store.commit({P: CommitPosition(6)}))
    assert not later.poll()
    store.release(P)
    held, written = nodes.held.pop()
    held.set_result(written.result())
    assert later.poll() and later.take() == {P: None}
    assert node(tree)["offset"] == 6


def restored(tree: MemoryTree, fields: dict[str, Any]) -> None:
    """Let the node be what it was once, as after a restore from a backup."""
    nodes = MemoryNodeStore(tree)
    nodes.delete(PATH)
    nodes.create(PATH, json.dumps(fields).encode())


def test_d11_commits_go_on_over_an_older_commit_that_a_restore_brought_back(
    tree: MemoryTree, background: Background
) -> None:
    store = opened(tree, background)
    assert commit(store, 7) is None
    before = node(tree)
    assert commit(store, 9) is None and commit(store, 11) is None
    restored(tree, before)
    assert isinstance(commit(store, 12), NodeStoreUnavailable)  # the version is another; the round after it writes
    assert commit(store, 13) is None
    assert node(tree)["offset"] == 13


def test_d11_a_node_older_than_the_claim_is_a_restore_and_no_other_owner(
    tree: MemoryTree, background: Background
) -> None:
    assert commit(opened(tree, background, "run-0"), 7) is None
    before = node(tree)
    store = opened(tree, background)
    assert commit(store, 9) is None
    restored(tree, before)
    outcome = commit(store, 10)
    assert isinstance(outcome, UnusableOffset) and "restore of the ensemble from a backup" in outcome.message
    assert node(tree) == before, "nothing was overwritten"


class Lagging(LostAnswers):
    """Its server has not heard of what was written since; what must be fresh, it asks its leader for."""

    heard: tuple[bytes, int] | None = None

    def get(self, path: str, changed: Any = None, *, fresh: bool = False) -> tuple[bytes, int] | None:
        return super().get(path, changed) if fresh or self.heard is None else self.heard


def test_d5_a_server_that_lags_makes_no_owner_believe_in_a_restore(tree: MemoryTree, background: Background) -> None:
    """As after a lost session, whose client may come to any server: it answers as it was before our claim."""
    opened(tree, background, "run-0")
    nodes = Lagging(tree)
    before = nodes.get(PATH)
    store = opened(tree, background, nodes=nodes)
    nodes.heard, nodes.lose = before, True
    assert isinstance(commit(store, 9), NodeStoreUnavailable)
    assert commit(store, 10) is None
    assert node(tree)["offset"] == 10


def test_d5_a_server_that_lags_makes_no_start_believe_in_a_loss(tree: MemoryTree, background: Background) -> None:
    """Its log begins above the offset that the server still has, and below the one that is stored."""

    def decide(stored: StoredOffset | None) -> Steps[StartDecision]:
        yield from ()
        assert stored is not None
        if stored.offset < 40:
            raise OffsetsLost(P, OffsetRange(stored.offset, 40), "gone")
        return StartDecision(stored.offset, Reason.STORED)

    former = opened(tree, background)
    nodes = Lagging(tree)
    nodes.heard = nodes.get(PATH)
    assert commit(former, 42) is None
    store = offsets(nodes, background, "run-2")
    assert finish(store.open(P, None, "topic-id", decide)).offset == 42
    assert node(tree)["owner_epoch"] == 2
    assert commit(store, 39) is None
    with pytest.raises(OffsetsLost):
        finish(offsets(nodes, background, "run-3").open(P, None, "topic-id", decide))


def test_a_task_that_was_away_finds_that_another_one_had_its_partitions_meanwhile(
    tree: MemoryTree, background: Background
) -> None:
    """Looked at once for each right to emit, and not again for the one it was opened under."""
    place = Place()
    mine = offsets(MemoryNodeStore(tree), background, place=place)
    finish(mine.open(P, None, None, begin_at(5)))
    finish(offsets(MemoryNodeStore(tree), background, "run-2").open(P, None, None, begin_at(5)))
    finish(mine.check())
    place.grant = object()
    with pytest.raises(Deposed, match="owner epoch 2"):
        finish(mine.check())


def test_a_task_that_was_away_and_not_missed_keeps_its_partitions(tree: MemoryTree, background: Background) -> None:
    place = Place()
    mine = offsets(MemoryNodeStore(tree), background, place=place)
    finish(mine.open(P, None, None, begin_at(5)))
    place.grant = object()
    finish(mine.check())
    assert finish(mine.commit({P: CommitPosition(9)})) == {P: None}


def test_nothing_is_read_before_the_run_has_the_topic(tree: MemoryTree, background: Background) -> None:
    place = Place()
    place.grant = None
    opening = Activity(offsets(MemoryNodeStore(tree), background, place=place).open(P, None, None, begin_at(5)))
    assert not opening.poll() and PATH not in tree.nodes
    place.grant = object()
    while not opening.poll():
        pass
    assert opening.take().offset == 5


# -- several topics --------------------------------------------------------------------------------------------------


def of_several(tree: MemoryTree, background: Background) -> ZooKeeperOffsets:
    owner = Owner("run-2", "words")
    return ZooKeeperOffsets(
        MemoryNodeStore(tree), background, "/streamlet/demo", owner, "zk:2181", Place(), several=True
    )


def test_of_several_topics_each_has_nodes_of_its_own(tree: MemoryTree, background: Background) -> None:
    store = of_several(tree, background)
    for topic, offset in (("lines", 5), ("words", 7)):
        finish(store.open(Partition(topic, 0), None, None, begin_at(offset)))
    rows = {path: json.loads(tree.nodes[path][0]) for path in tree.nodes if path.endswith("partition_0")}
    assert {path: (row["topic"], row["offset"]) for path, row in rows.items()} == {
        "/streamlet/demo/lines/partition_0": ("lines", 5),
        "/streamlet/demo/words/partition_0": ("words", 7),
    }
    assert "node /streamlet/demo/lines/partition_0" in store.where(P)


def test_what_a_spout_of_one_topic_has_stored_is_taken_over_by_one_of_several(
    tree: MemoryTree, background: Background
) -> None:
    """Read again it would be without that; and passed over with start_offset="latest"."""
    commit(opened(tree, background), 41)
    store = of_several(tree, background)
    assert finish(store.open(P, None, "topic-id", begin_at(0))) == StartDecision(41, Reason.STORED)
    assert finish(store.open(Partition("words", 0), None, None, begin_at(3))).offset == 3
    assert commit(store, 60) is None
    assert node(tree)["offset"] == 41
    again = of_several(tree, background)
    assert finish(again.open(P, None, "topic-id", begin_at(0))).offset == 60


def test_a_topic_with_the_name_of_the_owners_node_is_refused(tree: MemoryTree, background: Background) -> None:
    with pytest.raises(TopicInTheWay, match="the node /streamlet/demo/owners names the tasks that read"):
        finish(of_several(tree, background).open(Partition("owners", 0), None, None, begin_at(0)))
