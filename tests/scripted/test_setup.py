"""``bin/setup`` makes the environment of the Python that is asked for, whatever stands in ``.venv``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BACKEND = """
import zipfile


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name, info = "nothing-1-py3-none-any.whl", "nothing-1.dist-info"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: nothing\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
"""Builds a package without requirements, so that pip installs it without a network."""

OTHER = """#!/bin/sh
[ "$1" = -V ] && echo "Python 3.9.1"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "bin" / "setup", tmp_path / "bin")
    (tmp_path / "setup.cfg").touch()
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    return tmp_path


def set_up(project: Path) -> str:
    environment = {**os.environ, "PYTHON": sys.executable, "JAVA_HOME": "/somewhere", "PIP_NO_INDEX": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([project / "bin" / "setup"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def installed(project: Path) -> str:
    """Return the version of the environment's Python, after it found the package."""
    code = "import importlib.metadata, sys; importlib.metadata.version('nothing'); print(sys.version.split()[0])"
    python = project / ".venv" / "bin" / "python"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def of_an_upgraded_python(venv: Path) -> None:
    """The link answers with the new version; the packages are in the old version's folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (venv / "lib" / "python3.9" / "site-packages" / "pip").mkdir(parents=True)


def of_another_python(venv: Path) -> None:
    python = venv / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(OTHER)
    python.chmod(0o755)
    (venv / "lib" / "python3.9").mkdir(parents=True)


@pytest.mark.parametrize("found", [of_an_upgraded_python, of_another_python])
def test_an_environment_of_another_python_is_made_again(project: Path, found) -> None:
    """And then kept: neither a second call nor new requirements make it again."""
    found(project / ".venv")
    (project / ".venv" / ".setup").write_text("0  - Python 3.9.1")
    assert "it is made again" in set_up(project)
    assert installed(project) == sys.version.split()[0]
    assert not (project / ".venv" / "lib" / "python3.9").exists()

    mine = project / ".venv" / "mine"
    mine.touch()
    assert set_up(project) == ""
    (project / "setup.cfg").write_text("# other requirements\n")
    assert "made again" not in set_up(project)
    assert mine.exists()
