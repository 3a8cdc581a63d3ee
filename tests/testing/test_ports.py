"""Free ports."""

from __future__ import annotations

import socket

from streamlet.testing.ports import ephemeral_floor, free_ports, is_free


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
