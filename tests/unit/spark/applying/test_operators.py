"""What Spark calls on executors, called here: a mapped stage, and a keyed one with a state store of ours."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from pyspark import cloudpickle

from streamlet import Batch, BatchingBolt, Bolt, Grouping, StreamId, Topology, Tuple
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.spark.applying import stage_columns
from streamlet.spark.applying.applied_bolt import TupleFailed
from streamlet.spark.applying.operators import KeyedStage, MappedStage, SkippedByBolt
from streamlet.spark.applying.stage_columns import DEAD, DEAD_FIELDS, RowsIn, RowsOut, ValueDoesNotFit
from tests.topologies.counted_words import Count, CountedWords, Lines, Window
from tests.unit.spark.applying.test_chain import job

LINES, ONE = StreamId("lines"), StreamId("one")
TEXT, LONG = pyarrow.string(), pyarrow.int64()
COUNTED = RowsOut((ONE,), (("word", "n"),), pyarrow.schema([("c0", TEXT), ("c1", LONG)]))


class Added:
    """An accumulator of ours."""

    def __init__(self) -> None:
        self.value: dict[str, int] = {}

    def add(self, more: dict[str, int]) -> None:
        SkippedByBolt().addInPlace(self.value, more)


def keyed(cls: type[Bolt], **config: Any) -> Any:
    lines = Lines.spec()
    one = cls.spec(inputs={lines: Grouping.fields("line")}, config=config)
    return type(Topology)("T", (Topology,), {"lines": lines, "one": one})


class Store:
    """A state store with timers, as Spark's: one value a key, under the key that is at work."""

    def __init__(
        self,
        topology: Any,
        on_failed: str = "stop",
        rows_out: RowsOut = COUNTED,
        settings: Mapping[str, Any] = {},
    ) -> None:
        self.topology, self.on_failed, self.rows_out, self.settings = topology, on_failed, rows_out, settings
        self.kept: dict[str, bytes] = {}
        self.timers: dict[tuple[str, int], None] = {}
        self.skipped = Added()

    def batch(self, now_ms: int, **rows: list[str]) -> list[tuple[Any, ...]]:
        """Work off one micro-batch of one partition; return what left."""
        names = tuple(self.rows_out.schema.names)
        rows_in = RowsIn((LINES,), (1,), 1)
        stage = KeyedStage(
            job(self.topology, self.on_failed, settings=self.settings), rows_in, self.rows_out, self.skipped, names
        )
        stage.init(self)
        times = SimpleNamespace(getCurrentProcessingTimeInMs=lambda: now_ms)
        left: list[Any] = []
        for self.key, values in rows.items():
            left += stage.handleInputRows((self.key,), iter([(self.key, values)]), times)
        for timer in [timer for timer in self.timers if timer[1] <= now_ms]:
            self.key = timer[0]
            left += stage.handleExpiredTimer((self.key,), times, None)
            del self.timers[timer]
        stage.close()
        return [tuple(row) for row in left]

    def getValueState(self, name: str, schema: str) -> Store:
        return self

    def registerTimer(self, at_ms: int) -> None:
        self.timers[self.key, at_ms] = None

    def get(self) -> tuple[bytes] | None:
        return (self.kept[self.key],) if self.key in self.kept else None

    def update(self, value: tuple[bytes]) -> None:
        self.kept[self.key] = value[0]

    def clear(self) -> None:
        self.kept.pop(self.key, None)


def test_each_key_goes_on_where_it_was() -> None:
    store = Store(keyed(Count))
    assert store.batch(0, a=["a", "a"], b=["b"]) == [(["a", "a"], [1, 2]), (["b"], [1])]
    assert store.batch(1, b=["b"], a=["a"], c=["c"]) == [(["b"], [2]), (["a"], [3]), (["c"], [1])]
    assert (set(store.kept), store.timers) == ({"a", "b", "c"}, {})


def test_what_the_runtime_gave_the_bolt_is_in_no_state() -> None:
    """Its logger could be pickled, and would be for each key."""
    store = Store(keyed(Count))
    store.batch(0, a=["a"])
    assert b"counts" in store.kept["a"] and b"ogger" not in store.kept["a"]


