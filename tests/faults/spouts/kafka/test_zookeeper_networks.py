"""A KafkaSpout whose offsets are in an ensemble of three that the network takes away for longer than a session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.faults.copied_topic import BROKER, CLIENT, Copying, broker_on
from tests.faults.ensemble import ThreeZooKeepers, read_by_kazoo
from tests.faults.network import FAULTS, Fault, Network, delay_and_loss
from tests.faults.rig import wait_for

pytestmark = pytest.mark.real

SESSION_S = 4.0
FAULT_S = SESSION_S + 3.0


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(*ThreeZooKeepers.names, BROKER, CLIENT) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(network: Network) -> Iterator[DevCluster]:
    with broker_on(network) as made:
        yield made


@pytest.fixture(scope="module")
def ensemble(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeZooKeepers]:
    with ThreeZooKeepers(network, tmp_path_factory.mktemp("ensemble")) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_d1_a_topology_whose_network_to_zookeeper_fails_for_longer_than_a_session_copies_each_record_once(
    network: Network,
    cluster: DevCluster,
    ensemble: ThreeZooKeepers,
    topic_name: Callable[[], str],
    tmp_path: Path,
    fault: Fault,
) -> None:
    """It emits while its lease lasts, then rests, and goes on in order as the same owner; Kafka is there all along."""
    topic = topic_name()
    place = f'zk_root="/{topic}", offset_store=ZkOffsets("{ensemble.servers}")'
    made = Copying(network, cluster, tmp_path, topic, f"{place}, session_timeout_ms={SESSION_S * 1000:.0f}")
    try:
        wait_for("the first records to be copied", lambda: made.copied() > 200, told=made.said)
        for name in ensemble.names:
            fault(network, CLIENT, name)
        time.sleep(SESSION_S + 1.0)  # the fault itself: the lease and what was fetched are over by then
        before = len(made.seen())
        time.sleep(FAULT_S - SESSION_S - 1.0)
        after = len(made.seen())
        assert (after > before) == (fault is delay_and_loss), f"{before}, then {after}: {made.said()}"
        network.heal()
        wait_for("more to be copied", lambda: len(made.seen()) > after + 200, told=made.said)
        made.end()
        made.check(may_be_taken_back=True)
        data, _ = read_by_kazoo(network, BROKER, ensemble.servers, f"/{topic}/{topic}/partition_0")
        stored = json.loads(data)
        assert (stored["offset"], stored["owner_epoch"]) == (made.written, 1)
    finally:
        network.heal()
        made.close()
