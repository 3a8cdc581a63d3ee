"""TLS and SASL against real listeners: what works, and the one paragraph that says why something does not."""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import ScramMechanism

from streamlet.devcluster import DevCluster
from streamlet.devcluster.broker_settings import SESSION_LIFETIME_MS
from streamlet.kafka import Admin, ClientConfig, Consumer, KafkaClient, NewTopic, Producer, TopicPartition
from streamlet.kafka.client.leader_requests import FetchPosition, FetchSettings, fetch, list_offsets
from streamlet.kafka.errors import AuthenticationFailed, ForeignProtocol, HungUp, KafkaError, TlsFailed
from streamlet.kafka.metadata.cluster import UNKNOWN_NODE, Broker
from streamlet.kafka.protocol.messages.fetch import LATEST_TIMESTAMP
from tests.patience import PATIENCE_S
from tests.scram import set_password

AT_ONCE_S = 5.0
"""Far below PATIENCE_S: a refusal is not tried again until the time is up."""
SECRET = "bob-secret"
MECHANISMS = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


@pytest.fixture(scope="module", params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """One broker with all four kinds of listener; user bob for SCRAM, alice for PLAIN."""
    cluster: DevCluster = request.getfixturevalue(request.param)
    set_password(cluster, "bob", SECRET, MECHANISMS)
    return cluster


def tls(cluster: DevCluster, **changes: object) -> dict[str, object]:
    """Settings for the SSL listener, which asks for a client certificate."""
    made = cluster.certificates
    return {
        "bootstrap_servers": cluster.secure_servers("SSL"),
        "security_protocol": "SSL",
        "ssl_cafile": str(made.ca),
        "ssl_certfile": str(made.client),
        "ssl_keyfile": str(made.client_key),
        **changes,
    }


def sasl(cluster: DevCluster, mechanism: str = "SCRAM-SHA-512", **changes: object) -> dict[str, object]:
    """Settings for the SASL_PLAINTEXT listener."""
    user, password = ("alice", "alice-secret") if mechanism == "PLAIN" else ("bob", SECRET)
    return {
        "bootstrap_servers": cluster.secure_servers("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        **changes,
    }


def over_tls(cluster: DevCluster, settings: dict[str, object]) -> dict[str, object]:
    """The same for the SASL_SSL listener, which asks for no certificate."""
    ca, servers = str(cluster.certificates.ca), cluster.secure_servers("SASL_SSL")
    return {**settings, "bootstrap_servers": servers, "security_protocol": "SASL_SSL", "ssl_cafile": ca}


def refused(settings: dict[str, object]) -> KafkaError:
    """The error of a bootstrap that must fail, and at once."""
    start = time.monotonic()
    with KafkaClient(ClientConfig.of(settings)) as client, pytest.raises(KafkaError) as caught:
        client.bootstrap(PATIENCE_S)
    assert time.monotonic() - start < AT_ONCE_S, caught.value
    assert caught.value.exit_status == 2
    assert str(settings["bootstrap_servers"]) in caught.value.message
    return caught.value


def read_all(settings: dict[str, object], topic: str, count: int) -> list[bytes | None]:
    """``count`` values of partition 0, over as large fetches as they come."""
    tp, found = TopicPartition(topic, 0), list[bytes | None]()
    with KafkaClient(ClientConfig.of(settings)) as client:
        client.bootstrap(PATIENCE_S)
        client.wait_on_metadata(topic, PATIENCE_S)
        leader = client.cluster.leader_for(tp)
        assert leader is not None
        assert client.wait(list_offsets(client, leader, {tp: LATEST_TIMESTAMP}), PATIENCE_S)[tp].offset == count
        large = FetchSettings(fetch_max_wait_ms=100, max_partition_fetch_bytes=16 << 20)
        position = 0
        while position < count:
            part = client.wait(fetch(client, leader, {tp: FetchPosition(position)}, large), PATIENCE_S)[tp]
            for batch in part.batches():
                found += batch.values
                position = batch.next_offset
        assert client.counts.connections_lost == 0
    return found


def test_records_come_over_every_listener(cluster: DevCluster, make_topic: Callable[..., str]) -> None:
    """TLS with a client certificate (its key locked, too), PLAIN and both SCRAMs, with and without TLS."""
    topic = make_topic(cluster)
    values = [os.urandom(50_000) for _ in range(80)]
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    locked = {"ssl_keyfile": str(cluster.certificates.client_locked_key), "ssl_password": "key-secret"}
    ways = [tls(cluster), tls(cluster, **locked)]
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        ways += [sasl(cluster, mechanism), over_tls(cluster, sasl(cluster, mechanism))]
    for settings in ways:
        assert read_all(settings, topic, len(values)) == values, settings["security_protocol"]


def test_producer_consumer_and_admin_take_the_same_settings(
    cluster: DevCluster, topic_name: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    """A topic made, written and read in a group over TLS with a certificate, and over SASL with TLS; each refuses a
    wrong password at once and shows it nowhere.
    """
    caplog.set_level(logging.DEBUG)
    for settings in (tls(cluster), over_tls(cluster, sasl(cluster))):
        topic = topic_name()
        with Admin(**settings) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        with Producer(**settings, value_serializer=str.encode) as producer:
            sent = [producer.send(topic, f"{number}") for number in range(100)]
            assert [future.get(timeout=PATIENCE_S).offset for future in sent] == list(range(100))
        groups = {"group_id": topic, "auto_offset_reset": "earliest", "value_deserializer": bytes.decode}
        with Consumer(topic, **settings, **groups) as consumer:
            seen: list[str] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(seen) < 100 and time.monotonic() < deadline:
                seen += [record.value for rows in consumer.poll(timeout_ms=500).values() for record in rows]
        assert seen == [f"{number}" for number in range(100)]
    wrong = over_tls(cluster, sasl(cluster, sasl_plain_password="hunter2"))
    start = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="refuses the user 'bob'"), Admin(**wrong) as admin:
        admin.list_topics()
    with pytest.raises(AuthenticationFailed, match="refuses the user 'bob'"), Producer(**wrong) as producer:
        producer.send("lines", b"x").get(timeout=PATIENCE_S)
    with pytest.raises(AuthenticationFailed, match="refuses the user 'bob'"), Consumer(**wrong) as consumer:
        consumer.assign([TopicPartition("lines", 0)])
        consumer.poll(timeout_ms=30_000)
    told = pytest.raises(AuthenticationFailed, match="refuses the user 'bob'")
    with told, Consumer("lines", **wrong, group_id="g") as consumer:
        consumer.poll(timeout_ms=30_000)
    assert time.monotonic() - start < 4 * AT_ONCE_S
    assert "hunter2" not in caplog.text


def test_a_certificate_that_is_not_right_is_told_whose_and_why(cluster: DevCluster) -> None:
    """The broker's by an unknown authority or for another host; ours missing, or signed by a stranger."""
    made = cluster.certificates
    error = refused(tls(cluster, ssl_cafile=str(made.stranger_ca)))
    assert isinstance(error, TlsFailed) and "signed by nobody we trust" in error.message
    assert "ssl_cafile" in error.message
    error = refused(tls(cluster, ssl_cafile=None))
    assert isinstance(error, TlsFailed) and "signed by nobody we trust" in error.message
    elsewhere = cluster.secure_servers("SSL").replace("127.0.0.1", "localhost")
    error = refused(tls(cluster, bootstrap_servers=elsewhere))
    assert isinstance(error, TlsFailed) and "not made for the host name 'localhost'" in error.message
    with KafkaClient(ClientConfig.of(tls(cluster, bootstrap_servers=elsewhere, ssl_check_hostname=False))) as unchecked:
        unchecked.bootstrap(PATIENCE_S)
    stranger = {"ssl_certfile": str(made.stranger), "ssl_keyfile": str(made.stranger_key)}
    for changes in (stranger, {"ssl_certfile": None, "ssl_keyfile": None}):
        error = refused(tls(cluster, **changes))
        assert "client certificate" in error.message and "ssl_certfile" in error.message


def test_a_context_of_the_users_own_is_used_as_it_is_by_every_client(
    cluster: DevCluster, make_topic: Callable[..., str]
) -> None:
    """Its authorities, its certificate and its rule about host names; the errors name what to change in it."""
    made = cluster.certificates
    context = ssl.create_default_context(cafile=str(made.ca))
    context.load_cert_chain(made.client, made.client_key)
    servers = cluster.secure_servers("SSL")
    own = {"bootstrap_servers": servers, "security_protocol": "SSL", "ssl_context": context}
    topic = make_topic(cluster)
    with Producer(**own) as producer:
        producer.send(topic, b"x").get(timeout=PATIENCE_S)
    with Consumer(**own, auto_offset_reset="earliest", consumer_timeout_ms=30_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert next(consumer).value == b"x"
    with Admin(**own) as admin:
        assert topic in admin.list_topics()
    elsewhere = {**own, "bootstrap_servers": servers.replace("127.0.0.1", "localhost")}
    assert "or set ssl_context.check_hostname to False" in refused(elsewhere).message
    context.check_hostname = False
    with KafkaClient(ClientConfig.of(elsewhere)) as unchecked:
        unchecked.bootstrap(PATIENCE_S)
    strangers = ssl.create_default_context(cafile=str(made.stranger_ca))
    assert "ssl_context.load_verify_locations()" in refused({**own, "ssl_context": strangers}).message
    nobody = ssl.create_default_context(cafile=str(made.ca))
    assert "ssl_context.load_cert_chain()" in refused({**own, "ssl_context": nobody}).message


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_fault_f23_a_wrong_user_or_password_fails_at_once(
    cluster: DevCluster, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It names broker, user and mechanism, and shows no secret, in no log either."""
    caplog.set_level(logging.DEBUG)
    for changes in ({"sasl_plain_password": "hunter2"}, {"sasl_plain_username": "nobody"}):
        for settings in (sasl(cluster, mechanism, **changes), over_tls(cluster, sasl(cluster, mechanism, **changes))):
            error = refused(settings)
            assert isinstance(error, AuthenticationFailed)
            assert f"refuses the user {settings['sasl_plain_username']!r} or the password" in error.message
            assert mechanism in error.message
            for secret in ("hunter2", SECRET, "alice-secret"):
                assert secret not in error.message + caplog.text


def test_a_mechanism_the_listener_does_not_take_is_told_with_those_it_takes() -> None:
    """A broker with PLAIN alone would be a cluster of its own: a scripted one says so here."""
    from streamlet.kafka.protocol.messages.api_versions_and_sasl import SaslHandshakeResponse
    from streamlet.kafka.protocol.schema import ApiKey
    from tests.scripted.fake_broker import FakeBroker

    with FakeBroker() as broker:
        broker.on(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(error_code=33, mechanisms=("PLAIN", "GSSAPI")))
        settings = {
            "bootstrap_servers": broker.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "bob",
            "sasl_plain_password": "hunter2",
        }
        error = refused(settings)
        assert "does not take the SASL mechanism SCRAM-SHA-256 (it offers: PLAIN, GSSAPI)" in error.message


def test_another_protocol_than_the_listeners_is_told(cluster: DevCluster) -> None:
    """Each protocol of ours on each listener of the others: one paragraph with the setting to change."""
    ways = {
        "PLAINTEXT": {"security_protocol": "PLAINTEXT"},
        "SSL": tls(cluster),
        "SASL_PLAINTEXT": sasl(cluster),
        "SASL_SSL": over_tls(cluster, sasl(cluster)),
    }
    for ours, settings in ways.items():
        for theirs in ways:
            if ours == theirs:
                continue
            servers = cluster.bootstrap_servers if theirs == "PLAINTEXT" else cluster.secure_servers(theirs)
            error = refused({**settings, "bootstrap_servers": servers})
            assert isinstance(error, (ForeignProtocol, HungUp, TlsFailed)), (ours, theirs, error)
            assert f"security_protocol = '{ours}'" in error.message, (ours, theirs, error)


def test_who_we_are_is_told_again_before_the_session_ends(cluster: DevCluster) -> None:
    """KIP-368: over several lifetimes the one connection stays, and every request is answered.

    A broker closes a connection that goes on past its session without it.
    """
    with KafkaClient(ClientConfig.of(sasl(cluster, "PLAIN"))) as client:
        client.bootstrap(PATIENCE_S)
        (broker,) = client.connected_brokers()
        node = client._network.states.get(broker.address)
        ends = {node.session_ends_s}
        assert node.session_ends_s < time.monotonic() + SESSION_LIFETIME_MS / 1000
        deadline = time.monotonic() + PATIENCE_S
        while len(ends - {float("inf")}) < 4:
            assert time.monotonic() < deadline
            version = client.request_update()
            while client.metadata.update_version == version:
                client.poll(0.05)
            ends.add(node.session_ends_s)
        counts = client.counts
        assert (counts.connections_made, counts.connections_lost, counts.failed_requests) == (1, 0, 0)


def test_fault_f24_a_password_changed_under_way_is_told_and_its_return_mends_it(cluster: DevCluster) -> None:
    """What is connected stays; a new connection is refused at once, and let in again once the password is back."""
    with KafkaClient(ClientConfig.of(sasl(cluster, "SCRAM-SHA-256"))) as client:
        client.bootstrap(PATIENCE_S)
        (broker,) = client.cluster.brokers.values()
        set_password(cluster, "bob", "another", MECHANISMS)
        try:
            version = client.request_update()
            until(client, lambda: client.metadata.update_version > version)
            client.disconnect(broker)
            start = time.monotonic()
            until(client, lambda: client._network.connection_failed(broker) is not None)
            with pytest.raises(AuthenticationFailed, match="refuses the user 'bob'"):
                client.wait_on_metadata("lines", PATIENCE_S)
            assert time.monotonic() - start < AT_ONCE_S
        finally:
            set_password(cluster, "bob", SECRET, MECHANISMS)
        version = client.request_update()
        until(client, lambda: client.metadata.update_version > version)


def test_fault_f24_a_certificate_replaced_under_way_is_used_by_the_next_connection(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Files are looked at again for each connection: renewing one needs no restart."""
    made, mine, key = cluster.certificates, tmp_path / "mine.crt", tmp_path / "mine.key"
    shutil.copy(made.client, mine)
    shutil.copy(made.client_key, key)
    with KafkaClient(ClientConfig.of(tls(cluster, ssl_certfile=str(mine), ssl_keyfile=str(key)))) as client:
        client.bootstrap(PATIENCE_S)
        (broker,) = client.cluster.brokers.values()
        shutil.copy(made.stranger, mine)
        shutil.copy(made.stranger_key, key)
        client.disconnect(broker)
        until(client, lambda: client._network.connection_failed(broker) is not None)
        error = client._network.connection_failed(broker)
        assert error is not None and "client certificate" in error.message
        shutil.copy(made.client, mine)
        shutil.copy(made.client_key, key)
        version = client.request_update()
        until(client, lambda: client.metadata.update_version > version)


def until(client: KafkaClient, done: Callable[[], bool]) -> None:
    """Poll until it is so, asking for metadata so that there is something to connect for."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, client
        client.request_update()
        client.poll(0.05)


def test_a_dedicated_connection_is_secured_too(cluster: DevCluster) -> None:
    """Every connection of a client is made in the same way, to a broker known by address alone as well."""
    with KafkaClient(ClientConfig.of(over_tls(cluster, sasl(cluster)))) as client:
        client.bootstrap(PATIENCE_S)
        host, port = cluster.secure_servers("SASL_SSL").split(":")
        alone = Broker(UNKNOWN_NODE, host, int(port)).dedicated("group")
        tp = TopicPartition("nothing", 0)
        listed = client.wait(list_offsets(client, alone, {tp: LATEST_TIMESTAMP}), PATIENCE_S)
        assert listed[tp].error is not None
        assert alone in client.connected_brokers()


def unsigned(life_s: float, user: str = "carol") -> str:
    """A token that Kafka's validator for development takes: nobody signed it."""
    claims = {"sub": user, "iat": time.time() - 1, "exp": time.time() + life_s}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (NO_ALG, claims)]
    return f"{parts[0]}.{parts[1]}."


NO_ALG = {"alg": "none"}


def oauth(cluster: DevCluster, provider: object) -> dict[str, object]:
    return {
        "bootstrap_servers": cluster.secure_servers("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def test_a_token_lets_every_client_in_and_is_renewed_under_way(
    cluster: DevCluster, make_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Producer, consumer of a group and administrator; over several lives of the token one connection stays."""
    caplog.set_level(logging.DEBUG)
    given: list[str] = []

    def provider() -> str:
        given.append(unsigned(1.5))
        return given[-1]

    settings, topic = oauth(cluster, provider), make_topic(cluster)
    with Producer(**settings) as producer:
        producer.send(topic, b"x").get(timeout=PATIENCE_S)
    with Consumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        deadline = time.monotonic() + PATIENCE_S
        while not (seen := consumer.poll(timeout_ms=500)):
            assert time.monotonic() < deadline
        assert [record.value for rows in seen.values() for record in rows] == [b"x"]
    with Admin(**settings) as admin:
        assert topic in admin.list_topics()
    with KafkaClient(ClientConfig.of(settings)) as client:
        client.bootstrap(PATIENCE_S)
        ends = time.monotonic() + 4
        while time.monotonic() < ends:
            version = client.request_update()
            while client.metadata.update_version == version:
                client.poll(0.05)
        counts = client.counts
        assert (counts.connections_made, counts.connections_lost, counts.failed_requests) == (1, 0, 0)
    assert len(given) >= 6 and not any(token in caplog.text for token in given)


def test_a_token_that_has_expired_or_is_none_is_refused_by_name(cluster: DevCluster) -> None:
    """Ours knows it by itself; of a lifetime that is not true the broker says it."""
    error = refused(oauth(cluster, lambda: unsigned(-60)))
    assert isinstance(error, AuthenticationFailed) and "expired already" in error.message
    for token in ((unsigned(-60), 300), "nonsense"):
        error = refused(oauth(cluster, lambda token=token: token))
        assert isinstance(error, AuthenticationFailed), error
        assert 'refuses our token, and says {"status":"invalid_token"}' in error.message
