"""A component on its own."""

from __future__ import annotations

import pytest

from streamlet import Bolt, Tuple
from streamlet.components.component import NotRunning
from streamlet.testing import BoltTester


class Twice(Bolt):
    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        self.emit([2 * tup.values[0]])


def test_outside_a_topology_it_says_how_to_test_it() -> None:
    """And what it says works; so does a mock in place of the method, as with pystorm."""
    with pytest.raises(NotRunning, match=r"streamlet\.testing\.BoltTester .*`streamlet docs testing`"):
        Twice().process(Tuple([1]))
    with BoltTester(Twice) as twice:
        twice.give(1)
        assert twice.emitted() == [[2]]
    bolt, calls = Twice(), []
    bolt.emit = calls.append  # type: ignore[method-assign,assignment]  # a list's append
    bolt.process(Tuple([1]))
    assert calls == [[2]]


def test_a_level_that_log_does_not_know_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    made = Bolt()
    with caplog.at_level("INFO"):
        made.log("one", level="verbosely")
        made.log("two", level="verbosely")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "no level 'verbosely'" in caplog.records[0].getMessage() and "debug" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        ((), {"rdb_signal": None}, r"rdb_signal: no signal starts a debugger: .*breakpoint\(\).*migrating-from-stream"),
        ((), {"serializer": "json"}, "serializer: no messages to Storm"),
        ((None, None), {}, "input_stream: nothing is read from Storm.*output_stream: nothing is written to Storm"),
        ((), {"typo": 1}, r"^Twice\(\) takes no arguments\. Call super\(\)\.__init__\(\) with none"),
    ],
)
def test_what_pystorms_constructor_takes_is_answered(given: tuple[None], named: dict[str, object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Twice(*given, **named)


def test_a_constructor_beside_the_components_gets_its_arguments() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    class Both(Bolt, Named):
        pass

    assert Both("a").name == "a" == Both(name="a").name
    assert not vars(Twice())
