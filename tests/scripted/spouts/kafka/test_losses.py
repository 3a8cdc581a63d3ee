"""What a log has lost is counted wherever it is found, and what was read of a topic that is gone is finished."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import BootClock
from streamlet.components.epoch_tuples import ASK, BEGIN
from streamlet.kafka.broker_errors import CorruptMessage
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from tests.scripted.fake_cluster import FakeCluster, Log
from tests.spout_harness import read_all

TOPIC = "lines"
CORRUPT, UNKNOWN_ERROR = 2, -1
OLD, NEW = "A" * 21 + "Q", "A" * 21 + "g"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({TOPIC: 1}) as cluster:
        cluster.topic_ids[TOPIC] = OLD
        yield cluster


@pytest.fixture
def spout(cluster: FakeCluster, harness: Callable[..., Any]) -> Callable[..., Any]:
    def start(conf: dict[str, Any] | None = None, **settings: Any) -> Any:
        quick = {"state_update_interval_ms": 50, "fetch_max_wait_ms": 20, "retry_initial_delay_ms": 10, **settings}
        hosts = KafkaHosts(cluster.broker.address, refresh_freq_secs=0.2)
        return harness(SpoutConfig(hosts, TOPIC, id="demo", fail_on_data_loss=False, **quick), conf=conf)

    return start


def retire(cluster: FakeCluster, start: int) -> None:
    """Let retention take what lies below."""
    log = cluster.log(TOPIC, 0)
    log.start, log.batches = start, [batch for batch in log.batches if batch[0] >= start]


@pytest.mark.parametrize("running", [True, False])
def test_what_retention_took_is_counted_at_a_start_and_while_it_runs(
    cluster: FakeCluster, spout: Any, running: bool
) -> None:
    cluster.write(TOPIC, *"ab")
    one = spout()
    read_all(one, 2)
    if not running:
        one.spout.close()
    with cluster.changed:
        for _ in "cdefg":
            cluster.log(TOPIC, 0).append(cluster.log(TOPIC, 0).batches[0][2])
        retire(cluster, 5)
    one = one if running else spout()
    one.take(2)
    assert one.spout.lost_count() == one.status()["lost"] == 3


@pytest.mark.parametrize("where", ["start_offset", "stored"])
def test_a_read_begins_behind_an_open_transaction(cluster: FakeCluster, spout: Any, where: str) -> None:
    """The last stable offset is no end of the log."""
    cluster.write(TOPIC, *"abcde")
    cluster.log(TOPIC, 0).open_from = 2
    if where == "stored":
        row = SimpleNamespace(committed_offset=3, committed_leader_epoch=-1, committed_metadata="")
        cluster.committed["demo", TOPIC, 0] = row
    one = spout(**({"start_offset": {0: 3}} if where == "start_offset" else {}))
    assert read_all(one, 2) == ["d", "e"]
    assert one.spout.lost_count() == 0


def test_damage_that_the_leader_finds_stops_the_spout_after_what_stands_before_it(
    cluster: FakeCluster, spout: Any
) -> None:
    """The second time at one position: a broker that is asked again and again would never answer otherwise."""
    cluster.write(TOPIC, *"abc")
    cluster.log(TOPIC, 0).faults[2] = [CORRUPT] * 100
    one = spout()
    one.most = 1
    with pytest.raises(CorruptMessage, match=r"Fetching lines-0 from offset 2.*log is damaged.*offsets reset"):
        one.until(lambda: False)
    assert [values[0] for values, _ in one.tuples] == ["a", "b"]


def test_damage_that_the_leader_finds_once_is_no_stop(cluster: FakeCluster, spout: Any) -> None:
    cluster.write(TOPIC, *"abc")
    cluster.log(TOPIC, 0).faults[2] = [CORRUPT]
    assert read_all(spout(), 3) == ["a", "b", "c"]


def test_an_error_that_the_leader_did_not_expect_is_told_once_and_passes(
    cluster: FakeCluster, spout: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write(TOPIC, *"abc")
    cluster.log(TOPIC, 0).faults[2] = [UNKNOWN_ERROR] * 3
    assert read_all(spout(), 3) == ["a", "b", "c"]
    assert caplog.text.count("lines-0 cannot be read at the moment, trying again") == 1


def test_on_a_machine_that_was_suspended_the_lease_is_over_at_once(
    cluster: FakeCluster, spout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may have the topic by now: nothing is emitted before the coordinator has answered."""
    cluster.write(TOPIC, *"abc")
    one = spout()
    one.take(1)
    assert one.spout.may_send()
    clock, usual = one.spout._clock, BootClock.monotonic
    assert isinstance(clock, BootClock)
    monkeypatch.setattr(BootClock, "monotonic", lambda self: usual(self) + 8 * 3600)
    assert not one.spout.may_send()
    assert len(one.take(2)) == 2


