"""``streamlet consume``: bytes as they are, JSON that tells them apart, groups that go on, an orderly end."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin
from tests.command_line import Consume
from tests.patience import PATIENCE_S


def produce(cluster: DevCluster, topic: str, rows: list[tuple[int, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for partition, value in rows:
        producer.produce(topic, value, key=b"k", partition=partition)
    assert producer.flush(30) == 0


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


@pytest.mark.parametrize("options", [(), ("--group", "GROUP")])
def test_a_partition_that_is_added_is_shown_from_its_first_record(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str], tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Who follows a topic follows all of it, also as a group that has stored nothing there."""
    topic, settings = make_topic(kafka39), tmp_path / "young.toml"
    settings.write_text("metadata_max_age_ms = 500\n")
    named = [topic if option == "GROUP" else option for option in options]
    process = consume.start(topic, *named, "--config", str(settings))
    assert process.stdout is not None and process.stderr is not None
    patience = threading.Timer(PATIENCE_S, process.kill)
    patience.start()
    began = threading.Event()

    def keep_writing() -> None:
        while not began.wait(0.2):
            produce(kafka39, topic, [(0, b"old")])

    writer = threading.Thread(target=keep_writing)
    writer.start()
    process.stdout.readline()
    began.set()
    writer.join()
    with Admin(bootstrap_servers=kafka39.bootstrap_servers) as admin:
        admin.create_partitions({topic: 2})
        while len(admin.describe_topics(topic)[topic].partitions) < 2:
            time.sleep(0.05)
    produce(kafka39, topic, [(1, b"first"), (1, b"second")])
    new = (line for line in iter(process.stdout.readline, b"") if line != b"old\n")
    assert [next(new, b""), next(new, b"")] == [b"first\n", b"second\n"]
    patience.cancel()
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130 and process.stderr.read().endswith(b" from 2 partitions\n")


def test_a_reader_that_deletion_overtakes_goes_on_at_the_first_record_there_is(
    kafka39: DevCluster, consume: Consume, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """And names what it has not shown; it does not leave out what is still there."""
    topic, settings = make_topic(kafka39), tmp_path / "small.toml"
    settings.write_text("max_partition_fetch_bytes = 1\n")  # one record a fetch, so few are fetched ahead
    producer = Producer(
        {"bootstrap.servers": kafka39.bootstrap_servers, "enable.idempotence": True, "batch.num.messages": 1}
    )
    for number in range(40):
        producer.produce(topic, b"%d " % number + b"x" * 20_000, partition=0)
    assert producer.flush(30) == 0
    process = consume.start(topic, "--from-offset", "0", "--config", str(settings))
    assert process.stdout is not None and process.stderr is not None
    patience = threading.Timer(PATIENCE_S, process.kill)
    patience.start()
    shown = [process.stdout.readline()]
    kafka39.delete_records(topic, {0: 30})  # it waits for us: a pipe holds three such records
    while (line := process.stdout.readline()).split()[:1] not in ([b"39"], []):
        shown.append(line)
    patience.cancel()
    assert line, "it waits at the log's end"
    os.kill(process.pid, signal.SIGINT)
    assert process.stdout.read() == b"" and process.wait(PATIENCE_S) == 130
    numbers = [int(line.split()[0]) for line in shown]
    first = len(numbers) - 9
    assert numbers == [*range(first), *range(30, 39)]
    assert process.stderr.read().decode() == (
        f"Records {first} to 29 of {topic}-0 were deleted before they were read: going on at 30.\n"
        f"{len(numbers) + 1} records of {topic} from 1 partition\n"
    )


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
