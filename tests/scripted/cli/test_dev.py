"""``streamlet dev``: a cluster that outlives its command, and of which nothing is left after ``down``."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamlet.cli.dev import dev
from streamlet.cli.dev_topics import standing_cluster
from streamlet.devcluster import DevStackError, resident
from streamlet.devcluster.errors import NotAsWanted
from streamlet.devcluster.machine import ProcessIdentity


def run(*arguments: str, stdin: bytes | None = None) -> tuple[int, str]:
    """Exit status and standard output of one command in this process."""
    result = CliRunner().invoke(dev, arguments, input=stdin, catch_exceptions=False)
    return result.exit_code, result.stdout


def test_each_command_says_that_nothing_is_up(state: Path) -> None:
    """Each command says so in its way, and makes no directory."""
    assert run("status") == (1, "Nothing is up.\n")
    assert run("status", "--json") == (1, "null\n")
    assert run("down") == (0, "Nothing was up.\n")
    assert json.loads(run("down", "--json")[1]) == {"ended": [], "removed": None}
    with pytest.raises(DevStackError, match="streamlet dev up"):
        run("topic", "t")
    assert not state.exists()


@pytest.mark.parametrize(
    "arguments", [("up", "--kafka", "5"), ("up", "--brokers", "2"), ("topic", "t", "--config", "x"), ("produce",)]
)
def test_bad_input_is_refused_before_anything_runs(state: Path, arguments: tuple[str, ...]) -> None:
    """Refused with 2 before anything runs."""
    assert run(*arguments)[0] == 2


def one_process(pid: str) -> str:
    identity = f'{{"pid": {pid}, "started": 1, "boot": "b"}}'
    process = f'{{"name": "broker 0", "port": 9092, "log": "l", "identity": {identity}}}'
    return f'{{"kafka": "3.9", "brokers": 1, "directory": "/", "processes": [{process}]}}'


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b'{"kafka": "9", "brokers": 1, "directory": "/", "processes": []}', b"\xff\xfe",
        *(one_process(pid).encode() for pid in ("-1", "0", "1e400", "99999999999999999999", '"7"')),
        b"[" * 100_000,
    ],
    ids=lambda text: text[-60:],
)  # fmt: skip
def test_a_state_file_that_says_something_else(state: Path, text: bytes) -> None:
    """Named, with what to do; nothing is killed or removed on its word."""
    state.mkdir(parents=True)
    (state / "state.json").write_bytes(text)
    try:
        for command in ("status", "up", "down"):
            with pytest.raises(DevStackError, match=r"state\.json does not say what"):
                run(command)
    finally:
        (state / "state.json").unlink()


def test_a_state_directory_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One paragraph that names it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(DevStackError, match="XDG_STATE_HOME"):
        run("up")


def test_a_state_file_that_cannot_be_read(state: Path) -> None:
    """Said as that, not as a lack of room."""
    (state / "state.json").mkdir(parents=True)
    try:
        for command in ("status", "up", "down"):
            with pytest.raises(DevStackError, match=r"state\.json, which says .* cannot be read: Is a directory"):
                run(command)
    finally:
        (state / "state.json").rmdir()


def test_an_error_of_what_is_started_is_not_one_of_the_state(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the state's own directory is told to have no room."""

    def refuse(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(resident, "_start", refuse)
    with pytest.raises(OSError, match="Resource temporarily"):
        run("up")


def test_what_down_cannot_remove_is_named(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 1, nothing is said to be removed, and the next ``down`` goes on."""
    recorded = Recorded(state)
    (recorded.data / "kept").touch()
    unlink = os.unlink

    def refuse(path: object, **options: object) -> None:
        if str(path).endswith("kept"):
            raise PermissionError(1, "Operation not permitted", "kept")
        unlink(path, **options)  # type: ignore[call-overload]

    try:
        with monkeypatch.context() as patched, pytest.raises(DevStackError) as caught:
            patched.setattr(os, "unlink", refuse)
            run("down")
        message = caught.value.message
        assert str(state / "cluster") in message and "kept: Operation not permitted" in message
        assert caught.value.exit_status == 1 and (recorded.data / "kept").exists()
        assert not any(process.identity.alive for process in recorded.resident.processes)
        assert run("down") == (0, f"removed {state / 'cluster'}\n")
        assert os.listdir(state) == ["lock"]
    finally:
        recorded.end()


def test_another_cluster_than_the_one_that_is_up(state: Path) -> None:
    """Refused with status 2 and one paragraph, `--json` or not; what is up stays up."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as server:
        broker = resident.ResidentProcess("broker 0", 9092, "log", ProcessIdentity.of(server.pid))
        up = resident.Resident("3.9", 1, str(state / "cluster"), (broker,))
        state.mkdir(parents=True)
        (state / "state.json").write_text(json.dumps(dataclasses.asdict(up)))
        for wanted, said in (
            (("--kafka", "4"), "with 1 broker instead"),
            (("--brokers", "3"), "with 3 brokers instead"),
        ):
            with pytest.raises(NotAsWanted) as caught:
                run("up", *wanted, "--json")
            assert caught.value.exit_status == 2 and "\n" not in caught.value.message
            assert said in caught.value.message and "streamlet dev down" in caught.value.message
        assert server.poll() is None and resident.status() == up
        assert run("down")[0] == 0


@pytest.mark.parametrize(
    ("kafka", "ports", "said"),
    [
        ("3.9", (31456, 9092), ["2181 is taken by another program: ZooKeeper is at 127.0.0.1:31456; write that into"]),
        (
            "4",
            (31457,),
            ["9092 is taken by another program: broker 0 is at 127.0.0.1:31457; write that into your file."],
        ),
        ("3.9", (2181, 9092), []),
    ],
)
def test_a_usual_port_that_is_taken_is_named_with_the_one_instead(
    state: Path, monkeypatch: pytest.MonkeyPatch, kafka: str, ports: tuple[int, ...], said: list[str]
) -> None:
    names = ["ZooKeeper", "broker 0"][-len(ports) :]
    here = ProcessIdentity.of(os.getpid())
    processes = tuple(resident.ResidentProcess(n, port, "log", here) for n, port in zip(names, ports, strict=True))
    made = resident.Resident(kafka, 1, str(state / "cluster"), processes)
    monkeypatch.setattr(resident, "_start", lambda *_: made)
    monkeypatch.setattr(resident.ResidentProcess, "health", lambda _: "answers")
    text = run("up", "--kafka", kafka)[1]
    assert [one in text for one in said] == [True] * len(said) and text.count("is taken") == len(said)


class Recorded:
    """A cluster on record whose servers are processes that only wait, and whose living brokers are said to answer."""

    def __init__(self, state: Path, kafka: str = "4", brokers: int = 3) -> None:
        names = [*(["ZooKeeper"] if kafka == "3.9" else []), *(f"broker {number}" for number in range(brokers))]
        self.servers = {
            name: subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for name in names
        }
        processes = (
            resident.ResidentProcess(name, 19092 + at, f"{name}.log", ProcessIdentity.of(server.pid))
            for at, (name, server) in enumerate(self.servers.items())
        )
        self.resident = resident.Resident(kafka, brokers, str(state / "cluster"), tuple(processes))
        self.data = state / "cluster" / "data"
        self.data.mkdir(parents=True)
        (state / "state.json").write_text(json.dumps(dataclasses.asdict(self.resident)))

    def end(self, *names: str) -> None:
        for name in names or self.servers:
            self.servers[name].kill()
            self.servers[name].communicate()

    def untouched(self, *ended: str) -> bool:
        """Whether record and data are there, and all run but ``ended``."""
        runs = {name for name, server in self.servers.items() if server.poll() is None}
        return resident.status() == self.resident and self.data.exists() and runs == set(self.servers) - set(ended)


@pytest.fixture
def recorded(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Kafka 4 with three brokers."""
    monkeypatch.setattr(
        resident.ResidentProcess, "health", lambda process: "answers" if process.identity.alive else "gone"
    )
    made = Recorded(state)
    yield made
    made.end()


@pytest.mark.parametrize("ended", [(), ("broker 1",), ("broker 0", "broker 1", "broker 2")])
@pytest.mark.parametrize("wanted", [("--kafka", "3.9"), ("--brokers", "1"), ("--kafka", "3.9", "--brokers", "1")])
def test_another_cluster_than_the_recorded_one_is_refused(
    recorded: Recorded, ended: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    """Alive, half dead or dead: refused with what is there and both commands; nothing is ended or removed."""
    if ended:
        recorded.end(*ended)
    with pytest.raises(NotAsWanted) as caught:
        run("up", *wanted)
    said = caught.value.message
    assert caught.value.exit_status == 2 and "\n" not in said
    assert recorded.resident.described() in said and "`streamlet dev down`, which removes its topics" in said
    options = {"--kafka": "4", "--brokers": "3"} | dict(zip(wanted[::2], wanted[1::2], strict=True))
    assert f"`streamlet dev up {' '.join(word for pair in options.items() for word in pair)}`" in said
    assert ("It has ended" in said) == (len(ended) == 3) and ("1 of 3 brokers has ended" in said) == (len(ended) == 1)
    assert recorded.untouched(*ended)


@pytest.mark.parametrize("wanted", [(), ("--kafka", "4"), ("--brokers", "3")])
def test_what_is_not_said_is_as_it_was(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, wanted: tuple[str, ...]
) -> None:
    """``up`` means the cluster on record: it is up; when it has ended it is started with its kind, size and ports."""
    assert run("up", *wanted)[1].startswith("It is up already:\nKafka 4.")
    recorded.end()
    started: list[tuple[object, ...]] = []

    def start(_state: Path, kafka: str, brokers: int, ports: tuple[int, ...], *_: object) -> resident.Resident:
        started.append((kafka, brokers, ports[1:]))
        return recorded.resident

    monkeypatch.setattr(resident, "_start", start)
    assert run("up", *wanted)[0] == 0
    assert started == [("4", 3, (19092, 19093, 19094))] and recorded.data.exists()


def test_half_dead_is_told_and_used(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning with the command that mends it, and the addresses that live; refused only when no broker answers."""
    assert standing_cluster() == recorded.resident and capsys.readouterr().err == ""
    recorded.end("broker 1")
    assert standing_cluster().living_servers == "127.0.0.1:19092,127.0.0.1:19094"
    assert capsys.readouterr().err.startswith(
        "Warning: 1 of 3 brokers has ended (broker 1): `streamlet dev up` starts it again"
    )
    status, text = run("status")
    assert status == 1 and "1 of 3 brokers has ended (broker 1)" in text and ", gone, log broker 1.log" in text
    recorded.end("broker 0")
    standing_cluster()
    assert "2 of 3 brokers have ended (broker 0, 1): `streamlet dev up` starts them" in capsys.readouterr().err
    recorded.end("broker 2")
    with pytest.raises(NotAsWanted, match=r"with 3 brokers\) has ended .* on its data: `streamlet dev up`\.$"):
        standing_cluster()


def test_half_dead_and_silent_is_refused(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, but answers nobody: no command waits for it."""
    recorded.end("broker 1")
    monkeypatch.setattr(resident.ResidentProcess, "health", lambda _process: "silent")
    with pytest.raises(NotAsWanted, match=r"does not answer.*1 of 3 brokers has ended"):
        standing_cluster()


@pytest.fixture
def with_spark(recorded: Recorded) -> Iterator[Recorded]:
    """The same, and a Spark cluster with a master and two workers."""
    names = ["Spark master", "Spark worker 0", "Spark worker 1"]
    for name in names:
        recorded.servers[name] = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    processes = tuple(
        resident.ResidentProcess(
            name, 7077 + at, f"{name}.log", ProcessIdentity.of(recorded.servers[name].pid), 8080 + at
        )
        for at, name in enumerate(names)
    )
    recorded.resident = dataclasses.replace(recorded.resident, spark=resident.ResidentSpark(processes))
    state = resident.state_directory() / "state.json"
    state.write_text(json.dumps(dataclasses.asdict(recorded.resident)))
    yield recorded


def test_spark_is_told_with_its_address_and_ended_with_the_rest(with_spark: Recorded) -> None:
    """On record as it was written; ``status`` is 1 when one of its workers has ended, and says what starts it."""
    assert resident.status() == with_spark.resident
    status, text = run("status")
    assert status == 0 and "streamlet run FILE --spark spark://127.0.0.1:7077" in text
    told = json.loads(run("status", "--json")[1])
    assert told["spark"] == {"master": "spark://127.0.0.1:7077", "page": "http://127.0.0.1:8080", "workers": 2}
    with_spark.end("Spark worker 1")
    status, text = run("status")
    assert status == 1 and "Spark worker 1 has ended: `streamlet dev up` starts it again." in text
    assert standing_cluster().loss() is None, "Kafka is whole"
    ended = json.loads(run("down", "--json")[1])["ended"]
    assert [server["name"] for server in ended][:2] == ["Spark worker 0", "Spark master"] and len(ended) == 5


@pytest.mark.parametrize("wanted", [(), ("--spark",), ("--spark", "--spark-workers", "2")])
def test_a_spark_that_is_up_is_left_alone(with_spark: Recorded, wanted: tuple[str, ...]) -> None:
    assert run("up", *wanted)[1].startswith("It is up already:")
    assert with_spark.untouched()


def test_another_size_of_spark_is_refused_before_anything_is_started(with_spark: Recorded) -> None:
    with_spark.end("broker 1")
    with pytest.raises(NotAsWanted, match=r"spark://127.0.0.1:7077 with 2 workers.*streamlet dev down"):
        run("up", "--spark", "--spark-workers", "3")
    assert with_spark.untouched("broker 1")


def test_a_number_of_spark_workers_without_spark_is_refused(state: Path) -> None:
    result = CliRunner().invoke(dev, ["up", "--spark-workers", "2"])
    assert result.exit_code == 2 and "--spark-workers belongs to --spark" in result.stderr
