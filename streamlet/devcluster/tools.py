"""Kafka's own command-line tools as methods: topics and records are made, and outcomes read back, by Java.

Each call starts one JVM (about a second) and waits for it; all raise ``ToolFailed`` with what the tool said.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from streamlet.devcluster.errors import ToolFailed
from streamlet.devcluster.installation import Installation
from streamlet.devcluster.jvm import keeper_command

TOOL_TIMEOUT_S = 240.0
"""Seconds before a tool of Kafka's is killed."""
GROUPS_TIMEOUT_MS = 60_000
"""Milliseconds for the tool's requests: its own 5 s are too few where its JVM and the broker share a core."""

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_PRODUCER = {"3.9": "kafka.tools.ConsoleProducer", "4": "org.apache.kafka.tools.ConsoleProducer"}
_DUMP_LOG = {"3.9": "kafka.tools.DumpLogSegments", "4": "org.apache.kafka.tools.DumpLogSegments"}


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One line of ``kafka-topics --describe``; ``leader`` is None while there is none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One line of ``kafka-consumer-groups --describe``.

    ``committed`` and ``lag`` are None where it prints ``-``.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    log_end: int | None
    lag: int | None


class KafkaTools(ABC):
    """Kafka's tools against one cluster. Any thread; a call blocks until its JVM has ended."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:port,...``."""

    @property
    @abstractmethod
    def installation(self) -> Installation:
        """The Java and the jars the tools run from."""

    # -- topics

    def create_topic(
        self, name: str, partitions: int = 1, replication: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; it is there, with leaders, when this returns."""
        settings = [part for key, value in (configs or {}).items() for part in ("--config", f"{key}={value}")]
        self.run_tool(
            _TOPICS, "--create", "--topic", name, "--partitions", str(partitions),
            "--replication-factor", str(replication), *settings,
        )  # fmt: skip

    def describe_topic(self, name: str) -> list[PartitionState]:
        """Leader, replicas and in-sync replicas of each partition, in order."""
        said = self.run_tool(_TOPICS, "--describe", "--topic", name)
        return [
            PartitionState(
                partition=int(line["partition"]),
                leader=int(line["leader"]) if line["leader"].isdigit() else None,
                replicas=_numbers(line["replicas"]),
                isr=_numbers(line["isr"]),
            )
            for line in re.finditer(
                r"Partition: (?P<partition>\d+)\s+Leader: (?P<leader>\S+)\s+"
                r"Replicas: (?P<replicas>[\d,]*)\s+Isr: (?P<isr>[\d,]*)",
                said,
            )
        ]

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make broker ``to`` the leader of a partition.

        It becomes the first replica (in the old leader's place if it held none), then the preferred leader is
        elected. Asynchronous in Kafka: watch ``describe_topic`` for it.
        """
        state = next(state for state in self.describe_topic(topic) if state.partition == partition)
        others = [node for node in state.replicas if node != to]
        replicas = [to, *others][: len(state.replicas)]
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": partition, "replicas": replicas}]}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(plan, file)
            file.flush()
            self.run_tool(_REASSIGN, "--execute", "--reassignment-json-file", file.name)
        # Only a replica in sync can be elected; a new one becomes the leader by the reassignment itself, later.
        if to in state.isr:
            self.run_tool(_ELECTION, "--election-type", "preferred", "--topic", topic, "--partition", str(partition))

    # -- records

    def produce(
        self,
        topic: str,
        lines: Iterable[str | bytes] | IO[bytes],
        *,
        key_separator: str | None = None,
        compression: str | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Write one record a line, through the console producer with acks=all; wait for all.

        ``lines`` are with or without their line ends, or a binary file whose lines they are. Without
        ``key_separator`` records have no key and go round the partitions one by one; with it, what stands
        before it is the key. ``compression``: gzip, snappy, lz4 or zstd.
        """
        settings = {"acks": "all", "batch.size": "65536", "linger.ms": "5", **(configs or {})}
        arguments = ["--topic", topic, "--max-memory-bytes", "67108864"]
        if key_separator is None:
            # The default partitioner sticks to one partition for a whole batch, so that a short file is one
            # partition.
            settings.setdefault("partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner")
        else:
            reader = {"parse.key": "true", "key.separator": key_separator}
            arguments += self._each("--property", "--reader-property", reader)
        if compression is not None:
            arguments += ["--compression-codec", compression]
        arguments += self._each("--producer-property", "--command-property", settings)
        self.run_tool(_PRODUCER[self.installation.kafka], *arguments, lines=lines)

    def console_consume(
        self,
        topic: str,
        *,
        max_messages: int | None = None,
        partition: int | None = None,
        offset: int | None = None,
        idle_s: float | None = None,
        read_committed: bool = True,
        show: Sequence[str] = (),
    ) -> list[str]:
        """Return the topic's values as Kafka's console consumer prints them.

        Ends after ``max_messages``, or when nothing has come for ``idle_s`` seconds (None: 15; 60 with
        ``max_messages``, for a consumer that starts slowly has not met the end). ``show``: what to print before
        the value, tab between: ``key``, ``partition``, ``offset``, ``timestamp``, ``headers``.
        """
        if idle_s is None:
            idle_s = 15.0 if max_messages is None else 60.0
        arguments = ["--topic", topic, "--timeout-ms", str(int(idle_s * 1000))]
        arguments += ["--isolation-level", "read_committed" if read_committed else "read_uncommitted"]
        if max_messages is not None:
            arguments += ["--max-messages", str(max_messages)]
        if partition is not None:
            arguments += ["--partition", str(partition)]
            arguments += ["--offset", "earliest" if offset is None else str(offset)]
        else:
            arguments += ["--from-beginning"]
        arguments += self._each("--property", "--formatter-property", {f"print.{what}": "true" for what in show})
        said = self.run_tool(_CONSUMER, *arguments, timeout_s=600.0, may_fail=("TimeoutException",))
        return said.split("\n")[:-1]

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Drop each partition's records below the given offset: the log then starts there."""
        partitions = [
            {"topic": topic, "partition": partition, "offset": offset} for partition, offset in before.items()
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"version": 1, "partitions": partitions}, file)
            file.flush()
            self.run_tool(_DELETE_RECORDS, "--offset-json-file", file.name)

    # -- reading back

    def log_end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> the offset the next record will get."""
        return self._offsets(topic, "-1")

    def log_start_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> the first offset that is still there."""
        return self._offsets(topic, "-2")

    def _offsets(self, topic: str, time: str) -> dict[int, int]:
        said = self.run_tool(_OFFSETS, "--topic", topic, "--time", time)
        lines = [line.rsplit(":", 2) for line in said.splitlines() if line.startswith(f"{topic}:")]
        return {int(partition): int(offset) for _, partition, offset in lines if offset}

    def describe_groups(self, group: str | None = None) -> list[GroupOffset]:
        """Return committed offsets and lag of one group, or of all."""
        which = ["--all-groups"] if group is None else ["--group", group]
        said = self.run_tool(_GROUPS, "--describe", "--offsets", "--timeout", str(GROUPS_TIMEOUT_MS), *which)
        found = []
        for line in said.splitlines():
            words = line.split()
            if len(words) >= 6 and words[2].isdigit():
                committed, log_end, lag = (None if word == "-" else int(word) for word in words[3:6])
                found.append(GroupOffset(words[0], words[1], int(words[2]), committed, log_end, lag))
        return found

    def dump_segments(self, segments: Sequence[Path]) -> str:
        """Print log segment files by ``kafka-dump-log``; works on a stopped broker too."""
        files = ",".join(str(segment) for segment in segments)
        return self.run_tool(
            _DUMP_LOG[self.installation.kafka], "--files", files, "--print-data-log", "--deep-iteration",
            bootstrap=False,
        )  # fmt: skip

    # -- the machinery

    def _each(self, name_39: str, name_4: str, values: Mapping[str, str]) -> list[str]:
        name = name_39 if self.installation.kafka == "3.9" else name_4
        return [part for key, value in values.items() for part in (name, f"{key}={value}")]

    def run_tool(
        self,
        main: str,
        *arguments: str,
        lines: Iterable[str | bytes] | IO[bytes] | None = None,
        bootstrap: bool = True,
        timeout_s: float = TOOL_TIMEOUT_S,
        may_fail: Sequence[str] = (),
    ) -> str:
        """Run one tool's main class and return its standard output.

        A logged error is a failure too: the console producer ends with 0 when it could not write.
        ``may_fail``: words that make an error no error.
        """
        where = ["--bootstrap-server", self.bootstrap_servers] if bootstrap else []
        command = self.installation.tool_command(main, *where, *arguments)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            status = _run(command, lines, out, err, timeout_s)
            said, complaint = _text(out), _text(err)
        # A tool may end with 0 after it has failed: its log, kept apart from its output, is asked as well.
        errors = [entry for entry in _entries(complaint) if re.search(r"\bERROR\b|Exception", entry)]
        errors = [entry for entry in errors if not any(word in entry for word in may_fail)]
        if status is None or errors or (status and not any(word in complaint + said for word in may_fail)):
            why = f"was not done after {timeout_s:.0f} s" if status is None else f"failed, exit status {status}"
            lines_said = errors or (complaint + said).splitlines()
            words = " | ".join([line.strip() for line in lines_said if line.strip()][:4]) or "it said nothing."
            raise ToolFailed(
                f"Kafka's tool {main.rsplit('.', 1)[-1]} against {self.bootstrap_servers} {why}: {words} "
                f"Its arguments were: {' '.join(arguments)}. Look whether the cluster is up "
                "(`streamlet dev status`) and whether the topic is there."
            )
        return said


def _entries(log: str) -> list[str]:
    """Return a tool's log by entries: an exception belongs to the dated line above it."""
    entries: list[str] = []
    dated = False
    for line in log.splitlines():
        begins = re.match(r"\[?\d{4}-\d\d-\d\d", line) is not None
        if dated and not begins:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
        dated = dated or begins
    return entries


def _run(
    command: Sequence[str],
    lines: Iterable[str | bytes] | IO[bytes] | None,
    out: IO[bytes],
    err: IO[bytes],
    timeout_s: float,
) -> int | None:
    """Exit status, or None when it was killed at the time-out. The keeper ends the tool when we end."""
    fed, stdin = lines is not None, subprocess.DEVNULL if lines is None else subprocess.PIPE
    if lines is not None and hasattr(lines, "fileno"):
        # A file that has no descriptor (io.BytesIO) is fed line by line.
        with contextlib.suppress(io.UnsupportedOperation):
            stdin = lines.fileno()
            fed = False
    with subprocess.Popen(
        keeper_command("tool", command), stdin=stdin, stdout=out, stderr=err, start_new_session=True
    ) as process:
        # A timer and not wait(timeout): a tool that hangs blocks us in the feeding already.
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            if fed:
                assert process.stdin is not None
                _feed(process.stdin, lines or ())
            status = process.wait()
        finally:
            in_time = timer.is_alive()
            timer.cancel()
            timer.join()
            process.kill()
    return status if in_time else None


def _feed(pipe: IO[bytes], lines: Iterable[str | bytes]) -> None:
    """Write the lines and close; a tool that ended early is known by its exit status."""
    try:
        with pipe:
            for line in lines:
                pipe.write((line.encode() if isinstance(line, str) else line).removesuffix(b"\n") + b"\n")
    except BrokenPipeError:
        pass


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)
