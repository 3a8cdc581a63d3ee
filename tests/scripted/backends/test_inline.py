"""The inline backend: a whole topology on this thread, repeatable to the last edge id."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest

from streamlet import BadInput, Batch, Bolt, Grouping, ReliableSpout, Spout, Topology, TopologyContext, Tuple
from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.backends.outcome import RunFailed, TreesFailed, TuplesLeft
from streamlet.base.backoff import Backoff
from streamlet.base.clock import ManualClock
from streamlet.base.errors import StreamletError
from streamlet.model.settings import resolve
from streamlet.model.topology import TopologySpec
from streamlet.runtime.supervision import end_times
from tests.held_sizes import grown, sizes
from tests.run_observer import Watcher

LINES = 200
COLLECTED = 1990


class Ticking(ManualClock):
    """Moves a little with every look, so that time passes in a run without anybody sleeping."""

    def __init__(self, step_s: float = 0.002) -> None:
        super().__init__()
        self.step_s = step_s

    def monotonic(self) -> float:
        self.advance(self.step_s)
        return super().monotonic()


class Lines(ReliableSpout):
    outputs = ["number", "line"]
    max_fails = None

    def initialize(self, conf: Any, context: TopologyContext) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number < LINES:
            self.emit([self.number, f"word{self.number % 7} and"], tup_id=self.number)
            self.number += 1

    def caught_up(self) -> bool:
        return self.number == LINES and not self.has_unfinished()


class Split(Bolt):
    """Fails a tenth of its tuples, drawn from the run's own source of chance."""

    outputs = ["word"]

    def initialize(self, conf: Any, context: TopologyContext) -> None:
        assert context.uniform is not None
        self.uniform = context.uniform

    def process(self, tup: Tuple) -> None:
        if self.uniform() < 0.1:
            raise ConnectionError("injected")
        for word in tup.values[1].split():
            self.emit([word])


class Count(Bolt):
    counts: dict[str, int] = {}

    def process(self, tup: Tuple) -> None:
        self.counts[tup.values[0]] = self.counts.get(tup.values[0], 0) + 1


class Words(Topology):
    lines = Lines.spec()
    split = Split.spec(inputs=[lines], par=3)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)


def run(
    topology: TopologySpec = Words.__topology__,
    seed: int | None = None,
    watch: Watcher | None = None,
    trace: Any = None,
    step_s: float = 0.002,
    **conf: Any,
) -> RunResult:
    Count.counts.clear()
    settings = {"streamlet.seed": seed, "streamlet.until.caught.up": True, **conf}
    request = RunRequest(topology, resolve(topology.config, settings), until_caught_up=True)
    return InlineBackend(Ticking(step_s), trace).run(request, watch or Watcher(), Stop())


def test_every_line_is_counted_although_some_fail() -> None:
    result = run(seed=1)
    rows = {row.name: row for row in result.status.components}
    assert (result.reason, result.drained, result.status.pending) == ("caught_up", True, 0)
    assert sum(Count.counts.values()) == 2 * LINES and Count.counts["and"] == LINES
    assert rows["lines"].acked == LINES and rows["lines"].failed == rows["split"].failed > 0
    assert rows["lines"].emitted == LINES + rows["lines"].failed
    assert rows["count"].acked == 2 * LINES and rows["split"].errors == rows["split"].failed


def traced(seed: int) -> list[Any]:
    events: list[Any] = []
    run(seed=seed, trace=events.append)
    return events


def test_one_seed_gives_one_trace() -> None:
    """Two runs with a manual clock and injected failures are alike to the last edge id."""
    first = traced(42)
    assert len(first) > 2 and first == traced(42)


def test_two_runs_with_one_seed_are_two_runs() -> None:
    """What names files, or says in ZooKeeper who owns a partition, would take the second for the first."""
    ids: list[str] = []

    class Noted(Lines):
        def initialize(self, conf: Any, context: TopologyContext) -> None:
            ids.append(context.topology_id)
            self.number = LINES

    spec = type("Noting", (Topology,), {"lines": Noted.spec()}).__topology__
    for _ in range(2):
        run(spec, seed=7)
    assert len(set(ids)) == 2


def test_another_seed_gives_another_trace() -> None:
    assert traced(42) != traced(43)


def test_tracking_off_means_acked_at_once() -> None:
    """And nobody hears of what fails below, but for the end of the run."""
    with pytest.raises(TreesFailed, match="untracked tuples at split failed") as caught:
        run(seed=3, **{"topology.acker.executors": 0})
    rows = {row.name: row for row in caught.value.result.status.components}
    assert rows["lines"].acked == rows["lines"].emitted == LINES and rows["lines"].failed == 0
    assert rows["split"].unreplayed == rows["split"].errors > 0


