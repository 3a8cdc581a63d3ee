"""Which descriptors of spouts the loop sleeps on, and which spouts it polls."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.runtime.worker.spout_wakeups import SpoutWakeups


class Woken:
    """Spouts of one loop, each with the descriptor that it returns now."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.selector = selectors.DefaultSelector()
        self.wakeups = SpoutWakeups(
            self.selector,
            lambda spout: spout.descriptor,
            lambda task: "lines",
            lambda level, text, component, task: self.told.append(text),
        )
        self.open: list[int] = []

    def pipe(self) -> int:
        ends = os.pipe()
        self.open += ends
        return ends[0]

    def spout(self, descriptor: Any) -> Any:
        made = KnownSpout(descriptor=descriptor, active=True, full=False, task_id=1)
        self.wakeups.add(made)  # type: ignore[arg-type]  # what the loop knows of a spout
        return made

    def watched(self) -> list[int]:
        self.wakeups.watch()
        return [key.fd for key in self.selector.get_map().values()]


class KnownSpout(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]  # a task is itself alone


@pytest.fixture
def woken() -> Iterator[Woken]:
    made = Woken()
    yield made
    made.selector.close()
    for descriptor in made.open:
        os.close(descriptor)


def test_a_spout_without_a_descriptor_is_polled_while_it_may_be_asked(woken: Woken) -> None:
    spout = woken.spout(None)
    assert woken.wakeups.must_poll() and woken.watched() == []
    spout.full = True
    assert not woken.wakeups.must_poll()


def test_a_descriptor_is_watched_while_its_spout_may_be_asked(woken: Woken) -> None:
    spout = woken.spout(woken.pipe())
    assert woken.watched() == [spout.descriptor] and not woken.wakeups.must_poll()
    spout.active = False
    assert woken.watched() == []


def test_what_is_no_descriptor_at_the_start_is_refused_and_a_regular_file_polled(woken: Woken) -> None:
    for wrong in (-1, "pipe"):
        with pytest.raises(ComponentFailed, match="The spout lines returned"):
            woken.spout(wrong)
    with open(__file__) as file:
        woken.spout(file.fileno())
    assert woken.wakeups.must_poll()


def test_the_next_connections_descriptor_is_watched_from_the_next_look_on(woken: Woken) -> None:
    spout = woken.spout(woken.pipe())
    woken.watched()
    spout.descriptor = woken.pipe()
    woken.wakeups.renew()
    assert woken.watched() == [spout.descriptor]


def test_a_descriptor_that_cannot_be_watched_any_more_is_asked_for_at_once_told_once_and_polled(woken: Woken) -> None:
    spout = woken.spout(woken.pipe())
    spout.active = False
    woken.watched()
    gone, spout.active, spout.descriptor = spout.descriptor, True, woken.pipe()
    for end in woken.open[:2]:
        os.close(end)
    del woken.open[:2]
    assert woken.watched() == [spout.descriptor] != [gone] and woken.told == []
    spout.descriptor = -1
    for _ in range(2):
        woken.wakeups.renew()
        assert woken.watched() == [] and woken.wakeups.must_poll()
    (told,) = woken.told
    assert "The spout lines (task 1) returned -1 from fileno" in told and "each millisecond" in told


def test_a_spout_between_two_connections_has_none_and_is_polled(woken: Woken) -> None:
    spout = woken.spout(woken.pipe())
    spout.descriptor = None
    woken.wakeups.renew()
    assert woken.watched() == [] and woken.wakeups.must_poll() and woken.told == []
