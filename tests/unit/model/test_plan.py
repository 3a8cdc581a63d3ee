"""Plans: dense task ids in declaration order, an even spread, the same in every process."""

import pytest

from streamlet import Bolt, Grouping, Spout, Stream, StreamId, Topology
from streamlet.model.plan import make_plan


class Plain(Spout):
    outputs = ["a"]


class Two(Bolt):
    outputs = [Stream(["a"]), Stream(["b"], name="direct", direct=True)]


class Planned(Topology):
    first = Plain.spec(par=2)
    second = Two.spec(inputs=[first], par=3)
    third = Two.spec(inputs=[second["direct"], StreamId("first")])


def test_task_ids_are_dense_from_one_in_declaration_order() -> None:
    plan = make_plan(Planned.__topology__, 2)
    assert [(t.task_id, t.component, t.index) for t in plan.tasks] == [
        (1, "first", 0),
        (2, "first", 1),
        (3, "second", 0),
        (4, "second", 1),
        (5, "second", 2),
        (6, "third", 0),
    ]
    assert [t.task_id for t in plan.spout_tasks] == [1, 2]


@pytest.mark.parametrize("workers", [1, 2, 3, 6, 9])
def test_workers_differ_by_one_task_at_most(workers: int) -> None:
    plan = make_plan(Planned.__topology__, workers)
    loads = [len(plan.tasks_on(worker)) for worker in range(workers)]
    assert sum(loads) == 6 and max(loads) - min(loads) <= 1


def test_equal_inputs_give_equal_plans() -> None:
    assert make_plan(Planned.__topology__, 3) == make_plan(Planned.__topology__, 3)


def test_an_input_without_a_grouping_gets_shuffle_or_direct() -> None:
    """SHUFFLE, as streamparse has it, and DIRECT on a direct stream."""
    plan = make_plan(Planned.__topology__, 1)
    assert {(str(r.source), r.grouping) for r in plan.routes if r.target == "third"} == {
        ("second[direct]", Grouping.DIRECT),
        ("first", Grouping.SHUFFLE),
    }


def test_a_subclass_of_a_topology_keeps_its_components_and_may_replace_one() -> None:
    class More(Planned):
        third = Two.spec(inputs=["second"], par=4)

    spec = More.__topology__
    assert [(c.name, c.par) for c in spec.components] == [("first", 2), ("second", 3), ("third", 4)]


def test_depths_grow_along_every_way() -> None:
    """In whatever order the components are declared: a diamond, one side of which is longer."""

    class Diamond(Topology):
        end = Two.spec(inputs=["first", "long", "short"])
        long = Two.spec(inputs=["first", "short"])
        short = Two.spec(inputs=["first"])
        first = Plain.spec()

    depths = make_plan(Diamond.__topology__, 2).depths()
    assert sorted(depths, key=depths.__getitem__) == ["first", "short", "long", "end"]


def test_an_edge_that_closes_a_cycle_goes_back() -> None:
    """To the middle, and to itself."""

    class Cycle(Topology):
        end = Two.spec(inputs=["long", "end"])
        long = Two.spec(inputs=["short"])
        short = Two.spec(inputs=["first", "end"])
        first = Plain.spec()

    plan = make_plan(Cycle.__topology__, 2)
    ahead = {task.component: plan.ahead_of(task, plan.depths()) for task in plan.tasks}
    task_of = {task.component: task.task_id for task in plan.tasks}
    assert ahead == {"first": {task_of["short"]}, "short": {task_of["long"]}, "long": {task_of["end"]}, "end": set()}
