"""The documentation as programs: its blocks, and a folder of their own in which they are run in order.

A fenced block runs unless the comment above it says otherwise. What such a comment may say:

    <!-- not run: REASON -->     leave this block alone
    <!-- file: NAME -->          write the block into that file, and run nothing
    <!-- exit: STATUS -->        the commands of this block end so (0 if nothing is said)
    <!-- compare: exactly -->    numbers too: what is shown stands for itself

A ``text`` block right after commands is what they show. It is compared loosely: its lines must come in this order,
others may come between; numbers stand for any number, and a line of three dots for nothing.
A page says in its first lines what it needs beside Python: ``<!-- needs: kafka, spark -->``.
"""

from __future__ import annotations

import contextlib
import ctypes
import doctest
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from streamlet.devcluster.jars import default_cache
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "tests" / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
RUNNABLE = {"sh", "python", "pycon"}
OTHERS = {"", "text", "toml", "json", "mermaid", "dot", "java"}
"""What stands in fences without being run. Anything else is a language nobody has decided about."""

BLOCK_S = 2 * PATIENCE_S
PGREP = """
import pathlib, sys
parent = sys.argv[sys.argv.index("--parent") + 1]
stats = []
for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
        stats.append([*file.read_text().rpartition(")")[2].split(), file.parent.name])
    except OSError:  # it has ended meanwhile
        pass
found = sorted((int(stat[19]), stat[-1]) for stat in stats if stat[1] == parent)
print(found[0 if "--oldest" in sys.argv else -1][1]) if found else sys.exit(1)
"""
"""As much of it as the pages use: procps, where it comes from, is no part of a slim image."""

FENCE = re.compile(r"^```(\S*)\s*$")
COMMENT = re.compile(r"^<!--\s*(not run|file|exit|compare|needs):\s*(.+?)\s*-->$")
WELL_KNOWN = {"zookeeper": "127.0.0.1:2181", "bootstrap_servers": "127.0.0.1:9092"}


@dataclass(frozen=True)
class Block:
    """One fenced block: where it is, what it holds, and what the comment above it says."""

    page: Path
    line: int
    language: str
    text: str
    says: dict[str, str]
    shown: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order; a ``text`` block after commands is their ``shown``."""
    found: list[Block] = []
    says: dict[str, str] = {}
    lines = page.read_text(encoding="utf-8").splitlines()
    at, apart = 0, True
    while at < len(lines):
        line = lines[at].strip()
        if comment := COMMENT.match(line):
            says[comment[1]] = comment[2]
        elif fence := FENCE.match(line):
            begin = at
            while lines[at + 1].strip() != "```":
                at += 1
            at += 1
            text = "\n".join(lines[begin + 1 : at]) + "\n"
            if fence[1] == "text" and found and found[-1].language == "sh" and not apart and not says:
                before = found.pop()
                found.append(Block(before.page, before.line, "sh", before.text, before.says, shown=text))
            else:
                found.append(Block(page, begin + 1, fence[1], text, says))
            says, apart = {}, False
        elif line:
            says, apart = {}, True
        at += 1
    return found


def needs(page: Path) -> set[str]:
    """What a page needs beside Python."""
    for line in page.read_text(encoding="utf-8").splitlines()[:5]:
        comment = COMMENT.match(line.strip())
        if comment and comment[1] == "needs":
            return {word.strip() for word in comment[2].split(",")}
    return set()


class Sandbox:
    """A folder, a home, and ``streamlet`` and ``python`` on the path. Runs a page's blocks one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        for name in ("topologies", "README.md"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, self.folder / name)
        programs = folder / "bin"
        programs.mkdir()
        made = {"streamlet": "-P -m streamlet", "python": ""}
        if shutil.which("pgrep") is None:
            (programs / "pgrep.py").write_text(PGREP)
            made["pgrep"] = f'"{programs / "pgrep.py"}"'
        for name, command in made.items():
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(default_cache().parent.parent),  # the jars are fetched once a machine
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        self.addresses: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.output: dict[int, str] = {}

    def run_page(self, page: Path) -> None:
        """Every block of the page, in order. Fails at the first that does not do what the page says."""
        for block in blocks(page):
            if block.language in RUNNABLE or "file" in block.says:
                self.run(block)

    def run(self, block: Block) -> None:
        """One block."""
        if "not run" in block.says:
            return
        text = self._here(block.text)
        if "file" in block.says:
            self.files[block.says["file"]] = block.text
            (self.folder / block.says["file"]).write_text(text)
        elif block.language == "pycon":
            self._doctest(block, text)
        else:
            self._program(
                block, ["bash", "-euo", "pipefail", "-c", text] if block.language == "sh" else ["python", "-c", text]
            )

    def _program(self, block: Block, command: list[str]) -> None:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            output, _ = process.communicate(timeout=BLOCK_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        self.output[block.line] = output
        wanted = int(block.says.get("exit", "0"))
        assert process.returncode == wanted, f"{block} ended with {process.returncode}, not {wanted}:\n{output}"
        if block.shown is not None:
            missing = first_missing(block.shown, output, exactly=block.says.get("compare") == "exactly")
            assert missing is None, f"{block} does not show {missing!r}, or not in this order:\n{output}"
        if "streamlet dev up" in block.text:
            self._note_addresses()

    def _doctest(self, block: Block, text: str) -> None:
        test = doctest.DocTestParser().get_doctest(text, {}, str(block), str(block.page), block.line)
        told: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
        assert not told, "".join(told)

    def _note_addresses(self) -> None:
        """A page names the well-known ports; where somebody else has them, ``dev up`` took others."""
        status = subprocess.run(
            ["streamlet", "dev", "status", "--json"], env=self.environment, capture_output=True, text=True, check=True
        )
        told = json.loads(status.stdout)
        self.addresses = {written: told[key] for key, written in WELL_KNOWN.items() if told[key]}
        for name, text in self.files.items():  # those saved before the cluster was there would find somebody else's
            (self.folder / name).write_text(self._here(text))

    def _here(self, text: str) -> str:
        for written, real in self.addresses.items():
            text = text.replace(written, real)
        return text


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def first_missing(shown: str, output: str, *, exactly: bool = False) -> str | None:
    """The first line of ``shown`` that ``output`` does not have in its place; None if it has them all."""
    form = _tidy if exactly else _loose
    rest = iter([form(line) for line in output.splitlines()])
    for line in shown.splitlines():
        if line.strip() not in ("", "...") and not any(form(line) == other for other in rest):
            return line
    return None


def _tidy(line: str) -> str:
    return " ".join(line.split())


def _loose(line: str) -> str:
    """Without figures, nor what goes with them: a minute takes another unit, one worker (of one core) no plural."""
    line = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{8}\b", "0", line)  # a run's id
    line = re.sub(r"\d[\d,.:]*", "0", line).replace("0 min", "0 s")
    return _tidy(line.replace("worker process.", "worker processes."))
