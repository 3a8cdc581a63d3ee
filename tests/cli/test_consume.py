"""``streamlet consume``: bytes as they are, JSON that tells them apart, groups that go on, an orderly end."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from streamlet.base.errors import BadInput, SettingError
from streamlet.cli.consume import Reading, Wanted
from streamlet.cli.consume import consume as consume_command
from streamlet.cli.records import JsonLines, Lines, key_and_value
from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.consumer import ConsumerRecord
from streamlet.kafka.records.batch import TimestampType
from tests.patience import PATIENCE_S


def record(value: bytes | None, key: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = ()):  # type: ignore[no-untyped-def]
    return ConsumerRecord("t", 1, 7, 1000, TimestampType.CREATE_TIME, key, value, headers, 0)


def test_a_line_is_the_records_bytes() -> None:
    """Whatever they are; key and headers stand before them where they are wanted."""
    assert Lines().line(record(b"\xff\r\x00")) == b"\xff\r\x00\n"
    assert Lines().line(record(None)) == b"null\n"
    shown = Lines(keys=True, headers=True).line(record(b"v", b"k", (("a", b"1"), ("b", None))))
    assert shown == b"a:1,b:\tk\tv\n"


@pytest.mark.parametrize("data", [b"", b"text", "schön".encode(), b"\xff\xfe", b'{"base64": "x"}', None])
def test_json_tells_text_bytes_and_nothing_apart(data: bytes | None) -> None:
    """Each can be had back to the byte."""
    line = JsonLines().line(record(data, data, (("h", data),)))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    row = json.loads(line)
    assert (row["topic"], row["partition"], row["offset"], row["timestamp"]) == ("t", 1, 7, 1000)
    for told in (row["key"], row["value"], row["headers"][0][1]):
        back = base64.b64decode(told["base64"]) if isinstance(told, dict) else told
        assert (back.encode() if isinstance(back, str) else back) == data


def test_a_line_of_a_file_as_a_record() -> None:
    """Its line end alone is taken off; a key that is not there is told with the line's number."""
    assert key_and_value(b"a\r\n", 1, None) == (None, b"a\r")
    assert key_and_value(b"\xff", 1, None) == (None, b"\xff")
    assert key_and_value(b"k:v:w\n", 1, b":") == (b"k", b"v:w")
    with pytest.raises(BadInput, match="Line 3 has no key: ':'"):
        key_and_value(b"v\n", 3, b":")


@pytest.mark.parametrize(
    "contradiction",
    [
        {"from_beginning": True, "from_offset": 3},
        {"group": "g", "partitions": (1,)},
        {"group": "g", "from_offset": 3},
        {"group": ""},
    ],
)
def test_what_contradicts_itself_is_refused(contradiction: dict[str, object]) -> None:
    given = {"partitions": (), "group": None, "from_beginning": False, "from_offset": None, "until_end": False}
    with pytest.raises(BadInput, match="leave"):
        Wanted("t", max_records=None, **{**given, **contradiction}).check()  # type: ignore[arg-type]


