"""What members tell one another: Java's bytes, newer versions, and bytes that are none."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka import TopicPartition
from streamlet.kafka.consumer.assignors import StickyAssignor
from streamlet.kafka.consumer.assignors.base import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from streamlet.kafka.errors import MalformedFrame

names = st.text(min_size=1, max_size=5)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 9)), unique=True).map(
    lambda rows: tuple(sorted(rows))
)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, unique=True).map(lambda rows: tuple(sorted(rows))),
    user_data=st.none() | st.binary(max_size=8),
    owned=partitions,
    generation_id=st.integers(-1, 1 << 30),
    rack_id=st.none() | names,
)


@given(subscriptions, partitions)
def test_c5_subscriptions_and_assignments_come_back_equal(row: Subscription, owned: tuple[TopicPartition, ...]) -> None:
    """All fields of the newest version we know."""
    assert decode_subscription(row.encode()) == row
    assert decode_assignment(encode_assignment(owned)) == owned
    assert decode_assignment(b"") == ()


def test_c5_the_bytes_are_javas() -> None:
    """Version, topics, user data, owned partitions, generation, rack; each as the protocol's description has it."""
    row = Subscription(("t",), b"u", (TopicPartition("t", 1), TopicPartition("t", 2)), 5, "r")
    assert row.encode() == (
        b"\x00\x03"
        b"\x00\x00\x00\x01\x00\x01t"
        b"\x00\x00\x00\x01u"
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02"
        b"\x00\x00\x00\x05"
        b"\x00\x01r"
    )
    assert encode_assignment([TopicPartition("t", 1)]) == (
        b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff"
    )


@given(subscriptions)
def test_c5_older_and_newer_versions_are_read(row: Subscription) -> None:
    """Version 0 ends behind the user data; a version to come only adds."""
    newest = row.encode()
    assert decode_subscription(b"\x00\x09" + newest[2:] + b"more") == row
    old = decode_subscription(b"\x00\x00" + newest[2:])
    assert (old.topics, old.user_data, old.owned, old.generation_id) == (row.topics, row.user_data, (), -1)


@given(subscriptions, st.data())
def test_c5_other_bytes_are_a_named_error_or_a_value(row: Subscription, data: st.DataObject) -> None:
    """Another member's bytes are not ours to trust; the leader takes what it cannot read as nothing."""
    raw = bytearray(row.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    for read in (decode_subscription, decode_assignment):
        with contextlib.suppress(MalformedFrame):
            read(bytes(raw))
    StickyAssignor().claim(Subscription(("t",), bytes(raw)))
