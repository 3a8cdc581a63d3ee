"""Offsets in an ensemble of three, whose leader is killed, paused and cut off; writes whose answer is lost.

Every host has its own address, so the network between them can be cut. What is stored is read back by kazoo alone.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest

from streamlet.coordination.node_store import NodeStoreUnavailable
from streamlet.coordination.zookeeper import ZooKeeperNodeStore
from streamlet.spouts.kafka.errors import Deposed
from streamlet.spouts.kafka.stores.offset_store import CommitPosition, Reason
from tests.faults.ensemble import PORT, SESSION_S, SYNC_TICKS, TICK_MS, ThreeZooKeepers, Writer, read_by_kazoo, writer
from tests.faults.network import FAULTS, Fault, Network, delay_and_loss
from tests.faults.rig import wait_for

pytestmark = pytest.mark.real

CLIENT, OTHER = "client", "other"
NODE = "/streamlet/spout/partition_0"
FAULT_S = 6.0
"""Seconds that a fault of the whole network lasts: longer than a session."""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(*ThreeZooKeepers.names, CLIENT, OTHER) as made:
        yield made


@pytest.fixture(scope="module")
def started(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeZooKeepers]:
    with ThreeZooKeepers(network, tmp_path_factory.mktemp("ensemble")) as made:
        yield made


@pytest.fixture
def ensemble(network: Network, started: ThreeZooKeepers) -> Iterator[ThreeZooKeepers]:
    """All three serve, before each test."""
    started.await_leader()
    yield started
    network.heal()


@pytest.fixture
def servers(ensemble: ThreeZooKeepers, request: pytest.FixtureRequest) -> str:
    """The ensemble with a chroot of this test's own."""
    return f"{ensemble.servers}/t{abs(hash(request.node.name))}"


def check_stored(network: Network, servers: str, made: Writer) -> None:
    """The ensemble has the last answered commit, or one that was tried after it; by nobody else."""
    address, _, chroot = servers.partition("/")
    data, version = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
    fields = json.loads(data)
    assert fields["topology"]["id"] == made.topology_id and fields["offset"] >= made.committed
    print(f"offset {fields['offset']}, version {version}, slowest {made.slowest_s:.1f} s, {len(made.unknown)} unknown")


@pytest.mark.parametrize("what", ["killed", "paused", "cut off from all", "cut off from the others alone"])
def test_d5_commits_go_on_without_the_leader_of_the_ensemble_and_none_goes_back(
    network: Network, ensemble: ThreeZooKeepers, servers: str, what: str
) -> None:
    with writer(network, CLIENT, servers) as made:
        made.open()
        made.commit_until(50)
        leader = ensemble.await_leader()
        match what:
            case "killed":
                ensemble.kill(leader)
            case "paused":
                ensemble.pause(leader)
            case "cut off from all":
                ensemble.cut_off(leader, client=CLIENT)
            case _:
                ensemble.cut_off(leader)
        try:
            made.commit_until(1)
            assert ensemble.await_leader(leader) != leader
            made.commit_until(50)
        finally:
            if what == "killed":
                ensemble.start(leader)
            ensemble.resume(leader)
            network.heal()
        ensemble.await_leader()
        made.commit_until(50)
        check_stored(network, servers, made)


def member(network: Network, ensemble: ThreeZooKeepers, made: Writer) -> str:
    """The host of the ensemble that a store talks to."""
    here = made.store._client._connection._socket.getpeername()[0]
    return next(name for name in ensemble.names if network.address(name) == here)


