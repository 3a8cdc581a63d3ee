"""``bin/demo`` as a newcomer sees it, in an empty home: both backends, and nothing left afterwards."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.command_line import ROOT

MARK = "STREAMLET_DEMO_MARK"
LISTENING = "0A"
"""The state of a listening socket in ``/proc/net/tcp``."""


def family(mark: str) -> dict[Path, str]:
    """Every process that descends from the demo, however far, and is alive: its folder in /proc and its command."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found[entry] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


def listening() -> dict[str, int]:
    """Ports on which anybody listens, by the inode of the socket."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {row[9]: int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENING}


def ports_of(processes: dict[Path, str]) -> set[int]:
    """Those on which one of these processes listens now."""
    inodes = set()
    for entry in processes:
        try:
            inodes |= {os.readlink(fd).removeprefix("socket:[").removesuffix("]") for fd in (entry / "fd").iterdir()}
        except OSError:  # the process, or the descriptor, has just gone
            continue
    return {port for inode, port in listening().items() if inode in inodes}


def checkout(folder: Path) -> Path:
    """A copy of this project whose .venv is the one these tests run in: CI has set it up already."""
    for name in ("bin", "streamlet", "topologies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    venv = folder / ".venv"
    venv.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (venv / name).symlink_to(Path(sys.prefix, name))
    # What bin/setup compares with, so that it finds everything installed.
    settings = hashlib.sha256((folder / "setup.cfg").read_bytes() + (folder / "pyproject.toml").read_bytes())
    (venv / ".setup").write_text(f"{settings.hexdigest()}  - Python {sys.version.split()[0]}")
    return folder


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_demo_counts_on_processes_and_on_spark_and_leaves_nothing(tmp_path: Path) -> None:
    """200 000 lines; counts equal the console consumer's, offsets in ZooKeeper equal the log end, read by kazoo.

    The home holds neither jars nor a Maven repository; no process, port or file is left.
    """
    mark, home, scratch = uuid.uuid4().hex, tmp_path / "home", tmp_path / "tmp"
    project = checkout(tmp_path / "streamlet")
    home.mkdir()
    scratch.mkdir()
    environ = {**os.environ, MARK: mark, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    # Maven asks Java for the home, and Java asks the password file.
    environ |= {"MAVEN_OPTS": f"-Duser.home={home}", "PYTHONPATH": str(project), "TMPDIR": str(scratch)}
    environ |= {"PYTHON": sys.executable}
    ports: set[int] = set()
    with (tmp_path / "out").open("w+") as out:
        command = [project / "bin" / "demo"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ) as demo:
            try:
                while demo.poll() is None:
                    ports |= ports_of(family(mark))
                    try:
                        demo.wait(timeout=0.5)
                    except subprocess.TimeoutExpired:
                        continue
            finally:
                demo.kill()
        told = (tmp_path / "out").read_text()
    assert demo.returncode == 0, told
    assert told.count("counts equal the console consumer's: 1,200,000 words") == 2, told
    assert told.count("offsets in ZooKeeper equal the log end") == 2, told
    assert told.endswith("All counts agree.\n"), told
    assert list((home / ".m2").rglob("kafka_2*.jar")), "the jars did not come into this home"
    assert family(mark) == {}
    assert len(ports) >= 2, f"ZooKeeper and Kafka listened on {ports}"
    assert ports.isdisjoint(listening().values())
    assert list(scratch.iterdir()) == []