def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    """Each with its cause: nothing is tried again until a time-out."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        servers = f"127.0.0.1:{port},[::1]:{port}"
        result = CliRunner().invoke(consume_command, ["t", "--bootstrap-server", servers])
    assert isinstance(result.exception, BadInput) and result.exception.message.startswith(
        f"No Kafka broker can be reached. 127.0.0.1:{port}: Connection refused; [::1]:{port}: "
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('acks = "all"', "mine.toml: 'acks' is a setting of the Producer"),
        ('"group.protocol" = "consumer"', "mine.toml: There is no setting 'group_protocol'"),
        ('"client.id" = "a"\nclient_id = "b"', "mine.toml: client_id is given twice"),
        ("request_timeout_ms = '5'", "mine.toml: request_timeout_ms = '5' must be a whole number"),
    ],
)
def test_a_file_of_settings_that_cannot_be_is_named(tmp_path: Path, text: str, said: str) -> None:
    """Before anything is connected to."""
    file = tmp_path / "mine.toml"
    file.write_text(text)
    result = CliRunner().invoke(consume_command, ["t", "--bootstrap-server", "127.0.0.1:1", "--config", str(file)])
    assert isinstance(result.exception, SettingError) and said in result.exception.message


class Consume:
    """Runs the command in a process of its own, against one cluster."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "streamlet", "consume", "--bootstrap-server", self.servers, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
        self.started.append(process)
        return process

    def __call__(self, *arguments: str) -> tuple[int, bytes, str]:
        """Exit status, output, and what it said."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err.decode()


@pytest.fixture
def consume(kafka39: DevCluster) -> Iterator[Consume]:
    command = Consume(kafka39.bootstrap_servers)
    yield command
    for process in command.started:
        process.kill()
        process.communicate()


def produce(cluster: DevCluster, topic: str, rows: list[tuple[int, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for partition, value in rows:
        producer.produce(topic, value, key=b"k", partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.real
def test_a_topic_is_shown_as_it_is(kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str]) -> None:
    """To its end, some of it, from an offset, one partition; the count is said on standard error."""
    topic = make_topic(kafka39, partitions=2)
    produce(kafka39, topic, [(0, b"one"), (0, b"\xff\xfe"), (0, None), (1, b"other")])
    status, out, err = consume(topic, "--until-end")
    assert (status, sorted(out.splitlines())) == (0, sorted([b"one", b"\xff\xfe", b"null", b"other"]))
    assert err == f"4 records of {topic} from 2 partitions\n"
    assert consume(topic, "--partition", "0", "--from-offset", "1", "--max-records", "1")[1] == b"\xff\xfe\n"
    rows = [json.loads(line) for line in consume(topic, "--partition", "0", "--until-end", "--json")[1].splitlines()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, "k", "one"),
        (1, "k", {"base64": "//4="}),
        (2, "k", None),
    ]
    assert consume(topic, "--partition", "1", "--until-end", "--keys")[1] == b"k\tother\n"
    assert consume(topic, "--partition", "1", "--from-offset", "1", "--until-end")[1] == b""


@pytest.mark.real
def test_a_group_goes_on_after_what_was_shown(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    """Every record once over several runs, and the committed offset is that of what came out, as librdkafka sees it."""
    topic, group = make_topic(kafka39), topic_name()
    produce(kafka39, topic, [(0, b"%d" % number) for number in range(1000)])
    options = (topic, "--group", group, "--from-beginning")
    assert consume(*options, "--max-records", "300")[1].splitlines() == [b"%d" % number for number in range(300)]
    witness = ConfluentConsumer({"bootstrap.servers": kafka39.bootstrap_servers, "group.id": group})
    assert witness.committed([ConfluentPartition(topic, 0)], timeout=20)[0].offset == 300
    witness.close()
    assert consume(*options, "--until-end")[1].splitlines() == [b"%d" % number for number in range(300, 1000)]
    assert consume(*options, "--until-end")[2] == f"0 records of {topic}\n"


@pytest.mark.real
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_it_in_order(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str], number: int, status: int
) -> None:
    """What was read is written, and counted in the closing line."""
    topic = make_topic(kafka39)
    produce(kafka39, topic, [(0, b"%d" % row) for row in range(5000)])
    process = consume.start(topic, "--from-beginning")
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.readline()
    os.kill(process.pid, number)
    lines = (first + process.stdout.read()).splitlines()
    err = process.stderr.read()
    assert process.wait(PATIENCE_S) == status
    assert lines == [b"%d" % row for row in range(len(lines))]
    assert err.decode() == f"{len(lines)} record{'' if len(lines) == 1 else 's'} of {topic} from 1 partition\n"


@pytest.mark.real
def test_what_comes_later_is_shown_when_it_comes(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str]
) -> None:
    """Without --from-beginning only what is written from now on."""
    topic = make_topic(kafka39)
    produce(kafka39, topic, [(0, b"before")])
    process = consume.start(topic, "--max-records", "1")
    over = threading.Event()

    def keep_writing() -> None:
        while not over.wait(0.2):
            produce(kafka39, topic, [(0, b"after")])

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        over.set()
        writer.join()
    assert (process.returncode, out) == (0, b"after\n")


@pytest.mark.real
def test_a_reader_who_goes_is_no_error_of_ours(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str]
) -> None:
    """As with ``| head``: it ends, and says nothing."""
    topic = make_topic(kafka39)
    produce(kafka39, topic, [(0, b"x" * 1000)] * 2000)
    process = consume.start(topic, "--from-beginning")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert process.stderr.read() == b""


@pytest.mark.real
def test_what_is_not_there_is_told_at_once(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str]
) -> None:
    """A topic with the nearest one, a partition and an offset with those there are; exit status 2, one paragraph."""
    topic = make_topic(kafka39, partitions=2)
    for arguments, said in (
        ((topic + "x",), f"Did you mean '{topic}'"),
        ((topic, "--partition", "2"), "numbered from 0 to 1"),
        ((topic, "--from-offset", "5"), "holds 0 to 0"),
        ((topic, "--from-beginning", "--from-offset", "5"), "leave one out"),
        ((topic, "--bootstrap-server", "127.0.0.1"), "host:port"),
    ):
        status, out, err = consume(*arguments)
        assert (status, out, err.count("\n")) == (2, b"", 1)
        assert said in err


@pytest.mark.real
def test_tls_user_and_password_come_from_a_file(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """TOML or JSON; a wrong password is one paragraph that does not hold it; what is no setting has the nearest one."""
    topic = make_topic(kafka39)
    produce(kafka39, topic, [(0, b"secret line")])
    consume.servers = kafka39.secure_servers("SASL_SSL")
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl_cafile": str(kafka39.certificates.ca),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }

    def over(name: str, text: str) -> tuple[int, bytes, str]:
        (tmp_path / name).write_text(text)
        return consume(topic, "--config", str(tmp_path / name), "--until-end")

    def toml(**changes: str) -> str:
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in {**settings, **changes}.items())

    assert over("right.toml", toml())[:2] == (0, b"secret line\n")
    assert over("right.json", json.dumps(settings))[:2] == (0, b"secret line\n")
    for name, text, said in (
        ("wrong.toml", toml(sasl_plain_password="not-this-one"), "alice"),
        ("unknown.toml", toml(sasl_mechanisms="PLAIN"), "sasl_mechanism"),
        ("broken.toml", "security_protocol = SASL", "not valid TOML"),
    ):
        status, out, err = over(name, text)
        assert (status, out, err.count("\n")) == (2, b"", 1), err
        assert said in err and "not-this-one" not in err


def test_the_end_is_that_of_the_partitions_there_were() -> None:
    """A group may be given a partition that was made after the ends were looked up."""

    class Grown:
        def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 0)

        def subscribe(self, topics: list[str], listener: object) -> None:
            pass

        def assignment(self) -> frozenset[TopicPartition]:
            return frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})

        def position(self, tp: TopicPartition) -> int:
            return 0

    wanted = Wanted("t", (), "g", False, None, True, None)
    reading = Reading(cast(Consumer, Grown()), wanted, Lines(False, False), io.BytesIO())
    reading.begin([TopicPartition("t", 0)])
    reading.read()
    assert reading.shown == 0


def test_a_silent_address_is_said_while_it_is_waited_for() -> None:
    """Nobody looks at a blank screen for a quarter of a minute; Ctrl-C ends the wait."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "streamlet", "consume", "t", "--bootstrap-server", server]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                assert (
                    process.stderr.readline() == f"No answer from {server} yet: waiting for up to 15 s. Ctrl-C ends.\n"
                )
                process.send_signal(signal.SIGINT)
                assert process.stderr.read().strip() == "Error: Interrupted."
                assert process.wait(PATIENCE_S) == 130
            finally:
                process.kill()
