"""What a user gets from the package index: the wheel in an environment of its own, with no checkout anywhere near."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.marked_processes import REPOSITORY, Marked
from tests.patience import PATIENCE_S

TOPOLOGIES = REPOSITORY / "tests" / "topologies"
SPARK = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "dateutil", "python_dateutil", "pytz", "tzdata", "six")
"""The extra ``spark``, and what it needs. Half a gigabyte: linked, not installed again."""
COMPILED = ("msgpack", "crc32c", "cramjam")


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and one that executors have: no streamlet, only what cannot travel."""

    venv: Path
    executors: Path
    wheel: Path


def quiet(*arguments: object, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([str(a) for a in arguments], cwd=cwd, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def packages(venv: Path) -> Path:
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def link(names: tuple[str, ...], into: Path) -> None:
    """Packages of this environment, their compiled libraries and their metadata, each by name."""
    into.mkdir(exist_ok=True)
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if entry.name.partition("-")[0].partition(".")[0] in names or entry.name.partition(".libs")[0] in names:
                (into / entry.name).symlink_to(entry)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built from a copy of the sources, for a build writes beside them."""
    root = tmp_path_factory.mktemp("wheel")
    source = root / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, source)
    shutil.copytree(REPOSITORY / "docs", source / "docs")
    unwanted = shutil.ignore_patterns("__pycache__")  # streamlet/docs stays the link that it is: the build follows it
    shutil.copytree(REPOSITORY / "streamlet", source / "streamlet", symlinks=True, ignore=unwanted)
    quiet(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", root / "dist", source, cwd=root)
    shutil.rmtree(source)
    (wheel,) = (root / "dist").glob("*.whl")
    venv, executors = root / "venv", root / "executors"
    quiet(sys.executable, "-m", "venv", venv, cwd=root)
    quiet(venv / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=root)
    quiet(sys.executable, "-m", "venv", "--without-pip", executors, cwd=root)
    link(SPARK, root / "spark")
    for each in (venv, executors):
        (packages(each) / "spark.pth").write_text(f"{root / 'spark'}\n")
    link(COMPILED, packages(executors))
    return Installed(venv, executors, wheel)


@pytest.fixture
def begun() -> Iterator[list[Marked]]:
    started: list[Marked] = []
    yield started
    for each in started:
        each.end()


def run(installed: Installed, begun: list[Marked], tmp_path: Path, backend: str) -> set[str]:
    """``streamlet run`` of a file with a neighbour, both far from where it is called; the Pythons its workers ran."""
    folder, elsewhere, out = tmp_path / "project", tmp_path / "elsewhere", tmp_path / "out"
    shutil.copytree(TOPOLOGIES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    elsewhere.mkdir()
    out.mkdir()
    arguments = ["run", str(folder / "numbered.py"), "--backend", backend, "--workers", "2", "--until-caught-up"]
    environ = {"PYTHONPATH": "", "PYSPARK_PYTHON": str(installed.executors / "bin" / "python")}
    started = Marked(
        [str(installed.venv / "bin" / "streamlet"), *arguments, "-c", f"out={out}"], environ, cwd=elsewhere
    )
    begun.append(started)
    said, complaints = started.process.communicate(timeout=PATIENCE_S)
    assert started.process.returncode == 0, said + complaints
    assert sorted(int(line) for line in (out / "witness").read_text().split()) == list(range(1000))
    sums: Counter[str] = Counter()
    for line in (out / "sums.jsonl").read_text().splitlines():
        sums.update(json.loads(line))
    assert sums == {str(parity): sum(n * n for n in range(parity, 1000, 2)) for parity in (0, 1)}
    assert list(elsewhere.iterdir()) == []
    return {json.loads(line)[-1] for line in (out / "started.jsonl").read_text().splitlines()}


def test_it_runs_on_worker_processes(installed: Installed, begun: list[Marked], tmp_path: Path) -> None:
    assert run(installed, begun, tmp_path, "processes") == {str(installed.venv / "bin" / "python")}


@pytest.mark.spark
def test_it_runs_on_executors_that_have_no_streamlet(installed: Installed, begun: list[Marked], tmp_path: Path) -> None:
    """Their Python has the compiled packages and pyspark, and nothing else of ours: the rest must have travelled."""
    for name in ("streamlet", "kazoo", "click", "rich"):
        code = f"import importlib.util; assert importlib.util.find_spec({name!r}) is None"
        quiet(installed.executors / "bin" / "python", "-c", code, cwd=tmp_path)
    assert run(installed, begun, tmp_path, "spark") == {str(installed.executors / "bin" / "python")}


def test_it_brings_no_other_kafka_client_along(installed: Installed) -> None:
    """Nor anything else that is not asked for by name."""
    listed = quiet(installed.venv / "bin" / "python", "-m", "pip", "list", "--format=json",
                   "--path", packages(installed.venv), cwd=installed.venv)  # fmt: skip
    names = {each["name"].lower() for each in json.loads(listed)} - {"pip", "setuptools"}
    ours = {"streamlet-storm", "msgpack", "click", "rich", "kazoo", "crc32c", "cramjam"}
    assert ours <= names
    assert names <= ours | {"markdown-it-py", "mdurl", "pygments", "typing-extensions"}
    for name in ("kafka", "confluent_kafka", "aiokafka", "pykafka", "faust"):
        code = f"import importlib.util; assert importlib.util.find_spec({name!r}) is None"
        quiet(installed.venv / "bin" / "python", "-c", code, cwd=installed.venv)


def test_its_pages_can_be_read(installed: Installed, tmp_path: Path) -> None:
    shown = quiet(installed.venv / "bin" / "streamlet", "docs", "tutorial", cwd=tmp_path)
    assert shown.startswith("# Tutorial\n")


def test_it_holds_the_package_and_nothing_of_the_checkout(installed: Installed) -> None:
    """Types are marked; tests and tools stay at home."""
    listed = quiet(sys.executable, "-m", "zipfile", "-l", installed.wheel, cwd=installed.venv)
    files = [line.split()[0] for line in listed.splitlines()[1:]]
    assert "streamlet/py.typed" in files
    assert "streamlet/docs/design.md" in files and "streamlet/docs/guide/tutorial.md" in files
    tops = {name.partition("/")[0] for name in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"streamlet"}
