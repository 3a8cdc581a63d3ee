"""Rows that stand for the records of a KafkaSpout: tries, pauses, and what becomes of those given up."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import BadInput, Bolt, Topology, Tuple
from streamlet.model.topology import TopologyMeta
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from streamlet.spouts.kafka.errors import PoisonRecord
from streamlet.testing import TopologyTester

LETTERS = {"on_poison": "dead-letter", "dead_letter_topic": "orders-dead"}


class Fails(Bolt):
    """Raises on what is bad, and sends junk to the dead letters at its second try."""

    def initialize(self, conf: Any, context: Any) -> None:
        self.tries = 0

    def process(self, tup: Tuple) -> None:
        self.tries += 1
        if tup.values[0] == b"junk" and self.tries == 2:
            self.dead_letter(tup, "junk")
        if tup.values[0] != b"good":
            raise ValueError("why")


def booking(**config: Any) -> TopologyMeta:
    class Booking(Topology):
        orders = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("nowhere:9092"), topic="orders", id="book", **config))
        book = Fails.spec(inputs=[orders])

    return Booking


def test_a_row_that_stands_for_a_record_is_given_up_after_the_spouts_retry_limit() -> None:
    given = {"orders": [b"good", b"bad"]}
    with TopologyTester(booking(retry_limit=1, **LETTERS), given, raise_errors=False) as tester:
        tester.advance(60)
        assert tester.failed("orders") == [[b"bad"]] * 2 and tester.given_up("orders") == [[b"bad"]]
        (letter,) = tester.dead_letters("orders")
        assert letter == ([b"bad"], "ValueError: why") and letter.tries == 2
        assert tester.status("orders").kept == 1


def test_a_row_that_a_bolt_sends_to_the_dead_letters_has_its_tries() -> None:
    with TopologyTester(booking(**LETTERS), {"orders": [b"junk"]}, raise_errors=False) as tester:
        tester.advance(60)
        (letter,) = tester.dead_letters("orders")
        assert (letter.values, letter.reason, letter.tries) == ([b"junk"], "junk", 2)


def test_a_row_that_is_skipped_leaves_no_letter() -> None:
    with TopologyTester(booking(retry_limit=2, on_poison="skip"), {"orders": [b"bad"]}, raise_errors=False) as tester:
        tester.advance(60)
        assert len(tester.failed("orders")) == 3 and tester.given_up("orders") == [[b"bad"]]
        assert tester.dead_letters("orders") == []


def test_a_row_that_stops_the_run_raises_what_the_run_would() -> None:
    said = r"topic 'orders', partition 0, offset 1 failed 2 times.* more than retry_limit=1 allows; book said .*why"
    with TopologyTester(booking(retry_limit=1), {"orders": [b"good", b"bad"]}, raise_errors=False) as tester:
        tester.run()
        with pytest.raises(PoisonRecord, match=said):
            tester.advance(60)


def test_a_row_without_a_retry_limit_is_tried_without_end() -> None:
    with TopologyTester(booking(retry_limit=0), {"orders": [b"bad"]}, raise_errors=False) as tester:
        tester.advance(600)
        assert len(tester.failed("orders")) > 50 and tester.given_up("orders") == []


def test_a_row_waits_as_long_as_the_spout_lets_records_wait() -> None:
    pauses = {"retry_initial_delay_ms": 3000, "retry_delay_multiplier": 1.0}
    with TopologyTester(booking(**pauses), {"orders": [b"bad"]}, raise_errors=False) as tester:
        tester.advance(2.9)
        assert len(tester.failed("orders")) == 1
        tester.advance(3.2)
        assert len(tester.failed("orders")) == 3


def test_a_test_may_set_another_limit_than_the_spout_has() -> None:
    with TopologyTester(booking(**LETTERS), {"orders": [b"bad"]}, max_fails=0, raise_errors=False) as tester:
        tester.run()
        assert [letter.tries for letter in tester.dead_letters("orders")] == [1]
        assert tester.open_trees == 0


@pytest.mark.parametrize("limit", [-1, "two", True, 1.5])
def test_a_limit_that_cannot_be_is_refused(limit: Any) -> None:
    with pytest.raises(BadInput, match="max_fails= is"):
        TopologyTester(booking(), {"orders": []}, max_fails=limit)
