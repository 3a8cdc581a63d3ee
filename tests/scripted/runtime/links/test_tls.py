"""Links in TLS: who is let in, what a stranger on the wire sees, and bytes that arrive whole."""

from __future__ import annotations

import contextlib
import random
import select
import selectors
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import pytest

from streamlet.backends.run_certificate import SETTING, certificate_of
from streamlet.runtime.links import handshake
from streamlet.runtime.links import tls as tls_module
from streamlet.runtime.links.dialing import LinkAddress, Secured, dial
from streamlet.runtime.links.handshake import DATA, Hello, Refused
from streamlet.runtime.links.links import SocketLinks
from streamlet.runtime.links.server import LinkServer
from streamlet.runtime.links.tls import RECORD_BYTES, BrokenTls, LinkTls, TlsSocket
from streamlet.runtime.links.wire import MAX_DATA_FRAME
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from streamlet.runtime.worker.channel import ControlChannel
from streamlet.runtime.worker.messages import Event
from tests.patience import PATIENCE_S

SECRET, RUN = b"s" * 32, b"r" * 16
HELLO = Hello(DATA, RUN, 1, 1, 0)
PEM = certificate_of({SETTING: True}, RUN)
OURS = LinkTls(PEM)
OF_ANOTHER_RUN = LinkTls(certificate_of({SETTING: True}, b"x" * 16))


class Serving:
    """A link server on loopback, with a thread that serves it."""

    def __init__(self, tls: LinkTls | None) -> None:
        self.welcomed: list[Secured] = []
        self.server = LinkServer(
            ("tcp", "127.0.0.1", 0), SECRET, lambda hello: None, self.welcomed.append, MAX_DATA_FRAME, tls
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.serve)

    def serve(self) -> None:
        while not self.stop.is_set():
            self.server.serve()
            time.sleep(0.002)

    def __enter__(self) -> Serving:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop.set()
        self.thread.join()
        self.server.close()
        for secured in self.welcomed:
            secured.sock.close()

    def linked(self, address: LinkAddress | None = None, tls: LinkTls | None = OURS) -> tuple[Secured, Secured]:
        """Both ends of a new link; its dialer's first."""
        before = len(self.welcomed)
        dialer = dial(address or self.server.address, HELLO, SECRET, MAX_DATA_FRAME, tls)
        until(lambda: len(self.welcomed) > before)
        return dialer, self.welcomed[-1]


def until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def pair() -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """Two ends over TCP, as they stand after the handshake of links."""
    with Serving(OURS) as serving:
        dialer, acceptor = serving.linked()
        ends = dialer.sock, acceptor.sock
        assert isinstance(ends[0], TlsSocket) and isinstance(ends[1], TlsSocket)
        yield ends
        ends[0].close()


def test_both_ends_speak_tls_1_3_and_nothing_older(pair: tuple[TlsSocket, TlsSocket]) -> None:
    assert [end._tls.version() for end in pair] == ["TLSv1.3", "TLSv1.3"]
    with Serving(OURS) as serving:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(serving.server.address[1:]) as sock, pytest.raises(ssl.SSLError, match="VERSION"):
            context.wrap_socket(sock)


def test_a_plain_peer_is_refused_and_told_why(caplog: pytest.LogCaptureFixture) -> None:
    """It knows the secret, and sends it nowhere; nothing of ours is said to it."""
    with Serving(OURS) as serving, pytest.raises((Refused, OSError)):
        dial(serving.server.address, HELLO, SECRET, MAX_DATA_FRAME)
    assert not serving.welcomed
    assert "it does not speak TLS, and links of this run do (streamlet.links.tls)" in caplog.text


def test_a_plain_acceptor_is_refused() -> None:
    with Serving(None) as serving, pytest.raises((Refused, OSError)):
        dial(serving.server.address, HELLO, SECRET, MAX_DATA_FRAME, OURS)
    assert not serving.welcomed


