"""A scripted broker that refuses who we are: at the start, beside a dead one, and at the end of a session."""

from __future__ import annotations

import threading
import time

import pytest

from streamlet.kafka.errors import AuthenticationFailed
from streamlet.kafka.protocol.messages.api_versions_and_sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import FakeBroker
from tests.scripted.kafka.net.polled_client import make, until

FOUND = FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1)


def _user(**changes: object) -> dict[str, object]:
    user = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "geheim"}
    return {"security_protocol": "SASL_PLAINTEXT", **user, **changes}


def test_fault_f24_a_refusal_at_the_end_of_a_session_is_told_to_whoever_asks_next() -> None:
    """Over the first end of the session the connection stays; at the second the password is another one by now."""
    short = SaslAuthenticateResponse(error_code=0, session_lifetime_ms=400)
    refused = SaslAuthenticateResponse(error_code=58, error_message="Invalid username or password")
    with FakeBroker() as broker, make(broker, **_user()) as client:
        broker.on(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
        broker.on(ApiKey.SASL_AUTHENTICATE, short, short, refused)
        broker.on(ApiKey.FIND_COORDINATOR, FOUND)
        client.bootstrap(PATIENCE_S)
        until(client, lambda: len(broker.seen(ApiKey.SASL_AUTHENTICATE)) == 2)
        request = FindCoordinatorRequest(key="g")
        assert (
            client.wait(client.send(request, broker.broker), PATIENCE_S) == FOUND
            and client.counts.connections_made == 1
        )
        until(client, lambda: client._network.connection_failed(broker.broker) is not None)
        later = client.send(FindCoordinatorRequest(key="g"), broker.broker)
        until(client, lambda: later.done)
        assert isinstance(later.exception, AuthenticationFailed) and not later.exception.retriable
        anywhere = client.send(FindCoordinatorRequest(key="g"))
        until(client, lambda: anywhere.done)
        assert isinstance(anywhere.exception, AuthenticationFailed)
        assert "geheim" not in str(anywhere.exception)


def test_fault_f23_a_broker_that_is_down_does_not_hide_that_another_refuses_us() -> None:
    """Two addresses, one dead, one that knows another password: told at once, and the living one's reason."""
    refused = SaslAuthenticateResponse(error_code=58)
    with FakeBroker() as broker, FakeBroker() as dead:
        broker.on(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
        broker.on(ApiKey.SASL_AUTHENTICATE, refused)
        dead.stop()
        start = time.monotonic()
        with make(dead, broker, **_user()) as client, pytest.raises(AuthenticationFailed, match=broker.address):
            client.bootstrap(PATIENCE_S)
        assert time.monotonic() - start < 10


def test_who_we_are_is_told_again_behind_an_answer_that_takes_long() -> None:
    """A broker answers in turn: what it holds back (a JoinGroup for minutes) does not end the connection."""
    short = SaslAuthenticateResponse(error_code=0, session_lifetime_ms=400)
    go_on = threading.Event()
    settings = {
        "request_timeout_ms": 1500,
        "socket_connection_setup_timeout_ms": 1000,
        "socket_connection_setup_timeout_max_ms": 1000,
    }
    with FakeBroker() as broker, make(broker, **_user(**settings)) as client:
        broker.on(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
        broker.on(ApiKey.SASL_AUTHENTICATE, short)

        def held(_request: object) -> object:
            go_on.wait(PATIENCE_S)
            return FOUND

        broker.on(ApiKey.FIND_COORDINATOR, held)
        client.bootstrap(PATIENCE_S)
        future = client.send(FindCoordinatorRequest(key="g"), broker.broker, PATIENCE_S)
        start = time.monotonic()
        until(client, lambda: future.done or time.monotonic() - start > 3.5)
        assert not future.done
        go_on.set()
        until(client, lambda: future.done)
        assert future.value == FOUND
        until(client, lambda: len(broker.seen(ApiKey.SASL_AUTHENTICATE)) >= 2)
        assert client.counts.connections_made == 1
