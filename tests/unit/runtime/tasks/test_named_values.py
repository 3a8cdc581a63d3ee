"""Which bolts get values with names: those whose own file reads one."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, Tuple
from streamlet.runtime.tasks.named_values import tuple_classes
from streamlet.testing import BoltTester

SOURCES = {"words": {"default": ("word", "count")}, "other": {"late": ("why",)}}


class Indexes(Bolt):
    outputs = ["v"]

    def process(self, tup: Tuple) -> None:
        self.emit([tup.values[0]])


class Names(Bolt):
    outputs = ["v"]

    def process(self, tup: Any) -> None:
        self.emit([tup.values.sentence])


class NamesInside(Bolt):
    """In a function within a method."""

    def process(self, tup: Any) -> None:
        self.logger.info("%s", (lambda: tup.values.why)())


class Inherits(Names):
    pass


class Never(Names):
    named_values = False


class Always(Bolt):
    named_values = True

    def process(self, tup: Tuple) -> None: ...


@pytest.mark.parametrize(
    ("cls", "named"),
    [(Names, True), (Inherits, True), (Always, True), (Never, False)],
)
def test_a_bolt_that_names_a_field_gets_names(cls: type[Bolt], named: bool) -> None:
    sources = {"lines": {"default": ("sentence",)}}
    assert bool(tuple_classes(cls, sources)) is named


class NamesByString(Bolt):
    def process(self, tup: Any) -> None:
        self.logger.info("%s", getattr(tup.values, "phrase", None))


def test_a_name_in_a_string_of_getattr_is_a_name() -> None:
    """The list that it would get has no such attribute, and the default would be taken unsaid."""
    assert tuple_classes(NamesByString, {"lines": {"default": ("phrase",)}})
    assert not tuple_classes(NamesByString, {"lines": {"default": ("saying",)}})


def test_each_stream_has_its_own_names() -> None:
    made = tuple_classes(NamesInside, SOURCES)
    assert set(made) == {("words", "default"), ("other", "late")}
    assert made["words", "default"](["dog", 2]).values.count == 2  # type: ignore[comparison-overlap]  # by name


def test_a_bolt_that_indexes_gets_plain_lists() -> None:
    assert tuple_classes(Indexes, {"lines": {"default": ("unused_here",)}}) == {}


@pytest.mark.parametrize("by_hand", [True, False])
def test_process_reads_by_name_and_emits_a_plain_row(by_hand: bool) -> None:
    class Reads(Names):
        auto_ack = not by_hand

        def process(self, tup: Any) -> None:
            super().process(tup)
            self.emit(tup.values)
            if by_hand:
                self.ack(tup)

    with BoltTester(Reads, sources={"lines": ["sentence"]}) as tester:
        tester.give("one", "two", "three")
        assert tester.emitted() == [["one"], ["one"], ["two"], ["two"], ["three"], ["three"]]
        assert tester.acked == [["one"], ["two"], ["three"]]
