"""Groups of members with any wishes, and what every share must be."""

from __future__ import annotations

from hypothesis import strategies as st

from streamlet.kafka import TopicPartition
from streamlet.kafka.consumer.assignors import (
    PartitionAssignor,
)
from streamlet.kafka.consumer.assignors.base import Subscription

TOPICS = ["a", "b", "c", "d"]
Shares = dict[str, list[TopicPartition]]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
wishes = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]),
    st.lists(st.sampled_from(TOPICS), unique=True),
    min_size=1,
)
same_wishes = st.tuples(st.integers(1, 7), st.lists(st.sampled_from(TOPICS), unique=True, min_size=1)).map(
    lambda row: {f"m{number}": row[1] for number in range(row[0])}
)


def plain(wanted: dict[str, list[str]]) -> dict[str, Subscription]:
    return {member: Subscription(tuple(topics)) for member, topics in wanted.items()}


def carried(
    assignor: PartitionAssignor, wanted: dict[str, list[str]], owned: Shares, generation: int = 3
) -> dict[str, Subscription]:
    """Subscriptions as members send them that own this."""
    return {
        member: Subscription(
            tuple(topics),
            assignor.user_data(tuple(owned.get(member, ())), generation if member in owned else -1),
            tuple(owned.get(member, ())),
            generation if member in owned else -1,
        )
        for member, topics in wanted.items()
    }


def check_complete(shares: Shares, counts_: dict[str, int], wanted: dict[str, list[str]]) -> None:
    """Every partition that somebody wants has one owner, who wants it; nobody is left out of the answer."""
    given_ = [tp for share in shares.values() for tp in share]
    all_wanted = {topic for topics in wanted.values() for topic in topics}
    there = {TopicPartition(topic, n) for topic in all_wanted for n in range(counts_.get(topic, 0))}
    assert len(given_) == len(set(given_))
    assert set(given_) == there
    assert set(shares) == set(wanted)
    for member, share in shares.items():
        assert all(tp.topic in wanted[member] for tp in share)
