"""What waits for a coordinator that does not read is bounded, and the newest numbers are the ones that leave."""

from __future__ import annotations

import random

import pytest

from streamlet.runtime.links.wire import pack, unpack
from streamlet.runtime.worker.messages import (
    FROM_WORKER,
    Beat,
    Complaint,
    Event,
    Linked,
    Message,
    State,
    Stopped,
    Unlinked,
    encode,
)
from streamlet.runtime.worker.unsent import LINE_BYTES, UnsentMessages
from tests.seeds import seeds


def put(unsent: UnsentMessages, *messages: Message) -> None:
    for message in messages:
        unsent.put(message, pack(encode(message)))


def taken(unsent: UnsentMessages) -> list[Message]:
    out = []
    while (packed := unsent.take()) is not None:
        raw = unpack(packed)
        out.append(FROM_WORKER[raw.pop("t")](**raw))
    return out


def test_a_newer_number_replaces_an_older_one_and_nothing_else_does() -> None:
    unsent = UnsentMessages()
    put(unsent, Beat({}, [], 1, 1), State(False, False, True, None), Linked(1), Unlinked(1, "a"), Unlinked(2, "b"))
    put(unsent, Linked(2), Beat({}, [], 2, 2), Unlinked(1, "c"), State(True, True, True, None), Stopped([]))
    assert taken(unsent) == [
        Linked(1), Unlinked(2, "b"), Linked(2), Beat({}, [], 2, 2), Unlinked(1, "c"), State(True, True, True, None),
        Stopped([]),
    ]  # fmt: skip
    assert not unsent and unsent.take_left_out() == 0


def test_a_day_of_heartbeats_that_nobody_reads_is_one() -> None:
    unsent = UnsentMessages()
    for second in range(86_400):
        unsent.put(Beat({}, [], second, 0), b"")
    assert len(unsent._waiting) == 1


def test_lines_beyond_their_budget_are_counted() -> None:
    """The first ones stay; the count leaves behind the last of them, and there is room again then."""
    unsent = UnsentMessages()
    line = Event("info", "x" * 1000)
    many = LINE_BYTES // 1000 + 500
    put(unsent, *[line] * many, Complaint("y"), Stopped([]))
    assert unsent.take_left_out() == 0, "lines wait in front of it"
    left = taken(unsent)
    kept = left.count(line)
    assert 0.9 < kept * 1000 / LINE_BYTES <= 1 and left[-1] == Stopped([]) and len(left) == kept + 1
    assert unsent and unsent.take_left_out() == many - kept + 1
    put(unsent, line)
    assert taken(unsent) == [line] and not unsent


@pytest.mark.parametrize("seed", seeds("unsent"))
def test_what_is_not_a_line_is_never_left_out(seed: int) -> None:
    rng = random.Random(seed)
    unsent = UnsentMessages()
    given, got = [], []
    for number in range(3000):
        message: Message = Event("info", "z" * rng.randrange(10_000)) if rng.random() < 0.9 else Linked(number)
        put(unsent, message)
        given.append(message)
        assert unsent._line_bytes <= LINE_BYTES
        if rng.random() < 0.02:
            got += taken(unsent)
            unsent.take_left_out()
    got += taken(unsent)
    assert [m for m in got if isinstance(m, Linked)] == [m for m in given if isinstance(m, Linked)]
    assert unsent._line_bytes == 0