def test_an_error_is_told_once_and_then_counted() -> None:
    watch = Watcher()
    run(seed=1, watch=watch, step_s=0.0005)  # over before it would be told again
    told = [text for text in watch.texts if "ConnectionError" in text]
    assert "goes on with the next tuple" in told[0] and "more time(s)" in told[-1] and len(told) == 2


class Swallow(Bolt):
    """Never acks the first time it sees a number."""

    auto_ack = False
    seen: set[int] = set()

    def process(self, tup: Tuple) -> None:
        if tup.values[0] in self.seen:
            self.ack(tup)
        self.seen.add(tup.values[0])


class Swallowing(Topology):
    lines = Lines.spec()
    swallow = Swallow.spec(inputs=[lines])


def test_a_swallowed_tuple_is_replayed_after_the_timeout() -> None:
    Swallow.seen.clear()
    result = run(Swallowing.__topology__, **{"topology.message.timeout.secs": 0.2})
    (lines, swallow) = result.status.components
    assert (result.reason, lines.acked, lines.failed) == ("caught_up", LINES, LINES)
    assert swallow.executed == 2 * LINES


class BadStart(Split):
    def initialize(self, conf: Any, context: TopologyContext) -> None:
        raise ValueError("no such file")


class BadEnd(Split):
    def cleanup(self) -> None:
        raise ValueError("disk full")


class Strict(Split):
    def initialize(self, conf: Any, context: TopologyContext) -> None:
        raise BadInput("the path is not absolute")


@pytest.mark.parametrize(
    ("cls", "words", "status"),
    [
        (BadStart, ("split", "initialize", "ValueError", "no such file"), 1),
        (BadEnd, ("closing it raised: ValueError in cleanup of split (task 2) at ", "disk full"), 1),
        (Strict, ("the path is not absolute",), 2),
    ],
)
def test_what_user_code_raises_at_start_and_end_is_told(cls: type[Bolt], words: tuple[str, ...], status: int) -> None:
    lines = Lines.spec()
    spec = type("Bad", (Topology,), {"lines": lines, "split": cls.spec(inputs=[lines])}).__topology__  # type: ignore[attr-defined]
    with pytest.raises(StreamletError) as raised:
        run(spec, seed=1)
    assert all(word in raised.value.message for word in words) and raised.value.exit_status == status


class Ticker(Bolt):
    ticks: list[float] = []

    def process(self, tup: Tuple) -> None: ...

    def process_tick(self, tup: Tuple) -> None:
        self.ticks.append(tup.values[0])


def test_a_components_own_setting_is_parsed_like_the_runs() -> None:
    """Text from a configuration is a number where a number is meant."""
    Ticker.ticks.clear()
    lines = Lines.spec()
    tick = Ticker.spec(inputs=[lines], config={"topology.tick.tuple.freq.secs": "0.01"})
    run(type("Ticks", (Topology,), {"lines": lines, "tick": tick}).__topology__)  # type: ignore[attr-defined]
    assert Ticker.ticks and set(Ticker.ticks) == {0.01}


class Hoard(Bolt):
    """Acks nothing before it holds as many as will ever come at once."""

    auto_ack = False
    most: list[int] = []

    def initialize(self, conf: Any, context: TopologyContext) -> None:
        self.held: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)

    def process_tick(self, tup: Tuple) -> None:
        self.most.append(len(self.held))
        for one in self.held:
            self.ack(one)
        self.held.clear()


def test_a_spouts_own_limit_wins_over_the_runs() -> None:
    """topology.max.spout.pending in a component's config holds for that component, as in Storm."""
    Hoard.most.clear()
    lines = Lines.spec(config={"topology.max.spout.pending": "7"})
    hoard = Hoard.spec(inputs=[lines], config={"topology.tick.tuple.freq.secs": 0.2})
    run(type("Hoarding", (Topology,), {"lines": lines, "hoard": hoard}).__topology__)  # type: ignore[attr-defined]
    assert max(Hoard.most) == 7


class Whole(Topology):
    lines = Lines.spec()
    count = Count.spec(inputs={lines: Grouping.fields("line")})


