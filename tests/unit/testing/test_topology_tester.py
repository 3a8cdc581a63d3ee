"""A topology in a test: lists in, what its components did out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from streamlet import (
    Backoff,
    BadInput,
    BatchingBolt,
    Topology,
    Tuple,
)
from streamlet.testing import Emitted, TopologyTester
from tests.unit.testing.tested import Flaking, Flaky, Hold, Lines, Words


def test_a_topology_runs_on_a_list_in_place_of_its_spout(tmp_path: Path) -> None:
    out = tmp_path / "counts"
    with TopologyTester(Words, {"lines": ["to be", "or not to be"]}, settings={"out": str(out)}) as words:
        assert words.emitted("lines") == []  # nothing flows before it is run
        words.run()
        assert words.acked("lines") == [["to be"], ["or not to be"]] and words.open_trees == 0
        assert sorted(words.emitted("split")) == sorted([[word] for word in ["to", "be", "or", "not", "to", "be"]])
        assert ["to", 2] in words.emitted("count")
        assert words.instances("count")[0].counts == {"to": 2, "be": 2, "or": 1, "not": 1}
        assert words.status("count").executed == 6 and words.status("count").metrics == {"words": 4.0}
        words.give("lines", "to", stream="default")
        assert words.instances("count")[0].counts["to"] == 3
    assert "'to': 3" in out.read_text()


def test_a_replay_comes_when_the_clock_has_moved() -> None:
    with TopologyTester(Flaking, {"lines": ["once", "fine"]}, raise_errors=False) as flaking:
        flaking.run()
        assert flaking.failed("lines") == [["once"]] and flaking.acked("lines") == [["fine"]]
        flaking.advance(0.09)
        assert len(flaking.emitted("lines")) == 2  # its back-off is 0.1 s
        flaking.advance(0.05)
        assert flaking.acked("lines") == [["fine"], ["once"]] and len(flaking.emitted("lines")) == 3


def test_a_row_is_given_up_after_its_replays() -> None:
    with TopologyTester(Flaking, {"lines": ["never"]}, raise_errors=False, max_fails=2) as flaking:
        flaking.advance(10)
        assert flaking.failed("lines") == [["never"]] * 3 and flaking.given_up("lines") == [["never"]]
        assert flaking.status("lines").given_up == 1 and flaking.open_trees == 0
        assert len(flaking.errors) == 3


def test_the_reason_of_each_failure_of_a_row_is_kept() -> None:
    with TopologyTester(Flaking, {"lines": ["once", "fine"]}, raise_errors=False) as flaking:
        flaking.run()
        assert flaking.failed("lines") == [["once"]]
        assert flaking.fail_reasons("lines") == ["ConnectionError: once"]


def test_a_row_is_given_up_as_its_spout_would() -> None:
    class Once(Lines):
        max_fails = 1
        replay_backoff = Backoff(initial=5.0, maximum=5.0)

    class FlakingOnce(Topology):
        lines = Once.spec()
        flaky = Flaky.spec(inputs=[lines])

    with TopologyTester(FlakingOnce, {"lines": ["never"]}, raise_errors=False) as flaking:
        flaking.advance(4.9)
        assert len(flaking.failed("lines")) == 1
        flaking.advance(100)
        assert len(flaking.failed("lines")) == 2 and flaking.given_up("lines") == [["never"]]


def test_an_error_in_a_topology_is_raised() -> None:
    with TopologyTester(Flaking, {"lines": ["once"]}) as flaking:
        with pytest.raises(ConnectionError, match="once"):
            flaking.run()
        flaking.advance(1)
        assert flaking.acked("lines") == [["once"]]


class Swallowing(Topology):
    lines = Lines.spec()
    hold = Hold.spec(inputs=[lines])


def test_a_swallowed_tuple_times_out_on_the_testers_clock() -> None:
    settings = {"topology.message.timeout.secs": 10}
    with TopologyTester(Swallowing, {"lines": ["a"]}, settings=settings, max_fails=0) as swallowing:
        swallowing.advance(9)
        assert swallowing.open_trees == 1 and swallowing.failed("lines") == []
        swallowing.advance(6)
        assert swallowing.failed("lines") == swallowing.given_up("lines") == [["a"]]
        assert swallowing.fail_reasons("lines") == ["it took longer than topology.message.timeout.secs"]


def test_one_seed_gives_one_run() -> None:
    def run(seed: int) -> list[Emitted]:
        with TopologyTester(Words, {"lines": ["a b c"] * 5}, seed=seed, settings={"out": os.devnull}) as words:
            words.run()
            return words.log

    assert run(7) == run(7)


def test_names_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match=r"Words has no spout 'line'\. It has: lines"):
        TopologyTester(Words, {"line": []})
    with TopologyTester(Words, {"lines": []}, settings={"out": os.devnull}) as words:
        with pytest.raises(BadInput, match="Words has no component 'splitt'"):
            words.emitted("splitt")
        with pytest.raises(BadInput, match="count is a bolt"):
            words.acked("count")
        with pytest.raises(ValueError, match="cannot go back"):
            words.advance(-1)
        with pytest.raises(BadInput, match="was not given as a list"):
            words.give("other", 1)
        with pytest.raises(BadInput, match="split declares no stream 'nosuch'"):
            words.emitted("split", "nosuch")
        with pytest.raises(BadInput, match="lines declares no stream 'nosuch'"):
            words.give("lines", 1, stream="nosuch")


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("Words",), {}, "TopologyTester takes a class that inherits"),
        ((Words(),), {}, "TopologyTester takes a class that inherits"),
        ((Words, {"lines": "abc"}), {}, "rows of 'lines' are 'abc'"),
        ((Words, {"lines": 3}), {}, "rows of 'lines' are 3"),
        ((Words, {"lines": [Tuple([1], stream="nosuch")]}), {}, "lines declares no stream 'nosuch'"),
        ((Words, ["lines"]), {}, r"given= is \['lines'\]"),
        ((Words,), {"settings": 3}, "settings= is 3"),
        ((Words,), {"clock": 3}, "clock= is 3"),
    ],
)
def test_what_a_topology_tester_cannot_take_is_refused(arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        TopologyTester(*arguments, **options)


class Batched(BatchingBolt):
    outputs = ["size"]

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        self.emit([len(tups)])


class BatchedWords(Topology):
    lines = Lines.spec()
    batched = Batched.spec(inputs=[lines])


def test_settings_of_a_test_count_before_the_topology_is_judged() -> None:
    """Ticks of the run's, and a period that only the run's time-out allows."""
    settings = {"topology.tick.tuple.freq.secs": 40, "topology.message.timeout.secs": 90}
    with TopologyTester(BatchedWords, {"lines": ["a", "b"]}, settings=settings) as words:
        words.advance(41)
        assert words.emitted("batched") == [[2]]
