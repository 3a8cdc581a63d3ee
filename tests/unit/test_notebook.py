"""The table of a run: one that is replaced in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.backends.contract import RunStatus
from streamlet.notebook import LiveTable
from tests.unit.cli.statuses import ROWS

PARTITIONS = ({"topic": "t", "partition": 0, "position": 5, "committed": 3, "lag": 2},)
WORKERS = ({"worker": 0, "state": "up", "host": "node7", "executor": "3"},)


def at(state: str, elapsed_s: float) -> RunStatus:
    return RunStatus(state, elapsed_s, ROWS, partitions=PARTITIONS, workers=WORKERS)


class Handle:
    """What IPython gives for a display that may be replaced."""

    def __init__(self, texts: list[str], text: str) -> None:
        self.texts = texts
        texts.append(text)

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self.texts[-1] = content["text/plain"]


def loaded(monkeypatch: pytest.MonkeyPatch, shell: Any) -> list[str]:
    """An IPython that is imported; what it displays."""
    texts: list[str] = []

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw and display_id
        return Handle(texts, content["text/plain"])

    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return texts


def test_a_notebook_has_one_table_that_is_replaced_with_rates_lag_and_where_workers_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, table = loaded(monkeypatch, SimpleNamespace(kernel=object())), LiveTable()
    table(at("running", 1.0))
    first = [*texts]
    table(at("running", 2.0))
    assert len(texts) == len(first) == 1 and texts != first
    for told in (ROWS[0].name, "per s", "t/0", "executor 3 of node7: worker 0"):
        assert told in texts[0]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_elsewhere_lines_get_rarer_and_the_table_is_the_last_thing(
    shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a script, and in a terminal's IPython, which has no kernel."""
    texts, table = loaded(monkeypatch, shell), LiveTable()
    for second in range(1, 100):
        table(at("running", float(second)))
    lines = capsys.readouterr().out.splitlines()
    assert 5 < len(lines) < 15 and all(ROWS[0].name in line for line in lines)
    table(at("ended", 100.0))
    assert "per s" in capsys.readouterr().out and texts == []
