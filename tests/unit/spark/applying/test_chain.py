"""A stage's bolts on plain columns: what they emit, fail, keep, and get at the end."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from streamlet import BadEmit, Batch, BatchingBolt, Bolt, Grouping, Stream, StreamId, Topology, Tuple
from streamlet.base.errors import StreamletError, ValueCannotTravel
from streamlet.model.dataframe_plan import fields_of, plan_dataframes, ticks
from streamlet.model.settings import resolve
from streamlet.runtime.tasks.user_errors import ComponentFailed, EveryTupleFailed
from streamlet.spark.applying.applied_bolt import BoltDef, FailedRow, TupleFailed
from streamlet.spark.applying.chain import Chain, StageJob
from tests.topologies.counted_words import CountedWords, Lines, Split

LINES = StreamId("lines")


class One(Bolt):
    """One bolt under test; each test derives from it."""

    outputs = ["word"]

    def process(self, tup: Tuple) -> None: ...


def job(
    topology: Any,
    on_failed: str = "stop",
    stage: int = 0,
    settings: Mapping[str, Any] = {},
    outputs: Sequence[str] | None = None,
) -> StageJob:
    spec = topology.__topology__
    conf = resolve(spec.config, settings)
    plan = plan_dataframes(spec, outputs=outputs)
    bolts = []
    for name in plan.stages[stage].bolts:
        one = spec.component(name)
        sources = {sub.source: fields_of(spec, sub.source) for sub in one.inputs}
        streams = {stream.name: stream.fields for stream in one.streams()}
        bolts.append(
            BoltDef(name, one.cls, one.kwargs, {**conf, **one.config}, sources, streams, ticks(spec, conf, name))
        )
    tasks = {number: one.name for number, one in enumerate(spec.components, 1)}
    return StageJob(spec.name, "run", plan.stages[stage], tuple(bolts), on_failed, tasks)


class Ran:
    """A chain that was given rows: what left it, and what failed."""

    def __init__(self, topology: Any, rows: list[Any], on_failed: str = "stop", **more: Any) -> None:
        self.failed: list[FailedRow] = []
        self.left: dict[str, list[list[Any]]] = {}
        self.chain = Chain(job(topology, on_failed, **more), 0, 1, self.failed.append)
        self.chain.start()
        (source,) = {one.stream for one in self.chain.job.stage.inputs}
        columns = [[*column] for column in zip(*rows, strict=True)]
        for leaving in ([self.chain.feed(source, columns)] if rows else []) + [self.chain.finish()]:
            for sid, given in leaving.items():
                self.left.setdefault(str(sid), []).extend([*row] for row in zip(*given, strict=True))
        self.chain.close(clean=True)


def alone(cls: type[Bolt], **config: Any) -> Any:
    """A topology of one spout and one bolt, `one`."""
    lines = Lines.spec()
    return type(Topology)("T", (Topology,), {"lines": lines, "one": cls.spec(inputs=[lines], config=config)})


def test_rows_go_through_bolts_by_tuple_and_by_batch_and_leave_by_stream() -> None:
    ran = Ran(CountedWords, [["A b"], ["B"]])
    assert ran.left == {"lower": [["a"], ["b"], ["b"]], "split[lengths]": [["A b", 2], ["B", 1]]}


def test_a_last_tick_comes_after_the_last_row() -> None:
    ran = Ran(CountedWords, [["a"], ["b"], ["a"]], stage=2)
    assert ran.left == {"window": [["a", 2], ["b", 1]]}


def test_a_batching_bolt_gets_as_many_ticks_as_it_waits_for() -> None:
    class Groups(BatchingBolt):
        outputs = ["word"]
        ticks_between_batches = 3

        def group_key(self, tup: Tuple) -> Any:
            return tup.values[0][0]

        def process_batch(self, key: Any, tups: list[Tuple]) -> None:  # type: ignore[override]
            if key == "x":
                raise ValueError("no x")
            self.emit([f"{key}{len(tups)}"])

    topology = alone(Groups, **{"topology.tick.tuple.freq.secs": 1})
    ran = Ran(topology, [["a1"], ["b1"], ["x1"], ["a2"]], "skip")
    assert ran.left == {"one": [["a2"], ["b1"]]}
    assert [(row.values, row.reason.rpartition(":")[2]) for row in ran.failed] == [(["x1"], " no x")]
    with pytest.raises(TupleFailed, match=r"one failed on the tuple \['x1'\] from lines: ValueError at .*no x"):
        Ran(topology, [["a1"], ["x1"]])


def test_a_failed_tuple_leaves_nothing_but_what_was_not_anchored_to_it() -> None:
    class Fails(One):
        def process(self, tup: Tuple) -> None:
            self.emit([f"{tup.values[0]}!"])
            self.emit([f"{tup.values[0]}?"], anchors=[])
            if tup.values[0] == "raises":
                raise ValueError("so it is")
            if tup.values[0] == "fails":
                self.fail(tup, "as it likes")

    ran = Ran(alone(Fails), [["good"], ["raises"], ["fails"], ["well"]], "dead-letter")
    assert ran.left == {"one": [["good!"], ["good?"], ["raises?"], ["fails?"], ["well!"], ["well?"]]}
    first, second = ran.failed
    assert first[:3] == ("one", "lines", ["raises"]) and first.reason.startswith("ValueError at ")
    assert second == ("one", "lines", ["fails"], "as it likes")


def test_the_job_stops_at_a_failed_tuple_and_names_bolt_tuple_and_text() -> None:
    with pytest.raises(TupleFailed, match=r"The bolt split failed on the tuple \['a bad'\] from lines: ValueError at"):
        Ran(CountedWords, [["a bad"]])


def test_a_batch_that_raises_fails_as_a_whole_or_is_split() -> None:
    class Whole(Bolt):
        outputs = ["word"]

        def process_batch(self, batch: Batch) -> None:
            self.emit_many(batch.rows)
            if "x" in batch.values("line"):
                raise ValueError("no x")

    class Parted(Whole):
        on_batch_error = "split"

    rows = [["a"], ["x"], ["b"]]
    whole, parted = Ran(alone(Whole), rows, "skip"), Ran(alone(Parted), rows, "skip")
    assert (whole.left, [row.values for row in whole.failed]) == ({}, rows)
    assert (parted.left, [row.values for row in parted.failed]) == ({"one": [["a"], ["b"]]}, [["x"]])


def test_a_batch_that_is_split_gives_each_row_again_as_it_came() -> None:
    class Adds(Bolt):
        outputs = ["line"]
        on_batch_error = "split"

        def process_batch(self, batch: Batch) -> None:
            for tup in batch:
                tup.values[0].append(Decimal(2))
                if tup.values[0][0] == "x":
                    raise ValueError("no x")
                self.emit([[str(part) for part in tup.values[0]]])

    ran = Ran(alone(Adds), [[["a", Decimal(1)]], [["x"]], [["b"]]], "skip")
    assert ran.left == {"one": [[["a", "1", "2"]], [["b", "2"]]]}


def test_a_tuple_that_nobody_acks_has_failed_at_the_end() -> None:
    class ByHand(One):
        auto_ack = False

        def process(self, tup: Tuple) -> None:
            if tup.values[0] == "acked":
                self.ack(tup)

    ran = Ran(alone(ByHand), [["acked"], ["forgotten"]], "skip")
    assert [(row.values, row.reason) for row in ran.failed] == [
        (["forgotten"], "it was neither acked nor failed when the last row of its task was done")
    ]


class AcksAndRaises(One):
    def process(self, tup: Tuple) -> None:
        self.emit([tup.values[0]])
        self.ack(tup)
        if tup.values[0] == "x":
            raise ValueError("no x")


class AcksBatchAndRaises(Bolt):
    outputs = ["word"]
    on_batch_error = "split"

    def process_batch(self, batch: Batch) -> None:
        self.emit_many(batch.rows)
        self.ack(batch)
        raise ValueError("no x")


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (AcksAndRaises, r"on the tuple \['x'\] from lines: ValueError at .*no x"),
        (AcksBatchAndRaises, "on a batch from lines"),
    ],
)
def test_what_was_acked_before_the_bolt_raised_stays_and_the_error_is_told(cls: type[Bolt], told: str) -> None:
    rows = [["a"], ["x"], ["b"]]
    with pytest.raises(TupleFailed, match=f"{told}.*it had acked"):
        Ran(alone(cls), rows)
    ran = Ran(alone(cls), rows, "dead-letter")
    assert ran.left == {"one": rows}
    (row,) = ran.failed
    assert "no x" in row.reason


def test_of_a_batch_that_raises_the_rows_of_acked_tuples_stay() -> None:
    class AcksOne(Bolt):
        outputs = ["word"]

        def process_batch(self, batch: Batch) -> None:
            self.emit([batch.tuples[0].values[0]])
            self.ack(batch.tuples[0])
            raise ValueError("no more")

    ran = Ran(alone(AcksOne), [["a"], ["b"]], "skip")
    assert (ran.left, [row.values for row in ran.failed]) == ({"one": [["a"]]}, [["b"]])


@pytest.mark.parametrize("by_batch", [False, True])
def test_what_a_bolt_raised_that_fails_by_hand_is_told_at_the_end(by_batch: bool) -> None:
    class Raises(Bolt):
        outputs = ["word"]
        auto_ack = auto_fail = False

        def process(self, tup: Tuple) -> None:
            raise OSError("the database is gone")

    class RaisesBatch(Raises):
        def process_batch(self, batch: Batch) -> None:
            raise OSError("the database is gone")

    cls = RaisesBatch if by_batch else Raises
    with pytest.raises(TupleFailed, match="the database is gone") as raised:
        Ran(alone(cls), [["a"]])
    assert isinstance(raised.value.__cause__, OSError)


def test_a_tuple_that_is_kept_is_not_filled_again() -> None:
    class Keeps(One):
        def process(self, tup: Tuple) -> None:
            self.all = [*getattr(self, "all", []), tup]

        def process_tick(self, tup: Tuple) -> None:
            for kept in self.all:
                self.emit(kept.values)

    ran = Ran(alone(Keeps, **{"topology.tick.tuple.freq.secs": 1}), [["a"], ["b"]])
    assert ran.left == {"one": [["a"], ["b"]]}


def test_values_that_cannot_travel_and_rows_of_wrong_form_fail_the_tuple() -> None:
    class Emits(One):
        def process(self, tup: Tuple) -> None:
            self.emit(
                {"text": "word", "set": [{1}], "long": [1, 2], "stream": ["a"]}[tup.values[0]],
                **({"stream": "other"} if tup.values[0] == "stream" else {}),
            )

    ran = Ran(alone(Emits), [["text"], ["set"], ["long"], ["stream"]], "skip")
    told = [row.reason for row in ran.failed]
    assert [text.partition(" at ")[0] for text in told] == ["BadEmit", ValueCannotTravel.__name__, "BadEmit", "BadEmit"]
    assert "a list of values is wanted" in told[0] and "declares 1 fields" in told[2] and "'other'" in told[3]


def of_width(width: int, emits: Any) -> type[Bolt]:
    """A bolt whose default stream has so many fields, and that calls ``emits(self, row)`` with a good row for it."""

    class Wide(Bolt):
        outputs = [Stream([f"f{at}" for at in range(width)]), Stream(["line"], name="other")]

        def process(self, tup: Tuple) -> None:
            emits(self, [f"{tup.values[0]}{at}" for at in range(width)])

    return Wide


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize(
    ("emits", "told"),
    [
        (lambda bolt, row: bolt.emit([*row, 1]), "declares {} fields"),
        (lambda bolt, row: bolt.emit(row[1:]), "declares {} fields"),
        (lambda bolt, row: bolt.emit("x" * len(row)), "a list of values is wanted"),
        (lambda bolt, row: bolt.emit(dict.fromkeys(row)), "a list of values is wanted"),
        (lambda bolt, row: bolt.emit(len(row)), "a list of values is wanted"),
        (lambda bolt, row: bolt.emit(row, "no such"), "stream 'no such', which it does not declare"),
        (lambda bolt, row: bolt.emit(row, direct_task=0), "direct_task=, and on DataFrames"),
        (lambda bolt, row: bolt.emit(row, need_task_ids=True), "need_task_ids=, and on DataFrames"),
        (lambda bolt, row: bolt.emit([*row[1:], {1}]), "is a set"),
        (lambda bolt, row: bolt.emit([type("Text", (str,), {})("a"), *row[1:]]), "field 'f0' is a Text"),
    ],
)
def test_an_emit_that_cannot_leave_fails_its_tuple_and_takes_back_the_others(width: int, emits: Any, told: str) -> None:
    def emits_before(bolt: Bolt, row: list[str]) -> None:
        bolt.emit(row)
        bolt.emit(row[:1], stream="other")
        if row[0] == "bad0":
            emits(bolt, row)
        bolt.emit(tuple(row))

    ran = Ran(alone(of_width(width, emits_before)), [["a"], ["bad"], ["b"]], "skip")
    good = [[f"{name}{at}" for at in range(width)] for name in "aabb"]
    assert ran.left == {"one": good, "one[other]": [["a0"], ["b0"]]}
    assert told.format(width) in ran.failed[0].reason and [row.values for row in ran.failed] == [["bad"]]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_values_of_every_plain_type_leave_as_they_are_and_others_are_copied(width: int) -> None:
    class Reused(One):
        outputs = [Stream([f"f{at}" for at in range(width)])]

        def process(self, tup: Tuple) -> None:
            for value in ("a", b"a", 1, 1.5, True, None, [1]):
                row = [value] * width
                self.emit(row)
                row[0] = "changed"
                if isinstance(value, list):
                    value.append(2)

    expected = [[value] * width for value in ("a", b"a", 1, 1.5, True, None, [1])]
    left = Ran(alone(Reused), [["a"]]).left["one"]
    assert left == expected and [type(row[-1]) for row in left] == [type(row[-1]) for row in expected]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_an_emit_that_somebody_kept_raises_on_another_thread_and_after_the_end(width: int) -> None:
    told: list[str] = []

    def tries(emit: Any, row: list[str]) -> None:
        try:
            emit(row)
        except BadEmit as error:
            told.append(str(error))

    def keeps(bolt: Any, row: list[str]) -> None:
        bolt.kept = bolt.emit
        thread = threading.Thread(target=tries, args=(bolt.kept, row))
        thread.start()
        thread.join()
        bolt.kept(row)

    ran = Ran(alone(of_width(width, keeps)), [["a"]])
    assert ran.left == {"one": [[f"a{at}" for at in range(width)]]} and len(told) == 1
    tries(ran.chain.head.bolt.kept, ["late"] * width)  # type: ignore[attr-defined]
    assert [text.partition(", ")[0] for text in told] == [
        "one called emit on another thread than the one that gives it rows"
    ] * 2


def test_an_emit_of_another_thread_and_one_after_the_end_raise() -> None:
    raised: list[BaseException] = []

    class Threads(One):
        def process(self, tup: Tuple) -> None:
            thread = threading.Thread(target=self.late)
            thread.start()
            thread.join()

        def late(self) -> None:
            try:
                self.emit(["late"])
            except BadEmit as error:
                raised.append(error)

        def cleanup(self) -> None:
            self.late()

    assert Ran(alone(Threads), [["a"]]).left == {}
    assert [str(error).partition(", ")[0] for error in raised] == [
        "one called emit on another thread than the one that gives it rows",
        "one emitted in cleanup",
    ]


def test_a_chain_that_is_closed_on_another_thread_cleans_up_too() -> None:
    """As by the collector of garbage, which takes an iterator that nobody has finished."""
    cleaned: list[str] = []

    class Cleans(One):
        def cleanup(self) -> None:
            cleaned.append("up")

    chain = Chain(job(alone(Cleans)), 0, 1, lambda row: None)
    chain.start()
    thread = threading.Thread(target=chain.close, args=(False,))
    thread.start()
    thread.join()
    assert cleaned == ["up"]


def test_a_value_that_is_changed_after_its_emit_has_left_as_it_was() -> None:
    class Grows(One):
        def initialize(self, conf: Any, context: Any) -> None:
            self.grown: list[str] = []

        def process(self, tup: Tuple) -> None:
            self.grown.append(tup.values[0])
            self.emit([self.grown])

    assert Ran(alone(Grows), [["a"], ["b"]]).left == {"one": [[["a"]], [["a", "b"]]]}


def test_what_a_bolt_changes_in_its_values_no_other_reader_and_no_result_sees() -> None:
    class Pairs(One):
        def process(self, tup: Tuple) -> None:
            self.emit([[1, {"n": [tup.values[0]]}]])

    class Changes(One):
        def process(self, tup: Tuple) -> None:
            self.emit([[*tup.values[0]]])
            tup.values[0][1]["n"].append("changed")
            tup.values[0].append("changed")

    lines = Lines.spec()
    pairs = Pairs.spec(inputs=[lines])
    first, second = Changes.spec(inputs=[pairs]), Changes.spec(inputs=[pairs])
    members = {"lines": lines, "pairs": pairs, "first": first, "second": second}
    topology = type(Topology)("T", (Topology,), members)
    whole = [[[1, {"n": ["a"]}]]]
    ran = Ran(topology, [["a"]], outputs=["pairs", "first", "second"])
    assert ran.left == {"pairs": whole, "first": whole, "second": whole}


def test_a_bolt_that_fails_every_tuple_ends_the_job_all_the_same() -> None:
    class Never(One):
        def process(self, tup: Tuple) -> None:
            raise ValueError("never")

    with pytest.raises(EveryTupleFailed, match=r"one raised on each of its first 5 tuples"):
        Ran(alone(Never, **{"streamlet.first.failures.max": 5}), [["a"]] * 9, "skip")


def test_a_bolt_that_has_done_tuples_before_ends_no_job_by_its_failures() -> None:
    """However they alternate with what it does well."""

    class Mostly(One):
        def process(self, tup: Tuple) -> None:
            if tup.values[0] == "bad":
                raise ValueError("bad")

    rows = [["good"], *[["bad"]] * 9, ["good"], *[["bad"]] * 9]
    assert len(Ran(alone(Mostly, **{"streamlet.first.failures.max": 5}), rows, "skip").failed) == 18


@pytest.mark.parametrize("many", [list, tuple, iter])
def test_rows_of_emit_many_leave_all_or_none_and_as_they_were(many: Any) -> None:
    class Many(Bolt):
        outputs = ["word", "n"]

        def process(self, tup: Tuple) -> None:
            given: dict[str, Any] = {
                "plain": [["a", 1], ("b", None)],
                "none": [],
                "text": ["ab", "cd"],
                "long": [["a", 1], ["b", 2, 3]],
                "set": [["a", 1], ["b", {2}]],
            }
            shared = [1]
            self.emit_many(many(given.get(tup.values[0], [["c", shared]])))
            shared.append(2)

    rows = [["plain"], ["none"], ["nested"], ["text"], ["long"], ["set"]]
    ran = Ran(alone(Many), rows, "dead-letter")
    assert ran.left == {"one": [["a", 1], ["b", None], ["c", [1]]]}
    assert [row.values for row in ran.failed] == rows[3:]
    told = [row.reason for row in ran.failed]
    assert "a list of values is wanted" in told[0] and "declares 2 fields" in told[1]
    assert "field 'n' is a set" in told[2]


def test_an_initialize_that_raises_is_named_and_started_bolts_are_cleaned_up() -> None:
    cleaned: list[str] = []

    class First(One):
        def cleanup(self) -> None:
            cleaned.append("first")

    class Second(One):
        def initialize(self, conf: Any, context: Any) -> None:
            raise OSError("no route")

    lines = Lines.spec()
    first = First.spec(inputs=[lines])
    topology = type(Topology)("T", (Topology,), {"lines": lines, "first": first, "second": Second.spec(inputs=[first])})
    chain = Chain(job(topology), 0, 1, lambda row: None)
    with pytest.raises(ComponentFailed, match=r"second raised OSError in initialize"):
        chain.start()
    chain.close(clean=False)
    assert cleaned == ["first"]


def test_direct_emits_are_refused_by_name() -> None:
    class Directs(One):
        def process(self, tup: Tuple) -> None:
            self.emit(["a"], need_task_ids=True)

    (row,) = Ran(alone(Directs), [["a"]], "skip").failed
    assert "need_task_ids=, and on DataFrames" in row.reason


def test_a_bolt_reads_fields_by_name_and_knows_its_context() -> None:
    seen: list[Any] = []

    class Knows(One):
        def initialize(self, conf: Any, context: Any) -> None:
            seen.append((context.component_name, context.task_index, context.topology_name))

        def process(self, tup: Tuple) -> None:
            seen.append((tup.values.line, tup.component, tup.stream))  # type: ignore[attr-defined]

    Ran(alone(Knows), [["a"]])
    assert seen == [("one", 0, "T"), ("a", "lines", "default")]


def test_two_inputs_of_a_keyed_bolt_are_told_apart() -> None:
    class Both(One):
        def process(self, tup: Tuple) -> None:
            self.emit([f"{tup.component}[{tup.stream}] {tup.values[0]}"])

    lines = Lines.spec()
    split = Split.spec(inputs=[lines])
    both = Both.spec(inputs={split: Grouping.fields("word"), split["lengths"]: Grouping.fields("line")})
    chain = Chain(
        job(type(Topology)("T", (Topology,), {"lines": lines, "split": split, "both": both}), stage=1), 0, 1, print
    )
    chain.start()
    assert chain.feed(StreamId("split"), [["a"]]) == {StreamId("both"): [["split[default] a"]]}
    assert chain.feed(StreamId("split", "lengths"), [["l"], [1]]) == {StreamId("both"): [["split[lengths] l"]]}


def test_what_cleanup_raises_ends_the_job() -> None:
    class Closes(One):
        def cleanup(self) -> None:
            raise OSError("disk full")

    with pytest.raises(StreamletError, match="OSError in cleanup of one"):
        Ran(alone(Closes), [["a"]])


def test_what_ends_a_job_is_told_in_words_of_a_job() -> None:
    """No task number, no topology that stops, no spout that reads again, no option of the command line."""

    class Starts(One):
        def initialize(self, conf: Any, context: Any) -> None:
            raise OSError("no service")

    class Ends(One):
        exit_on_exception = True

        def process(self, tup: Tuple) -> None:
            raise ValueError("wrong")

    class Never(One):
        def process(self, tup: Tuple) -> None:
            raise ValueError("never")

    class Closes(One):
        def cleanup(self) -> None:
            raise OSError("disk full")

    for cls, said in (
        (
            Starts,
            r"^The bolt one raised OSError in initialize \(.*\): no service\. A bolt that cannot start ends the job",
        ),
        (
            Ends,
            r"^The bolt one raised ValueError \(.*\): wrong\. It has exit_on_exception = True, so that ends the job\.",
        ),
        (Never, r"^The bolt one raised on each of its first 5 tuples, .*, so the job ends\. Fix it, or set"),
        (Closes, r"^OSError in cleanup of one at .*: disk full$"),
    ):
        with pytest.raises(ComponentFailed, match=said) as caught:
            Ran(alone(cls, **{"streamlet.first.failures.max": 5}), [["a"]] * 9, "skip")
        assert not any(word in caught.value.message for word in ("(task", "topology stops", "read again", "--debug"))
