"""Signed tokens from an endpoint, checked by a broker that knows the provider by its published keys (JWKS)."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin, Consumer, NewTopic, Producer
from streamlet.kafka.errors import AuthenticationFailed, TokenFailed
from tests.patience import PATIENCE_S

ISSUER, AUDIENCE = "https://login.example.org", "kafka"
ID, SECRET = "counter", "hunter2"
LISTENER = "listener.name.sasl_plaintext.oauthbearer"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"


def without_padding(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """An identity provider on loopback: ``/token`` gives signed tokens, ``/keys`` what to check them with."""

    def __init__(self) -> None:
        self.keys = {"first": rsa.generate_private_key(65537, 2048)}
        self.published = set(self.keys)
        self.signs_with = "first"
        self.claims: dict[str, object] = {}
        """What a token claims otherwise than a good one."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, provider.key_set())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                known = base64.b64encode(f"{ID}:{SECRET}".encode()).decode()
                if self.headers["Authorization"] == f"Basic {known}":
                    self.answer(200, {"access_token": provider.token(), "token_type": "Bearer", "expires_in": 300})
                else:
                    self.answer(401, {"error": "invalid_client"})

            def answer(self, status: int, told: object) -> None:
                body = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def key_set(self) -> dict[str, object]:
        found = []
        for name in sorted(self.published):
            numbers = self.keys[name].public_key().public_numbers()
            n, e = (without_padding(each.to_bytes((each.bit_length() + 7) // 8)) for each in (numbers.n, numbers.e))
            found.append({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": name, "n": n, "e": e})
        return {"keys": found}

    def token(self) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": ID, "scope": "kafka", "iat": now, "exp": now + 300}
        header = {"alg": "RS256", "typ": "JWT", "kid": self.signs_with}
        said = ".".join(without_padding(json.dumps(part).encode()) for part in (header, {**claims, **self.claims}))
        signature = self.keys[self.signs_with].sign(said.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{said}.{without_padding(signature)}"

    def settings(self, cluster: DevCluster, secret: str = SECRET) -> dict[str, object]:
        return {
            "bootstrap_servers": cluster.secure_servers("SASL_PLAINTEXT"),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": f"{self.url}/token",
            "sasl_oauthbearer_client_credentials_client_id": ID,
            "sasl_oauthbearer_client_credentials_client_secret": secret,
        }


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    made = Provider()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


@pytest.fixture(scope="module")
def cluster(provider: Provider) -> Iterator[DevCluster]:
    settings: dict[str, object] = {
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"{LISTENER}.sasl.jaas.config": f'{PACKAGE}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";',
        f"{LISTENER}.sasl.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{LISTENER}.sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        f"{LISTENER}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{LISTENER}.sasl.oauthbearer.expected.issuer": ISSUER,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/keys")
        started = DevCluster("4", secured=True, broker_settings=settings)
        with started:
            yield started


def test_a_token_that_the_provider_signed_lets_a_producer_and_a_consumer_in(
    provider: Provider, cluster: DevCluster
) -> None:
    settings = provider.settings(cluster)
    with Admin(**settings) as admin:
        admin.create_topics([NewTopic("signed", 1)])
    with Producer(**settings) as producer:
        producer.send("signed", b"x").get(timeout=PATIENCE_S)
    with Consumer("signed", **settings, group_id="signed", auto_offset_reset="earliest") as consumer:
        deadline, found = time.monotonic() + PATIENCE_S, []
        while not found and time.monotonic() < deadline:
            found = [record.value for rows in consumer.poll(timeout_ms=500).values() for record in rows]
    assert found == [b"x"]


@pytest.mark.parametrize(
    "claims",
    [{"aud": "other"}, {"iss": "https://other.example.org"}, {"exp": 1_000_000_000, "iat": 999_999_000}],
    ids=["for others", "of another provider", "of long ago"],
)
def test_a_token_that_claims_otherwise_is_refused_in_the_brokers_words(
    provider: Provider, cluster: DevCluster, claims: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "claims", claims)
    assert_refused(provider, cluster)


def test_a_token_of_an_unpublished_key_is_refused(
    provider: Provider, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(provider.keys, "strange", rsa.generate_private_key(65537, 2048))
    monkeypatch.setattr(provider, "signs_with", "strange")
    assert_refused(provider, cluster)


def test_a_key_that_was_published_after_the_brokers_last_look_is_known_soon(
    provider: Provider, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that changes its keys: the first token has the broker look again."""
    monkeypatch.setitem(provider.keys, "next", rsa.generate_private_key(65537, 2048))
    monkeypatch.setattr(provider, "published", {"first", "next"})
    monkeypatch.setattr(provider, "signs_with", "next")
    assert_refused(provider, cluster)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with Admin(**provider.settings(cluster)) as admin:
                admin.list_topics()
            return
        except AuthenticationFailed:
            assert time.monotonic() < deadline


def assert_refused(provider: Provider, cluster: DevCluster) -> None:
    with pytest.raises(AuthenticationFailed) as refused, Admin(**provider.settings(cluster)) as admin:
        admin.list_topics()
    assert 'refuses our token, and says {"status":"invalid_token"}' in refused.value.message


def test_a_wrong_secret_is_refused_by_the_provider_and_shown_nowhere(provider: Provider, cluster: DevCluster) -> None:
    wrong = "not-" + SECRET
    with pytest.raises(TokenFailed) as refused, Admin(**provider.settings(cluster, wrong)) as admin:
        admin.list_topics()
    assert "says 'invalid_client'" in refused.value.message and wrong not in repr(refused.value)
