"""Servers that are half broken: they accept and say nothing, say it a byte at a time, or stop in the middle."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamlet.devcluster.certificates import Certificates, make_certificates
from streamlet.kafka import Broker, ClientConfig, KafkaClient
from streamlet.kafka.errors import BootstrapFailed, Disconnected, KafkaError, MalformedFrame, RequestTimedOut
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.messages.metadata import MetadataBroker, MetadataRequest, MetadataResponse
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import SILENCE, FakeBroker, Recorded, encode_response

FOUND = FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1)


@dataclass
class Middle:
    """Between a client and a broker: ``carry`` moves the broker's bytes to the client in its own way."""

    target: int
    carry: Callable[[socket.socket, bytes], bool]
    tls: ssl.SSLContext | None = None
    threads: list[threading.Thread] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Middle:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self.listener, *self.sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in list(self.threads):
            thread.join(PATIENCE_S)
        for one in (self.listener, *self.sockets):
            one.close()

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.tls is not None:
                    client = self.tls.wrap_socket(client, server_side=True, do_handshake_on_connect=True)
                broker = socket.create_connection(("127.0.0.1", self.target))
                self.sockets += [client, broker]
                self._spawn(self._pump, client, broker, lambda to, data: to.sendall(data) or True)
                self._spawn(self._pump, broker, client, self.carry)

    @staticmethod
    def _pump(source: socket.socket, to: socket.socket, carry: Callable[[socket.socket, bytes], bool]) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(65536)) and carry(to, data):
                pass
        for one in (source, to):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def a_byte_at_a_time(to: socket.socket, data: bytes) -> bool:
    for at in range(len(data)):
        to.sendall(data[at : at + 1])
    return True


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"lines": 2}) as broker:
        broker.on(ApiKey.FIND_COORDINATOR, FOUND)
        yield broker


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def advertised(broker: FakeBroker, port: int) -> Broker:
    """Let it name this port as its own; the broker as the client then knows it."""

    def metadata(request: MetadataRequest) -> MetadataResponse:
        row = MetadataBroker(node_id=broker.node_id, host="127.0.0.1", port=port)
        return dataclasses.replace(broker.metadata(request), brokers=(row,))

    broker.on(ApiKey.METADATA, metadata)
    return Broker(broker.node_id, "127.0.0.1", port)


def config(*ports: int, **settings: object) -> ClientConfig:
    return ClientConfig.of({"bootstrap_servers": tuple(f"127.0.0.1:{port}" for port in ports), **settings})


def server_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker)
    return context


def over_tls(certificates: Certificates) -> dict[str, object]:
    return {"security_protocol": "SSL", "ssl_cafile": str(certificates.ca)}


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_answers_that_come_a_byte_at_a_time_are_answers(
    broker: FakeBroker, certificates: Certificates, tls: bool
) -> None:
    """Whatever way the bytes of a frame are cut, and the records of TLS."""
    context = server_context(certificates) if tls else None
    with Middle(broker.port, a_byte_at_a_time, context) as middle:
        settings = over_tls(certificates) if tls else {}
        with KafkaClient(config(middle.port, **settings)) as client:
            through = advertised(broker, middle.port)
            client.bootstrap(PATIENCE_S)
            assert client.wait(client.send(FindCoordinatorRequest(key="g"), through), PATIENCE_S) == FOUND


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT"])
def test_a_port_that_accepts_and_never_answers_holds_up_no_other(
    broker: FakeBroker, certificates: Certificates, protocol: str
) -> None:
    """The whole setup of a connection is bounded, ApiVersions and TLS handshake too: then the next address has its
    turn. Alone, it is named with what it was doing.
    """
    user = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p"}
    more = {"PLAINTEXT": {}, "SSL": over_tls(certificates), "SASL_PLAINTEXT": user}[protocol]
    settings = {"security_protocol": protocol, "socket_connection_setup_timeout_ms": 300, **more}
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with KafkaClient(config(port, **settings)) as client:
            with pytest.raises(BootstrapFailed) as caught:
                client.bootstrap(1.0)
            doing = "connecting" if protocol == "SSL" else "checking API versions"
            assert f"still {doing} when the time for that was up" in caught.value.message
            assert "socket_connection_setup_timeout_ms" in caught.value.message
            client.close(0.2)
        if protocol == "PLAINTEXT":
            with KafkaClient(config(port, broker.port, **settings), uniform=lambda: 0.0) as client:
                assert client.bootstrap(PATIENCE_S).brokers


