"""A real ZooKeeper that is away, slow, foreign or forgetful."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from streamlet.coordination.node_store import NodeStoreUnavailable, StoreState
from streamlet.coordination.zookeeper import ZooKeeperNodeStore
from streamlet.devcluster.machine import free_ports
from tests.patience import until
from tests.scripted.coordination.little_zookeeper import GET_DATA, MULTI, little_zookeeper
from tests.wrong_ports import saying, web_server


def test_where_nobody_listens_the_address_and_a_remedy_are_told() -> None:
    """One paragraph with the address, the reason and a remedy, within the time-out."""
    (port,) = free_ports(1)
    with pytest.raises(NodeStoreUnavailable, match=f"127.0.0.1:{port}.*refused.*streamlet dev up") as caught:
        ZooKeeperNodeStore(f"127.0.0.1:{port}/x", connect_timeout_s=0.5)
    assert "\n" not in caught.value.message
    assert not caught.value.outcome_unknown


def test_of_an_ensemble_each_hosts_own_answer_is_told() -> None:
    """One refuses, one accepts and is silent, one has no address: each by its name, in the order of the setting."""
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = [f"127.0.0.1:{port}", f"127.0.0.1:{silent.getsockname()[1]}", "no-such-host.invalid:2181"]
        with pytest.raises(NodeStoreUnavailable) as caught:
            ZooKeeperNodeStore(f"{','.join(hosts)}/x", connect_timeout_s=1.5)
    said = caught.value.message
    for host, answer in zip(hosts, ("Connection refused", "timed out", ""), strict=True):
        assert f"{host}: {answer}" in said, said
    assert said.count("\n") == 0 and "Check that a ZooKeeper runs there" in said


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP, not ZooKeeper's protocol"),
        (b"\0\0\0\x24" + bytes(36), "an unknown protocol"),
        (b"\0\0\0\x25\1", "an unknown protocol"),
    ],
)
def test_another_protocol_is_told_at_once(answer: bytes, named: str) -> None:
    """Told at once, with what is spoken instead and where a ZooKeeper is to be found; no time-out is waited for."""
    with saying(answer) as port, pytest.raises(NodeStoreUnavailable) as caught:
        ZooKeeperNodeStore(f"127.0.0.1:{port}", connect_timeout_s=600)
    assert all(part in caught.value.message for part in (f"127.0.0.1:{port}", named, "usually 2181"))
    assert caught.value.spoken and not caught.value.retriable


def test_a_web_server_that_waits_for_a_line() -> None:
    """It answers a ZooKeeper client nothing at all; asked in its own words it is known at once."""
    with web_server() as port, pytest.raises(NodeStoreUnavailable, match="it speaks HTTP") as caught:
        ZooKeeperNodeStore(f"127.0.0.1:{port}", connect_timeout_s=600)
    assert caught.value.spoken == {"HTTP"}


def test_what_is_waited_for_is_said_once() -> None:
    """After a second: the address, the reason so far, and how much longer."""
    (port,) = free_ports(1)
    said: list[str] = []
    with pytest.raises(NodeStoreUnavailable):
        ZooKeeperNodeStore(f"127.0.0.1:{port}", connect_timeout_s=1.8, on_wait=said.append)
    assert len(said) == 1 and all(part in said[0] for part in (f"127.0.0.1:{port}", "refused", "for up to 1 s more"))


def test_a_port_that_answers_nothing_fails_at_the_time_out() -> None:
    """Connected, but no answer: bounded by the time-out."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(NodeStoreUnavailable, match="timed out"):
            ZooKeeperNodeStore(f"127.0.0.1:{port}", connect_timeout_s=0.5)


def test_a_fresh_read_goes_behind_a_transaction() -> None:
    """A server without a quorum answers a plain read, and no fresh one."""
    with little_zookeeper() as server:
        store = ZooKeeperNodeStore(f"127.0.0.1:{server.port}", request_timeout_s=1)
        try:
            assert store.get("/a") == (b"data", 3) and server.asked == [GET_DATA]
            assert store.get("/a", fresh=True) == (b"data", 3) and server.asked[1:] == [MULTI, GET_DATA]
            server.has_quorum = False
            assert store.get("/a") == (b"data", 3)
            with pytest.raises(NodeStoreUnavailable, match="no answer about /a within 1 s"):
                store.get("/a", fresh=True)
        finally:
            store.close()


def test_a_server_that_takes_a_connection_and_answers_nothing_does_not_cost_the_session() -> None:
    """The client asks again while its session lives, by another connection."""
    with (
        little_zookeeper() as server,
        closing(ZooKeeperNodeStore(f"127.0.0.1:{server.port}", session_timeout_s=6)) as store,
    ):
        before = len(server.taken)
        server.ignored = 1
        server.cut()
        until(lambda: len(server.taken) >= before + 2)
        ignored, asked_again = server.taken[before : before + 2]
        assert asked_again - ignored < 6
        until(lambda: store.state is StoreState.CONNECTED)
