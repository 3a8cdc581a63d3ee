"""A server of links: a peer without the secret gets nothing parsed and is gone in time."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import Secured, dial
from streamlet.runtime.links.handshake import DATA, Hello, Refused
from streamlet.runtime.links.server import FULL_S, MAX_UNPROVED, LinkServer, new_socket_name
from tests.patience import PATIENCE_S

SECRET = b"s" * 32
HELLO = Hello(DATA, b"r" * 16, worker=1, epoch=1, wanted=0)
AT_ONCE_S = handshake.DEADLINE_S - 1
"""Sooner than by the deadline of a handshake."""


class Serving:
    """A link server with a thread that serves it, as the control thread does."""

    def __init__(self, folder: Path) -> None:
        self.welcomed: list[Secured] = []
        self.server = LinkServer(("unix", str(folder / "s"), 0), SECRET, self.admits, self.welcomed.append, 1000)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def admits(self, hello: Hello) -> None:
        if hello.epoch < 1:
            raise Refused("it was replaced")

    def serve(self) -> None:
        while not self.stop.is_set():
            self.server.serve()
            time.sleep(0.002)

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(handshake.DEADLINE_S + 3)
        sock.connect(self.server.address[1])
        return sock

    def connect_and_leave(self, first: bytes) -> None:
        sock = self.connect()
        sock.sendall(first)
        sock.close()

    def close(self) -> None:
        self.stop.set()
        self.thread.join()
        self.server.close()
        for secured in self.welcomed:
            secured.sock.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server to knock at."""
    serving = Serving(tmp_path)
    yield serving
    serving.close()


def dial_and_close(serving: Serving) -> None:
    with contextlib.suppress(Refused, OSError):
        dial(serving.server.address, HELLO, SECRET, 1000).sock.close()


def hung_up_after(sock: socket.socket) -> float:
    """Seconds until the other side closes, whatever it says before."""
    started = time.monotonic()
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        pass
    sock.close()
    return time.monotonic() - started


def test_a_peer_with_the_secret_is_welcomed(serving: Serving) -> None:
    """And both directions work afterwards."""
    ours = dial(serving.server.address, HELLO, SECRET, 1000)
    deadline = time.monotonic() + PATIENCE_S
    while not serving.welcomed and time.monotonic() < deadline:
        time.sleep(0.005)
    (theirs,) = serving.welcomed
    assert theirs.hello == HELLO
    assert theirs.reader.feed(ours.writer.frame(b"there")) == [b"there"]
    assert ours.reader.feed(theirs.writer.frame(b"back")) == [b"back"]
    ours.sock.close()


def test_a_wrong_secret_is_refused_by_the_dialer_first(serving: Serving) -> None:
    """The acceptor proves itself too: a dialer tells an impostor nothing."""
    with pytest.raises(Refused, match="secret"):
        dial(serving.server.address, HELLO, b"w" * 32, 1000)
    assert not serving.welcomed


def test_a_replaced_epoch_is_refused_after_its_proof(serving: Serving) -> None:
    """A zombie knows the secret; its epoch is too old."""
    with pytest.raises(Refused):
        dial(serving.server.address, Hello(DATA, b"r" * 16, 1, 0, 0), SECRET, 1000)
    assert not serving.welcomed


