"""``streamlet consume --group``: what is committed when, and when a member of a group is at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from streamlet.devcluster import DevCluster
from tests.command_line import Consume
from tests.patience import PATIENCE_S
from tests.real.cli.test_consume import produce


def test_until_the_end_beside_a_member_that_holds_all(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    """It ends, and says who has the partition."""
    topic, group = make_topic(kafka39), topic_name()
    # The assignor gives the one partition to the member whose id comes first.
    names = {"bootstrap.servers": kafka39.bootstrap_servers, "group.id": group, "client.id": "a"}
    holder = ConfluentConsumer({**names, "partition.assignment.strategy": "range"})
    holder.subscribe([topic])
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            holder.poll(0.1)

    deadline = time.monotonic() + PATIENCE_S
    while not holder.assignment():
        assert time.monotonic() < deadline
        holder.poll(0.1)
    thread = threading.Thread(target=hold)
    thread.start()
    try:
        status, out, err = consume(topic, "--group", group, "--until-end")
    finally:
        over.set()
        thread.join()
        holder.close()
    assert (status, out) == (0, b"")
    assert err == f"Other members of group {group!r} hold every partition of {topic}: none is left here.\n" \
                  f"0 records of {topic}\n"  # fmt: skip


def test_a_group_whose_stored_offset_was_deleted_goes_on_at_the_first_record(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    """Without --from-beginning too: the end is for a group that has stored nothing."""
    topic, group = make_topic(kafka39), topic_name()
    produce(kafka39, topic, [(0, b"%d" % number) for number in range(10)])
    stored = ConfluentConsumer({"bootstrap.servers": kafka39.bootstrap_servers, "group.id": group})
    stored.commit(offsets=[ConfluentPartition(topic, 0, 1)], asynchronous=False)
    stored.close()
    kafka39.delete_records(topic, {0: 4})
    status, out, err = consume(topic, "--group", group, "--max-records", "6")
    assert (status, out.split()) == (0, [b"%d" % number for number in range(4, 10)])
    assert err == f"Records 1 to 3 of {topic}-0 were deleted before they were read: going on at 4.\n" \
                  f"6 records of {topic} from 1 partition\n"  # fmt: skip
