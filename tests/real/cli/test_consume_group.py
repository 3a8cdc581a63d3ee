"""``streamlet consume --group``: what is committed when, and when a member of a group is at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer as ConfluentConsumer

from streamlet.devcluster import DevCluster
from tests.command_line import Consume
from tests.patience import PATIENCE_S


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
