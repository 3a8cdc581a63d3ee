"""Members of one group by three clients, each a process that prints what it gets as lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from streamlet.devcluster import DevCluster
from streamlet.devcluster.jvm import keeper_command
from tests.patience import PATIENCE_S

KINDS = ("ours", "librdkafka", "java")
NEWER_KINDS = (*KINDS, "ours, classic")
"""Members of a group of the newer protocol (KIP-848), which one of the classic protocol joins too."""
STRATEGY = "cooperative-sticky"
_OURS = Path(__file__).with_name("streamlet_member.py")
_JAVA = "org.apache.kafka.tools.VerifiableConsumer"
_JAVA_STRATEGY = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"

Owned = tuple[int, float, float]
"""Partition, and from when to when; the end is infinity while it lasts."""


class GroupMember:
    """One process. ``owned`` and ``read`` grow as it speaks; times are of the wall clock, in seconds."""

    def __init__(
        self, kind: str, cluster: DevCluster, topic: str, group: str, folder: Path, newer: bool = False
    ) -> None:
        self.kind = kind
        self.alive = True
        self.closed: list[Owned] = []
        self.holding: dict[int, float] = {}
        self.read: list[tuple[int, int, int]] = []
        """Partition, first and last offset of a run."""
        self._log = (folder / f"{kind}-{time.monotonic_ns()}.log").open("wb")
        command = _command(kind, cluster, topic, group, folder, newer)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log)
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"{self.kind} {self.process.pid} {sorted(self.holding)}"

    def end(self, *, kill: bool = False) -> None:
        """Leave in peace, or die."""
        self.alive = False
        if self.process.poll() is None:
            os.kill(self._pid(), signal.SIGKILL if kill else signal.SIGTERM)
        killed = time.time()
        self.process.wait(30)
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        for partition in list(self.holding):  # a killed one says nothing; one that left has said it
            self._drop([partition], killed)

    def last_words(self) -> str:
        """The end of what it wrote on stderr."""
        return Path(self._log.name).read_text(errors="replace")[-3000:]

    def _pid(self) -> int:
        """Java's member stands below a keeper, which ends it if this process dies."""
        if self.kind != "java":
            return self.process.pid
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        if self.kind == "java":
            said = _from_java(said)
        what, at = said["what"], said["wall"]
        if what == "assigned":
            self.holding |= dict.fromkeys((number for _topic, number in said["partitions"]), at)
        elif what in ("revoked", "lost"):
            self._drop([number for _topic, number in said["partitions"]], at)
        elif what == "records":
            for name, (first, last) in said["offsets"].items():
                self.read.append((int(name.rpartition(":")[2]), first, last))

    def _drop(self, partitions: list[int], at: float) -> None:
        for partition in partitions:
            since = self.holding.pop(partition, None)
            if since is not None:
                self.closed.append((partition, since, at))


def _from_java(said: dict[str, Any]) -> dict[str, Any]:
    names = {"partitions_assigned": "assigned", "partitions_revoked": "revoked", "records_consumed": "records"}
    found: dict[str, Any] = {"what": names.get(said["name"], said["name"]), "wall": said["timestamp"] / 1000}
    if found["what"] == "records":
        found["offsets"] = {f"t:{row['partition']}": (row["minOffset"], row["maxOffset"]) for row in said["partitions"]}
    elif found["what"] in ("assigned", "revoked"):
        found["partitions"] = [(row["topic"], row["partition"]) for row in said["partitions"]]
    return found


def _command(kind: str, cluster: DevCluster, topic: str, group: str, folder: Path, newer: bool) -> list[str]:
    servers = cluster.bootstrap_servers
    if kind == "java":
        options = ["--bootstrap-server", servers, "--topic", topic, "--group-id", group, "--reset-policy", "earliest"]
        if newer:
            options += ["--group-protocol", "consumer"]
        else:
            quick = folder / "quick.properties"
            quick.write_text("heartbeat.interval.ms=500\n")
            options += ["--session-timeout", "6000", "--assignment-strategy", _JAVA_STRATEGY]
            options += ["--command-config", str(quick)]
        return keeper_command("tool", cluster.installation.tool_command(_JAVA, *options))
    settings = {"bootstrap_servers": servers, "topics": [topic], "group_id": group}
    if newer and kind in KINDS:
        settings |= {"group_protocol": "consumer"}
    else:
        settings |= {"session_timeout_ms": 6000}
    if kind.startswith("ours"):
        if "group_protocol" not in settings:
            settings |= {"partition_assignment_strategy": [STRATEGY], "heartbeat_interval_ms": 500}
        return [sys.executable, str(_OURS), json.dumps(settings)]
    return [sys.executable, str(Path(__file__).with_name("librdkafka_member.py")), json.dumps(settings)]
