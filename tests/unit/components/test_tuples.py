"""Tuples: ids that lead back to them, and values by field name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from streamlet import Bolt, Tuple
from streamlet.components.tuples import tuple_of, tuple_with_names
from streamlet.testing import BoltTester


class ByHand(Bolt):
    """Acks, fails and anchors by id alone."""

    outputs = ["v"]
    auto_ack = False

    def process(self, tup: Tuple) -> None:
        self.emit(["child"], anchors=[tup.id])
        (self.ack if tup.values[0] == "good" else self.fail)(tup.id)


def test_a_tuple_is_acked_and_failed_by_its_id() -> None:
    with BoltTester(ByHand) as tester:
        tester.give("good", "bad")
        assert tester.failed == [["bad"]] and len(tester.emitted()) == 2


def test_an_id_that_is_kept_keeps_its_tuple() -> None:
    """Tuples that nobody keeps are filled again; one whose id is kept is not."""

    class Late(Bolt):
        auto_ack = False

        def initialize(self, conf: object, context: object) -> None:
            self.ids: list[int] = []

        def process(self, tup: Tuple) -> None:
            self.ids.append(tup.id)

        def process_tick(self, tup: Tuple) -> None:
            for tup_id in self.ids:
                self.ack(tup_id)  # type: ignore[arg-type]  # pystorm's users know them as plain ids

    with BoltTester(Late) as tester:
        tester.give("a", "b", "c")
        assert len(set(tester.bolt.ids)) == 3 and tester.acked == []
        tester.tick()
        assert tester.acked == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("wrong", ["17", 17, None])
def test_an_id_that_leads_to_no_tuple_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="leads to no tuple"):
        tuple_of(wrong)  # type: ignore[arg-type]  # what a user passes


def test_values_have_their_fields_as_attributes() -> None:
    """Also a field that is called as a method of lists is; a field that is no identifier has its index."""
    made = tuple_with_names(["word", "count", "user-id"])(["dog", 3, 7], "counter")
    assert (made.values.word, made.values.count, made.values[2]) == ("dog", 3, 7)  # type: ignore[attr-defined]  # by name
    assert list(made.values) == ["dog", 3, 7] and made.component == "counter" and isinstance(made, Tuple)
    assert made.values._asdict() == {"word": "dog", "count": 3, "user-id": 7}  # type: ignore[attr-defined]  # by name
    made.values = ["cat", 4, 8]
    assert made.values.word == "cat"


def test_a_tuple_that_is_unpacked_or_indexed_as_pystorms_says_where_its_parts_are() -> None:
    tup: Any = Tuple(["dog"], "words")
    for look in (lambda: tup[4], lambda: [*tup], lambda: tuple(tup)):
        with pytest.raises(TypeError, match=r"its values are tup\.values, and the rest is tup\.id, tup\.component"):
            look()
    assert not isinstance(tup, Iterable)