def test_a_key_that_is_back_where_initialize_left_it_has_no_state_without_a_tick() -> None:
    class Pairs(Count):
        def process(self, tup: Tuple) -> None:
            super().process(tup)
            if self.counts[tup.values[0]] == 2:
                self.counts.clear()

    store = Store(keyed(Pairs))
    assert store.batch(0, a=["a"]) == [(["a"], [1])] and [*store.kept] == ["a"]
    assert store.batch(1, a=["a"]) == [(["a"], [2])] and store.kept == {}
    assert store.batch(2, a=["a"]) == [(["a"], [1])]


def test_a_value_of_another_type_is_named_in_a_stream_too() -> None:
    """Spark itself would name no field; and of a float it would keep the whole part."""

    class Halves(Bolt):
        outputs = ["word", "n"]

        def process(self, tup: Tuple) -> None:
            self.emit([tup.values[0], 1 if tup.values[0] == "a" else 1.5])

    store = Store(keyed(Halves))
    assert store.batch(0, a=["a"]) == [(["a"], [1])]
    with pytest.raises(ValueDoesNotFit, match=r"one emitted 1\.5 \(float\) as field 'n' .* says that it is long"):
        store.batch(1, a=["a"], b=["b"])


def test_a_key_has_a_timer_while_it_has_a_state_and_is_forgotten_at_a_tick_with_nothing() -> None:
    store = Store(keyed(Window))
    assert store.batch(0, a=["a", "a"]) == []
    assert ([*store.timers], [*store.kept]) == ([("a", 500)], ["a"])
    assert store.batch(100, a=["a"]) == []
    assert [*store.timers] == [("a", 500)]
    assert store.batch(700) == [(["a"], [3])]
    assert (store.timers, store.kept) == ({}, {})


def test_ticks_go_on_while_a_bolt_remembers_something() -> None:
    class Ages(Window):
        def process_tick(self, tup: Tuple) -> None:
            self.age = getattr(self, "age", 0) + 1
            if self.age == 2:
                del self.age
                super().process_tick(tup)

    store = Store(keyed(Ages))
    assert store.batch(0, a=["a"]) == store.batch(600) == []
    assert [*store.timers] == [("a", 1100)]
    assert store.batch(1200) == [(["a"], [1])]
    assert (store.timers, store.kept) == ({}, {})


def test_a_bolt_that_remembers_nothing_has_its_tick_all_the_same() -> None:
    class Told(Bolt):
        outputs = ["word", "n"]

        def process(self, tup: Tuple) -> None: ...

        def process_tick(self, tup: Tuple) -> None:
            self.emit(["tick", 1])

    store = Store(keyed(Told, **{"topology.tick.tuple.freq.secs": 1}))
    assert store.batch(0, a=["a"]) == [] and store.kept == {"a": b""}
    assert store.batch(1000) == [(["tick"], [1])]
    assert (store.timers, store.kept) == ({}, {})


def test_a_batching_bolt_keeps_its_tuples_from_one_micro_batch_to_the_next() -> None:
    class Groups(BatchingBolt):
        outputs = ["word", "n"]

        def process_batch(self, key: Any, tups: list[Tuple]) -> None:  # type: ignore[override]
            if tups[0].values[0] == "x":
                raise ValueError("no x")
            self.emit([tups[0].values.line, len(tups)])  # type: ignore[attr-defined]

    store = Store(keyed(Groups, **{"topology.tick.tuple.freq.secs": 1}), "skip")
    assert store.batch(0, a=["a"], x=["x"]) == store.batch(10, a=["a"]) == []
    assert store.batch(1000) == [(["a"], [2])]
    assert (store.skipped.value, store.kept) == ({"one": 1}, {})


def test_a_tuple_that_is_not_acked_with_its_keys_rows_has_failed() -> None:
    class Holds(Count):
        auto_ack = False

    with pytest.raises(TupleFailed, match=r"The bolt one failed on the tuple \['a'\] from lines: it was neither acked"):
        Store(keyed(Holds)).batch(0, a=["a"])