def test_a_broker_that_authenticates_for_ever_is_given_up() -> None:
    """It takes the mechanism and never answers the password."""
    from streamlet.kafka.protocol.messages.api_versions_and_sasl import SaslHandshakeResponse

    with FakeBroker() as broker:
        broker.on(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
        broker.on(ApiKey.SASL_AUTHENTICATE, SILENCE)
        settings = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "u",
            "sasl_plain_password": "geheim",
            "socket_connection_setup_timeout_ms": 200,
        }
        with KafkaClient(config(broker.port, **settings)) as client:
            with pytest.raises(BootstrapFailed, match="while user and password were being checked") as caught:
                client.bootstrap(1.0)
            assert "geheim" not in caught.value.message and len(broker.seen(ApiKey.SASL_AUTHENTICATE)) > 1


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_a_connection_that_ends_in_the_middle_of_a_frame_fails_its_requests_at_once(
    broker: FakeBroker, certificates: Certificates, tls: bool
) -> None:
    """Retriable, outcome unknown, and the client goes on over a new connection."""
    cut = threading.Event()

    def carry(to: socket.socket, data: bytes) -> bool:
        if cut.is_set():
            cut.clear()
            to.sendall(data[: len(data) // 2])
            return False
        to.sendall(data)
        return True

    context = server_context(certificates) if tls else None
    with Middle(broker.port, carry, context) as middle:
        settings = over_tls(certificates) if tls else {}
        with KafkaClient(config(middle.port, **settings)) as client:
            through = advertised(broker, middle.port)
            client.bootstrap(PATIENCE_S)
            assert client.wait(client.send(FindCoordinatorRequest(key="g"), through), PATIENCE_S) == FOUND
            cut.set()
            start = time.monotonic()
            with pytest.raises(Disconnected) as caught:
                client.wait(client.send(FindCoordinatorRequest(key="g"), through), PATIENCE_S)
            assert caught.value.retriable and time.monotonic() - start < 10
            assert not isinstance(caught.value, RequestTimedOut)
            again = client.wait_retrying(
                lambda: client.send(FindCoordinatorRequest(key="g"), through), timeout_s=PATIENCE_S
            )
            assert again == FOUND


def test_large_answers_over_tls_come_whole_though_no_event_announces_their_rest(
    broker: FakeBroker, certificates: Certificates
) -> None:
    """Decrypted bytes wait in the TLS layer, not in the kernel: a poll with nothing to read there finds them."""
    host = "h" * 30_000
    broker.on(ApiKey.FIND_COORDINATOR, FindCoordinatorResponse(error_code=0, node_id=1, host=host, port=1))
    with Middle(broker.port, lambda to, data: to.sendall(data) or True, server_context(certificates)) as middle:
        settings = over_tls(certificates) | {"max_in_flight_requests_per_connection": 200}
        with KafkaClient(config(middle.port, **settings)) as client:
            through = advertised(broker, middle.port)
            client.bootstrap(PATIENCE_S)
            futures = [client.send(FindCoordinatorRequest(key=str(n)), through) for n in range(200)]
            for future in futures:
                assert client.wait(future, PATIENCE_S).host == host


def test_a_tls_connection_that_breaks_under_way_is_no_failed_handshake(
    broker: FakeBroker, certificates: Certificates
) -> None:
    """It was right before: the requests on it may be tried again, and nobody is told to mend settings."""
    broker.on(ApiKey.FIND_COORDINATOR, FOUND)
    spoiled: list[bytes] = []

    def pass_on(to: socket.socket, data: bytes) -> bool:
        if spoiled:
            with socket.socket(fileno=os.dup(to.fileno())) as beneath:
                beneath.sendall(spoiled.pop())
            return False
        to.sendall(data)
        return True

    with (
        Middle(broker.port, pass_on, server_context(certificates)) as middle,
        KafkaClient(config(middle.port, **over_tls(certificates))) as client,
    ):
        through = advertised(broker, middle.port)
        client.bootstrap(PATIENCE_S)
        assert client.wait(client.send(FindCoordinatorRequest(key="g"), through), PATIENCE_S) == FOUND
        spoiled.append(b"no TLS at all, and long enough for a record's header")
        with pytest.raises(Disconnected, match="TLS broke off"):
            client.wait(client.send(FindCoordinatorRequest(key="g"), through), PATIENCE_S)
        make = lambda: client.send(FindCoordinatorRequest(key="g"), through)  # noqa: E731
        assert client.wait_retrying(make, timeout_s=PATIENCE_S) == FOUND


def test_fault_f18_bytes_nobody_asked_for_close_the_connection(broker: FakeBroker) -> None:
    """An answer twice, an answer to nothing: what belongs to whom cannot be told any more."""

    def twice(_request: FindCoordinatorRequest) -> bytes:
        recorded: Recorded = broker.seen(ApiKey.FIND_COORDINATOR)[-1]
        return encode_response(recorded, FOUND) * 2

    broker.on(ApiKey.FIND_COORDINATOR, twice, FOUND)
    with KafkaClient(config(broker.port)) as client:
        client.bootstrap(PATIENCE_S)
        lost = client.counts.connections_lost
        assert client.wait(client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S) == FOUND
        deadline = time.monotonic() + PATIENCE_S
        while client.counts.connections_lost == lost:
            assert time.monotonic() < deadline
            client.poll(0.05)
        error = client._network.states.get(broker.broker.address).last_error
        assert isinstance(error, MalformedFrame) and "where none was expected" in error.message
        assert (
            client.wait_retrying(lambda: client.send(FindCoordinatorRequest(key="g"), broker.broker), PATIENCE_S)
            == FOUND
        )


def test_fault_f18_only_the_request_whose_answer_cannot_be_read_fails_of_that(broker: FakeBroker) -> None:
    """Those behind it were only on the same connection: *disconnected*, which is retriable."""
    broker.on(ApiKey.FIND_COORDINATOR, SILENCE, b"\0\0\0\x05\0\0\0\x7f!")
    with KafkaClient(config(broker.port)) as client:
        client.bootstrap(PATIENCE_S)
        first, second = (client.send(FindCoordinatorRequest(key=key), broker.broker) for key in "ab")
        deadline = time.monotonic() + PATIENCE_S
        while not (first.done and second.done):
            assert time.monotonic() < deadline
            client.poll(0.05)
        assert isinstance(first.exception, MalformedFrame) and not first.exception.retriable
        assert isinstance(second.exception, Disconnected) and second.exception.retriable


@pytest.mark.parametrize(
    "body",
    [
        b"\x7f\xff\xff\xff",  # an array of 2^31 - 1 brokers
        b"\xff\xff\xff\xf0",  # a negative count
        b"\xff\xff\xff\xff\x0f" * 3,  # 2^32 - 1 tagged fields
    ],
)
def test_fault_f18_lengths_beyond_the_frame_are_not_believed(broker: FakeBroker, body: bytes) -> None:
    """Each count is checked against what is left of the frame: the request fails by name, the client goes on."""

    def hostile(_request: object) -> bytes:
        recorded = broker.seen(ApiKey.METADATA)[-1]
        frame = recorded.correlation_id.to_bytes(4) + b"\0" + bytes(4) + body
        return len(frame).to_bytes(4) + frame

    with KafkaClient(config(broker.port)) as client:
        client.bootstrap(PATIENCE_S)
        broker.on(ApiKey.METADATA, hostile, broker.metadata)
        lost, version = client.counts.connections_lost, client.request_update()
        deadline = time.monotonic() + PATIENCE_S
        while client.metadata.update_version == version:
            assert time.monotonic() < deadline
            client.poll(0.05)
        counts = client.counts
        assert (counts.connections_lost, counts.failed_metadata_updates) == (lost + 1, 1)
        assert counts.failed_requests == 1


def test_close_ends_in_its_time_with_a_handshake_under_way(certificates: Certificates, tmp_path: Path) -> None:
    """A socket that accepts and never answers, half a TLS handshake, requests queued: nothing of it is waited for."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        for settings in ({}, over_tls(certificates)):
            client = KafkaClient(config(port, **settings))
            future = client.send(FindCoordinatorRequest(key="g"))
            client.poll(0.05)
            start = time.monotonic()
            client.close(0.2)
            assert time.monotonic() - start < 5
            assert isinstance(future.exception, KafkaError)