def test_d5_a_rolling_restart_of_the_ensemble_keeps_the_owner_and_commits_never_go_back(
    network: Network, ensemble: ThreeZooKeepers, servers: str
) -> None:
    """Each member in its turn is ended and started again, the leader among them."""
    with writer(network, CLIENT, servers) as made:
        made.open()
        made.commit_until(20)
        leaders = {ensemble.await_leader()}
        for name in ensemble.names:
            ensemble.kill(name)
            made.commit_until(20)
            ensemble.start(name)
            leaders.add(ensemble.await_leader())
            made.commit_until(20)
        assert len(leaders) > 1
        check_stored(network, servers, made)
        address, _, chroot = servers.partition("/")
        data, _ = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
        assert json.loads(data)["owner_epoch"] == 1
        assert not made.store._client.read_only


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_d5_the_network_to_the_member_that_a_spout_talks_to_fails_and_another_is_found(
    network: Network, ensemble: ThreeZooKeepers, servers: str, fault: Fault
) -> None:
    """With a black hole nobody refuses the connection. It is found within the session's time."""
    with writer(network, CLIENT, servers) as made:
        made.open()
        made.commit_until(20)
        name = member(network, ensemble, made)
        since = time.monotonic()
        fault(network, CLIENT, name)
        made.commit_until(1)
        print(f"answered after {time.monotonic() - since:.1f} s")
        made.commit_until(20)
        assert fault is delay_and_loss or member(network, ensemble, made) != name
        check_stored(network, servers, made)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_member_that_is_cut_off_from_the_others_answers_no_fresh_read(
    network: Network, ensemble: ThreeZooKeepers, role: str
) -> None:
    """It serves for up to ``syncLimit`` ticks more, while the others may elect a leader and end sessions."""
    leader = ensemble.await_leader()
    name = leader if role == "leader" else next(name for name in ensemble.names if name != leader)
    with network.inside(CLIENT), contextlib.ExitStack() as held:
        # Two sessions: in one of them a plain read would wait behind a fresh one.
        fresh, plain = (
            ZooKeeperNodeStore(f"{network.address(name)}:{PORT}", session_timeout_s=SESSION_S, request_timeout_s=1)
            for _ in range(2)
        )
        held.callback(fresh.close)
        held.callback(plain.close)
        assert fresh.get("/", fresh=True) is not None
        ensemble.cut_off(name)
        assert plain.get("/") is not None
        until = time.monotonic() + SYNC_TICKS * TICK_MS / 1000
        while time.monotonic() < until:
            with pytest.raises(NodeStoreUnavailable):
                fresh.get("/", fresh=True)
            with pytest.raises(NodeStoreUnavailable):
                fresh.children("/", fresh=True)
        network.heal()
        ensemble.await_leader()
        wait_for("fresh reads again", lambda: _answers(fresh))


def _answers(store: ZooKeeperNodeStore) -> bool:
    with contextlib.suppress(NodeStoreUnavailable):
        return store.get("/", fresh=True) is not None
    return False


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_d5_the_network_to_the_whole_ensemble_fails_and_commits_go_on_when_it_heals(
    network: Network, ensemble: ThreeZooKeepers, servers: str, fault: Fault
) -> None:
    """No commit is taken for done that is not, none goes back, and nobody is taken for another owner."""
    with writer(network, CLIENT, servers) as made:
        made.open()
        made.commit_until(20)
        for name in ensemble.names:
            fault(network, CLIENT, name)
        until, before = time.monotonic() + FAULT_S, made.committed
        while time.monotonic() < until:
            made.commit(made.committed + 1)
        if fault is delay_and_loss:
            assert made.committed > before
        else:  # one may have been on its way when the network failed
            assert made.committed <= before + 1 and made.unknown
        network.heal()
        made.commit_until(50)
        check_stored(network, servers, made)
        address, _, chroot = servers.partition("/")
        data, _ = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
        assert json.loads(data)["owner_epoch"] == 1


def test_d5_a_spout_that_starts_with_a_member_it_cannot_reach_uses_the_others(
    network: Network, ensemble: ThreeZooKeepers, servers: str
) -> None:
    network.black_hole(CLIENT, "zk1")
    for _ in range(3):  # the order is kazoo's, at random
        with writer(network, CLIENT, servers) as made:
            made.open()
            made.commit_until(5)
    check_stored(network, servers, made)


