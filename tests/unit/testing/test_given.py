"""Rows that a test gives, and the spout that emits them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from streamlet import (
    BadEmit,
    BadInput,
    Topology,
    Tuple,
)
from streamlet.testing import BoltTester, TopologyTester
from tests.unit.testing.tested import Bill, Greeting, Hold, Lines, Orders, Words


class OrdersWithLetters(Orders):
    @classmethod
    def takes_dead_letters(cls, kwargs: Any) -> bool:
        return True


def test_a_list_keeps_dead_letters_where_its_spout_does() -> None:
    class Billing(Topology):
        orders = OrdersWithLetters.spec()
        bill = Bill.spec(inputs=[orders])

    with TopologyTester(Billing, {"orders": ["Ann", ""]}) as billing:
        billing.run()
        assert billing.dead_letters("orders") == [([""], "no customer")]
        assert billing.given_up("orders") == [[""]] and billing.acked("orders") == [["Ann"]]
        billing.advance(60)
        assert len(billing.emitted("orders")) == 2  # it is not sent again


def test_a_list_refuses_a_dead_letter_where_its_spout_would() -> None:
    class Billing(Topology):
        orders = Orders.spec()
        bill = Bill.spec(inputs=[orders])

    with TopologyTester(Billing, {"orders": [""]}) as billing:
        with pytest.raises(BadEmit, match="the spout orders, which keeps no dead letters"):
            billing.run()
        assert billing.dead_letters("orders") == []


def test_a_given_spout_emits_on_its_other_stream() -> None:
    class Notes(Topology):
        lines = Lines.spec()
        hold = Hold.spec(inputs=[lines["notes"]])

    with TopologyTester(Notes, {"lines": []}) as notes:
        notes.give("lines", "look", stream="notes")
        assert notes.emitted("lines", "notes") == [["look"]] and notes.open_trees == 1


def test_a_tuple_keeps_its_stream_in_a_topology() -> None:
    rows = [Tuple(["a"], stream="notes"), "b"]
    with TopologyTester(Words, {"lines": rows}, settings={"out": os.devnull}) as words:
        words.give("lines", Tuple(["c"], stream="notes"))
        assert words.emitted("lines", "notes") == [["a"], ["c"]] and words.emitted("lines") == [["b"]]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (["ann"], r"The row \['ann'\] has 1 value, and 'people' emits 2 on its stream 'default': user, amount"),
        ("ann", r"The row 'ann' is 1 value"),
        (["ann", 3, 0], r"has 3 values"),
        (Tuple(["ann"]), r"has 1 value"),
        ({"user": "ann", "amount": 3}, r"The row \{.*\} is a dict, which is 1 value.*\[row\['user'\], row\['amount'\]"),
    ],
)
def test_a_row_that_does_not_fit_the_fields_is_refused(row: Any, text: str) -> None:
    with BoltTester(Greeting.greet) as greet:
        with pytest.raises(BadInput, match=text):
            greet.give(["ann", 3], row)
        assert greet.emitted() == []
    with TopologyTester(Greeting, {"people": []}) as greeting:
        with pytest.raises(BadInput, match=text):
            greeting.give("people", row)
        assert greeting.emitted("people") == []
    with pytest.raises(BadInput, match=text):
        TopologyTester(Greeting, {"people": [row]})
