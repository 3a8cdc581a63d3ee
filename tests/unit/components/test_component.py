"""A component on its own."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, Tuple
from streamlet.components.component import NotRunning


class Twice(Bolt):
    outputs = ["n"]

    def process(self, tup: Tuple) -> None:
        self.emit([2 * tup.values[0]])


def test_outside_a_topology_it_says_how_to_test_it() -> None:
    """And what it says works."""
    bolt = Twice()
    with pytest.raises(NotRunning, match=r"component\.emit = calls\.append"):
        bolt.process(Tuple([1]))
    calls: list[Any] = []
    bolt.emit = calls.append  # type: ignore[method-assign,assignment]
    bolt.process(Tuple([1]))
    assert calls == [[2]]