def test_d4_a_commit_that_is_applied_while_its_answer_is_lost_is_taken_for_the_spouts_own(
    network: Network, ensemble: ThreeZooKeepers, servers: str
) -> None:
    with writer(network, CLIENT, servers) as made:
        made.open()
        made.commit_until(10)
        offset = made.committed + 1
        for name in ensemble.names:
            network.way(name, CLIENT).drop = True
        lost = made.offsets.commit({made.partition: CommitPosition(offset)})
        write = next(lost)
        address, _, chroot = servers.partition("/")
        wait_for(
            "the commit to be applied",
            lambda: json.loads(read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")[0])["offset"] == offset,
        )
        assert not write.done()  # type: ignore[attr-defined]
        wait_for("the store to notice", write.done, 20)  # type: ignore[attr-defined]
        network.heal()
        with pytest.raises(StopIteration) as ended:
            next(lost)
        (outcome,) = ended.value.value.values()
        assert isinstance(outcome, NodeStoreUnavailable) and outcome.outcome_unknown
        _, before = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
        made.commit_until(10)
        assert not [error for error in made.unknown if isinstance(error, Deposed)]
        _, after = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
        assert after - before == 10, "each commit was written once"
        check_stored(network, servers, made)


def test_d4_a_claim_that_is_applied_while_its_answer_is_lost_deposes_nobody(
    network: Network, ensemble: ThreeZooKeepers, servers: str
) -> None:
    with writer(network, CLIENT, servers) as made:
        made.open()
        made.commit_until(10)
        stored = made.committed

    def cut() -> None:
        for name in ensemble.names:
            network.way(name, CLIENT).drop = True

    with writer(network, CLIENT, servers, "run-2") as made:
        with pytest.raises(NodeStoreUnavailable):
            made.open(cut)
        address, _, chroot = servers.partition("/")
        data, _ = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
        assert json.loads(data)["owner_epoch"] == 2, "it was applied"
        network.heal()
        decision = made.open_again()
        assert (decision.offset, decision.reason) == (stored, Reason.STORED)
        made.commit_until(10)
        data, _ = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
        assert json.loads(data)["owner_epoch"] == 2, "claimed once"


def test_d3_an_owner_that_was_cut_off_while_another_took_over_is_deposed_and_overwrites_nothing(
    network: Network, ensemble: ThreeZooKeepers, servers: str
) -> None:
    with writer(network, CLIENT, servers) as old, writer(network, OTHER, servers, "run-2") as new:
        old.open()
        old.commit_until(10)
        for name in ensemble.names:
            network.black_hole(CLIENT, name)
        waiting = old.offsets.commit({old.partition: CommitPosition(10_000)})
        next(waiting)
        assert new.open().offset == old.committed
        new.commit_until(10)
        network.heal()
        with pytest.raises(Deposed):
            old.commit_until(1)
        new.commit_until(10)
        check_stored(network, servers, new)
        data, _ = read_by_kazoo(network, OTHER, servers.partition("/")[0], f"/{servers.partition('/')[2]}{NODE}")
        assert json.loads(data)["offset"] == new.committed


def test_d12_a_connection_that_breaks_each_second_costs_neither_owner_nor_extra_writes(
    network: Network, ensemble: ThreeZooKeepers, servers: str
) -> None:
    with writer(network, CLIENT, servers) as made:
        made.open()
        for _ in range(6):
            made.commit_until(10)
            for name in ensemble.names:
                for way in network.both(CLIENT, name):
                    way.reset = True
            time.sleep(0.2)
            network.heal()
        made.commit_until(10)
        address, _, chroot = servers.partition("/")
        data, version = read_by_kazoo(network, OTHER, address, f"/{chroot}{NODE}")
        assert json.loads(data)["owner_epoch"] == 1
        assert version <= 70 + len(made.unknown)
        check_stored(network, servers, made)
