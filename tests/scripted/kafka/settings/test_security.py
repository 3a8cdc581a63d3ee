"""Security settings: what contradicts itself, what is not shown, and files that cannot be used."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import pytest

from streamlet.base.errors import SettingError
from streamlet.devcluster.certificates import KEY_PASSWORD, Certificates, make_certificates
from streamlet.kafka import ClientConfig, KafkaClient
from streamlet.kafka.settings.security import SECRETS, security_of

GRANT = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://login.example.org/token",
    "sasl_oauthbearer_client_credentials_client_id": "counter",
    "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
}
SASL = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "bob", "sasl_plain_password": "hunter2"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security_protocol": "SASL"}, "security_protocol = 'SASL' is not possible: choose from PLAINTEXT, SSL"),
        ({"security_protocol": "tls"}, "the nearest one is SSL"),
        ({"security_protocol": 5}, "security_protocol = 5"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile is given, but security_protocol = 'PLAINTEXT' speaks no TLS"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname is given, but"),
        ({"security_protocol": "SSL", "ssl_check_hostname": "no"}, "must be True or False"),
        ({"security_protocol": "SASL_PLAINTEXT", **SASL, "ssl_cafile": "x"}, "set it to 'SASL_SSL'"),
        ({"security_protocol": "SSL", "ssl_keyfile": "k"}, "ssl_keyfile is given without ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_password": "hunter2"}, "ssl_password is given without ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_cafile": ""}, "must be a string that is not empty"),
        ({"security_protocol": "SSL", "ssl_cafile": 5}, "must be a string"),
        ({"ssl_context": ssl.create_default_context()}, "ssl_context is given, but security_protocol = 'PLAINTEXT'"),
        ({"security_protocol": "SSL", "ssl_context": "ca.pem"}, "must be an ssl.SSLContext"),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)},
            "ssl_context is a context of a server",
        ),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "ssl_cafile": "ca.pem"},
            "ssl_cafile is given beside ssl_context, which is used as it is: call its load_verify_locations()",
        ),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "ssl_check_hostname": False},
            "set its check_hostname to False and leave ssl_check_hostname out",
        ),
        (SASL, "sasl_mechanism is given, but security_protocol = 'PLAINTEXT' asks for no user"),
        ({"security_protocol": "SSL", **SASL}, "set it to 'SASL_SSL'"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism and sasl_plain_username and sasl_plain_password"),
        ({"security_protocol": "SASL_SSL", **SASL, "sasl_plain_password": None}, "needs sasl_plain_password"),
        ({"security_protocol": "SASL_SSL", **SASL, "sasl_plain_password": 77}, "its value must be a string"),
        ({"security_protocol": "SASL_SSL", **SASL, "sasl_plain_password": "a\0b"}, "NUL character"),
        (
            {"security_protocol": "SASL_SSL", **SASL, "sasl_plain_password": "a\udcff"},
            "its value must be at most 32",
        ),
        ({"security_protocol": "SASL_SSL", **SASL, "sasl_mechanism": "SCRAM-SHA256"}, "nearest one is SCRAM-SHA-256"),
        ({"security_protocol": "SASL_SSL", **SASL, "sasl_mechanism": "GSSAPI"}, "choose from PLAIN, SCRAM-SHA-256"),
        (GRANT, "sasl_mechanism is given, but security_protocol = 'PLAINTEXT' asks for no user"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "needs sasl_oauth_token_provider, or sasl_oauthbearer_token_endpoint_url, sasl_oauthbearer_client",
        ),
        (
            {"security_protocol": "SASL_SSL", **GRANT, "sasl_oauthbearer_client_credentials_client_secret": None},
            "'OAUTHBEARER' needs sasl_oauthbearer_client_credentials_client_secret: give it too",
        ),
        (
            {"security_protocol": "SASL_SSL", **GRANT, "sasl_oauth_token_provider": str},
            "sasl_oauthbearer_token_endpoint_url is given beside sasl_oauth_token_provider",
        ),
        (
            {"security_protocol": "SASL_SSL", **GRANT, "sasl_plain_password": "hunter2"},
            "sasl_plain_password is given, and OAUTHBEARER takes a token in its place",
        ),
        (
            {"security_protocol": "SASL_SSL", **SASL, "sasl_oauth_token_provider": str},
            "sasl_oauth_token_provider is given, and sasl_mechanism is 'SCRAM-SHA-256': set it to 'OAUTHBEARER'",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": "eyJhbGciOiJub25lIn0.77.",
            },
            "must be a function that returns a token, or an object with such a method `token`; str is neither",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                **GRANT,
                "sasl_oauthbearer_token_endpoint_url": "https://a:hunter2@login.example.org/token",
            },
            "= 'login.example.org/token' must be an address of HTTP without a user in it",
        ),
        (
            {"security_protocol": "SASL_SSL", **GRANT, "sasl_oauthbearer_token_endpoint_url": "file:///etc/token"},
            "must be an address of HTTP",
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", **GRANT, "ssl_cafile": "ca.pem"},
            "name the authorities of the token endpoint in sasl_oauthbearer_token_endpoint_cafile instead",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                **GRANT,
                "sasl_oauthbearer_token_endpoint_url": "http://login/token",
                "sasl_oauthbearer_token_endpoint_cafile": "ca.pem",
            },
            "sasl_oauthbearer_token_endpoint_url = 'http://login/token' speaks no TLS: begin it with https",
        ),
        (
            {"security_protocol": "SASL_SSL", **SASL, "sasl_oauthbearer_token_endpoint_cafile": "ca.pem"},
            "sasl_oauthbearer_token_endpoint_cafile is given, and sasl_mechanism is 'SCRAM-SHA-256'",
        ),
        (
            {"security_protocol": "SASL_SSL", **GRANT, "sasl_login_read_timeout_ms": 0},
            "sasl_login_read_timeout_ms = 0 must be a whole number of at least 1",
        ),
    ],
)
def test_security_settings_that_contradict_each_other_are_refused(settings: dict[str, object], words: str) -> None:
    """Each refused by a paragraph that says which, and shows no secret."""
    with pytest.raises(SettingError) as caught:
        ClientConfig.of({"bootstrap_servers": "h:1", **settings})
    assert words in caught.value.message and caught.value.message.endswith(".")
    assert "hunter2" not in caught.value.message and "77" not in caught.value.message


def test_secrets_are_in_no_repr() -> None:
    """Neither of the settings nor of the client."""
    config = ClientConfig.of({"bootstrap_servers": "h:1", "security_protocol": "SASL_PLAINTEXT", **SASL})
    with KafkaClient(config) as client:
        assert "hunter2" not in repr(config) + repr(client) + str(config)
        assert "bob" in repr(config)
    assert {
        "sasl_plain_password",
        "ssl_password",
        "sasl_oauthbearer_client_credentials_client_secret",
    } == SECRETS
    assert security_of(config)["sasl_plain_password"] == "hunter2" and len(security_of(config)) == 17
    config = ClientConfig.of({"bootstrap_servers": "h:1", "security_protocol": "SASL_SSL", **GRANT})
    assert "hunter2" not in repr(config) and "login.example.org" in repr(config)


def test_files_that_cannot_be_used_are_named_before_anything_is_dialled(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Missing, not PEM, a key of another certificate, a locked key without or with the wrong password."""
    noise = tmp_path / "noise.pem"
    noise.write_text("no certificate\n")
    mine, key, locked = (str(p) for p in (certificates.client, certificates.client_key, certificates.client_locked_key))
    for settings, words in (
        ({"ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile = '/nowhere/ca.pem' cannot be used (No such file"),
        ({"ssl_cafile": str(noise)}, "it holds nothing usable"),
        ({"ssl_certfile": "/nowhere/c.pem"}, "ssl_certfile = '/nowhere/c.pem' cannot be used (No such file"),
        ({"ssl_certfile": mine, "ssl_keyfile": "/nowhere/k.pem"}, "ssl_keyfile = '/nowhere/k.pem' cannot be used"),
        ({"ssl_certfile": mine}, f"ssl_certfile = {mine!r} cannot be used"),
        ({"ssl_certfile": mine, "ssl_keyfile": str(certificates.stranger_key)}, "is not the key of the certificate"),
        ({"ssl_certfile": mine, "ssl_keyfile": locked}, "is encrypted: give ssl_password"),
        ({"ssl_certfile": mine, "ssl_keyfile": locked, "ssl_password": "hunter2"}, "ssl_password does not open"),
    ):
        with pytest.raises(SettingError) as caught:
            KafkaClient(ClientConfig.of({"bootstrap_servers": "h:1", "security_protocol": "SSL", **settings}))
        assert words in caught.value.message and "hunter2" not in caught.value.message, caught.value.message
    endpoint = {"security_protocol": "SASL_PLAINTEXT", **GRANT}
    for path, words in (("/nowhere/ca.pem", "cannot be used (No such file"), (str(noise), "it holds nothing usable")):
        settings = {"bootstrap_servers": "h:1", **endpoint, "sasl_oauthbearer_token_endpoint_cafile": path}
        with pytest.raises(SettingError, match="sasl_oauthbearer_token_endpoint_cafile") as caught:
            KafkaClient(ClientConfig.of(settings))
        assert words in caught.value.message and "hunter2" not in caught.value.message, caught.value.message
    for keyfile, password in ((key, None), (locked, KEY_PASSWORD)):
        settings = {"ssl_certfile": mine, "ssl_keyfile": keyfile, "ssl_password": password}
        KafkaClient(ClientConfig.of({"bootstrap_servers": "h:1", "security_protocol": "SSL", **settings})).close()


def test_private_keys_of_the_development_cluster_are_its_owners_alone(certificates: Certificates) -> None:
    """No other user of the machine may read them."""
    for path in (certificates.broker, certificates.client_key, certificates.stranger_key):
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path