def test_a_peer_that_goes_away_is_no_refusal(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """A run that is stopped while it links: what hangs up there, or breaks, is heard of at debug level only."""
    caplog.set_level("DEBUG", "streamlet.links")
    words = handshake.encode_hello(HELLO, os.urandom(handshake.NONCE_BYTES))
    for first in (b"", words[:9], words):
        serving.connect_and_leave(first)
    deadline = time.monotonic() + PATIENCE_S
    while len(caplog.records) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert [(record.levelname, record.msg) for record in caplog.records] == [
        ("DEBUG", "A connection came to nothing: %s.")
    ] * 3


def test_a_stranger_is_told_of_once(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever says what no worker says is a warning."""
    sock = serving.connect()
    sock.sendall(b"GET / HTTP/1.1\r\n" * 20)
    hung_up_after(sock)
    deadline = time.monotonic() + PATIENCE_S
    while not caplog.records:  # it is told by the thread that hung up, a moment later
        assert time.monotonic() < deadline
        time.sleep(0.005)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "was refused" in record.message


@pytest.mark.parametrize(
    "first",
    [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"SLT1" + os.urandom(400), b"\xff" * 100_000],
    ids=["silent", "http", "random", "magic", "long"],
)
def test_a_stranger_is_gone_within_the_deadline(serving: Serving, first: bytes) -> None:
    """Silent, talkative or nearly right: nothing is parsed beyond fixed sizes, and it is hung up on."""
    sock = serving.connect()
    try:
        sock.sendall(first)
    except ConnectionError:
        pass
    assert hung_up_after(sock) < 5
    assert not serving.welcomed


def test_a_slow_talker_does_not_stretch_the_deadline(serving: Serving) -> None:
    """One byte a second is not a sign of life: the deadline is for the whole handshake."""
    sock = serving.connect()
    started = time.monotonic()
    try:
        while time.monotonic() - started < 7:
            sock.sendall(b"S")
            time.sleep(0.1)
    except ConnectionError:
        pass
    sock.close()
    assert time.monotonic() - started < 5


def test_b7_idle_connections_are_bounded_and_a_worker_gets_in_within_two_seconds_while_more_come(
    serving: Serving,
) -> None:
    """Beyond the bound connections are closed at once; who has had a second gives its place away."""
    assert MAX_UNPROVED == 64, "as the pages say"
    idle = [serving.connect() for _ in range(MAX_UNPROVED)]
    deadline = time.monotonic() + PATIENCE_S
    while len(serving.server._unproved) < MAX_UNPROVED and time.monotonic() < deadline:
        time.sleep(0.005)
    most, over = [0], threading.Event()

    def more() -> None:
        while not over.is_set():
            idle.append(serving.connect())
            most[0] = max(most[0], len(serving.server._unproved))
            time.sleep(0.05)

    strangers = threading.Thread(target=more)
    began = time.monotonic()
    strangers.start()
    tries = 0
    try:
        while not serving.welcomed:
            with contextlib.suppress(Refused, OSError):
                dial(serving.server.address, HELLO, SECRET, 1000).sock.close()
            tries += 1
            assert time.monotonic() - began < 2.0
            time.sleep(0.05)
        assert tries > 1 and most[0] == MAX_UNPROVED
        assert all(hung_up_after(sock) < AT_ONCE_S for sock in idle[:MAX_UNPROVED])
    finally:
        over.set()
        strangers.join()
        for sock in idle:
            sock.close()


def test_a_slow_handshake_keeps_its_place_where_nobody_waits_for_it(serving: Serving) -> None:
    """As on a network that loses packets."""
    sock = serving.connect()
    words = handshake.encode_hello(HELLO, os.urandom(handshake.NONCE_BYTES))
    sock.sendall(words[:9])
    for _ in range(MAX_UNPROVED // 2):
        time.sleep(0.05)
        serving.connect_and_leave(b"")
    sock.sendall(words[9:])
    assert len(sock.recv(4096)) == handshake.ANSWER_BYTES
    sock.close()


def test_nobody_is_welcomed_after_close(tmp_path: Path) -> None:
    """Who is in its handshake then is hung up on, and its thread has ended: no socket is left to nobody."""
    serving = Serving(tmp_path)
    proving = threading.Event()

    def admits_slowly(hello: Hello) -> None:
        proving.set()
        time.sleep(0.1)

    serving.server._check_hello = admits_slowly
    silent = serving.connect()
    dialing = threading.Thread(target=dial_and_close, args=(serving,))
    dialing.start()
    assert proving.wait(PATIENCE_S)
    serving.close()
    assert not serving.server._unproved
    assert hung_up_after(silent) < AT_ONCE_S
    dialing.join()


def test_random_handshakes_crash_nothing(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """300 connections with random or mutated first words."""
    for attempt in range(300):
        words = bytearray(handshake.encode_hello(HELLO, os.urandom(16)))
        words[attempt % len(words)] ^= 0xFF
        sock = serving.connect()
        try:
            sock.sendall(bytes(words) + os.urandom(handshake.PROOF_BYTES))
        except ConnectionError:
            pass
        hung_up_after(sock)
    assert not serving.welcomed
    assert serving.thread.is_alive()
    told = [record for record in caplog.records if "was refused" in record.getMessage()]
    assert 1 <= len(told) <= 3, "once in a while, with their number"


def test_a_server_without_a_descriptor_takes_one_peer_and_does_not_spin(caplog: pytest.LogCaptureFixture) -> None:
    """User code has left all open. One is kept for a peer that was replaced; a second waits, told once."""
    name = new_socket_name(b"r" * 16, 0, 1)
    welcomed: list[Secured] = []
    server = LinkServer(("unix", name, 0), SECRET, lambda hello: None, welcomed.append, 1000)
    peers = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for peer in peers:
        peer.connect(name)
        peer.settimeout(PATIENCE_S)
    taken: list[int] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        server.serve()
        assert len(server._unproved) == 1, "the first is in its handshake"
        began, worked = time.monotonic(), time.thread_time()
        for _ in range(3):
            server.serve()
        assert time.monotonic() - began >= 3 * FULL_S * 0.9 and len(server._unproved) == 1
        assert time.thread_time() - worked < FULL_S / 2, "it waits, and does not look again and again"
        assert caplog.text.count("no file descriptor left") == 1
        for descriptor in taken:
            os.close(descriptor)
        server.serve()
        assert len(server._unproved) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for peer in peers:
            peer.close()
        server.close()


def test_a_process_of_another_user_is_turned_away_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is in no folder is open to all: nothing is read of them, and no thread is theirs."""
    name = new_socket_name(b"r" * 16, 0, 1)
    assert name != new_socket_name(b"r" * 16, 0, 1), "nobody can take the next one first"
    server = LinkServer(("unix", name, 0), SECRET, lambda hello: None, lambda _: None, 1000)
    monkeypatch.setattr("streamlet.runtime.links.server._is_of_this_user", lambda sock: False)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(name)
        server.serve()
        assert peer.recv(1) == b"" and not server._unproved
    server.close()
