"""``streamlet dev topic`` and ``topics``: one paragraph for what is refused, and what Kafka's own tools see."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from streamlet.base.errors import BadInput
from streamlet.cli.dev import dev
from streamlet.testing import DevCluster, resident
from streamlet.testing.processes import ProcessIdentity
from streamlet.testing.resident import Resident, ResidentProcess

pytestmark = pytest.mark.real


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


def run(*arguments: str) -> str:
    """Standard output of a command that ends well."""
    result = CliRunner().invoke(dev, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result
    return result.stdout


def refused(*arguments: str) -> str:
    """What a command that is refused says: exit status 2, one paragraph."""
    with pytest.raises(BadInput) as caught:
        CliRunner().invoke(dev, arguments, catch_exceptions=False)
    assert caught.value.exit_status == 2 and "\n" not in caught.value.message
    return caught.value.message


def test_a_topic_is_made_and_listed(cluster: DevCluster, topic_name: Callable[[], str]) -> None:
    """As asked for, and with the records that it has by then."""
    name = topic_name()
    assert run("topic", name, "--partitions", "3", "--config", "retention.ms=60000") == (
        f"created topic {name} with 3 partitions\n"
    )
    assert len(cluster.describe_topic(name)) == 3
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
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
