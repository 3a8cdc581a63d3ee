"""What a start of the development cluster leaves when it is killed or fails, and what the next one makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlet.devcluster import ClusterFailed, DevCluster, dev_cluster, resident
from streamlet.devcluster.errors import NotAsWanted
from streamlet.devcluster.installation import Installation, Java
from streamlet.devcluster.members import Member, data_directory, format_storage, noted_kind

TOOL = """#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" = -t ] && id=$2
    [ "$1" = -c ] && config=$2
    shift
done
data=$(dirname $config)/data
mkdir -p $data
echo cluster.id=$id > $data/meta.properties
"""
"""Stands for Java with the tool that formats a broker's storage."""


@pytest.fixture
def java(tmp_path: Path) -> Java:
    path = tmp_path / "java"
    path.write_text(TOOL)
    path.chmod(0o755)
    return Java(path, 17)


def begun(state: Path, kind: str) -> Path:
    """Leave what a start leaves that was killed before it wrote a record."""
    directory = state / "cluster"
    directory.mkdir(parents=True)
    (directory / "kind").write_text(kind)
    return directory


def test_storage_is_formatted_with_the_id_of_what_is_formatted_already(tmp_path: Path, java: Java) -> None:
    """A start that was killed in between left brokers that refused each other ever after."""
    installation = Installation("4", java, tmp_path / "jars", tmp_path)
    brokers = [Member(f"broker {number}", 0, tmp_path / f"{number}.log", []) for number in range(3)]
    data = [data_directory(installation, number) for number in range(3)]
    data[1].mkdir(parents=True)
    (data[1] / "meta.properties").write_text("version=1\ncluster.id=of-the-killed\nnode.id=1\n")
    assert format_storage(installation, brokers, 30.0) is None
    told = [(one / "meta.properties").read_text() for one in data]
    assert ["cluster.id=of-the-killed\n" in one for one in told] == [True] * 3


def test_the_kind_of_a_cluster_is_noted_before_it_has_data(
    tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dev_cluster, "find_java", lambda **_: java)
    monkeypatch.setattr(dev_cluster, "ensure_jars", lambda *_, **__: tmp_path)
    monkeypatch.setattr(dev_cluster, "lay_out", killed)
    with pytest.raises(KeyboardInterrupt):
        DevCluster("4", 3, tmp_path / "cluster").start()
    assert noted_kind(tmp_path / "cluster") == ("4", 3)


@pytest.mark.parametrize("wanted", [("3.9", None), (None, 3), ("3.9", 3)])
def test_after_a_start_that_was_killed_another_kind_is_refused_with_the_remedy(
    state: Path, wanted: tuple[str | None, int | None]
) -> None:
    """Kafka ended at the other one's files, and "look for a full disk" was all that was said."""
    directory = begun(state, "4 1\n")
    with pytest.raises(
        NotAsWanted, match=r"Kafka 4\.\S+ with 1 broker, did not come .* `streamlet dev down`"
    ) as raised:
        resident.up(*wanted)
    assert str(directory) in raised.value.message
    assert directory.exists()


def test_after_a_start_that_was_killed_the_same_one_is_started(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def start(*given: Any) -> Any:
        asked.append(given[1:3])
        raise ClusterFailed("far enough")

    monkeypatch.setattr(resident, "_start", start)
    directory = begun(state, "4 3\n")
    for wanted in ((None, None), ("4", None), (None, 3), ("4", 3)):
        with pytest.raises(ClusterFailed):
            resident.up(*wanted)
    for said in ("", "5 1", "4", "4 x"):
        (directory / "kind").write_text(said)
        with pytest.raises(ClusterFailed):
            resident.up()
    assert asked == [("4", 3)] * 4 + [("3.9", 1)] * 4


@pytest.mark.parametrize(
    ("log", "remedy"),
    [
        (
            "Caused by: java.lang.ClassNotFoundException: kafka.Kafka",
            "A jar of Kafka in JARS is damaged or gone: remove",
        ),
        ('Exception in thread "main" java.lang.NoClassDefFoundError: org/slf4j/Logger', "A jar of Kafka in JARS"),
        ("java.lang.RuntimeException: Found unexpected version in data/meta.properties", "`streamlet dev down`"),
        ("ERROR Unexpected error INCONSISTENT_CLUSTER_ID in VOTE response", "`streamlet dev down`"),
        ("java.io.IOException: No space left on device", "Look for a full disk"),
    ],
)
def test_a_server_that_does_not_start_is_told_with_what_helps(
    tmp_path: Path, java: Java, log: str, remedy: str
) -> None:
    cluster = DevCluster("4", 1, tmp_path)
    cluster._installation = Installation("4", java, tmp_path / "jars", tmp_path)
    member = Member("broker 0", 9092, tmp_path / "log", [])
    member.log.write_text(f"{log}\n\tat some.Place\n")
    assert remedy.replace("JARS", str(tmp_path / "jars")) in cluster._failure("It ended", member).message
