"""The servers of one cluster: their ports, files and commands, before any of them runs."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamlet.devcluster import broker_settings as settings
from streamlet.devcluster.certificates import Certificates
from streamlet.devcluster.installation import Installation
from streamlet.devcluster.jars import RELEASES
from streamlet.devcluster.jvm import Jvm, keeper_command
from streamlet.devcluster.machine import free_ports

KIND = "kind"
"""The file in a cluster's directory that says which Kafka and how many brokers it is for."""


@dataclass(slots=True)
class Member:
    """One server: where it listens, what it is started with, its process if it has one.

    ``secure_ports``: those of a secured broker beside ``port``, by security protocol.
    """

    name: str
    port: int
    log: Path
    command: list[str]
    jvm: Jvm | None = None
    secure_ports: dict[str, int] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return self.jvm is not None and self.jvm.alive


def data_directory(installation: Installation, broker: int) -> Path:
    """Return where a broker keeps its logs (Kafka's, of records)."""
    return installation.directory / f"broker-{broker}" / "data"


def lay_out(
    installation: Installation,
    count: int,
    preferred_ports: Sequence[int],
    extra: Mapping[str, object],
    certificates: Certificates | None = None,
) -> tuple[Member | None, list[Member]]:
    """Choose ports and write every configuration file; return ZooKeeper and brokers.

    There is no ZooKeeper on 4.x. ``extra`` goes into each broker's file last; of a tuple each has its own entry.
    With ``certificates`` each broker has the listeners of ``settings.SECURE_LISTENERS`` too.
    """
    kinds = len(settings.SECURE_LISTENERS) if certificates is not None else 0
    data = [data_directory(installation, number) for number in range(count)]
    zookeeper = None
    if installation.kafka == "3.9":
        port, *ports = free_ports(1 + count + kinds * count, preferred_ports)
        spare = ports[count:]
        zookeeper = _zookeeper(installation, port)
        values = [settings.broker_with_zookeeper(i, ports[i], port, data[i], count) for i in range(count)]
    else:
        # The preference begins with a ZooKeeper's port; controllers take any.
        ports = free_ports(2 * count + kinds * count, preferred_ports[1 : 1 + count])
        voters, spare = ports[count : 2 * count], ports[2 * count :]
        values = [settings.broker_with_kraft(i, ports[i], voters, data[i], count) for i in range(count)]
    secure_ports = [spare[kinds * i : kinds * (i + 1)] for i in range(count)]
    if certificates is not None:
        pem, ca = certificates.broker, certificates.ca
        # Before `extra`, which is the last word of a test about its broker.
        values = [settings.secured(values[i], secure_ports[i], pem, ca) for i in range(count)]
    brokers = [_broker(installation, i, ports[i], {**values[i], **_of_broker(i, extra)}) for i in range(count)]
    for member, chosen in zip(brokers, secure_ports, strict=True):
        member.secure_ports = dict(zip(settings.SECURE_LISTENERS, chosen, strict=False))
    return zookeeper, brokers


def _of_broker(number: int, extra: Mapping[str, object]) -> dict[str, object]:
    return {name: value[number] if isinstance(value, tuple) else value for name, value in extra.items()}


def laid_out(installation: Installation, name: str, port: int) -> Member:
    """Start a server whose configuration exists: "ZooKeeper" or "broker N"."""
    home = installation.directory / name.lower().replace(" ", "-")
    if name == "ZooKeeper":
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = installation.server_command(main, str(home / "zoo.cfg"), heap_mb=256)
    else:
        heap_mb = 1024 if installation.figures else 512
        command = installation.server_command("kafka.Kafka", str(home / "server.properties"), heap_mb=heap_mb)
    return Member(name, port, home / "server.log", command)


def _zookeeper(installation: Installation, port: int) -> Member:
    home = installation.directory / "zookeeper"
    home.mkdir(exist_ok=True)
    (home / "zoo.cfg").write_text(settings.properties(settings.zookeeper(home / "data", port)))
    return laid_out(installation, "ZooKeeper", port)


def _broker(installation: Installation, number: int, port: int, values: Mapping[str, object]) -> Member:
    home = data_directory(installation, number).parent
    home.mkdir(exist_ok=True)
    (home / "server.properties").write_text(settings.properties(values))
    return laid_out(installation, f"broker {number}", port)


def formatted_as(data: Path) -> str | None:
    """Return the cluster's id in a broker's data, if there is one."""
    try:
        lines = (data / "meta.properties").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id=")), None)


def note_kind(directory: Path, kafka: str, brokers: int) -> None:
    """Write down what cluster a directory is for."""
    (directory / KIND).write_text(f"{kafka} {brokers}\n", encoding="utf-8")


def noted_kind(directory: Path) -> tuple[str, int] | None:
    """Return what ``note_kind`` wrote; None where nobody did."""
    try:
        kafka, brokers = (directory / KIND).read_text(encoding="utf-8").split()
        return (kafka, int(brokers)) if kafka in RELEASES else None
    except (OSError, ValueError):
        return None


def format_storage(installation: Installation, brokers: Sequence[Member], timeout_s: float) -> Member | None:
    """Format each data directory once, as KRaft wants it: all at a time, one JVM each.

    Returns a broker whose directory was refused (its log says why), or None.
    """
    # Rule: one id for all of a cluster, so that of a directory that is formatted already. A start that was killed
    # between two of them would leave brokers that refuse each other at every later start.
    found = [formatted_as(data_directory(installation, number)) for number in range(len(brokers))]
    # Not all of base64's characters: an id that begins with a dash would be taken for an option.
    fresh = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
    cluster_id = next(filter(None, found), fresh)
    # All at the same time: nearly all of it is the start of a JVM.
    formatting = []
    for number, member in enumerate(brokers):
        data = data_directory(installation, number)
        if (data / "meta.properties").exists():
            continue
        config = str(data.parent / "server.properties")
        tool = installation.tool_command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config)
        with member.log.open("ab") as log:
            process = subprocess.Popen(
                keeper_command("tool", tool), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        formatting.append((member, process))
    refused = None
    for member, process in formatting:
        with process:
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                status = 1
        if status:
            refused = member
    return refused
