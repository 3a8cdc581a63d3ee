"""The archive of Spark's classes, with which tests start JVMs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import spark_classes


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java of the test's own."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return java


def test_another_java_has_another_archive(home: Path, tmp_path: Path) -> None:
    before = spark_classes.archive(tmp_path)
    assert before is not None and spark_classes.archive(tmp_path) == before
    os.utime(home, ns=(0, 0))
    assert spark_classes.archive(tmp_path) != before


def test_sessions_have_no_options_without_an_archive(home: Path) -> None:
    assert spark_classes.options() == {}


def test_an_archive_that_cannot_be_made_fails_nothing_and_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fail(path: Path) -> None:
        raise subprocess.CalledProcessError(1, "java -Xshare:dump")

    monkeypatch.setattr(spark_classes, "make", fail)
    assert spark_classes.main(said.append) == 0
    assert len(said) == 1 and "java -Xshare:dump" in said[0]


def test_classes_are_named_once_and_only_those_of_loaders_that_an_archive_serves(tmp_path: Path) -> None:
    (tmp_path / "17").write_text("# made by Java 17\njava/lang/Object\nA\n@lambda-proxy A run\n")
    (tmp_path / "21").write_text("A id: 3\nB id: 4 super: 0 source: file:/tmp/b.jar\n")
    found = list(spark_classes._names([tmp_path / "17", tmp_path / "21"]))
    assert found == ["@lambda-proxy A run", "A", "java/lang/Object"]
