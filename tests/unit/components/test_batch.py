"""The batch that a bolt receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamlet import BadInput, Batch, BatchingBolt, Bolt, TopologyContext, Tuple
from streamlet.testing import BoltTester


def test_a_batch_gives_a_column_by_field_name_or_index_and_its_tuples() -> None:
    batch = Batch([["a", 1], ["b", 2]], "lines", "default", 4, ("word", "n"))
    assert batch.values("word") == ["a", "b"]
    assert batch.values("n") == batch.values(1) == [1, 2]
    assert [tup.values for tup in batch] == [["a", 1], ["b", 2]]
    assert len(batch) == 2 and batch.tuples is batch.tuples
    with pytest.raises(BadInput, match=r"no field 'wort'. It has: 'word', 'n'"):
        batch.values("wort")
    with pytest.raises(BadInput, match="no field 2"):
        batch.values(2)


def test_columns_become_an_arrow_table_with_the_names_of_the_fields() -> None:
    pytest.importorskip("pyarrow")
    made = Batch([["a", 1], ["b", None]], "lines", "default", 4, ("word", "n")).arrow()
    assert made.to_pydict() == {"word": ["a", "b"], "n": [1, None]}


class Upper(Bolt):
    outputs = ["word"]
    on_batch_error = "split"

    def process_batch(self, batch: Batch) -> None:
        self.emit_many([[word.upper()] for word in batch.values("word")])


def test_a_tester_gives_batches() -> None:
    with BoltTester(Upper, sources={"words": ["word"]}, raise_errors=False) as tester:
        tester.give(["a"], ["b"], [None], ["c"])
        assert sorted(tester.acked) == [["a"], ["b"], ["c"]]
        assert tester.failed == [[None]]
        assert [raised.values for raised in tester.errors] == [[[None]]]


def test_a_bolt_takes_batches_where_it_defines_process_batch_but_not_pystorms() -> None:
    class Tuples(Bolt):
        def process(self, tup: Tuple) -> None: ...

    class Keyed(BatchingBolt):
        def process_batch(self, key: str, tups: list[Tuple]) -> None: ...

    assert (Upper.takes_batches(), Tuples.takes_batches(), Keyed.takes_batches()) == (True, False, False)


class Emits(Bolt):
    """Emits a word for each batch, then does what its config says."""

    outputs = ["word"]
    auto_ack = False

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.does = conf["does"]
        self.kept: list[Batch] = []

    def process_batch(self, batch: Batch) -> None:
        self.kept.append(batch)
        self.emit(["x"], anchors=batch if self.does == "ack" else self.kept[0])
        if self.does == "raise":
            raise ValueError("at fault")
        if self.does == "fail":
            for tup in batch:
                self.fail(tup)
        if self.does == "ack":
            self.ack(batch)


@pytest.mark.parametrize(
    ("does", "acked", "failed"),
    [("raise", [], [["a"], ["b"], ["c"]]), ("fail", [], [["a"], ["b"], ["c"]]), ("keep", [], []),
     ("ack", [["a"], ["b"], ["c"]], [])],
)  # fmt: skip
def test_a_tester_says_acked_of_what_the_bolt_has_acked_and_of_nothing_else(
    does: str, acked: list[Any], failed: list[Any]
) -> None:
    """What was emitted for a batch leaves as a delta of its trees, whatever becomes of the batch."""
    with BoltTester(Emits, conf={"does": does}, raise_errors=False) as tester:
        tester.give(["a"], ["b"])
        tester.give(["c"])
        assert (sorted(tester.acked), sorted(tester.failed)) == (acked, failed)


def test_what_was_withdrawn_was_not_emitted() -> None:
    class Doubtful(Upper):
        def process_batch(self, batch: Batch) -> None:
            super().process_batch(batch)
            if len(batch) > 1:
                raise ValueError("not alone")

    with BoltTester(Doubtful, sources={"words": ["word"]}) as tester:
        tester.give(["a"], ["b"])
        assert sorted(tester.emitted()) == [["A"], ["B"]] and sorted(tester.acked) == [["a"], ["b"]]


def test_a_column_that_arrow_does_not_take_is_named() -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(BadInput, match=r"The field 'n' of the stream 'default' of lines cannot be a column of arrow"):
        Batch([["a", 1], ["b", "c"]], "lines", "default", 4, ("word", "n")).arrow()
