"""Machines of their own on one machine: network namespaces, and a network between them that is this process.

Each host has a TUN device with an address of IPv4 and one of IPv6. One thread reads every packet that a host sends and
hands it to the host that it is for: at once, late, or not at all. So a test says what the network does in each
direction, without tools or modules that a machine may not have. The namespaces have no name; they end with the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NETWORK = 0x40000000
_NET = "/proc/thread-self/ns/net"

_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8914
_UP_AND_RUNNING = 0x41
_IN6_KNOWN_AT_ONCE = ("accept_dad", "dad_transmits")
"""Settings of IPv6 that are 0 here: nobody else is on this wire, and an address need not ask whether it is free."""

_RST = 0x04
_TCP = 6


@dataclass
class Way:
    """What happens to packets of one direction between two hosts."""

    drop: bool = False
    loss: float = 0.0
    """The share of packets that are lost, at random."""
    delay_s: float = 0.0
    reset: bool = False
    """Whether each TCP segment arrives as a reset."""
    passed: int = 0
    """Packets that were handed on."""


class Network:
    """``with Network("a", "b") as network``: hosts, each with a namespace of its own. Needs root and /dev/net/tun.

    ``inside(name)`` moves the calling thread to a host; threads and processes that it starts there stay there.
    """

    def __init__(self, *names: str, seed: int = 0) -> None:
        self.names = names
        self._random = random.Random(seed)
        self._home = os.open(_NET, os.O_RDONLY)
        self._namespaces: dict[str, int] = {}
        self._devices: dict[str, int] = {}
        self._by_address: dict[bytes, str] = {}
        self._ways: dict[tuple[str, str], Way] = {
            (one, other): Way() for one in names for other in names if one != other
        }
        self.lost = 0
        self._late: list[tuple[float, int, int, bytes]] = []
        self._order = 0
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._forward, name="network", daemon=True)

    def __enter__(self) -> Network:
        try:
            for number, name in enumerate(self.names, 1):
                self._add(name, number)
        except OSError as error:
            raise RuntimeError(
                f"A host of its own cannot be made here ({error}): these tests need root with CAP_NET_ADMIN, network "
                "namespaces and /dev/net/tun."
            ) from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._stop_write, b"\0")
        if self._thread.ident is not None:
            self._thread.join()
        for handle in (*self._devices.values(), *self._namespaces.values(), self._stop_read, self._stop_write):
            os.close(handle)
        os.close(self._home)

    # -- hosts

    def address(self, name: str) -> str:
        """The host's address of IPv4."""
        return f"10.77.0.{self.names.index(name) + 1}"

    def address6(self, name: str) -> str:
        """Its address of IPv6."""
        return f"fd77::{self.names.index(name) + 1}"

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Let the calling thread, and what it starts, be on that host."""
        before = os.open(_NET, os.O_RDONLY)
        _enter(self._namespaces[name])
        try:
            yield
        finally:
            _enter(before)
            os.close(before)

    def host_of(self, pid: int) -> str | None:
        """The host that a process is on; None: on none of them, or gone."""
        with contextlib.suppress(OSError):
            there = os.stat(f"/proc/{pid}/ns/net").st_ino
            return next((name for name, fd in self._namespaces.items() if os.fstat(fd).st_ino == there), None)
        return None

    def power_off(self, name: str) -> None:
        """Let nothing leave or reach a host any more, as when its power fails."""
        for pair, way in self._ways.items():
            if name in pair:
                way.drop = True

    def way(self, one: str, other: str) -> Way:
        """The direction from one host to another; change its fields."""
        return self._ways[one, other]

    def both(self, one: str, other: str) -> tuple[Way, Way]:
        return self.way(one, other), self.way(other, one)

    def black_hole(self, one: str, other: str) -> None:
        """Drop everything between two hosts, in silence."""
        for way in self.both(one, other):
            way.drop = True

    def heal(self) -> None:
        for pair in self._ways:
            self._ways[pair] = Way()

    def _add(self, name: str, number: int) -> None:
        _check(_LIBC.unshare(_NEW_NETWORK))
        try:
            self._namespaces[name] = os.open(_NET, os.O_RDONLY)
            device = self._devices[name] = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _TUN_WITHOUT_HEADER))
            for setting in _IN6_KNOWN_AT_ONCE:
                Path("/proc/sys/net/ipv6/conf/eth0", setting).write_text("0")
            four, six = socket.inet_aton(self.address(name)), socket.inet_pton(socket.AF_INET6, self.address6(name))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for act, value in ((_SIOCSIFADDR, four), (_SIOCSIFNETMASK, b"\xff\xff\xff\0")):
                    fcntl.ioctl(sock, act, struct.pack("16sHH4s16x", b"eth0", socket.AF_INET, 0, value))
                for interface in (b"eth0", b"lo"):
                    fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", interface, _UP_AND_RUNNING))
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
                row = struct.pack("16sIi", six, 64, socket.if_nametoindex("eth0"))
                fcntl.ioctl(sock, _SIOCSIFADDR, row)
            self._by_address |= {four: name, six: name}
        finally:
            _enter(self._home)

    # -- the wire, on its own thread

    def _forward(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stop_read, selectors.EVENT_READ, None)
            for name, device in self._devices.items():
                selector.register(device, selectors.EVENT_READ, name)
            while True:
                left_s = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
                for key, _ in selector.select(left_s):
                    if key.data is None:
                        return
                    self._take(key.data)
                while self._late and self._late[0][0] <= time.monotonic():
                    _, _, device, packet = heapq.heappop(self._late)
                    _write(device, packet)

    def _take(self, name: str) -> None:
        for _ in range(64):
            try:
                packet = os.read(self._devices[name], 1 << 16)
            except BlockingIOError:
                return
            target = self._by_address.get(packet[16:20] if packet[0] >> 4 == 4 else packet[24:40])
            if target is None or target == name:
                continue
            way = self._ways[name, target]
            if way.drop or (way.loss and self._random.random() < way.loss):
                self.lost += 1
                continue
            way.passed += 1
            if way.reset:
                packet = _as_reset(packet)
            if way.delay_s:
                self._order += 1
                heapq.heappush(self._late, (time.monotonic() + way.delay_s, self._order, self._devices[target], packet))
            else:
                _write(self._devices[target], packet)


# -- faults, between a client's host and a server's


Fault = Callable[[Network, str, str], None]


def there(network: Network, client: str, server: str) -> None:
    """Lose what is asked."""
    network.way(client, server).drop = True


def back(network: Network, client: str, server: str) -> None:
    """Let what is asked arrive and be done; lose the answers."""
    network.way(server, client).drop = True


def both_ways(network: Network, client: str, server: str) -> None:
    network.black_hole(server, client)


def delay_and_loss(network: Network, client: str, server: str) -> None:
    for way in network.both(server, client):
        way.delay_s, way.loss = 0.1, 0.1


def reset(network: Network, client: str, server: str) -> None:
    for way in network.both(server, client):
        way.reset = True


FAULTS: list[Fault] = [there, back, both_ways, delay_and_loss, reset]


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # a full queue loses packets, as any does
        os.write(device, packet)


def _as_reset(packet: bytes) -> bytes:
    """The same TCP segment of IPv4, without its data, as a reset."""
    start = (packet[0] & 15) * 4
    if packet[0] >> 4 != 4 or packet[9] != _TCP:
        return packet
    size = (packet[start + 12] >> 4) * 4
    made = bytearray(packet[: start + size])
    made[2:4] = len(made).to_bytes(2, "big")
    made[10:12] = b"\0\0"
    made[10:12] = _sum(bytes(made[:start])).to_bytes(2, "big")
    made[start + 13] = _RST
    made[start + 16 : start + 18] = b"\0\0"
    pseudo = bytes(made[12:20]) + bytes([0, _TCP]) + size.to_bytes(2, "big")
    made[start + 16 : start + 18] = _sum(pseudo + bytes(made[start:])).to_bytes(2, "big")
    return bytes(made)


def _sum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _enter(namespace: int) -> None:
    _check(_LIBC.setns(namespace, _NEW_NETWORK))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
