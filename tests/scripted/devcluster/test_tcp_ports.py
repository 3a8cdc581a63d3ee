"""Free ports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from streamlet.devcluster.machine import ephemeral_floor, free_ports, is_free, listens


def test_random_ports_are_free_different_and_below_the_ephemeral_range() -> None:
    """So that no outgoing connection ever takes one as its source."""
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(port < ephemeral_floor() for port in ports)
    assert all(is_free(port) for port in ports)


def test_preferred_ports_keep_their_place() -> None:
    """One that is taken is replaced; those after it stay where they are."""
    first, second, third = free_ports(3)
    assert free_ports(4, (first, second, third))[:3] == [first, second, third]
    with socket.create_server(("127.0.0.1", second)):
        assert not is_free(second)
        found = free_ports(3, (first, second, third))
    assert (found[0], found[2]) == (first, third)
    assert found[1] not in (first, second, third)


def test_only_a_process_that_listens_on_a_port_counts() -> None:
    """This process or that one; an open connection is no listener; of a process that is gone nothing is known."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with other, socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("::1", 0), family=10) as six:
        port = server.getsockname()[1]
        assert listens(os.getpid(), port) and listens(os.getpid(), six.getsockname()[1])
        assert not listens(other.pid, port)
        with socket.create_connection(("127.0.0.1", port)) as link:
            assert not listens(os.getpid(), link.getsockname()[1])
        other.communicate()
    assert not listens(os.getpid(), port)
    assert not listens(other.pid, port)
