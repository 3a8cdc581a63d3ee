"""``streamlet dev topic``, ``topics`` and ``produce``: what they do as others see it, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from streamlet.base.errors import BadInput
from streamlet.cli.dev import dev
from streamlet.devcluster import DevCluster, resident
from streamlet.devcluster.machine import ProcessIdentity
from streamlet.devcluster.resident import Resident, ResidentProcess


@pytest.fixture(params=["kafka39", "kafka4"])
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DevCluster:
    """The session's broker, taken for the resident one."""
    found: DevCluster = request.getfixturevalue(request.param)
    broker = found.members[-1]
    assert broker.jvm is not None
    process = ResidentProcess(broker.name, broker.port, str(broker.log), ProcessIdentity.of(broker.jvm.pid))
    there = Resident(found.kafka, 1, str(found.directory), (process,))
    monkeypatch.setattr(resident, "require", lambda: there)
    return found


def run(*arguments: str, stdin: bytes | None = None) -> str:
    """Standard output of a command that ends well."""
    result = CliRunner().invoke(dev, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result
    return result.stdout


def refused(*arguments: str, stdin: bytes | None = None) -> str:
    """What a command that is refused says: exit status 2, one paragraph."""
    with pytest.raises(BadInput) as caught:
        CliRunner().invoke(dev, arguments, input=stdin, catch_exceptions=False)
    assert caught.value.exit_status == 2 and "\n" not in caught.value.message
    return caught.value.message


def test_a_topic_is_made_and_listed(cluster: DevCluster, topic_name: Callable[[], str]) -> None:
    """As asked for, and with the records that it has by then."""
    name = topic_name()
    assert run("topic", name, "--partitions", "3", "--config", "retention.ms=60000") == (
        f"created topic {name} with 3 partitions\n"
    )
    assert len(cluster.describe_topic(name)) == 3
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(7):
        producer.produce(name, b"x", partition=number % 3)
    assert producer.flush(30) == 0
    assert json.loads(run("topics", "--json"))[name] == {"partitions": 3, "replication": 1, "records": 7}
    row = next(line.split() for line in run("topics").splitlines() if line.startswith(name))
    assert row == [name, "3", "1", "7"]


def test_what_is_refused_is_told_with_the_remedy(cluster: DevCluster, topic_name: Callable[[], str]) -> None:
    """A topic that is there, too many copies, a name and a setting that are none."""
    name = topic_name()
    run("topic", name, "--partitions", "2")
    said = refused("topic", name, "--partitions", "5")
    assert f"{name!r} is there already, with 2 partitions" in said and "streamlet dev topics" in said
    said = refused("topic", topic_name(), "--replication", "3")
    assert "cannot keep 3 copies" in said and f"--kafka {cluster.kafka} --brokers 3" in said
    assert "not a valid topic name" in refused("topic", "bad!name")
    assert "no.such" in refused("topic", topic_name(), "--config", "no.such=1")


def records(cluster: DevCluster, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Partition, key and value of the topic's first records, as librdkafka reads them."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = consumer.consume(count, timeout=30)
    consumer.close()
    return [(row.partition(), row.key(), row.value()) for row in found]


def test_lines_are_written_to_the_byte(cluster: DevCluster, topic_name: Callable[[], str], tmp_path: Path) -> None:
    """Whatever the bytes are, round the partitions one by one; from a file, from standard input, and compressed."""
    name = topic_name()
    run("topic", name, "--partitions", "2")
    lines = [b"one", b"\xff\xfe\x00", b"", b"four\r"]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    assert run("produce", name, str(tmp_path / "lines")) == f"wrote 4 records into {name}\n"
    assert run("produce", name, stdin=b"five\n") == f"wrote 1 record into {name}\n"
    assert run("produce", name, "-", "--compression", "zstd", stdin=b"six\n") == f"wrote 1 record into {name}\n"
    found = records(cluster, name, 6)
    assert sorted(found[:]) == sorted(
        [
            (0, None, b"one"),
            (1, None, lines[1]),
            (0, None, b""),
            (1, None, b"four\r"),
            (0, None, b"five"),
            (0, None, b"six"),
        ]
    )


def test_a_line_has_a_key_where_it_is_asked_for(cluster: DevCluster, topic_name: Callable[[], str]) -> None:
    """The first separator ends it; a line without one is told by number, and what came before it is written."""
    name = topic_name()
    run("topic", name, "--partitions", "4")
    said = refused("produce", name, "-", "--key-separator", "::", stdin=b"a::1\na::2::3\nbad\nb::4\n")
    assert "Line 3 has no key: '::'" in said and "The 2 records before it are written" in said
    found = records(cluster, name, 2)
    assert [row[1:] for row in found] == [(b"a", b"1"), (b"a", b"2::3")] and len({row[0] for row in found}) == 1


def test_a_line_that_is_too_large_is_told_by_number(cluster: DevCluster, topic_name: Callable[[], str]) -> None:
    """With its size and the limit; what came before it is written."""
    name = topic_name()
    run("topic", name)
    said = refused("produce", name, "-", stdin=b"a\n" + b"x" * 1_100_000 + b"\n")
    assert said.startswith(f"Line 2: A record for topic {name!r} takes up to 11000") and "max_request_size is" in said
    assert said.endswith("The 1 record before it is written.") and len(records(cluster, name, 1)) == 1
    assert refused("produce", name, "-", stdin=b"x" * 1_100_000).endswith("Nothing was written.")


def test_a_topic_that_is_not_there_is_told_at_once(cluster: DevCluster, topic_name: Callable[[], str]) -> None:
    """With the command that makes it; no line is read."""
    name = topic_name()
    assert f"streamlet dev topic {name}" in refused("produce", name, "-", stdin=b"x\n")