def made_again(cluster: FakeCluster, *values: str) -> None:
    """Delete the topic and make it again, with records of its own."""
    with cluster.changed:
        cluster.topics[TOPIC] = [Log()]
        cluster.topic_ids[TOPIC] = NEW
        cluster.committed.clear()
        cluster.write(TOPIC, *values)


def test_a_record_of_a_topic_that_was_made_again_is_sent_again_until_it_is_done(
    cluster: FakeCluster, spout: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its value is in memory, and nowhere else any more."""
    cluster.write(TOPIC, *"abc")
    one = spout()
    (a, _b, _c) = (tup_id for _, tup_id in one.take(3))
    one.spout.ack(a)
    with caplog.at_level(logging.ERROR):
        made_again(cluster, *"xy")
        values = sorted(values[0] for values, _ in one.take(2))
    assert values == ["x", "y"] and "deleted and created again" in caplog.text
    one.spout.fail(_b)
    one.spout.fail(_c)
    again = one.take(2)
    assert sorted(values[0] for values, _ in again) == ["b", "c"]
    assert len(one.spout.partition_status()) == 1 and one.spout.unfinished_count() == 4
    one.spout.ack_many([tup_id for _, tup_id in again])
    one.until(lambda: len(one.spout._managers) == 1)
    assert one.spout.unfinished_count() == 2


def test_counters_do_not_fall_when_another_manager_takes_over(cluster: FakeCluster, spout: Any) -> None:
    cluster.write(TOPIC, *"abc")
    one = spout(on_poison="skip", retry_limit=1)
    tup_ids = [tup_id for _, tup_id in one.take(3)]
    one.spout.fail(tup_ids[2])
    ((_, again),) = one.take(1)
    one.spout.fail(again)
    one.spout.ack_many(tup_ids[:2])
    one.until(one.committed(3))
    assert (one.spout.given_up_count(), one.status()["failed"]) == (1, 2)
    cluster.log(TOPIC, 0).elect(keeps=2)
    cluster.write(TOPIC, "C")
    assert read_all(one, 1) == ["C"]
    row = one.status()
    assert (one.spout.given_up_count(), row["given_up"], row["failed"], row["lost"]) == (1, 1, 2, 1)


def answer(one: Any, kind: str) -> None:
    """Ack a tuple for the bolt that commits, in its place."""
    one.until(lambda: any(values[0] == kind for values, _ in one.tuples))
    one.ack_all()


def attempt(one: Any, count: int) -> list[str]:
    """Let an attempt begin; return the records that come then."""
    answer(one, BEGIN)
    return [values[0] for values, _ in one.take(count)]


def fail_first(one: Any, count: int) -> None:
    """Let an attempt begin, and the first of its records fail."""
    answer(one, BEGIN)
    one.spout.fail(one.take(count)[0][1])
    answer(one, ASK)


def test_an_attempt_whose_log_was_cut_ends_and_the_next_reads_what_there_is(cluster: FakeCluster, spout: Any) -> None:
    cluster.write(TOPIC, *"abcd")
    one = spout(conf={"topology.delivery": "exactly-once", "topology.commit.interval.ms": 3_600_000})
    assert attempt(one, 4) == ["a", "b", "c", "d"]
    cluster.log(TOPIC, 0).elect(keeps=2)
    one.until(lambda: one.spout.lost_count() == 2)
    cluster.write(TOPIC, "C")
    assert attempt(one, 3) == ["a", "b", "C"]


def test_a_record_given_up_in_a_topic_that_was_made_again_since_passes_over_none_of_the_new_one(
    cluster: FakeCluster, spout: Any
) -> None:
    """With exactly once it is read again until it is committed, and passed over."""
    cluster.write(TOPIC, *"ab")
    one = spout(
        conf={"topology.delivery": "exactly-once", "topology.commit.interval.ms": 3_600_000},
        on_poison="skip",
        retry_limit=1,
    )
    for count in (2, 1):  # an epoch after a failure has fewer
        fail_first(one, count)
    assert attempt(one, 1) == ["b"] and one.spout.given_up_count() == one.status()["given_up"] == 1
    made_again(cluster, *"xy")
    assert attempt(one, 1) == ["x"] and one.spout.given_up_count() == 1


def test_failures_of_a_record_count_for_no_other_at_its_offset(cluster: FakeCluster, spout: Any) -> None:
    cluster.write(TOPIC, "a")
    one = spout(
        conf={"topology.delivery": "exactly-once", "topology.commit.interval.ms": 3_600_000},
        on_poison="skip",
        retry_limit=1,
    )
    fail_first(one, 1)
    assert attempt(one, 1) == ["a"]
    made_again(cluster, "x")
    fail_first(one, 1)
    assert attempt(one, 1) == ["x"] and one.spout.given_up_count() == 0
