"""From plan to live task: what each instance is given, and where what it emits goes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamlet import BadInput, BatchingBolt, Bolt, Spout, Stream, Topology, Tuple
from streamlet.model.grouping import Grouping
from streamlet.model.plan import make_plan
from streamlet.model.settings import resolve
from streamlet.runtime.tasks.batch_bound import CALL_SHARE
from streamlet.runtime.tasks.bolt_task import BoltTask
from streamlet.runtime.tasks.building import LiveTask, build_task, component_names
from streamlet.runtime.tasks.other_threads import OtherThreads
from streamlet.runtime.tasks.spout_task import SpoutTask
from tests.worker_contexts import made_context


class Words(Spout):
    outputs = [Stream(["word", "n"]), Stream(["note"], name="notes")]

    def next_tuple(self) -> None: ...


class Count(Bolt):
    outputs = ["word", "count"]

    def process(self, tup: Tuple) -> None: ...

    def process_tick(self, tup: Tuple) -> None: ...


class ByBatch(Bolt):
    def process_batch(self, batch: Any) -> None: ...


class Passing(ByBatch):
    outputs = ["word"]


class Collects(BatchingBolt):
    needs_ticks = False

    def process_batch(self, key: Any, tups: list[Tuple]) -> None: ...  # type: ignore[override]


class AcksByHand(ByBatch):
    auto_ack = False


class BoundsItself(AcksByHand):
    answers_for_held = True


class Counting(Topology):
    config = {"topology.message.timeout.secs": 60}
    words = Words.spec()
    count = Count.spec(
        inputs={words: Grouping.fields("word")}, par=3, config={"topology.tick.tuple.freq.secs": 5, "count.own": 1}
    )
    notes = ByBatch.spec(inputs={words["notes"]: Grouping.SHUFFLE, count: Grouping.GLOBAL})


class Building:
    """Worker 0 of some, and what its tasks reported."""

    def __init__(self, workers: int = 1, seed: int = 1, **more: Any) -> None:
        self.reported: list[tuple[str, int, Any]] = []
        self.shared = made_context(
            Counting.__topology__,
            workers,
            epoch=3,
            topology_id="run",
            rng=random.Random(seed),
            report=lambda component, task, error, tup, called: self.reported.append((component, task, called)),
            **more,
        )
        self.tasks = [
            build_task(self.shared, task, OtherThreads()) for task in self.shared.plan.tasks if task.worker == 0
        ]

    def live(self, component: str, index: int = 0) -> LiveTask:
        return [live for live in self.tasks if live.plan.component == component][index]


def test_each_task_has_an_instance_a_context_and_a_logger_of_its_own() -> None:
    building = Building()
    counts = [building.live("count", n) for n in range(3)]
    assert len({id(live.component) for live in counts}) == 3
    context = counts[1].context
    assert (context.component_name, context.task_index, context.task_count) == ("count", 1, 3)
    assert (context.topology_name, context.topology_id, context.epoch) == ("Counting", "run", 3)
    assert context.component_tasks("count") == [live.plan.task_id for live in counts]
    assert {live.component.logger.name.rpartition(".")[2] for live in counts} == {"count"}
    assert component_names(building.tasks)[id(counts[0].component)] == "count"


def test_a_spout_and_a_bolt_are_run_by_their_own_kind_of_task() -> None:
    building = Building()
    assert isinstance(building.live("words").task, SpoutTask) and isinstance(building.live("count").task, BoltTask)


@pytest.mark.parametrize(
    ("behind", "as_sets"), [(ByBatch, True), (BoundsItself, True), (AcksByHand, False), (Collects, False)]
)
def test_trees_are_tracked_as_sets_only_where_no_bolt_behind_keeps_its_tuples(
    behind: type[Bolt], as_sets: bool
) -> None:
    """A set stays open until its last tuple is acked: up to the next tick of a bolt that collects."""

    class Sets(Topology):
        words = type("Words", (Words,), {"outputs": ["word"]}).spec()
        passing = Passing.spec(inputs=[words])
        last = behind.spec(inputs=[passing])

    shared = Building().shared
    shared.plan = make_plan(Sets.__topology__, 1)
    (spout, *_) = [build_task(shared, task, OtherThreads()).task for task in shared.plan.tasks]
    assert isinstance(spout, SpoutTask) and spout._as_sets is as_sets


def test_a_bolt_knows_when_the_first_of_its_tuples_time_out() -> None:
    words = type("Words", (Words,), {"outputs": ["word"]})

    class Mixed(Topology):
        quick = words.spec(config={"topology.message.timeout.secs": "4"})
        untracked = words.spec(config={"topology.message.timeout.secs": 2, "topology.acker.executors": 0})
        usual = words.spec()
        passing = Passing.spec(inputs=[quick, usual, untracked])
        late = Passing.spec(inputs=[passing])
        own = Passing.spec(inputs=[usual])
        free = Passing.spec(inputs=[untracked])

    shared = Building().shared
    shared.plan = make_plan(Mixed.__topology__, 1)
    tasks = [build_task(shared, task, OtherThreads()) for task in shared.plan.tasks]
    first = {live.plan.component: live.context.first_time_out_s for live in tasks}
    nothing = dict.fromkeys(("quick", "untracked", "usual", "free"), None)
    assert first == nothing | {"passing": 4.0, "late": 4.0, "own": 30.0}


def test_a_components_own_settings_stand_over_the_runs_and_are_parsed() -> None:
    building = Building()
    assert building.live("count").conf["topology.tick.tuple.freq.secs"] == 5
    assert building.live("count").conf["count.own"] == 1
    assert building.live("words").conf.get("topology.tick.tuple.freq.secs") != 5
    assert building.live("words").conf["topology.name"] == "Counting"


def test_the_window_of_a_spout_is_steered_by_the_target_of_the_run_or_by_the_spouts_own() -> None:
    class Targets(Topology):
        config = {"streamlet.queue.target.secs": 0.25}
        words = Words.spec()
        quick = Words.spec(config={"streamlet.queue.target.secs": 0.1})

    shared = Building().shared
    shared.plan, shared.conf = make_plan(Targets.__topology__, 1), resolve(Targets.__topology__.config, {})
    tasks = [build_task(shared, task, OtherThreads()).task for task in shared.plan.tasks]
    assert [task.window.target_s for task in tasks if isinstance(task, SpoutTask)] == [0.25, 0.1]


def test_the_batches_of_a_bolt_are_bounded_by_the_shortest_target_of_the_spouts_behind_it() -> None:
    words = type("TargetWords", (Words,), {"outputs": ["word"]})

    class Behind(Topology):
        config = {"streamlet.queue.target.secs": 2.0}
        usual = words.spec()
        quick = words.spec(config={"streamlet.queue.target.secs": "0.4"})
        passing = Passing.spec(inputs=[usual, quick])
        late = Passing.spec(inputs=[passing])
        own = Passing.spec(inputs=[usual], config={"streamlet.queue.target.secs": 100})

    shared = Building().shared
    shared.plan, shared.conf = make_plan(Behind.__topology__, 1), resolve(Behind.__topology__.config, {})
    lives = [build_task(shared, task, OtherThreads()) for task in shared.plan.tasks]
    found = {live.plan.component: live.task.slices.batches.call_s for live in lives if isinstance(live.task, BoltTask)}
    assert found == {"passing": 0.4 * CALL_SHARE, "late": 0.4 * CALL_SHARE, "own": 2.0 * CALL_SHARE}


def test_a_component_knows_what_it_reads_and_emits() -> None:
    building = Building()
    assert building.live("words").context.outputs == {"default": ("word", "n"), "notes": ("note",)}
    assert building.live("notes").context.sources == {
        "words": {"notes": ("note",)},
        "count": {"default": ("word", "count")},
    }


def test_all_streams_of_a_task_that_lead_to_one_task_share_no_more_than_its_outboxes() -> None:
    """One outbox a receiver: rows of one sender to one task keep their order."""
    building = Building()
    receivers = [box.target for box in building.live("words").boxes]
    assert sorted(receivers) == sorted(
        live.plan.task_id for live in building.tasks if live.plan.component in ("count", "notes")
    )


def test_tasks_of_other_workers_are_reached_too() -> None:
    """With two workers not all receivers live here; an outbox is there for each."""
    building = Building(workers=2)
    assert len(building.live("words").boxes) == 4
    assert len(building.tasks) < len(building.shared.plan.tasks)


def test_no_two_tasks_draw_from_one_source_of_chance() -> None:
    """Equal edges of two tasks would cancel out in a tree that has both; with one seed a run is the same again."""
    first, again, other = Building(seed=1), Building(seed=1), Building(seed=2)
    drawn = [[live.context.uniform() for live in one.tasks if live.context.uniform] for one in (first, again, other)]
    assert len(drawn[0]) == len(first.tasks) == len(set(drawn[0]))
    assert drawn[0] == drawn[1] != drawn[2]


def test_acks_and_failures_of_all_bolts_of_a_worker_go_to_one_place() -> None:
    building = Building()
    for live in building.tasks:
        if isinstance(live.task, BoltTask):
            assert live.task.acks is building.shared.acks and live.task.fails is building.shared.fails


def test_an_error_is_reported_with_its_component_and_the_method_that_was_called() -> None:
    """So that its line can be found where the call itself went wrong."""
    building = Building()
    live = building.live("count")
    assert isinstance(live.task, BoltTask)
    live.task.report(ValueError("slip"), Tuple(["w", 1]), live.component.process)  # type: ignore[attr-defined]
    assert building.reported == [("count", live.plan.task_id, live.component.process)]  # type: ignore[attr-defined]


def test_a_wrong_setting_of_a_component_is_refused_by_its_name() -> None:
    class Wrong(Topology):
        words = Words.spec()
        count = Count.spec(inputs=[words], config={"topology.tick.tuple.freq.secs": "soon"})

    shared = Building().shared
    shared.plan = make_plan(Wrong.__topology__, 1)
    with pytest.raises(BadInput, match="count's config"):
        for task in shared.plan.tasks:
            build_task(shared, task, OtherThreads())
