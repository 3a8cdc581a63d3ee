"""KafkaSpout over TLS and SASL, and in a ZooKeeper that asks for a user; and where their passwords are not."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ScramMechanism
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from streamlet.base.errors import SettingError, StreamletError
from streamlet.devcluster import DevCluster
from streamlet.kafka.errors import AuthenticationFailed
from streamlet.spouts.kafka import GroupOffsets, KafkaHosts, SpoutConfig, StaticHosts, ZkHosts, ZkOffsets
from streamlet.spouts.kafka.spout_config import override_names
from tests.patience import PATIENCE_S
from tests.scram import set_password

UNTIL = {"streamlet.until.caught.up": True}
SECRET = "carol-geheim"
Make = Callable[..., Any]


def with_user(cluster: DevCluster) -> dict[str, Any]:
    """User carol for SCRAM-SHA-256."""
    set_password(cluster, "carol", SECRET, [ScramMechanism.SCRAM_SHA_256])
    user = {"sasl_plain_username": "carol", "sasl_plain_password": SECRET}
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **user}


def secured(cluster: DevCluster, kind: str) -> dict[str, Any]:
    """Hosts and settings, each kind of hosts with another protocol."""
    made = cluster.certificates
    if kind == "zk":
        own = {"ssl_certfile": str(made.client), "ssl_keyfile": str(made.client_key)}
        zk = {"hosts": ZkHosts(cluster.zookeeper or ""), "zk_root": "/streamlet"}
        return {**zk, "security_protocol": "SSL", "ssl_cafile": str(made.ca), **own}
    if kind == "static":
        hosts = StaticHosts({0: cluster.secure_servers("SASL_PLAINTEXT")})
        return {"hosts": hosts, "offset_store": GroupOffsets(), **with_user(cluster)}
    over_tls = {"security_protocol": "SASL_SSL", "ssl_cafile": str(made.ca)}
    return {"hosts": KafkaHosts(cluster.secure_servers("SASL_SSL")), **with_user(cluster), **over_tls}


@pytest.mark.parametrize(("cluster", "kind"), [("kafka39", "zk"), ("kafka39", "static"), ("kafka4", "kafka")])
def test_every_kind_of_hosts_reads_and_commits_over_secured_listeners(
    cluster: str, kind: str, request: pytest.FixtureRequest, make_topic: Make, harness: Make
) -> None:
    """No connection is left over to the PLAINTEXT listener: fetches go to the secured one too."""
    kafka: DevCluster = request.getfixturevalue(cluster)
    witness = request.getfixturevalue("witness" + cluster.removeprefix("kafka"))
    topic = make_topic(kafka)
    witness.produce(topic, [f"{i}" for i in range(2000)])
    spout = harness(SpoutConfig(topic=topic, id=topic, **secured(kafka, kind)), conf=UNTIL)
    seen: list[str] = []

    def ack_and_look() -> bool:
        seen.extend(values[0] for values in spout.values())
        spout.ack_all()
        return bool(spout.spout.caught_up())

    spout.until(ack_and_look)
    assert seen == [f"{i}" for i in range(2000)]
    spout.until(spout.committed(2000))
    client = spout.spout._parts.client
    plain = {int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(",")}
    assert client.connected_brokers() and not plain & {broker.port for broker in client.connected_brokers()}


def test_fault_f23_a_wrong_password_stops_the_spout_at_once_without_telling_it(
    kafka4: DevCluster, make_topic: Make, harness: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit status 2, long before ``start_timeout_ms``; broker and user named."""
    caplog.set_level(logging.DEBUG)
    settings = {**secured(kafka4, "kafka"), "sasl_plain_password": "hunter2", "start_timeout_ms": 60_000}
    config = SpoutConfig(topic=make_topic(kafka4), id="spout", **settings)
    start = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="refuses the user 'carol'") as caught:
        harness(config)
    assert time.monotonic() - start < 15 and caught.value.exit_status == 2
    assert "hunter2" not in caught.value.message + caplog.text + repr(config) + str(config)


def test_settings_that_contradict_each_other_are_refused_with_the_spouts() -> None:
    """By the rules of every client; passwords are not among what a command line may set."""
    with pytest.raises(SettingError, match="ssl_cafile is given, but security_protocol = 'PLAINTEXT'"):
        SpoutConfig(hosts=KafkaHosts("h:1"), topic="t", id="i", ssl_cafile="ca.pem")
    names = override_names()
    assert {"security_protocol", "ssl_cafile", "sasl_plain_username"} <= names
    assert not {"ssl_password", "sasl_plain_password"} & names
    before = SpoutConfig(hosts=KafkaHosts("h:1"), topic="t", id="i")
    after = before.with_text({"security_protocol": "SSL", "ssl_check_hostname": "false"})
    assert (after.security_protocol, after.ssl_check_hostname) == ("SSL", False)
    for wrong in ("user:password", ("a",), ("a", ""), ("a:b", "geheim")):
        with pytest.raises(SettingError, match="digest") as caught:
            ZkHosts("zk:1", digest=wrong)  # type: ignore[arg-type]
        assert "geheim" not in caught.value.message


