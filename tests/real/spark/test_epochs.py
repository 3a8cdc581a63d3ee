"""One epoch's partition, tried twice, as executors would: against a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Producer
from streamlet.kafka.producer.errors import ProducerFenced
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.spark.epochs import Epoch, EpochOutcome, PlanChanged, check_plan, write_epoch
from tests.real.spark.topics import rows_of

FIRST = Epoch("p", "query", "run-1", 0, 0)


def tried(cluster: DevCluster, topic: str, epoch: Epoch, values: list[bytes], fail: bool = False) -> EpochOutcome:
    """One try of an epoch; ``fail``: the executor's task ends in the middle."""
    epoch = replace(epoch, query=topic)

    def send_all(producer: Producer) -> tuple[str, int]:
        producer.send_many(topic, values)
        producer.flush()
        if fail:
            raise RuntimeError("the task fails")
        return topic, len(values)

    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=epoch.own) as producer:
        return write_epoch(epoch, producer, send_all, lambda: len(values))


def written(cluster: DevCluster, topic: str) -> list[bytes | None]:
    return [row[3] for row in rows_of(cluster, topic)]


def test_a_second_try_finds_the_marker_and_writes_nothing(kafka4: DevCluster, make_topic: Callable[..., str]) -> None:
    topic = make_topic(kafka4)
    assert tried(kafka4, topic, FIRST, [b"a", b"b"]) == EpochOutcome(2)
    assert tried(kafka4, topic, FIRST, [b"a", b"b"]) == EpochOutcome(2)
    assert tried(kafka4, topic, replace(FIRST, run="run-2"), [b"a", b"b"]) == EpochOutcome(2, again=True)
    assert tried(kafka4, topic, replace(FIRST, number=1), [b"c"]) == EpochOutcome(1)
    assert written(kafka4, topic) == [b"a", b"b", b"c"]


def test_a_try_that_failed_leaves_nothing_and_is_made_up_for(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(kafka4)
    with pytest.raises(RuntimeError):
        tried(kafka4, topic, FIRST, [b"a"], fail=True)
    assert written(kafka4, topic) == []
    tried(kafka4, topic, FIRST, [b"a"])
    assert written(kafka4, topic) == [b"a"]


def test_a_former_try_that_comes_back_is_fenced(kafka4: DevCluster, make_topic: Callable[..., str]) -> None:
    """An executor that stood still in the middle of its transaction, while another one took over."""
    topic = make_topic(kafka4)
    epoch = replace(FIRST, query=topic)
    with Producer(bootstrap_servers=kafka4.bootstrap_servers, transactional_id=epoch.own) as late:

        def send_all(producer: Producer) -> tuple[str, int]:
            producer.send(topic, b"a")
            producer.flush()
            tried(kafka4, topic, FIRST, [b"a"])
            return topic, 1

        with pytest.raises(ProducerFenced):
            write_epoch(epoch, late, send_all, lambda: 1)
    assert written(kafka4, topic) == [b"a"]


def test_other_rows_than_before_and_an_older_epoch_are_refused(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(kafka4)
    tried(kafka4, topic, replace(FIRST, number=7), [b"a", b"b"])
    with pytest.raises(PlanChanged, match="partition 0 had 2 rows, which are in the topic; now it has 1"):
        tried(kafka4, topic, replace(FIRST, number=7), [b"a"])
    with pytest.raises(PlanChanged, match="has written epoch 7 already, and epoch 5 is to be written"):
        tried(kafka4, topic, replace(FIRST, number=5), [b"a", b"b"])
    assert written(kafka4, topic) == [b"a", b"b"]


def test_a_partition_that_the_plan_no_longer_has_is_found_by_its_marker(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    """Partition 1 was written, the query stopped, and the next run has partition 0 alone."""
    topic = make_topic(kafka4)
    tried(kafka4, topic, replace(FIRST, partition=1), [b"b"])
    done = tried(kafka4, topic, replace(FIRST, run="run-2"), [b"a", b"b"])
    assert done.again
    settings = {"bootstrap_servers": kafka4.bootstrap_servers}
    check_plan(0, topic, {0, 1}, "p", ProducerConfig.of(settings))
    with pytest.raises(PlanChanged, match=r"than the 1 that have some now.*1 of its rows may be in the topic twice"):
        check_plan(0, topic, {0}, "p", ProducerConfig.of(settings))
