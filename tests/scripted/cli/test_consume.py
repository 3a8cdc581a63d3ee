"""``streamlet consume``: bytes as they are, JSON that tells them apart, groups that go on, an orderly end."""

from __future__ import annotations

import base64
import io
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from streamlet.base.errors import BadInput, SettingError
from streamlet.cli.consume import Reading, Wanted
from streamlet.cli.consume import consume as consume_command
from streamlet.cli.record_format import JsonLines, Lines, key_and_value
from streamlet.kafka import Consumer, TopicPartition
from streamlet.kafka.consumer import ConsumerRecord
from streamlet.kafka.records.record_batch import TimestampType
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


def test_a_line_of_a_file_becomes_a_record() -> None:
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
        ('"api.version" = "3.9"', "mine.toml: There is no setting 'api_version'"),
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
                # On a slow machine a line about the wait may come before, or in between.
                said = f"No answer from {server} yet: waiting for up to 15 s. Ctrl-C ends.\n"
                assert said in iter(process.stderr.readline, "")
                process.send_signal(signal.SIGINT)
                assert process.stderr.read().splitlines()[-1] == "Error: Interrupted."
                assert process.wait(PATIENCE_S) == 130
            finally:
                process.kill()
