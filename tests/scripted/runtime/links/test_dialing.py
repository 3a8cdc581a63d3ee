"""Links over TCP on loopback: names with several addresses, and peers that live but do not read."""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from streamlet.runtime.links import dialing
from streamlet.runtime.links.dialing import Secured, dial
from streamlet.runtime.links.handshake import DATA, Hello, Refused
from streamlet.runtime.links.links import SocketLinks
from streamlet.runtime.links.peering import Peering
from streamlet.runtime.links.server import LinkServer
from streamlet.runtime.links.silence import LOOK_S, SILENT_S
from streamlet.runtime.tasks.emitter import Outgoing, Run
from streamlet.runtime.worker.channel import ChannelClosed, ControlChannel
from streamlet.runtime.worker.messages import Event
from tests.patience import PATIENCE_S

SECRET = b"s" * 32
HELLO = Hello(DATA, b"r" * 16, worker=1, epoch=1, wanted=0)
LIMIT = 1 << 20
NOBODY = "192.0.2.1"
"""An address for documentation: nobody answers there, or the system says that there is no way to it."""


@pytest.fixture
def served() -> Iterator[tuple[LinkServer, list[Secured]]]:
    """A server on IPv6's loopback, and the links that it welcomed."""
    welcomed: list[Secured] = []
    server = LinkServer(("tcp", "::1", 0), SECRET, lambda hello: None, welcomed.append, LIMIT)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            server.serve()
            time.sleep(0.002)

    thread = threading.Thread(target=serve)
    thread.start()
    yield server, welcomed
    over.set()
    thread.join()
    server.close()
    for secured in welcomed:
        secured.sock.close()


def named(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let the name "driver" have these addresses, in this order."""
    real = socket.getaddrinfo

    def resolve(host: str, port: int, **keys: int) -> list[object]:
        return [row for each in (hosts if host == "driver" else [host]) for row in real(each, port, **keys)]

    monkeypatch.setattr(dialing.socket, "getaddrinfo", resolve)


def test_a_worker_dials_every_address_of_a_name_until_one_answers(
    served: tuple[LinkServer, list[Secured]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = served
    named(monkeypatch, NOBODY, "127.0.0.1", "::1")
    with dial(("tcp", "driver", server.address[2]), HELLO, SECRET, LIMIT).sock as sock:
        assert sock.family == socket.AF_INET6


def test_a_name_of_which_no_address_answers_is_told_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "127.0.0.1", "::1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Refused) as raised:
        dial(("tcp", "driver", port), HELLO, SECRET, LIMIT)
    assert f"127.0.0.1:{port}: [Errno 111] Connection refused; [::1]:{port}: " in str(raised.value)


def test_a_server_listens_at_the_first_address_of_its_name_that_is_this_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named(monkeypatch, NOBODY, "::1", "127.0.0.1")
    server = LinkServer(("tcp", "driver", 0), SECRET, lambda hello: None, lambda secured: None, LIMIT)
    try:
        assert server.address[:2] == ("tcp", "127.0.0.1")
    finally:
        server.close()


def test_a_peer_that_reads_nothing_for_longer_than_a_silence_keeps_its_link(
    served: tuple[LinkServer, list[Secured]],
) -> None:
    """As in a call of ten seconds: its window is closed, and TCP_USER_TIMEOUT would end the connection."""
    server, welcomed = served
    lost: list[str] = []
    links = SocketLinks(lambda worker, epoch, version, why: lost.append(why), lambda incoming: None)
    with selectors.DefaultSelector() as selector:
        links.attach(selector)
        links.add(dial(server.address, HELLO, SECRET, LIMIT), 0, 1)
        over = time.monotonic() + SILENT_S + 3.0
        while time.monotonic() < over:
            if sum(links.unsent_bytes().values()) < LIMIT:
                links.send(0, Outgoing([Run(1, 2, "default", False, [1], [1], [["x" * 500_000]])]))
            for key, _ in selector.select(0):
                key.data()
            links.cut_silent(time.monotonic())
            time.sleep(LOOK_S)
        assert links.unsent_bytes()[0] and not lost
        assert links.epochs() == {0: 1} and len(welcomed) == 1
        links.close()


def test_the_last_words_for_a_coordinator_that_is_silent_hold_no_worker_up(
    served: tuple[LinkServer, list[Secured]],
) -> None:
    server, _ = served
    secured = dial(server.address, HELLO, SECRET, LIMIT)
    channel = ControlChannel(secured.sock, secured.writer, secured.reader)
    try:
        while not channel.unsent:  # the other end does not read
            channel.send(Event("info", "x" * 60_000, 0.0))
        now = time.monotonic()
        with pytest.raises(ChannelClosed, match="nothing has come from the other machine for 0 s"):
            channel.give_up_if_silent(now, 0.0)
        channel.finish()
        assert not channel.unsent
        with contextlib.suppress(ChannelClosed):
            channel.send(Event("info", "nobody hears this", 0.0))
    finally:
        channel.close()


def test_a15_a_dial_for_which_no_thread_can_be_started_is_tried_again(
    served: tuple[LinkServer, list[Secured]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of processes counts threads, too; it may pass."""
    server, _ = served
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    linked, unlinked = list[int](), list[tuple[int, str]]()
    selector = selectors.DefaultSelector()
    links = SocketLinks(lambda *lost: None, lambda incoming: None)
    links.attach(selector)
    peering = Peering(
        HELLO, 2, SECRET, links, posted.put, linked.append, lambda *told: unlinked.append(told), pytest.fail
    )
    start, tries = threading.Thread.start, list[int]()

    def refused(thread: threading.Thread) -> None:
        if thread.name == "dial":
            tries.append(1)
            if len(tries) < 4:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    peering.apply_book(1, {0: (1, server.address), 1: (1, server.address)})
    while not linked:
        posted.get(timeout=PATIENCE_S)()
    assert linked == [1] and len(tries) == 4 and unlinked == [(0, "can't start new thread")]
    links.close()
    selector.close()
