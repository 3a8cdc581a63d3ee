"""``streamlet graph``: the drawings of ``model.render``, where they are wanted."""

from __future__ import annotations

from pathlib import Path

READINGS = Path(__file__).parents[3] / "topologies" / "readings.py"


def test_graph_prints_the_tree(streamlet) -> None:
    done = streamlet("graph", READINGS, PYTHONIOENCODING="utf-8")
    assert done.returncode == 0
    assert done.stdout.startswith("Weather: 1 spout, 3 bolts, 6 tasks\n\nreadings ×1 (Readings)\n└─ ")


def test_a_terminal_without_line_characters_gets_ascii(streamlet) -> None:
    assert streamlet("graph", READINGS, PYTHONIOENCODING="latin-1").stdout.isascii()


def test_graph_with_workers_prints_the_placement(streamlet) -> None:
    assert "worker 1" in streamlet("graph", READINGS, "--workers", "2").stdout


def test_graph_prints_dot_and_mermaid(streamlet) -> None:
    assert streamlet("graph", READINGS, "--format", "dot").stdout.startswith("digraph")
    assert streamlet("graph", READINGS, "--format", "mermaid").stdout.startswith("flowchart")


def test_an_invalid_topology_is_not_drawn(refused, streamlet) -> None:
    path = streamlet.write("from streamlet import Topology\nclass Empty(Topology): pass\n")
    assert "no components" in refused("graph", path)


def test_workers_belong_to_text(refused) -> None:
    assert "--format text" in refused("graph", READINGS, "--format", "dot", "--workers", "2")
