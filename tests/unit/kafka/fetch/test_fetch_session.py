"""Fetch sessions against a model of the broker's side (KIP-227)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka import TopicPartition
from streamlet.kafka.broker_errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from streamlet.kafka.client.leader_requests import FetchPosition, SessionPart
from streamlet.kafka.fetch.fetch_session import FetchSession

TPS = [TopicPartition(topic, number) for topic in "ab" for number in range(3)]
IDS = {"a": "ida", "b": "idb"}
wanted = st.dictionaries(st.sampled_from(TPS), st.integers(0, 5).map(FetchPosition))
outcomes = st.sampled_from(["good", "good", "good", "lost", "forgot", "wrong epoch", "no session", "evicted"])


class Broker:
    """What a broker remembers."""

    def __init__(self) -> None:
        self.sessions: dict[int, dict[TopicPartition, FetchPosition]] = {}
        self.next_id = 100
        self.epochs: dict[int, int] = {}

    def take(self, part: SessionPart, keep: bool) -> tuple[str, int, dict[TopicPartition, FetchPosition]]:
        """Outcome, session id, and what it would answer for."""
        if part.epoch == 0:
            self.sessions.pop(part.session_id, None)
            if not keep:
                return "good", 0, dict(part.send)
            self.next_id += 1
            self.sessions[self.next_id] = dict(part.send)
            self.epochs[self.next_id] = 1
            return "good", self.next_id, dict(part.send)
        if part.session_id not in self.sessions:
            return "forgot", 0, {}
        if self.epochs[part.session_id] != part.epoch:
            return "wrong epoch", 0, {}
        self.epochs[part.session_id] += 1
        rows = self.sessions[part.session_id]
        rows.update(part.send)
        for tp in part.forget:
            del rows[tp]
        return "good", part.session_id, dict(rows)


@given(st.lists(st.tuples(wanted, outcomes), max_size=20))
def test_c4_the_broker_answers_for_exactly_what_is_wanted(
    rounds: list[tuple[dict[TopicPartition, FetchPosition], str]],
) -> None:
    """Whatever is lost or forgotten on the way: after each good answer both sides hold the same partitions, each from
    the offset wanted. A partition that was not forgotten, or not asked again, is the classic fault here.
    """
    session, broker = FetchSession(), Broker()
    for rows, outcome in rounds:
        if outcome == "evicted":
            broker.sessions.clear()
        part = session.build(rows, IDS)
        assert part.wanted == rows
        taken, session_id, held = broker.take(part, keep=outcome != "no session")
        if outcome == "lost":
            session.lost()
        elif taken == "forgot":
            session.refused(FetchSessionIdNotFound)
        elif taken == "wrong epoch" or outcome == "wrong epoch":
            session.refused(InvalidFetchSessionEpoch)
        else:
            assert held == rows
            session.answered(session_id)


def test_c4_a_second_request_carries_only_what_changed() -> None:
    """Moved, new and gone partitions; nothing when nothing changed."""
    session = FetchSession()
    a0, a1, b0 = TPS[0], TPS[1], TPS[3]
    session.build({a0: FetchPosition(0), a1: FetchPosition(0)}, IDS)
    session.answered(7)
    part = session.build({a0: FetchPosition(5), b0: FetchPosition(0)}, IDS)
    assert (part.session_id, part.epoch) == (7, 1)
    assert part.send == {a0: FetchPosition(5), b0: FetchPosition(0)}
    assert part.forget == (a1,)
    session.answered(7)
    part = session.build({a0: FetchPosition(5), b0: FetchPosition(0)}, IDS)
    assert (part.epoch, part.send, part.forget) == (2, {}, ())


def test_c4_a_topic_made_again_starts_the_session_again() -> None:
    """Its old id would stay in the session."""
    session = FetchSession()
    session.build({TPS[0]: FetchPosition(3)}, IDS)
    session.answered(7)
    part = session.build({TPS[0]: FetchPosition(0)}, {"a": "another"})
    assert (part.session_id, part.epoch) == (7, 0)
    assert part.topic_ids == {"a": "another"}


def test_c4_without_sessions_every_request_is_whole() -> None:
    """enable_fetch_sessions=False."""
    session = FetchSession(enabled=False)
    for _ in range(2):
        part = session.build({TPS[0]: FetchPosition(0)}, IDS)
        assert (part.session_id, part.epoch, part.send) == (0, -1, {TPS[0]: FetchPosition(0)})
        session.answered(0)


def test_a_partition_that_goes_and_comes_back_is_asked_for_again() -> None:
    """Also where the answer to an earlier request comes in between."""
    session, rows = FetchSession(), {TPS[0]: FetchPosition(5), TPS[1]: FetchPosition(5)}
    session.build(rows, IDS)
    session.keep([TPS[0], TPS[1]])
    session.answered(7)
    assert not session.build(rows, IDS).send, "nothing has changed"
    session.keep([TPS[0]])
    session.answered(7)
    part = session.build(rows, IDS)
    assert (part.send, part.session_id, part.epoch) == (rows, 7, 0)
    session.answered(8)
    assert not session.build(rows, IDS).send, "once"