def test_a_peer_with_the_certificate_of_another_run_is_refused_by_both_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Though it knows the secret."""
    with Serving(OURS) as serving, pytest.raises(Refused, match="its certificate is not that of this run"):
        dial(serving.server.address, HELLO, SECRET, MAX_DATA_FRAME, OF_ANOTHER_RUN)
    assert not serving.welcomed and "it does not take the certificate of this run" in caplog.text


@pytest.mark.parametrize("shown", [True, False])
def test_a_peer_that_trusts_everybody_needs_the_certificate_itself(
    shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The acceptor asks for it: one of another run, or none, is not enough."""
    context = OF_ANOTHER_RUN._dialing if shown else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with Serving(OURS) as serving:
            sock = socket.create_connection(serving.server.address[1:])
            with contextlib.suppress(OSError), context.wrap_socket(sock) as wrapped:
                wrapped.sendall(handshake.encode_hello(HELLO, b"n" * 16))
                assert wrapped.recv(100) == b""
            until(lambda: "A connection was refused" in caplog.text)
    finally:
        context.verify_mode = ssl.CERT_REQUIRED
    assert not serving.welcomed
    assert ("its certificate is not that of this run" if shown else "it has no certificate") in caplog.text


def test_a_stranger_who_says_nothing_is_gone_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "DEADLINE_S", 0.2)
    with Serving(OURS) as serving, socket.create_connection(serving.server.address[1:]) as sock:
        sock.settimeout(PATIENCE_S)
        sock.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert sock.recv(100) == b""


def test_a_stranger_makes_us_hold_few_bytes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(tls_module, "HELLO_BYTES", 1000)
    with Serving(OURS) as serving, socket.create_connection(serving.server.address[1:]) as sock:
        sock.sendall(b"\x16\x03\x01\x3f\x00\x01\x00\x3e\xfc" + b"x" * 2000)
        until(lambda: "too many bytes before a certificate" in caplog.text)
    assert not serving.welcomed


# -- on the wire


class Relay:
    """Passes connections on to an address, and keeps every byte."""

    def __init__(self, to: LinkAddress) -> None:
        self.to = to[1:]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: LinkAddress = ("tcp", *self.listener.getsockname()[:2])
        self.seen = bytearray()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        with self.listener:
            near, far = self.listener.accept()[0], socket.create_connection(self.to)
        with near, far, contextlib.suppress(OSError):
            while True:
                for sock in select.select([near, far], [], [])[0]:
                    data = sock.recv(1 << 16)
                    if not data:
                        return
                    self.seen += data
                    (far if sock is near else near).sendall(data)


@pytest.mark.parametrize("tls", [None, OURS], ids=["plain", "tls"])
def test_who_reads_along_sees_neither_tuples_nor_who_is_there(tls: LinkTls | None) -> None:
    """Of a plain link they see both: the relay does read along."""
    value = "a word that nobody else is to read"
    with Serving(tls) as serving:
        relay = Relay(serving.server.address)
        dialer, acceptor = serving.linked(relay.address, tls)
        got: list[Incoming] = []
        with selectors.DefaultSelector() as selector:
            near, far = (SocketLinks(lambda *lost: None, got.append) for _ in range(2))
            for links, end, worker in ((near, dialer, 0), (far, acceptor, 1)):
                links.attach(selector)
                links.add(end, worker, 1)
            near.send(0, Outgoing([Run(1, 2, "default", False, [1], [1], [[value]])]))

            def came() -> bool:
                for key, _ in selector.select(0):
                    key.data()
                return bool(got)

            until(came)
            near.close()
            far.close()
    assert [list(run.values) for run in got[0].runs] == [[[value]]]
    told = value.encode() in relay.seen, RUN in relay.seen, SECRET in relay.seen
    assert told == ((True, True, False) if tls is None else (False, False, False))


# -- whole bytes


