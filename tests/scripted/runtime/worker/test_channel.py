"""The channel to the coordinator: what a user's code can put on it harms nobody."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, pack
from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.worker.channel import LONGEST_TEXT, ChannelClosed, ControlChannel
from streamlet.runtime.worker.messages import Beat, Event, Linked, LinkLost, Raw, State, Unlinked


def test_a_line_of_any_length_is_cut_and_not_refused() -> None:
    """The other end would close the channel at a message beyond its limit, and the worker would be replaced."""
    ours, theirs = (ControlChannel.inherited(sock) for sock in socket.socketpair())
    try:
        ours.send(Event("info", "x" * (MAX_CONTROL_FRAME + 1), 0.0))
        messages = []
        while not messages:
            messages = theirs.receive()
        assert len(messages[0]["text"]) < LONGEST_TEXT + 100
        assert messages[0]["text"].startswith("xxx") and messages[0]["text"].endswith("characters more)")
    finally:
        ours.close()
        theirs.close()


def test_a_metric_is_a_number_that_travels() -> None:
    """Or is refused where it is reported, not where the heartbeat is sent."""
    stats = TaskStats()
    stats.report_metric("ratio", Decimal("0.5"))  # type: ignore[arg-type]
    assert pack(stats.snapshot()) and stats.metrics == {"ratio": 0.5}
    with pytest.raises(TypeError):
        stats.report_metric("ratio", [1])  # type: ignore[arg-type]


@pytest.fixture
def narrow() -> Iterator[tuple[ControlChannel, ControlChannel]]:
    """Two ends whose sockets hold a few kilobytes."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    ours, theirs = (ControlChannel.inherited(end) for end in ends)
    yield ours, theirs
    ours.close()
    theirs.close()


def heard(ours: ControlChannel, theirs: ControlChannel) -> list[Raw]:
    """Everything that ours has for theirs."""
    out: list[Raw] = []
    while ours.unsent:
        ours.flush()
        out += theirs.last_messages()
    return out + theirs.last_messages()


def test_a_send_that_nobody_reads_waits_for_nothing_and_leaves_no_half_frame(
    narrow: tuple[ControlChannel, ControlChannel],
) -> None:
    """It took two seconds, then half a frame stood in the channel, and nothing behind it could be read."""
    ours, theirs = narrow
    rng = random.Random(4)
    texts = [f"{number} " + "x" * rng.randrange(5000) for number in range(500)]
    for text in texts:
        ours.send(Event("info", text, 0.0))
        ours.send(Beat({}, [], len(text), 0))
    assert ours.unsent
    got = heard(ours, theirs)
    assert [raw["text"] for raw in got if raw["t"] == "event"] == texts
    assert [raw["pending"] for raw in got if raw["t"] == "beat"][-1] == len(texts[-1])


def test_lines_that_were_left_out_are_told_behind_those_that_were_not(
    narrow: tuple[ControlChannel, ControlChannel],
) -> None:
    ours, theirs = narrow
    for _ in range(200):
        ours.send(Event("info", "x" * LONGEST_TEXT, 0.0))
    got = heard(ours, theirs)
    count = 200 - (len(got) - 1)
    assert (
        count > 0 and got[-1]["text"] == f"{count} log lines were left out here: the coordinator did not read in time."
    )
    assert got[-1]["left_out"] == count, "who drops this notice has lost so many lines"


def test_messages_of_many_threads_come_each_threads_in_its_order(narrow: tuple[ControlChannel, ControlChannel]) -> None:
    """No thread waits for another, and a message that found another thread writing is not forgotten."""
    ours, theirs = narrow

    def say(thread: int) -> None:
        for number in range(300):
            ours.send(LinkLost(thread, number, 0, "y" * 100))

    threads = [threading.Thread(target=say, args=(thread,)) for thread in range(8)]
    got: list[Raw] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        got += theirs.last_messages()
    for thread in threads:
        thread.join()
    got += heard(ours, theirs)
    for thread in range(8):
        assert [raw["epoch"] for raw in got if raw["worker"] == thread] == list(range(300))


def test_a_message_sent_in_the_middle_of_a_send_is_no_deadlock(narrow: tuple[ControlChannel, ControlChannel]) -> None:
    """A finalizer that logs runs wherever the interpreter stands, on the thread that has the lock."""
    ours, theirs = narrow
    inner = ours._unsent.put
    sent: list[int] = []

    def putting(*message: Any, **more: Any) -> None:
        if not sent:
            sent.append(1)
            ours.send(Linked(2))
        inner(*message, **more)

    ours._unsent.put = putting  # type: ignore[method-assign]
    ours.send(Linked(1))
    assert [raw["version"] for raw in heard(ours, theirs)] == [1, 2]


def test_the_last_words_are_waited_for_until_they_are_read_or_nobody_is_there(
    narrow: tuple[ControlChannel, ControlChannel],
) -> None:
    ours, theirs = narrow
    for number in range(100):
        ours.send(Event("info", f"{number} " + "x" * 1000, 0.0))
    finishing = threading.Thread(target=ours.finish)
    finishing.start()
    finishing.join(0.2)
    assert finishing.is_alive(), "nobody has read yet"
    got: list[Raw] = []
    while finishing.is_alive():
        got += theirs.last_messages()
    got += theirs.last_messages()
    assert len(got) == 100
    for _ in range(100):
        ours.send(Event("info", "x" * 1000, 0.0))
    theirs.close()
    ours.finish()
    with pytest.raises(ChannelClosed):
        ours.send(Linked(1))


def test_of_numbers_that_replace_each_other_the_newest_leaves(narrow: tuple[ControlChannel, ControlChannel]) -> None:
    ours, theirs = narrow
    while not ours.unsent:
        ours.send(LinkLost(0, 0, 0, "x" * 1000))
    for number in range(3):
        for message in (Beat({}, [], number, 0), Unlinked(1, f"{number}"), Unlinked(2, f"{number}"), Linked(number)):
            ours.send(message)
        ours.send(State(number == 2, False, True, None))
    got = [raw for raw in heard(ours, theirs) if raw["t"] != "link_lost"]
    kinds = [raw["t"] for raw in got]
    assert kinds == ["linked", "linked", "beat", "unlinked", "unlinked", "linked", "state"]
    assert [raw["version"] for raw in got if raw["t"] == "linked"] == [0, 1, 2]
    assert got[2]["pending"] == 2 and got[3]["why"] == got[4]["why"] == "2" and got[6]["drained"]
