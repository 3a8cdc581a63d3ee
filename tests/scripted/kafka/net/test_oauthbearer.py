"""OAUTHBEARER with a scripted broker and a scripted token endpoint: what each may do, and what the user is told."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from streamlet.devcluster.certificates import make_certificates
from streamlet.kafka.errors import AuthenticationFailed, BootstrapFailed, TokenFailed, TokenUnavailable
from streamlet.kafka.net.token_endpoint import fetcher
from streamlet.kafka.protocol.messages.api_versions_and_sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.kafka.settings.security import SecuritySettings
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.kafka.net.polled_client import make, until

AT_ONCE_S = 5.0
SECRET = "hunter2"


class Endpoint:
    """A token endpoint that gives scripted answers: (status, headers, body), the last one for all that follow."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.held = threading.Event()
        self.held.set()
        self.drops = False
        """Whether the body comes a byte at a time, for as long as somebody reads it."""
        self.header_drops = False
        """The same of a header."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                endpoint.asked.append((self.headers["Authorization"], form))
                endpoint.held.wait(PATIENCE_S)
                status, headers, body = endpoint.answers[0]
                if len(endpoint.answers) > 1:
                    endpoint.answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if endpoint.header_drops:
                    self.flush_headers()
                    self.drop(b"X-Drops: ")
                self.end_headers()
                if endpoint.drops:
                    self.drop(b"")
                self.wfile.write(body)

            def drop(self, first: bytes) -> None:
                deadline = time.monotonic() + PATIENCE_S
                with suppress(OSError):
                    self.wfile.write(first)
                    while time.monotonic() < deadline:
                        self.wfile.write(b" ")
                        time.sleep(0.02)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/token"

    def gives(self, *answers: tuple[int, object]) -> None:
        self.answers = [
            (status, {}, body if isinstance(body, bytes) else json.dumps(body).encode()) for status, body in answers
        ]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    try:
        yield made
    finally:
        made.held.set()
        made.server.shutdown()
        made.server.server_close()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 1}) as one:
        one.on(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(error_code=0, mechanisms=("OAUTHBEARER",)))
        one.on(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateResponse(error_code=0))
        yield one


def grant(endpoint: Endpoint, **more: object) -> dict[str, object]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_credentials_client_id": "counter",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        **more,
    }


def own(provider: object, **more: object) -> dict[str, object]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
        **more,
    }


def shown(broker: FakeBroker) -> list[bytes]:
    """What the broker was told of who we are."""
    requests = [row.request for row in broker.seen(ApiKey.SASL_AUTHENTICATE)]
    return [request.auth_bytes for request in requests if isinstance(request, SaslAuthenticateRequest)]


def test_a_token_comes_from_the_endpoint_and_goes_to_the_broker(
    broker: FakeBroker, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """One token for all connections; the endpoint hears who we are, and no log shows either."""
    caplog.set_level(logging.DEBUG)
    endpoint.gives((200, {"access_token": "tok-1", "token_type": "Bearer", "expires_in": 3600}))
    with make(broker, **grant(endpoint, sasl_oauthbearer_scope="kafka read")) as client:
        client.bootstrap(PATIENCE_S)
        client.disconnect(broker.broker)
        until(client, lambda: len(shown(broker)) == 2 or client.request_update() < 0)
    assert shown(broker) == [b"n,,\x01auth=Bearer tok-1\x01\x01"] * 2
    basic = base64.b64encode(f"counter:{SECRET}".encode()).decode()
    assert endpoint.asked == [(f"Basic {basic}", {"grant_type": ["client_credentials"], "scope": ["kafka read"]})]
    assert "tok-1" not in caplog.text and SECRET not in caplog.text and basic not in caplog.text


def test_a_session_goes_on_with_the_next_token(broker: FakeBroker, endpoint: Endpoint) -> None:
    """KIP-368: renewed before it ends, on the same connection."""
    endpoint.gives(*((200, {"access_token": f"tok-{n}", "expires_in": 1}) for n in range(50)))
    broker.on(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateResponse(error_code=0, session_lifetime_ms=700))
    with make(broker, **grant(endpoint)) as client:
        client.bootstrap(PATIENCE_S)
        until(client, lambda: len(set(shown(broker))) >= 3)
        assert client.counts.connections_made == 1


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": "unknown client"},
            r"refuses us \(HTTP status 401, and says 'invalid_client': 'unknown client'\): correct sasl_oauthbearer_cl",
        ),
        (400, {"error": "invalid_scope"}, r"HTTP status 400, and says 'invalid_scope'\)"),
        (403, b"<html>no", r"refuses us \(HTTP status 403\)"),
        (200, b"<html>Log in</html>", "answers with a web page where a token should be"),
        (302, b"", r"answers with a redirect \(HTTP status 302\), which is not followed"),
    ],
)
def test_an_endpoint_that_gives_no_token_ends_the_start_at_once(
    broker: FakeBroker, endpoint: Endpoint, status: int, body: object, said: str
) -> None:
    """It is named with what to correct, and neither secret nor token is shown."""
    endpoint.gives((status, body))
    if status == 302:
        endpoint.answers = [(302, {"Location": "http://127.0.0.1:1/elsewhere"}, b"")]
    start = time.monotonic()
    with make(broker, **grant(endpoint)) as client, pytest.raises(TokenFailed, match=said) as caught:
        client.bootstrap(PATIENCE_S)
    assert time.monotonic() - start < AT_ONCE_S
    assert endpoint.url in caught.value.message and SECRET not in caught.value.message
    assert caught.value.exit_status == 2 and shown(broker) == []


def test_an_endpoint_that_is_busy_or_slow_is_waited_for(broker: FakeBroker, endpoint: Endpoint) -> None:
    """503, then an answer that takes longer than a connection may take to be set up."""
    endpoint.gives((503, b""), (200, {"access_token": "tok-1", "expires_in": 60}))
    endpoint.held.clear()
    threading.Timer(0.7, endpoint.held.set).start()
    settings = {"socket_connection_setup_timeout_ms": 300, "socket_connection_setup_timeout_max_ms": 300}
    with make(broker, **grant(endpoint, **settings)) as client:
        client.bootstrap(PATIENCE_S)
    assert len(endpoint.asked) == 2 and len(shown(broker)) == 1


def test_an_endpoint_out_of_reach_is_named_when_the_time_is_over(broker: FakeBroker, endpoint: Endpoint) -> None:
    endpoint.server.shutdown()
    endpoint.server.server_close()
    with make(broker, **grant(endpoint)) as client, pytest.raises(BootstrapFailed, match="cannot be reached") as caught:
        client.bootstrap(1.5)
    assert endpoint.url in caught.value.message


def test_an_endpoint_that_never_answers_holds_nobody_up(broker: FakeBroker, endpoint: Endpoint) -> None:
    """A fetch has its time; a poll in between returns when it should."""
    endpoint.gives((200, {}))
    endpoint.held.clear()
    with make(broker, **grant(endpoint, sasl_login_read_timeout_ms=400)) as client:
        start = time.monotonic()
        for _ in range(5):
            client.poll(0.02)
        assert time.monotonic() - start < 2
        with pytest.raises(BootstrapFailed, match=r"sasl_login_read_timeout_ms|timed out"):
            client.bootstrap(1.5)


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (200, TokenUnavailable, r"has not answered whole within 0\.4 s \(sasl_login_read_timeout_ms\)"),
        (401, TokenFailed, r"refuses us \(HTTP status 401\)"),
    ],
)
def test_an_endpoint_that_answers_in_drops_is_given_up(
    endpoint: Endpoint, status: int, kind: type[Exception], said: str
) -> None:
    """No single read takes long, and the whole never ends."""
    endpoint.gives((status, {}))
    endpoint.drops = True
    settings = SecuritySettings(**grant(endpoint, sasl_login_read_timeout_ms=400))
    with pytest.raises(kind, match=said):
        fetcher(settings)()


@pytest.mark.parametrize("status", [200, 401])
def test_an_endpoint_whose_headers_come_in_drops_is_given_up(endpoint: Endpoint, status: int) -> None:
    """The library reads them in a loop of its own; the thread that asks would live as long as the drops."""
    endpoint.gives((status, {"access_token": "tok-1", "expires_in": 60}))
    endpoint.header_drops = True
    settings = SecuritySettings(**grant(endpoint, sasl_login_read_timeout_ms=400))
    start = time.monotonic()
    with pytest.raises(TokenUnavailable, match=r"has not answered whole within 0\.4 s"):
        fetcher(settings)()
    assert time.monotonic() - start < AT_ONCE_S


def test_the_endpoints_authority_is_named_also_where_brokers_speak_no_tls(
    broker: FakeBroker, endpoint: Endpoint, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker)
    endpoint.server.socket = context.wrap_socket(endpoint.server.socket, server_side=True)
    endpoint.gives((200, {"access_token": "tok-1", "expires_in": 60}))
    url = endpoint.url.replace("http:", "https:")
    settings = grant(endpoint, sasl_oauthbearer_token_endpoint_url=url)
    refused = pytest.raises(TokenFailed, match=r"is not trusted.*sasl_oauthbearer_token_endpoint_cafile")
    with make(broker, **settings) as client, refused:
        client.bootstrap(PATIENCE_S)
    with make(broker, **settings, sasl_oauthbearer_token_endpoint_cafile=str(certificates.ca)) as client:
        client.bootstrap(PATIENCE_S)
    assert shown(broker) == [b"n,,\x01auth=Bearer tok-1\x01\x01"]


def test_an_answer_that_is_cut_is_asked_for_again(endpoint: Endpoint) -> None:
    endpoint.gives((200, b'{"access_token": "tok'))
    endpoint.answers = [(200, {"Content-Length": "100"}, b'{"access_token": "tok')]
    with pytest.raises(TokenUnavailable, match=r"cannot be reached \(IncompleteRead"):
        fetcher(SecuritySettings(**grant(endpoint)))()


def test_a_function_that_blocks_or_fails_is_told(broker: FakeBroker) -> None:
    """One that hangs is left behind; one that raises ends the start at once."""
    go_on = threading.Event()

    def hangs() -> str:
        go_on.wait(PATIENCE_S)
        return "late"

    try:
        told = pytest.raises(BootstrapFailed, match=r"no token came within 0\.2 s \(sasl_login_read_timeout_ms\)")
        with make(broker, **own(hangs, sasl_login_read_timeout_ms=200)) as client, told:
            client.bootstrap(1.0)
    finally:
        go_on.set()

    def raises() -> str:
        raise RuntimeError("geheim")

    failed = pytest.raises(TokenFailed, match="sasl_oauth_token_provider raised RuntimeError")
    with make(broker, **own(raises)) as client, failed as caught:
        client.bootstrap(PATIENCE_S)
    assert "geheim" not in caught.value.message


def test_a_broker_that_refuses_the_token_says_why(broker: FakeBroker) -> None:
    """Its JSON, and what to compare; the token is not shown."""
    tell: Callable[[object], object] = lambda request: (  # noqa: E731
        SaslAuthenticateResponse(error_code=58, error_message="bad credentials")
        if request.auth_bytes == b"\x01"  # type: ignore[attr-defined]
        else SaslAuthenticateResponse(error_code=0, auth_bytes=b'{"status":"invalid_token"}')
    )
    broker.on(ApiKey.SASL_AUTHENTICATE, tell)
    start = time.monotonic()
    with make(broker, **own(lambda: "tok-1")) as client, pytest.raises(AuthenticationFailed) as caught:
        client.bootstrap(PATIENCE_S)
    assert time.monotonic() - start < AT_ONCE_S
    assert 'refuses our token, and says {"status":"invalid_token"}' in caught.value.message
    assert "issuer, audience, scope and expiry" in caught.value.message and "tok-1" not in caught.value.message


def test_a_listener_without_oauthbearer_says_what_it_takes(broker: FakeBroker) -> None:
    broker.on(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(error_code=33, mechanisms=("PLAIN",)))
    told = pytest.raises(AuthenticationFailed, match=r"OAUTHBEARER \(it offers: PLAIN\)")
    with make(broker, **own(lambda: "tok-1")) as client, told:
        client.bootstrap(PATIENCE_S)
