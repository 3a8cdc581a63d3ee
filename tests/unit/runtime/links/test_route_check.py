"""Runs that the plan has no route for are refused, whoever tagged them."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, Spout, Stream, Topology
from streamlet.model.plan import make_plan
from streamlet.runtime.links.route_check import RouteCheck
from streamlet.runtime.links.wire import BadFrame
from streamlet.runtime.tasks.emitter import Incoming, Run
from streamlet.tracking.census import Answer


class Numbers(Spout):
    outputs = [Stream(["n", "m"]), Stream(["x"], name="other")]

    def next_tuple(self) -> None: ...


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


class Pair(Topology):
    numbers = Numbers.spec(par=2)
    sink = Sink.spec(inputs=[numbers], par=2)


FIRST_SPOUT, SECOND_SPOUT, FIRST_SINK, SECOND_SINK = 1, 2, 3, 4
"""On two workers: 1 and 3 on worker 0, 2 and 4 on worker 1."""


def incoming(source: int, target: int, stream: str, *values: list[Any], worker: int = 0) -> Incoming:
    ones = [1] * len(values)
    return Incoming([Run(target, source, stream, False, ones, ones, list(values))], [], [], [], None, worker)


@pytest.fixture
def expected() -> RouteCheck:
    return RouteCheck(make_plan(Pair.__topology__, 2), 1)


def test_what_the_plan_routes_here_is_let_in(expected: RouteCheck) -> None:
    """Empty runs too."""
    expected.check(incoming(FIRST_SPOUT, SECOND_SINK, "default", [1, 2], [3, 4]))
    expected.check(incoming(FIRST_SPOUT, SECOND_SINK, "default"))


@pytest.mark.parametrize(
    "wrong",
    [
        incoming(FIRST_SPOUT, SECOND_SPOUT, "default", [1, 2]),
        incoming(FIRST_SPOUT, FIRST_SINK, "default", [1, 2]),
        incoming(FIRST_SPOUT, SECOND_SINK, "other", [1]),
        incoming(FIRST_SPOUT, SECOND_SINK, "no such", [1, 2]),
        incoming(FIRST_SINK, SECOND_SINK, "default", [1, 2]),
        incoming(SECOND_SPOUT, SECOND_SINK, "default", [1, 2]),
        incoming(FIRST_SPOUT, SECOND_SINK, "default", [1, 2], worker=1),
        incoming(0, SECOND_SINK, "default", [1, 2]),
        incoming(-1, SECOND_SINK, "default", [1, 2]),
        incoming(99, SECOND_SINK, "default", [1, 2]),
        incoming(FIRST_SPOUT, 99, "default", [1, 2]),
        incoming(FIRST_SPOUT, SECOND_SINK, "default", [1, 2], [3]),
    ],
    ids=[
        "to a spout", "of another worker", "not read", "not declared", "not a source", "not the sender's",
        "from another worker", "0", "-1", "99", "to 99", "too few fields",
    ],
)  # fmt: skip
def test_what_it_does_not_is_refused(expected: RouteCheck, wrong: Incoming) -> None:
    with pytest.raises(BadFrame):
        expected.check(wrong)
    assert len(expected) <= 1, "what a frame names is not remembered"


@pytest.mark.parametrize(
    "wrong", [{"slowest": SECOND_SINK}, {"held": [[7, SECOND_SINK, 1.0]]}, {"slowest": 99}, {"waiting": {7: 99}}]
)
def test_an_answer_names_tasks_of_its_own_worker_only(expected: RouteCheck, wrong: Any) -> None:
    """A name in a line for the user is looked up by it."""
    answer = Answer(1, 0, 0.0, FIRST_SINK, {}, {}, {}, [[7, FIRST_SINK, 1.0]], 0.0)
    expected.check(Incoming([], [], [], [], worker=0, answer=answer))
    expected.check(Incoming([], [], [], [], worker=0, answer=answer._replace(slowest=0)))
    elsewhere = answer._replace(waiting={7: SECOND_SINK})  # on its way there
    expected.check(Incoming([], [], [], [], worker=0, answer=elsewhere))
    with pytest.raises(BadFrame):
        expected.check(Incoming([], [], [], [], worker=0, answer=answer._replace(**wrong)))
