"""The zip that travels to executors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from streamlet.base.errors import BadInput
from streamlet.spark import register
from streamlet.spark.registration import check_packages, pack


def test_the_zip_can_be_imported_from_and_is_written_once(tmp_path: Path) -> None:
    path = pack(tmp_path)
    before = path.stat().st_mtime_ns
    assert pack(tmp_path) == path
    assert path.stat().st_mtime_ns == before
    assert [path] == list(tmp_path.iterdir())
    assert "streamlet/spark/options.py" in zipfile.ZipFile(path).namelist()
    code = "import streamlet.spark.planning as it; print(it.__file__)"
    env = {"PYTHONPATH": str(path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith(str(path)), done.stderr


def test_an_old_pyspark_is_refused_with_a_command_that_brings_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "4.1.1")
    with pytest.raises(BadInput, match=r"pyspark 4\.1\.1 is installed.*pip install -U 'pyspark>=4\.2'"):
        check_packages()


def test_a_session_of_spark_connect_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="Spark Connect"):
        register(object())
