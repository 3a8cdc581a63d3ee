"""Offsets in a ZooKeeper's nodes, read and written from outside, beside spouts."""

from __future__ import annotations

import json

import pytest

from streamlet.base.clock import ManualClock
from streamlet.components.context import TopologyContext
from streamlet.coordination.node_store import NodeStoreError, NodeStoreUnavailable
from streamlet.spouts.kafka.offset_tools.offset_changes import StoredEntry, Wish, changes
from streamlet.spouts.kafka.offset_tools.stored_offsets import (
    ChangeBrokenOff,
    OffsetsMoved,
    StillRunning,
    ZooKeeperOffsetPlace,
    refuse_running,
)
from streamlet.spouts.kafka.ownership.owner_nodes import TaskNode
from streamlet.spouts.kafka.partition import OffsetRange
from streamlet.spouts.kafka.stores.offset_store import StopOffset
from tests.memory_nodes import MemoryNodeStore, MemoryTree

LOGS = {0: OffsetRange(0, 100), 1: OffsetRange(0, 100)}


def place(tree: MemoryTree) -> ZooKeeperOffsetPlace:
    return ZooKeeperOffsetPlace(MemoryNodeStore(tree), "zk:2181", "/root/id", "t", "words")


def write(at: ZooKeeperOffsetPlace, wishes: dict[int, Wish], stored: dict[int, StoredEntry]) -> None:
    at.write(changes("t", "topic-id", wishes, stored, LOGS), "topic-id")


def test_each_write_counts_the_owner_epoch_up_and_says_whose_it_is() -> None:
    tree = MemoryTree()
    at = place(tree)
    write(at, {0: Wish(7, 2, StopOffset(20, "latest"))}, {})
    (entry,) = at.read([0, 1]).values()
    assert entry.stop == StopOffset(20, "latest")
    assert (entry.offset, entry.leader_epoch, entry.topic_id, entry.owner_epoch) == (7, 2, "topic-id", 1)
    assert entry.written_by == "words"
    write(at, {0: Wish(3)}, at.read([0]))
    fields = json.loads(tree.nodes["/root/id/partition_0"][0])
    assert (fields["offset"], fields["owner_epoch"], fields["leader_epoch"]) == (3, 2, -1)
    assert fields["stop"] == {"offset": 20, "asked": "latest"}


def test_a_write_that_came_in_between_is_not_overwritten() -> None:
    """Neither a node that was written, nor one that was made or deleted; the message says how far it came."""
    tree = MemoryTree()
    at = place(tree)
    write(at, {0: Wish(7), 1: Wish(7)}, {})
    stored = at.read([0, 1])
    other = MemoryNodeStore(tree)
    other.set("/root/id/partition_1", b"other", stored[1].version)
    with pytest.raises(OffsetsMoved, match="Partitions 0 were written, 1 were not"):
        write(at, {0: Wish(1), 1: Wish(1)}, stored)
    assert other.get("/root/id/partition_1") == (b"other", 1)
    with pytest.raises(OffsetsMoved, match="Nothing was"):
        write(at, {1: Wish(1)}, {})
    other.delete("/root/id/partition_1")
    with pytest.raises(OffsetsMoved):
        write(at, {1: Wish(1)}, stored)


@pytest.mark.parametrize(
    ("fault", "said", "status"),
    [
        (
            NodeStoreError("No right to write there."),
            r"No right to write there\. Of the offsets in .* 0 were written; 1, 2 were not\.",
            1,
        ),
        (
            NodeStoreUnavailable("No answer."),
            r"No answer\. Of the offsets in .* 0 were written; of 1, 2 it is not known",
            1,
        ),
        (KeyboardInterrupt(), r"Interrupted\. Of the offsets in .* 0 were written; of 1, 2 it is not known", 130),
    ],
)
def test_a_change_that_breaks_off_says_which_partitions_it_wrote(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException, said: str, status: int
) -> None:
    """Whatever breaks it off: a right that is missing, Ctrl-C, a ZooKeeper that is away."""
    create = MemoryNodeStore.create

    def faulty(store: MemoryNodeStore, path: str, data: bytes = b"", **options: bool) -> int:
        if path.endswith("partition_1"):
            raise fault
        return create(store, path, data, **options)

    monkeypatch.setattr(MemoryNodeStore, "create", faulty)
    logs = dict.fromkeys(range(3), OffsetRange(0, 100))
    changed = changes("t", "topic-id", dict.fromkeys(range(3), Wish(7)), {}, logs)
    with pytest.raises(ChangeBrokenOff, match=said) as caught:
        place(MemoryTree()).write(changed, "topic-id")
    assert caught.value.exit_status == status


def test_a_task_is_there_as_long_as_its_session() -> None:
    tree = MemoryTree()
    at, session = place(tree), MemoryNodeStore(tree)
    refuse_running(at)
    context = TopologyContext(
        topology_name="words", topology_id="run-1", component_name="lines", task_id=1, task_index=0, task_count=1,
        clock=ManualClock(),
    )  # fmt: skip
    me = TaskNode.of(context)
    session.create(f"/root/id/owners/{me.name}", me.words("holder"), ephemeral=True)
    with pytest.raises(StillRunning, match="task lines-0 of topology 'words'"):
        refuse_running(at)
    session.close()
    refuse_running(at)


def test_a_node_that_nobody_of_ours_made_counts_as_a_task() -> None:
    tree = MemoryTree()
    MemoryNodeStore(tree).create("/root/id/owners/else", b"[]")
    assert place(tree).running() == ["task else"]


def test_of_several_topics_each_has_offsets_of_its_own_and_those_of_one_topic_before_count() -> None:
    tree = MemoryTree()
    write(place(tree), {0: Wish(7)}, {})
    at = ZooKeeperOffsetPlace(MemoryNodeStore(tree), "zk:2181", "/root/id", "t", "words", several=True)
    other = ZooKeeperOffsetPlace(MemoryNodeStore(tree), "zk:2181", "/root/id", "u", "words", several=True)
    assert at.where == "ZooKeeper zk:2181, /root/id/t"
    assert {number: row.offset for number, row in at.read([0, 1]).items()} == {0: 7} and other.read([0]) == {}
    write(at, {0: Wish(9), 1: Wish(2)}, at.read([0, 1]))
    assert {number: row.offset for number, row in at.read([0, 1]).items()} == {0: 9, 1: 2}
    assert place(tree).read([0])[0].offset == 7