@pytest.mark.parametrize(("topology", "drained"), [(Whole, True), (Words, False)])
def test_a_stop_drains_and_says_what_is_left(topology: Any, drained: bool) -> None:
    """What failed meanwhile, and is replayed no more, is not done: the run says that something is left."""
    stop, watch = Stop(), Watcher()
    conf = resolve({}, {"streamlet.seed": 1})
    tuples = []

    def trace(run: Any) -> None:
        tuples.extend(run.roots)
        if len(tuples) > 100:  # with fewer none might have failed
            stop.ask()

    fast = Ticking(0.000_01)
    result = InlineBackend(fast, trace).run(RunRequest(topology.__topology__, conf), watch, stop)
    assert (result.reason, result.drained) == ("interrupted", drained) and watch.statuses[-1].state == "ended"
    assert (result.status.pending == 0) is drained


class Poisoned(Lines):
    """Emits a few, and stops the run."""

    closed_with: list[set[Any]] = []

    def next_tuple(self) -> None:
        if self.number == 5:
            raise BadInput("a record that cannot be processed")
        super().next_tuple()

    def on_timer(self) -> None:
        if self.number == 5:
            raise BadInput("a record that cannot be processed")

    def close(self) -> None:
        self.closed_with.append(set(self.unacked_tuples))


class Poison(Topology):
    lines = Poisoned.spec()
    count = Count.spec(inputs={lines: Grouping.fields("line")})


def test_what_was_emitted_before_a_poison_stop_is_finished() -> None:
    """As in worker processes: the last commit says what was done, and the reason that is told is the first."""
    Poisoned.closed_with.clear()
    with pytest.raises(RunFailed, match="cannot be processed") as caught:
        run(Poison.__topology__)
    assert isinstance(caught.value.__cause__, BadInput)
    assert Poisoned.closed_with == [set()] and sum(Count.counts.values()) == 5


class FailsEachOnce(Bolt):
    """Fails each line when it comes first, half of them by raising, and weighs what its loop keeps."""

    backend: InlineBackend
    kept: dict[int, dict[Any, int]] = {}

    def initialize(self, conf: Any, context: TopologyContext) -> None:
        self.failed: set[int] = set()

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        if number in (2000, 8000) and number in self.failed:
            self.kept[number] = sizes(self.backend.loop)
        if number in self.failed:
            self.failed.discard(number)
        else:
            self.failed.add(number)
            if number % 2:
                raise ConnectionError("injected")
            self.fail(tup)


class Failing(Topology):
    config = {"topology.max.spout.pending": 50, "streamlet.first.failures.max": 0}
    lines = Lines.spec()
    fails = FailsEachOnce.spec(inputs=[lines])


