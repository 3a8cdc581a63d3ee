"""The batch that a bolt receives."""

from __future__ import annotations

import pytest

from streamlet import BadInput, Batch, BatchingBolt, Bolt, Tuple
from streamlet.testing import BoltTester


def test_columns_tuples_and_fields() -> None:
    batch = Batch([["a", 1], ["b", 2]], "lines", "default", 4, ("word", "n"))
    assert batch.values("word") == ["a", "b"]
    assert batch.values("n") == batch.values(1) == [1, 2]
    assert [tup.values for tup in batch] == [["a", 1], ["b", 2]]
    assert len(batch) == 2 and batch.tuples is batch.tuples
    with pytest.raises(BadInput, match=r"no field 'wort'. It has: 'word', 'n'"):
        batch.values("wort")
    with pytest.raises(BadInput, match="no field 2"):
        batch.values(2)


def test_columns_as_arrow() -> None:
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