TOPOLOGY = """
from pathlib import Path
from streamlet import Bolt, Grouping, Stream, Topology
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

class Sink(Bolt):
    def process(self, tup):
        pass

class Secured(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(
        hosts=KafkaHosts({servers!r}), topic={topic!r}, id="secured", start_timeout_ms=60_000,
        security_protocol="SASL_SSL", ssl_cafile={ca!r}, sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="carol", sasl_plain_password=Path({password!r}).read_text()))
    sink = Sink.spec(inputs=[lines])
"""


def test_the_password_is_in_no_output_no_argument_and_no_environment(
    kafka4: DevCluster, make_topic: Make, tmp_path: Path, witness4: Any
) -> None:
    """Of check, graph and run, in any form; looked at while the workers run."""
    with_user(kafka4)
    topic, password, file = make_topic(kafka4), tmp_path / "password", tmp_path / "secured.py"
    witness4.produce(topic, [f"{i}" for i in range(100)])
    password.write_text(SECRET)
    file.write_text(
        TOPOLOGY.format(
            servers=kafka4.secure_servers("SASL_SSL"),
            topic=topic,
            ca=str(kafka4.certificates.ca),
            password=str(password),
        )
    )
    for words in (["check", "--json"], ["check", "--settings", "--json"], ["graph"], ["run", "--until-caught-up"]):
        told, seen = run_and_look([words[0], str(file), *words[1:]])
        assert SECRET not in told and seen and not any(SECRET in row for row in seen), words
    password.write_text("hunter2")
    told, seen = run_and_look(["run", str(file), "--until-caught-up"], status=2)
    assert "refuses the user 'carol'" in told.replace("\n", " ").replace("  ", " ")
    assert "hunter2" not in told and not any("hunter2" in row for row in seen)
    given = ["run", str(file), "-c", "lines.sasl_plain_password=hunter2"]
    told, _ = run_and_look(given, status=2)
    assert "lines.sasl_plain_password" in told and "hunter2" not in told


def run_and_look(words: list[str], status: int = 0) -> tuple[str, set[str]]:
    """What a command says on both channels, and every command line and environment below it while it ran."""
    command = [sys.executable, "-m", "streamlet.cli.main", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen: set[str] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline
            for pid in descendants(process.pid):
                for name in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):
                        seen.add(Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace"))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        told = process.communicate()[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status, told
    return told, seen


def descendants(pid: int) -> Iterator[int]:
    """The process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                yield from descendants(int(child))


def test_offsets_in_a_zookeeper_belong_to_the_user_below_the_chroot(
    kafka39: DevCluster, make_topic: Make, harness: Make, topic_name: Make, witness39: Any, caplog: Any
) -> None:
    """Nodes are that user's alone, under the chroot, in an ensemble of which one host is down; another is refused."""
    caplog.set_level(logging.DEBUG)
    topic, chroot = make_topic(kafka39), topic_name()
    witness39.produce(topic, [f"{i}" for i in range(10)])
    ensemble = f"127.0.0.1:1,{kafka39.zookeeper}/{chroot}"

    def config(password: str) -> SpoutConfig:
        store = ZkOffsets(ensemble, digest=("streamlet", password))
        hosts = ZkHosts(kafka39.zookeeper or "")
        return SpoutConfig(hosts=hosts, topic=topic, id="mine", zk_root="/progress", offset_store=store)

    spout = harness(config(SECRET), conf=UNTIL)
    spout.until(lambda: len(spout.tuples) == 10)
    spout.ack_all()
    spout.until(spout.committed(10))
    path = f"/{chroot}/progress/mine/partition_0"
    with witness39.zookeeper() as stranger, pytest.raises(NoAuthError):
        stranger.get(path)
    owner = KazooClient(kafka39.zookeeper, auth_data=[("digest", f"streamlet:{SECRET}")])
    owner.start(10)
    try:
        assert b'"offset"' in owner.get(path)[0]
    finally:
        owner.stop()
        owner.close()
    with pytest.raises(StreamletError) as caught:
        harness(config("hunter2"))
    assert "does not allow this" in caught.value.message and "/progress/mine" in caught.value.message
    assert "hunter2" not in caught.value.message + caplog.text + repr(config("hunter2"))
