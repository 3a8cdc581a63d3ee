"""Bad input that only shows against real parts: one paragraph, its exit status, no traceback, nothing lost."""

from __future__ import annotations

import re
import socket
import textwrap

import pytest

from streamlet.kafka.protocol.schema import ApiKey
from tests.command_line import ROOT, Streamlet
from tests.scripted.fake_broker import FakeBroker
from tests.wrong_ports import web_server

WORD_COUNT = ROOT / "topologies" / "word_count.py"


def told(streamlet: Streamlet, status: int, *settings: str, file: object = WORD_COUNT) -> str:
    """Run the word count with these settings; the one paragraph that stderr ends with."""
    return refused(streamlet, status, *settings, file=file)[0]


def refused(streamlet: Streamlet, status: int, *settings: str, file: object = WORD_COUNT) -> tuple[str, list[str]]:
    """Run the word count with these settings; the one paragraph that stderr ends with, and the lines before it."""
    settings = ("lines.start_timeout_ms=2000", *settings)
    arguments = [part for setting in settings for part in ("-c", setting)]
    done = streamlet("run", file, "--until-caught-up", "--workers", "2", *arguments)
    assert done.returncode == status, done
    assert "Traceback" not in done.stderr + done.stdout
    *before, last = done.stderr.splitlines()
    assert last.startswith("Error: ") and not [line for line in before if "Error" in line], done.stderr
    return last, before


@pytest.fixture
def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


LINES_AND_SINK = """from streamlet import Bolt, Spout, Topology
class Lines(Spout):
    outputs = ["line"]
    def next_tuple(self): pass
class Sink(Bolt):
    def process(self, tup): pass
"""


T = """
class T(Topology):
    lines = Lines.spec()
    sink = Sink.spec(inputs=[lines])
"""


def test_no_broker_at_the_address_is_told_with_its_remedy(streamlet: Streamlet, free_port: int) -> None:
    """What, where, why and what to do; and after a second of waiting, what is waited for, once."""
    said, before = refused(streamlet, 2, f"lines.hosts=kafka://127.0.0.1:{free_port}")
    assert "No Kafka broker answered" in said and f"127.0.0.1:{free_port}" in said
    assert "at hosts of the spout lines. " in said
    assert "Connection refused" in said and "Check that the broker runs (`streamlet dev up` starts" in said
    assert len(before) == 1 and "lines: waiting for a Kafka broker, for up to 1 s more" in before[0]
    assert f"127.0.0.1:{free_port}" in before[0] and "Connection refused" in before[0]


@pytest.mark.parametrize("backend", ["inline", "processes"])
@pytest.mark.parametrize(("scheme", "said"), [("kafka", "No Kafka broker answered within"), ("zk", "(tried for")])
def test_a_run_of_some_seconds_says_within_them_what_it_waits_for(
    streamlet: Streamlet, free_port: int, backend: str, scheme: str, said: str
) -> None:
    """And not after the 15 s that a start may take otherwise; it says how long it has waited in all."""
    where = f"lines.hosts={scheme}://127.0.0.1:{free_port}"
    for seconds in (3, 9, 27):  # on a machine under load the workers may start for longer than the whole run
        done = streamlet("run", WORD_COUNT, "-t", seconds, "--backend", backend, "-c", where)
        if done.returncode:
            break
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and last.startswith("Error: ") and said in last, done.stderr
    assert 0.6 * seconds <= float(last.partition(said)[2].split()[0]) < seconds, last


def test_no_zookeeper_at_the_address_is_told_with_its_remedy(streamlet: Streamlet, free_port: int) -> None:
    """What, where, why and what to do, how to start one too; and after a second, what is waited for, once."""
    said, before = refused(streamlet, 2, f"lines.hosts=zk://127.0.0.1:{free_port}")
    assert f"ZooKeeper 127.0.0.1:{free_port} cannot be used" in said and "Connection refused (tried for 2 s)" in said
    assert "Check that a ZooKeeper runs there" in said and "streamlet dev up" in said
    assert len(before) == 1 and f"lines: waiting for ZooKeeper 127.0.0.1:{free_port}, for up to 1 s more" in before[0]


@pytest.mark.parametrize(
    ("scheme", "why", "remedy"),
    [
        ("kafka", "does not speak Kafka's protocol: it speaks HTTP", "Check that it is the broker's own listener"),
        ("zk", "it speaks HTTP, not ZooKeeper's protocol", "its client port, which is usually 2181"),
    ],
)
def test_a_port_that_speaks_another_protocol_ends_the_run_at_once(
    streamlet: Streamlet, scheme: str, why: str, remedy: str
) -> None:
    """Said as such, with what it speaks and what to do, and at once: no time-out is waited for."""
    with web_server() as port:
        where = (f"lines.hosts={scheme}://127.0.0.1:{port}", "lines.start_timeout_ms=600000")
        said, before = refused(streamlet, 2, *where)
    assert f"127.0.0.1:{port}" in said and why in said and remedy in said
    assert not before


def test_a_broker_that_is_too_old_ends_the_run_with_its_version(streamlet: Streamlet) -> None:
    """A broker of 1.0: its Fetch ends at version 6."""
    from dataclasses import replace

    with FakeBroker(topics={"lines": 1}) as broker:
        answer = broker._api_versions(3)
        old = tuple(replace(row, max_version=min(row.max_version, 3)) for row in answer.api_keys)
        broker.on(ApiKey.API_VERSIONS, replace(answer, api_keys=old))
        said = told(streamlet, 2, f"lines.hosts=kafka://{broker.address}")
    assert "too old" in said and "2.1" in said


def failed_in_a_worker(streamlet: Streamlet, file: object) -> str:
    """Run a file whose workers cannot import it; the last line of stderr."""
    done = streamlet("run", file, "-t", "20", "--workers", "2")
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_a_class_that_cannot_be_imported_in_the_worker(streamlet: Streamlet) -> None:
    """The file imports here and not there: the worker's own words come back, and say where that was, and why."""
    file = streamlet.write(
        """
import sys
if any("streamlet.runtime.worker.worker" in word for word in sys.orig_argv):
    raise ModuleNotFoundError("No module named 'only_here'")
"""
        + LINES_AND_SINK
        + T
    )
    last = failed_in_a_worker(streamlet, file)
    assert re.match(rf"Error: In worker [01], on importing {re.escape(str(file))} there: ", last), last
    assert all(
        word in last for word in ("ModuleNotFoundError (line 4): No module named 'only_here'", "sys.path", "`if`")
    )


def test_a_topology_that_is_there_only_where_the_run_was_started(streamlet: Streamlet) -> None:
    """What was defined under an `if` in the file: a worker does not find it, and says so as a worker."""
    file = streamlet.write(
        LINES_AND_SINK
        + """
import sys
if not any("streamlet.runtime.worker.worker" in word for word in sys.orig_argv):
"""
        + textwrap.indent(T, "    ")
    )
    last = failed_in_a_worker(streamlet, file)
    assert "on importing" in last and "holds no topology" in last and "`if`" in last, last
