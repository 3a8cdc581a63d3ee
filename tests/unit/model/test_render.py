"""Drawings: what a person reads at once, and what programs parse."""

from typing import Any

from streamlet import Bolt, Grouping, Spout, Stream, Topology
from streamlet.model import render
from streamlet.model.plan import make_plan


class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self) -> None: ...


class Sort(Bolt):
    outputs = [Stream(["word"]), Stream(["line", "why"], name="errors")]

    def process(self, tup: Any) -> None: ...


class Count(Bolt):
    outputs = ["word", "count"]

    def process(self, tup: Any) -> None: ...


class Report(Bolt):
    def process(self, tup: Any) -> None: ...


class Drawn(Topology):
    lines = Lines.spec()
    sort = Sort.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={sort: Grouping.fields("word")}, par=3)
    report = Report.spec(inputs={count: Grouping.GLOBAL, sort["errors"]: Grouping.ALL})


def test_the_tree_is_drawn_from_the_spouts_down() -> None:
    """The tree goes from spouts down; what is read from two sides is drawn once."""
    assert render.text(Drawn.__topology__) == (
        "lines ×1 (Lines)\n"
        "└─ [line] shuffle ─▶ sort ×2 (Sort)\n"
        "    ├─ [word] fields(word) ─▶ count ×3 (Count)\n"
        "    │   └─ [word, count] global ─▶ report ×1 (Report)\n"
        "    └─ errors[line, why] all ─▶ report (above)\n"
    )


def test_the_tree_can_be_drawn_in_plain_ascii() -> None:
    drawn = render.text(Drawn.__topology__, render.ASCII)
    assert drawn.isascii()
    assert "|- [word] fields(word) -> count x3 (Count)" in drawn


def test_a_circle_is_drawn_once_round() -> None:
    """A circle is drawn once round."""

    class Round(Topology):
        one = Lines.spec()
        two = Lines.spec()
        sort = Sort.spec(inputs=["one", "two", "count"])
        count = Count.spec(inputs=["sort"])

    assert render.text(Round.__topology__) == (
        "one ×1 (Lines)\n"
        "└─ [line] shuffle ─▶ sort ×1 (Sort)\n"
        "    └─ [word] shuffle ─▶ count ×1 (Count)\n"
        "        └─ [word, count] shuffle ─▶ sort (above)\n"
        "\n"
        "two ×1 (Lines)\n"
        "└─ [line] shuffle ─▶ sort (above)\n"
    )


def test_the_placement_lists_the_tasks_of_each_worker() -> None:
    assert render.placement(make_plan(Drawn.__topology__, 2)) == (
        "worker 0 ── lines #1   sort #3   count #5   report #7\nworker 1 ── sort #2   count #4   count #6\n"
    )


def test_dot_draws_components_and_streams() -> None:
    drawn = render.dot(Drawn.__topology__)
    assert drawn.startswith('digraph "Drawn" {')
    assert '"lines" [shape=house, label="lines ×1\\nLines"];' in drawn
    assert '"sort" -> "report" [label="errors[line, why] all"];' in drawn
    assert drawn.count("->") == 4


def test_dot_and_mermaid_escape_what_they_quote() -> None:
    """A field may hold any character; a drawing must stay parseable."""

    class Odd(Topology):
        end = Lines.spec(outputs=['a"b\\c<d>#'])
        report = Report.spec(inputs=[end])

    assert '[label="[a\\"b\\\\c<d>#] shuffle"]' in render.dot(Odd.__topology__)
    assert "a#quot;b\\c#lt;d#gt;#35;" in render.mermaid(Odd.__topology__)


def test_mermaid_draws_components_and_streams() -> None:
    drawn = render.mermaid(Drawn.__topology__)
    assert drawn.splitlines()[:3] == ["flowchart LR", '  c0(["lines ×1"])', '  c1["sort ×2"]']
    assert '  c1 -->|"errors[line, why] all"| c3' in drawn