def test_what_a_task_keeps_does_not_grow_with_the_tuples_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 000 failures: what was there after the first 2 000 is all there ever is, but for what is open at a time."""
    monkeypatch.setattr("tests.scripted.backends.test_inline.LINES", 10_000)
    FailsEachOnce.backend, FailsEachOnce.kept = InlineBackend(Ticking(0.000_02)), {}
    conf = resolve(Failing.__topology__.config, {"streamlet.until.caught.up": True})
    result = FailsEachOnce.backend.run(RunRequest(Failing.__topology__, conf, until_caught_up=True), Watcher(), Stop())
    assert result.components["lines"].failed == 10_000 and result.drained
    assert grown(FailsEachOnce.kept[2000], FailsEachOnce.kept[8000], allowed=500) == {}


class LongPauses(Lines):
    replay_backoff = Backoff(initial=5.0, maximum=5.0)


class FailsOnce(Bolt):
    failed: ClassVar[set[int]] = set()

    def process(self, tup: Tuple) -> None:
        if tup.values[0] not in self.failed:
            self.failed.add(tup.values[0])
            raise ConnectionError("injected")


class Again(Topology):
    config = {"streamlet.first.failures.max": 0}
    lines = LongPauses.spec()
    once = FailsOnce.spec(inputs=[lines])


def test_what_waits_to_be_sent_again_counts_as_open_while_the_run_goes_on() -> None:
    """The run would seem to have nothing to do: no tree is open until the first retry."""
    FailsOnce.failed.clear()
    watcher = Watcher()
    result = run(Again.__topology__, watch=watcher)
    seen = [(status.pending, status.components[0]) for status in watcher.statuses]
    assert all(pending == row.open for pending, row in seen)
    assert any(pending == row.failed > 0 == row.acked for pending, row in seen), "all that is open waits"
    assert result.status.pending == 0 and result.status.components[0].acked == LINES


class Leaves(Bolt):
    def process(self, tup: Tuple) -> None:
        raise SystemExit(0)


class Left(Topology):
    lines = Lines.spec()
    leaves = Leaves.spec(inputs=[lines])


def test_a_component_that_exits_does_not_decide_the_exit_status() -> None:
    """The process is that of whoever runs the topology; status 0 would say that all was processed."""
    with pytest.raises(StreamletError, match=r"sys\.exit\(0\)") as raised:
        run(Left.__topology__)
    assert raised.value.exit_status == 1


class Together(Spout):
    """Emits what may be open, many at a time."""

    outputs = ["number"]
    answers_for_failures = True

    def initialize(self, conf: Any, context: TopologyContext) -> None:
        self.todo, self.open = 3 * COLLECTED, set[int]()

    def next_tuple(self) -> None:
        ids = range(self.todo, self.todo - min(self.room(), 300, self.todo), -1)
        self.todo -= len(ids)
        if ids:
            self.open.update(ids)
            self.emit_each([[n] for n in ids], ids)

    def ack(self, tup_id: int) -> None:
        self.open.remove(tup_id)

    def caught_up(self) -> bool:
        return not self.todo and not self.open


class Passes(Bolt):
    outputs = ["number"]

    def process_batch(self, batch: Batch) -> None:
        for tup in batch:
            self.emit(tup.values, anchors=[tup])


class Collects(Bolt):
    """Acks by hand, always as many, and keeps the others."""

    auto_ack = False

    def initialize(self, conf: Any, context: TopologyContext) -> None:
        self.kept: list[Tuple] = []

    def process_batch(self, batch: Batch) -> None:
        self.kept += batch.tuples
        if len(self.kept) >= COLLECTED:
            for tup in self.kept[:COLLECTED]:
                self.ack(tup)
            del self.kept[:COLLECTED]


class CollectsAtOnce(Topology):
    together = Together.spec()
    collects = Collects.spec(inputs=[together])


class CollectsBehind(Topology):
    together = Together.spec()
    passes = Passes.spec(inputs=[together])
    collects = Collects.spec(inputs=[passes])


class SaysSoLater(Collects):
    """Says in ``initialize`` that it acks by hand, as bolts of pystorm's may."""

    auto_ack = True

    def initialize(self, conf: Any, context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.auto_ack = False  # type: ignore[misc]  # as users do


class CollectsAsSaidLater(Topology):
    together = Together.spec()
    collects = SaysSoLater.spec(inputs=[together])


@pytest.mark.parametrize("topology", [CollectsAtOnce, CollectsBehind, CollectsAsSaidLater])
def test_a_bolt_may_collect_nearly_all_tuples_that_may_be_open(topology: Any) -> None:
    """Each that it acks lets another in: were they acked as sets, the few that it keeps would hold up hundreds."""
    conf = {"topology.max.spout.pending": COLLECTED + 10, "streamlet.until.caught.up": True}
    spec = topology.__topology__
    request = RunRequest(spec, resolve(spec.config, conf), seconds=20.0, until_caught_up=True)
    result = InlineBackend().run(request, Watcher(), Stop())
    assert result.reason == "caught_up" and result.components["together"].failed == 0


class AtOnce(Spout):
    outputs = ["number"]
    over = False

    def next_tuple(self) -> None:
        if not self.over:
            self.over = True
            self.emit_many([[n] for n in range(200)])

    def caught_up(self) -> bool:
        return self.over


class NowAndThen(Bolt):
    """Takes a tuple each 20 ms, and asks for the end of the run at the tenth."""

    timer_interval_s = 0.02
    stop: ClassVar[Stop]
    seen: ClassVar[int]

    def bind(self, port: Any) -> None:
        super().bind(port)
        self.rest = port.rest

    def process(self, tup: Tuple) -> None:
        type(self).seen += 1
        if self.seen == 10:
            self.stop.ask()
        self.rest(True)
        time.sleep(0.005)  # so that a slice has one tuple

    def on_timer(self) -> None:
        self.rest(False)


class Resting(Topology):
    at_once = AtOnce.spec()
    now_and_then = NowAndThen.spec(inputs=[at_once])


def test_a_stop_shortens_the_drain_of_a_run_that_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bolts go on: without a look at the stop it would drain to its end, however long that takes."""
    monkeypatch.setattr(end_times, "drain_needed_s", lambda wait_s, timeout_s: 0.2)
    NowAndThen.stop, NowAndThen.seen = Stop(), 0
    spec = Resting.__topology__
    request = RunRequest(spec, resolve(spec.config, {"streamlet.until.caught.up": True}), until_caught_up=True)
    with pytest.raises(TuplesLeft) as left:
        InlineBackend().run(request, Watcher(), NowAndThen.stop)
    assert left.value.result.reason == "interrupted" and 10 <= NowAndThen.seen < 200
