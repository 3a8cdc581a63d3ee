"""A real ZooKeeper that is away, slow, foreign or forgetful."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from streamlet.coordination.node_store import AuthFailed, NodeStoreUnavailable, StoreState
from streamlet.coordination.zookeeper import ZooKeeperNodeStore
from streamlet.devcluster import DevCluster
from streamlet.devcluster.machine import free_ports
from tests.patience import PATIENCE_S, until


@pytest.fixture(scope="module")
def ensemble() -> Iterator[DevCluster]:
    """A ZooKeeper of this module's own, to be hurt."""
    with DevCluster("3.9", brokers=0) as cluster:
        yield cluster


@pytest.fixture
def store(ensemble: DevCluster, topic_name: Callable[[], str]) -> Iterator[ZooKeeperNodeStore]:
    store = ZooKeeperNodeStore(f"{ensemble.zookeeper}/{topic_name()}", session_timeout_s=4, request_timeout_s=2)
    yield store
    store.close()


def test_a_broker_is_no_zookeeper(kafka39: DevCluster) -> None:
    """The commonest mistake, the broker's address, is told at once."""
    with pytest.raises(NodeStoreUnavailable, match="it speaks Kafka, not ZooKeeper's protocol") as caught:
        ZooKeeperNodeStore(kafka39.bootstrap_servers, connect_timeout_s=600)
    assert caught.value.spoken == {"Kafka"}


def test_one_living_host_is_enough(ensemble: DevCluster) -> None:
    """A dead address before the living one costs nothing but a look."""
    (port,) = free_ports(1)
    store = ZooKeeperNodeStore(f"127.0.0.1:{port},{ensemble.zookeeper}")
    try:
        assert store.exists("/zookeeper") is not None
    finally:
        store.close()


def test_kazoo_reads_what_was_written(ensemble: DevCluster, topic_name: Callable[[], str]) -> None:
    """The chroot is an ordinary path to everybody else."""
    chroot = topic_name()
    store = ZooKeeperNodeStore(f"{ensemble.zookeeper}/deep/{chroot}")
    witness = KazooClient(ensemble.zookeeper)
    witness.start(10)
    try:
        store.create("/offset", b"17")
        assert witness.get(f"/deep/{chroot}/offset")[0] == b"17"
    finally:
        witness.stop()
        witness.close()
        store.close()


@pytest.mark.faults
def test_a_restart_of_the_ensemble_keeps_the_session_and_the_writes_that_waited(
    ensemble: DevCluster, topic_name: Callable[[], str]
) -> None:
    """Away: SUSPENDED, calls fail as outcome unknown. Back: same session, and the writes that waited
    arrive. A session lasts longer than servers may take to start on a busy machine.
    """
    with closing(ZooKeeperNodeStore(f"{ensemble.zookeeper}/{topic_name()}", session_timeout_s=30)) as store:
        _restart_under(ensemble, store)


def _restart_under(ensemble: DevCluster, store: ZooKeeperNodeStore) -> None:
    store.create("/a")
    session = store.session_id
    ensemble.stop_zookeeper()
    until(lambda: store.state is not StoreState.CONNECTED)
    waiting = store.set_async("/a", b"1", 0)
    assert not waiting.done()
    ensemble.start_zookeeper()
    assert waiting.result(PATIENCE_S) == 1
    until(lambda: store.state is StoreState.CONNECTED)
    assert store.session_id == session
    assert store.get("/a") == (b"1", 1)


@pytest.mark.faults
def test_a_paused_ensemble_ends_calls_by_their_time_out_as_unknown(
    ensemble: DevCluster, store: ZooKeeperNodeStore
) -> None:
    """No answer: the caller's time-out ends the call as outcome unknown; close comes back; the future
    fails.
    """
    store.create("/a")
    ensemble.pause_zookeeper()
    try:
        with pytest.raises(NodeStoreUnavailable, match=r"no answer|connection was lost") as caught:
            store.get("/a")
        assert caught.value.outcome_unknown
        waiting = store.set_async("/a", b"1", 0)
        store.close()
        with pytest.raises(NodeStoreUnavailable):
            waiting.result(0)
    finally:
        ensemble.resume_zookeeper()


@pytest.mark.faults
def test_an_expired_session_is_noticed(ensemble: DevCluster, store: ZooKeeperNodeStore) -> None:
    """Expired from outside: the store comes back with another session id, and works."""
    store.create("/a")
    session, password = store._client.client_id
    assert session == store.session_id
    ensemble.expire_session(session, password)
    until(lambda: store.session_id not in (None, session) and store.state is StoreState.CONNECTED)
    assert store.get("/a") == (b"", 0)


@pytest.mark.faults
def test_an_ephemeral_node_goes_with_the_session_and_its_watch_tells(
    ensemble: DevCluster, store: ZooKeeperNodeStore
) -> None:
    """The store itself makes nothing again in its new session."""
    told = threading.Event()
    store.create("/owners/one", b"data", ephemeral=True)
    store.get("/owners/one", lambda _: told.set())
    session, password = store._client.client_id
    ensemble.expire_session(session, password)
    assert told.wait(PATIENCE_S)
    until(lambda: store.session_id not in (None, session) and store.state is StoreState.CONNECTED)
    assert store.get("/owners/one") is None


def test_a_session_lasts_no_longer_than_the_server_grants(ensemble: DevCluster, topic_name: Callable[[], str]) -> None:
    asked = 3600.0
    nodes = ZooKeeperNodeStore(f"{ensemble.zookeeper}/{topic_name()}", session_timeout_s=asked)
    try:
        assert 0 < nodes.session_timeout_s < asked
    finally:
        nodes.close()


def test_nodes_made_with_a_user_are_closed_to_another(ensemble: DevCluster, topic_name: Callable[[], str]) -> None:
    """Nodes made with a user belong to that user; another one is told so, and no secret appears."""
    chroot = topic_name()
    hosts = f"{ensemble.zookeeper}/{chroot}"
    owner = ZooKeeperNodeStore(hosts, digest=("ann", "sesame"))
    stranger = ZooKeeperNodeStore(hosts, digest=("bob", "guess"))
    try:
        owner.create("/a/b", b"mine")
        assert owner.get("/a/b") == (b"mine", 0)
        with pytest.raises(AuthFailed, match="/a/b") as caught:
            stranger.get("/a/b")
        with pytest.raises(AuthFailed):
            stranger.set_async("/a/b", b"", 0).result(PATIENCE_S)
        assert "guess" not in caught.value.message + repr(stranger)
        # Seen by another client: its user alone may do anything, on every node that was made on the way.
        other = KazooClient(ensemble.zookeeper)
        with contextlib.ExitStack() as undo:
            undo.callback(other.close)
            undo.callback(other.stop)
            other.start()
            with pytest.raises(NoAuthError):
                other.get(f"/{chroot}/a/b")
            other.add_auth("digest", "ann:sesame")
            for path in (f"/{chroot}/a", f"/{chroot}/a/b"):
                acls, _ = other.get_acls(path)
                assert [(acl.id.scheme, acl.id.id.partition(":")[0]) for acl in acls] == [("digest", "ann")], path
    finally:
        stranger.close()
        owner.close()
