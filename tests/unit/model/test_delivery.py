"""``topology.delivery: exactly-once``: what is refused before a run, and the stream that is added."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, ReliableSpout, Topology
from streamlet.base.errors import SettingError
from streamlet.bolts.kafka import KafkaBolt
from streamlet.model.delivery import EPOCH_STREAMS, EPOCHS, LETTERS, not_covered
from streamlet.model.plan import make_plan
from streamlet.model.settings import resolve
from streamlet.model.topology import TopologySpec
from streamlet.model.validate import validate
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig, ZkOffsets

EXACTLY = {"topology.delivery": "exactly-once"}


class Same(Bolt):
    outputs = ["line"]

    def process(self, tup: Any) -> None:
        self.emit(tup.values)


class Numbers(ReliableSpout):
    outputs = ["line"]

    def next_tuple(self) -> None:
        pass


def read(**more: Any) -> Any:
    return KafkaSpout.spec(config=SpoutConfig(KafkaHosts("k:1"), "lines", id="x", **more), par=2)


def out(source: Any, **more: Any) -> Any:
    return KafkaBolt.spec(inputs=[source], hosts="k:1", topic="copy", **more)


class Copying(Topology):
    lines = read()
    same = Same.spec(inputs=[lines])
    copy = out(same)


def said(topology: TopologySpec, settings: dict[str, Any] = EXACTLY) -> list[str]:
    return [str(problem) for problem in validate(topology, imported=False, settings=settings)]


def test_a_topology_from_kafka_to_kafka_has_no_problem() -> None:
    assert said(Copying.__topology__) == []


def test_each_spout_tells_the_bolt_that_commits_on_streams_of_its_own() -> None:
    plan = make_plan(Copying.__topology__, 2, EXACTLY)
    routes = [route for route in plan.routes if route.source.stream in EPOCH_STREAMS]
    assert [route.source.stream for route in routes] == [EPOCHS, LETTERS]
    for route in routes:
        assert (route.source.component, route.target, str(route.grouping.kind)) == ("lines", "copy", "global")
    assert not any(route.source.stream in EPOCH_STREAMS for route in make_plan(Copying.__topology__, 2).routes)


def test_dead_letters_take_part() -> None:
    class Kept(Topology):
        lines = read(on_poison="dead-letter", dead_letter_topic="dead")
        same = Same.spec(inputs=[lines])
        copy = out(same)

    assert said(Kept.__topology__) == []
    assert "the records that copy writes, dead letters among them, with the offsets" in not_covered(Kept.__topology__)
    assert "dead letters" not in not_covered(Copying.__topology__)


def test_a_topology_that_writes_nothing_to_kafka_is_refused() -> None:
    class Nothing(Topology):
        lines = read()
        same = Same.spec(inputs=[lines])

    assert "no bolt writes to Kafka" in said(Nothing.__topology__)[0]
    assert said(Nothing.__topology__, {}) == []


def test_two_bolts_or_two_tasks_that_write_are_refused() -> None:
    class Two(Topology):
        lines = read()
        one = out(lines, par=2)
        two = out(lines)

    found = said(Two.__topology__)
    assert found[0].startswith("two: ")
    assert "one writes to Kafka, too: one transaction has one producer" in found[0]
    assert "par is 2: one transaction has one producer" in found[1]


def test_spouts_that_are_none_of_kafka_or_keep_offsets_elsewhere_are_refused() -> None:
    class Others(Topology):
        config = EXACTLY
        numbers = Numbers.spec()
        lines = read(offset_store=ZkOffsets("zk:1"), zk_root="/x")
        copy = KafkaBolt.spec(inputs=[numbers, lines], hosts="k:1", topic="copy", value=str)

    found = said(Others.__topology__, {})
    assert "numbers: topology.delivery is exactly-once, and Numbers reads from elsewhere than Kafka" in found[0]
    assert "lines: topology.delivery is exactly-once, and this spout keeps its offsets in ZooKeeper" in found[1]


def test_settings_that_transactions_contradict_are_refused() -> None:
    class Fast(Topology):
        lines = read()
        copy = out(lines, acks=1)

    assert "acks = 1 contradicts transactional_id" in said(Fast.__topology__)[0]
    with pytest.raises(SettingError, match=r"topology\.acker\.executors is 0"):
        resolve(EXACTLY, {"topology.acker.executors": 0})


def test_a_sentence_says_what_is_not_covered() -> None:
    assert "Not covered: what same keeps in memory" in not_covered(Copying.__topology__)