def test_dead_letters_of_a_keyed_stage_leave_beside_its_rows() -> None:
    class Fails(Count):
        def process(self, tup: Tuple) -> None:
            super().process(tup)
            if tup.values[0] == "bad":
                raise ValueError("bad")

    count = pyarrow.struct([("c0", TEXT), ("c1", LONG)])
    dead = pyarrow.struct([(f"c{at}", TEXT) for at in range(len(DEAD_FIELDS))])
    schema = pyarrow.schema([("which", pyarrow.int32()), ("v0", count), ("v1", dead)])
    store = Store(keyed(Fails), "dead-letter", RowsOut((ONE, DEAD), (("word", "n"), DEAD_FIELDS), schema))
    first, second = store.batch(0, a=["a"], bad=["bad"])
    assert first == (0, {"c0": ["a"], "c1": [1]}, None)
    assert second[:2] == (1, None) and second[2]["c2"] == ['{"line": "bad"}']


def mapped(rows: list[list[str]], on_failed: str, skipped: Added) -> list[Any]:
    gives = (StreamId("lower"), StreamId("split", "lengths"))
    kinds = [("v0", pyarrow.struct([("c0", TEXT)])), ("v1", pyarrow.struct([("c0", TEXT), ("c1", LONG)]))]
    schema = pyarrow.schema([("which", pyarrow.int32()), *kinds])
    rows_out = RowsOut(gives, (("word",), ("line", "words")), schema)
    stage = MappedStage(job(CountedWords, on_failed), RowsIn((LINES,), (1,)), rows_out, skipped)
    batches = [pyarrow.RecordBatch.from_pydict({"c0": pyarrow.array(lines, TEXT)}) for lines in rows]
    return [row for batch in stage(batches) for row in batch.to_pylist()]


def test_a_mapped_stage_gives_batches_and_counts_what_it_skips() -> None:
    skipped = Added()
    left = mapped([["A b", "bad"], [], ["C"]], "skip", skipped)
    assert [row["v0"]["c0"] for row in left if row["which"] == 0] == ["a", "b", "c"]
    assert [row["v1"]["c1"] for row in left if row["which"] == 1] == [2, 1]
    assert skipped.value == {"split": 1}


def test_rows_with_many_bytes_go_through_the_bolts_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_columns, "BYTES_AT_ONCE", 1000)
    sizes: list[int] = []

    class Sizes(Bolt):
        outputs = ["word"]

        def process_batch(self, batch: Batch) -> None:
            sizes.append(len(batch))

    lines = Lines.spec()
    topology = type(Topology)("T", (Topology,), {"lines": lines, "one": Sizes.spec(inputs=[lines])})
    rows_out = RowsOut((ONE,), (("word",),), pyarrow.schema([("c0", TEXT)]))
    stage = MappedStage(job(topology), RowsIn((LINES,), (1,)), rows_out, Added())
    assert [*stage([pyarrow.RecordBatch.from_pydict({"c0": ["a" * 300] * 7})])] == []
    assert sizes == [3, 3, 1]


def test_bolts_that_have_started_are_cleaned_up_when_another_cannot() -> None:
    done: list[str] = []

    class First(Count):
        def cleanup(self) -> None:
            done.append("first")

    class Second(Count):
        def initialize(self, conf: Any, context: Any) -> None:
            raise OSError("no route")

    lines = Lines.spec()
    first = First.spec(inputs=[lines])
    topology = type(Topology)("T", (Topology,), {"lines": lines, "first": first, "second": Second.spec(inputs=[first])})
    stage = MappedStage(job(topology), RowsIn((LINES,), (1,)), COUNTED, Added())
    with pytest.raises(ComponentFailed, match="no route"):
        [*stage([pyarrow.RecordBatch.from_pydict({"c0": ["a"]})])]
    assert done == ["first"]


def test_a_partition_without_rows_makes_no_bolt() -> None:
    assert mapped([], "skip", Added()) == []


