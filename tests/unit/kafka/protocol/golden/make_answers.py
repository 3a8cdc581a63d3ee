"""Record ``answers.json``: what real brokers answer, what members of other clients say, what Kafka keeps in ZooKeeper.

``python -m tests.unit.kafka.protocol.golden.make_answers`` from the top of the checkout; starts a Kafka 3.9 and a
4.x and throws them away. The tests of malformed input begin with these bytes.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kazoo.client import KazooClient

from streamlet.devcluster import DevCluster
from streamlet.kafka.net.sasl import sasl_client
from streamlet.kafka.protocol.messages.groups import DescribeGroupsRequest
from streamlet.kafka.protocol.schema import ApiKey
from tests.brokers import MORE_SECURITY
from tests.kafka_requests import REQUESTS
from tests.unit.kafka.protocol.every_request import Conversation, Line, log_in

SCRAM = {"user": "bob", "password": "bob-secret", "nonce": "fixed+for+the+record"}
JAVA_ASSIGNORS = ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")


def answers(cluster: DevCluster) -> list[dict[str, Any]]:
    """Of every request, and of the SASL conversations."""
    with Conversation(cluster.bootstrap_servers, "recorded") as talk:
        talk.say_everything()
    heard = list(talk.heard)
    for version in REQUESTS[ApiKey.SASL_AUTHENTICATE].versions:
        plain = sasl_client("PLAIN", "alice", "alice-secret", "n")
        heard += log_in(cluster.secure_servers("SASL_PLAINTEXT"), version, plain)
    rows = {(row.request.api_key.name, row.version, row.frame.hex()): None for row in heard}
    return [{"broker": cluster.kafka, "api": api, "version": version, "frame": raw} for api, version, raw in rows]


def scram(cluster: DevCluster) -> list[dict[str, Any]]:
    """What the broker says in each SCRAM conversation, with a nonce of ours that is known."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = []
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(SCRAM["user"], info, SCRAM["password"].encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(20)
        name = mechanism.name.replace("_", "-")
        server, deadline = cluster.secure_servers("SASL_PLAINTEXT"), time.monotonic() + 20
        while True:  # the broker learns of the new user a moment later
            talk = sasl_client(name, SCRAM["user"], SCRAM["password"], SCRAM["nonce"])
            try:
                heard = list(log_in(server, 2, talk))
                break
            except AssertionError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        found.append({**SCRAM, "mechanism": name, "said": [row.answer.auth_bytes.hex() for row in heard[1:]]})
    return found


def members(cluster: DevCluster) -> list[dict[str, Any]]:
    """Subscription and assignment of one member of each client and assignor."""
    topic = "members"
    cluster.create_topic(topic, 3)
    found = []
    for strategy in ("range", "roundrobin", "cooperative-sticky"):
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"rdkafka-{strategy}"}
        consumer = Consumer({**settings, "partition.assignment.strategy": strategy})
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        found.append({"client": f"rdkafka-{strategy}", **described(cluster, f"rdkafka-{strategy}")})
        consumer.close()
    for name in JAVA_ASSIGNORS:
        setting = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{name}"
        group = f"java-{name}"
        arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group", group]
        arguments += ["--consumer-property", setting]
        process = subprocess.Popen(
            cluster.installation.tool_command(CONSOLE_CONSUMER, *arguments), stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 60
            while not (row := described(cluster, group)):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.2)
            found.append({"client": group, **row})
        finally:
            process.kill()
            process.wait()
    return found


CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def described(cluster: DevCluster, group: str) -> dict[str, str]:
    """A stable group's first member, as hex."""
    line = Line(cluster.bootstrap_servers)
    try:
        (row,) = line.say(DescribeGroupsRequest(groups=(group,)), 4).answer.groups
    finally:
        line.close()
    if row.group_state != "Stable":
        return {}
    return {"subscription": row.members[0].member_metadata.hex(), "assignment": row.members[0].member_assignment.hex()}


def nodes(cluster: DevCluster) -> dict[str, str]:
    """What the spout's reader looks at."""
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start(20)
    try:
        paths = ["/brokers/ids/0", "/brokers/topics/members", "/brokers/topics/members/partitions/0/state"]
        return {path: zookeeper.get(path)[0].decode() for path in paths}
    finally:
        zookeeper.stop()
        zookeeper.close()


def main() -> None:
    """Start, talk, write."""
    found: dict[str, Any] = {"answers": []}
    for release in ("3.9", "4"):
        with DevCluster(release, secured=True, broker_settings=MORE_SECURITY[release]) as cluster:
            found["answers"] += answers(cluster)
            if release == "3.9":
                found["members"] = members(cluster)
                found["nodes"] = nodes(cluster)
                found["scram"] = scram(cluster)
    text = json.dumps(found, indent=None, separators=(",", ":"), ensure_ascii=True)
    Path(__file__).with_name("answers.json").write_text(text.replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    main()
