"""``streamlet dev``: a cluster that outlives its command, and of which nothing is left after ``down``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from streamlet.cli.dev import dev
from streamlet.devcluster import DevStackError, resident
from streamlet.devcluster.errors import NotAsWanted
from streamlet.devcluster.machine import ProcessIdentity, free_ports, is_free
from tests.patience import PATIENCE_S
from tests.read_back import read_back
from tests.scripted.cli.test_dev import run

DEV = [sys.executable, "-c", "from streamlet.cli.dev import dev; dev()"]


@pytest.fixture
def own_ports(monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """Ports of the test's own in the place of the well-known ones: those every other ``up`` on the machine wants too,
    and takes in the moment in which the servers of this test are dead.
    """
    ports = tuple(free_ports(len(resident.WELL_KNOWN_PORTS)))
    monkeypatch.setattr(resident, "WELL_KNOWN_PORTS", ports)
    return ports


def values(topic: str, count: int) -> list[bytes | None]:
    """What librdkafka finds in a topic, sorted."""
    return sorted(row.value for row in read_back(resident.require(), topic, count))


def test_one_broker_of_three_dies_and_comes_back(state: Path, own_ports: tuple[int, ...]) -> None:
    """The others serve meanwhile and are left alone by ``up``, which starts the dead one on its data."""
    first = json.loads(run("up", "--kafka", "4", "--brokers", "3", "--json")[1])
    assert run("topic", "kept", "--replication", "3")[0] == run("topic", "alone", "--partitions", "3")[0] == 0
    assert run("produce", "alone", stdin=b"1\n2\n3\n") == (0, "wrote 3 records into alone\n")
    resident.require().processes[1].identity.kill()

    result = CliRunner().invoke(dev, ["topics", "--json"], catch_exceptions=False)
    assert "Warning: 1 of 3 brokers has ended (broker 1)" in result.stderr
    told = json.loads(result.stdout)
    assert (told["kept"]["records"], told["alone"]["records"]) == (0, None)
    assert run("produce", "kept", stdin=b"a\nb\n") == (0, "wrote 2 records into kept\n")
    assert run("produce", "alone", stdin=b"4\n5\n6\n") == (0, "wrote 3 records into alone\n")
    assert run("topic", "later")[0] == 0
    with pytest.raises(NotAsWanted, match="brokers has ended"):
        run("up", "--kafka", "3.9")

    again = json.loads(run("up", "--json")[1])
    assert not again["already"] and again["bootstrap_servers"] == first["bootstrap_servers"]
    same = [old["pid"] == new["pid"] for old, new in zip(first["processes"], again["processes"], strict=True)]
    assert same == [True, False, True] and run("status")[0] == 0
    assert values("alone", 6) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert values("kept", 2) == [b"a", b"b"]
    run("down")


def test_of_two_ups_one_starts_and_down_leaves_nothing(state: Path) -> None:
    """One starts it, the other finds it; topics and records; ``down`` leaves no process and
    port.
    """
    ups = [subprocess.Popen([*DEV, "up", "--json"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [json.loads(process.communicate(timeout=PATIENCE_S)[0]) for process in ups]
    assert [process.returncode for process in ups] == [0, 0]
    assert sorted(answer.pop("already") for answer in told) == [False, True]
    assert told[0] == told[1]
    assert state.stat().st_mode & 0o777 == 0o700
    processes = [ProcessIdentity.of(process["pid"]) for process in told[0]["processes"]]
    assert [process["health"] for process in told[0]["processes"]] == ["answers", "answers"]

    assert run("topic", "t", "--partitions", "3", "--config", "retention.ms=60000")[0] == 0
    assert run("produce", "t", "-", stdin=b"one\ntwo\nthree") == (0, "wrote 3 records into t\n")
    found = AdminClient({"bootstrap.servers": told[0]["bootstrap_servers"]}).list_topics("t", timeout=20)
    assert len(found.topics["t"].partitions) == 3
    assert values("t", 3) == [b"one", b"three", b"two"]

    status, text = run("status")
    assert status == 0
    assert f'ZkHosts("{told[0]["zookeeper"]}")' in text and "server.log" in text
    with pytest.raises(DevStackError, match="streamlet dev down"):
        run("up", "--kafka", "4")

    gone = json.loads(run("down", "--json")[1])
    assert {process["pid"] for process in gone["ended"]} == {process.pid for process in processes}
    assert gone["removed"] == told[0]["directory"]
    assert not any(process.alive for process in processes)
    assert all(is_free(process["port"]) for process in gone["ended"])
    assert os.listdir(state) == ["lock"]


@pytest.mark.parametrize("kafka", ["3.9", "4"])
def test_after_a_death_it_is_started_again_on_its_data(state: Path, own_ports: tuple[int, ...], kafka: str) -> None:
    """As after a reboot: ``status`` says what is gone, ``up`` brings the topics back on the same ports."""
    first = resident.up(kafka)
    run("topic", "kept")
    for process in first.resident.processes:
        process.identity.kill()
    status, text = run("status")
    assert status == 1 and "gone" in text
    with pytest.raises(DevStackError, match="has ended"):
        run("topic", "t")
    again = resident.up()
    assert not again.already and (again.resident.kafka, again.resident.brokers) == (kafka, 1)
    assert again.resident.bootstrap_servers == first.resident.bootstrap_servers == f"127.0.0.1:{own_ports[1]}"
    admin = AdminClient({"bootstrap.servers": again.resident.bootstrap_servers})
    # A broker names its fellows a moment before it names its topics.
    deadline = time.monotonic() + PATIENCE_S
    while "kept" not in admin.list_topics(timeout=20).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run("down")


def test_an_up_that_is_killed_half_way_leaves_nothing(state: Path) -> None:
    """Killed after the first server runs: that server goes too, and the next ``up`` works."""
    process = subprocess.Popen([*DEV, "up"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    with process.stderr as said:
        assert any("starting Kafka" in line for line in said)
        process.kill()
    process.wait()
    assert resident.status() is None
    started = resident.up("3.9")
    assert not started.already
    with socket.create_connection(("127.0.0.1", started.resident.processes[0].port), 5):
        pass
    run("down")