def test_an_open_tuple_of_a_bolt_behind_the_one_with_the_key_has_failed_too() -> None:
    class Holds(Count):
        auto_ack = False

        def process(self, tup: Tuple) -> None: ...

    lines = Lines.spec()
    one = Count.spec(inputs={lines: Grouping.fields("line")})
    two = Holds.spec(inputs=[one])
    topology = type(Topology)("T", (Topology,), {"lines": lines, "one": one, "two": two})
    out = RowsOut((StreamId("two"),), COUNTED.fields, COUNTED.schema)
    with pytest.raises(
        TupleFailed, match=r"The bolt two failed on the tuple \['a', 1\] from one: it was neither acked"
    ):
        Store(topology, rows_out=out).batch(0, a=["a"])


def test_a_batch_that_raised_with_auto_fail_off_has_failed_and_those_that_wait_have_not() -> None:
    class Groups(BatchingBolt):
        outputs = ["word", "n"]
        auto_fail = False

        def process(self, tup: Tuple) -> None:
            if self._batches:
                self.waits = tup
            else:
                super().process(tup)

        def process_batch(self, key: Any, tups: list[Tuple]) -> None:  # type: ignore[override]
            self._batches["later"] = [self.waits]
            raise ValueError("no")

    store = Store(keyed(Groups, **{"topology.tick.tuple.freq.secs": 1}), "skip")
    assert store.batch(0, x=["x"]) == store.batch(10, x=["x"]) == store.batch(1000) == []
    assert (store.skipped.value, [*store.kept]) == ({"one": 1}, ["x"])


def test_a_keyed_stage_is_unpickled_where_its_modules_are_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As by the process of Spark's on the driver, which calls ``init`` alone."""
    code = "from tests.topologies.counted_words import Count\nclass Other(Count): pass\n"
    (tmp_path / "on_executors_only.py").write_text(code)
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path)
        cls = importlib.import_module("on_executors_only").Other
        rows_in = RowsIn((LINES,), (1,), 1)
        data = cloudpickle.dumps(KeyedStage(job(keyed(cls)), rows_in, COUNTED, None, ("c0", "c1")))
    del sys.modules["on_executors_only"]
    stage = pickle.loads(data)
    stage.init(Store(keyed(Count)))
    with pytest.raises(ModuleNotFoundError, match="on_executors_only"):
        [*stage.handleInputRows(("a",), iter([("a", ["a"])]), None)]


class SeesEnvironment(Count):
    """Keeps what the variable says, in process, at the end, and where it cannot start."""

    seen: list[str | None] = []

    def initialize(self, conf: Any, context: Any) -> None:
        super().initialize(conf, context)
        self.seen.append(os.environ.get("STREAMLET_TEST_LENT"))
        if conf["topology.environment"] == {"STREAMLET_TEST_LENT": "no start"}:
            raise OSError("no route")

    def process(self, tup: Tuple) -> None:
        if tup.values[0] == "bad":
            raise ValueError("bad")

    def cleanup(self) -> None:
        self.seen.append(os.environ.get("STREAMLET_TEST_LENT"))


@pytest.mark.parametrize(
    ("value", "row", "ended"),
    [("done", "a", None), ("failed", "bad", TupleFailed), ("no start", "a", ComponentFailed)],
)
def test_a_python_worker_that_is_used_again_has_no_environment_of_the_former_job(
    value: str, row: str, ended: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a batch and in a stream, however the task ends."""
    monkeypatch.setattr(SeesEnvironment, "seen", [])
    monkeypatch.setenv("STREAMLET_TEST_LENT", "before")
    settings = {"topology.environment": {"STREAMLET_TEST_LENT": value}}
    topology = keyed(SeesEnvironment)
    stage = MappedStage(job(topology, settings=settings), RowsIn((LINES,), (1,)), COUNTED, Added())
    with pytest.raises(ended) if ended else nullcontext():
        [*stage([pyarrow.RecordBatch.from_pydict({"c0": [row]})])]
    assert os.environ["STREAMLET_TEST_LENT"] == "before"
    store = Store(topology, settings=settings)
    with pytest.raises(ended) if ended else nullcontext():
        store.batch(0, **{row: [row]})
    if ended is not TupleFailed:  # Spark closes the stage, or ends the process
        assert os.environ["STREAMLET_TEST_LENT"] == "before"
    assert {*SeesEnvironment.seen} == {value}