def test_bytes_arrive_whole_in_pieces_of_any_size_and_none_waits_decrypted(pair: tuple[TlsSocket, TlsSocket]) -> None:
    """A selector tells of the socket alone: what is decrypted and not handed out would wait for ever."""
    rng = random.Random(5)
    data = rng.randbytes(6 << 20)
    for end in pair:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, (1 << 14).to_bytes(4, "little"))
    one, two = pair
    left, got = memoryview(data), bytearray()
    while len(got) < len(data):
        wanted = [one] if left else []
        readable, writable, _ = select.select([two], wanted, [], PATIENCE_S)
        assert readable or writable
        if writable:
            sizes = [rng.randrange(1, 200_000) for _ in range(3)]
            pieces = [left[: sizes[0]], left[sizes[0] : sum(sizes[:2])], left[sum(sizes[:2]) : sum(sizes)]]
            with contextlib.suppress(BlockingIOError):
                left = left[one.sendmsg(pieces) :]
        if readable and rng.random() < 0.7:
            with contextlib.suppress(BlockingIOError):
                got += two.recv(rng.randrange(RECORD_BYTES + 1, 1 << 18))
                assert two._plain == b""
    assert bytes(got) == data
    with pytest.raises(BlockingIOError):
        two.recv(1 << 18)
    one.close()
    assert select.select([two], [], [], PATIENCE_S)[0] and two.recv(1 << 18) == b""


class Counted:
    """A socket that counts how often it is read."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.reads = sock, 0

    def recv(self, count: int) -> bytes:
        self.reads += 1
        return self.sock.recv(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def test_a_backlog_of_any_records_is_read_in_large_pieces(pair: tuple[TlsSocket, TlsSocket]) -> None:
    """Filled to the last byte, an answer would cost hundreds of reads, and its caller's turn."""
    one, two = pair
    rng = random.Random(7)
    one.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            one.send(rng.randbytes(rng.randrange(1, 40_000)))
    two.setblocking(False)
    counted: Any = Counted(two._sock)
    two._sock = counted
    most = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            before = counted.reads
            two.recv(1 << 18)
            most = max(most, counted.reads - before)
    assert counted.reads > 2 and most <= 2, "two: the end of a record may be all that a read brings"


def test_bytes_that_have_not_left_do_not_count_as_sent(pair: tuple[TlsSocket, TlsSocket]) -> None:
    """So they stay in their sender's queue, and it goes on watching the socket."""
    one, two = pair
    one.setblocking(False)
    data, sent = b"x" * (1 << 17), 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += one.send(data)
    got = 0
    two.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while True:
            got += len(two.recv(1 << 18))
    assert sent <= got < sent + len(data)
    assert one.send(data) == len(data), "the rest of the piece, and not the piece again"
    while got < sent + len(data):
        got += len(two.recv(1 << 18))


def test_a_changed_byte_breaks_the_connection(pair: tuple[TlsSocket, TlsSocket]) -> None:
    one, two = pair
    with one._lock:
        one._encrypt([b"a tuple"])
        changed = bytearray(one._unsent)
    changed[-1] ^= 1
    one._sock.sendall(changed)
    with pytest.raises(BrokenTls, match="its TLS broke off"):
        two.recv(1 << 18)


def test_a_channel_is_read_by_one_thread_while_others_send(pair: tuple[TlsSocket, TlsSocket]) -> None:
    with Serving(OURS) as serving:
        dialer, acceptor = serving.linked()
        ends = [ControlChannel(each.sock, each.writer, each.reader) for each in (dialer, acceptor)]
        texts: list[list[str]] = [[], []]

        def talk(end: ControlChannel, name: str) -> None:
            for number in range(300):
                end.send(Event("info", f"{name} {number} " + "x" * 3000, 0.0))

        talkers = [threading.Thread(target=talk, args=(end, name)) for end in ends for name in "ab"]
        for talker in talkers:
            talker.start()

        def heard() -> bool:
            for end, said in zip(ends, texts, strict=True):
                end.flush()
                said += [raw["text"].rstrip("x ") for raw in end.receive()]
            return all(len(said) == 600 for said in texts)

        until(heard)
        for talker in talkers:
            talker.join()
        ends[0].close()
    for said in texts:
        for name in "ab":
            assert [text for text in said if text.startswith(name)] == [f"{name} {number}" for number in range(300)]


def test_a_worker_that_does_not_encrypt_does_not_import_openssl() -> None:
    """It costs each of them memory, and a moment of its start."""
    program = "import sys, streamlet.runtime.worker.worker; print('ssl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
