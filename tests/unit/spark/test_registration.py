"""The zip that travels to executors."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest

from streamlet.base.errors import BadInput
from streamlet.spark import apply, register, registration, write_parts
from streamlet.spark.registration import check_packages, pack
from tests.topologies.counted_words import CountedWords


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


def test_threads_that_send_streamlet_at_once_write_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = zipfile.ZipFile.writestr
    inner: list[Path] = []

    def meanwhile(archive: zipfile.ZipFile, *given: Any) -> None:
        if not inner:
            inner.append(tmp_path)
            inner.append(pack(tmp_path))
        write(archive, *given)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", meanwhile)
    made = pack(tmp_path)
    assert inner[1] == made and zipfile.ZipFile(made).testzip() is None
    assert [*tmp_path.iterdir()] == [made]


GOOD = {"pyspark": "4.2.0", "pyarrow": "18.0.0", "pandas": "2.2.0"}


def have(monkeypatch: pytest.MonkeyPatch, **others: str | None) -> None:
    """Let this Python have the oldest versions that serve, but for ``others``."""
    monkeypatch.setattr(registration, "installed_version", {**GOOD, **others}.get)


def test_the_oldest_versions_that_pyspark_takes_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch)
    check_packages()


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [("pyspark", "4.1.1", "4.2"), ("pyarrow", "17.0.0", "18"), ("pandas", "2.1.4", "2.2"), ("pandas", "1.5.3", "2.2")],
)
def test_an_old_package_is_refused_with_a_command_that_brings_a_newer_one(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, wanted: str
) -> None:
    have(monkeypatch, **{name: version})
    with pytest.raises(BadInput) as caught:
        check_packages()
    said = caught.value.message
    assert f"{name} {version} is installed, and streamlet.spark needs {wanted} or newer" in said
    assert f"pip install -U '{name}>={wanted}'" in said


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_package_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    have(monkeypatch, **{name: None})
    with pytest.raises(BadInput, match=f"needs {name}, which this Python does not have"):
        check_packages()


def test_a_session_of_spark_connect_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="Spark Connect"):
        register(object())


class OfGoneSession:
    """A DataFrame whose session is over: whatever asks the JVM fails."""

    def __init__(self, context: Any) -> None:
        self.sparkSession = SimpleNamespace(_jsparkSession=None, sparkContext=context)

    @property
    def schema(self) -> Any:
        raise AssertionError

    isStreaming = schema


def gone() -> Any:
    raise ConnectionRefusedError("no JVM")


@pytest.mark.parametrize(
    "context",
    [
        SimpleNamespace(_jsc=None),
        SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True))),
        SimpleNamespace(_jsc=SimpleNamespace(sc=gone)),
    ],
    ids=["by its program", "by the cluster", "with its JVM"],
)
def test_a_session_that_is_over_is_refused_as_that(context: Any, tmp_path: Path) -> None:
    frame = OfGoneSession(context)
    acts: list[Callable[[], Any]] = [
        lambda: register(frame.sparkSession),
        lambda: apply(CountedWords, {"lines": frame}),
        lambda: write_parts(frame, str(tmp_path / "parts")),
    ]
    for act in acts:
        with pytest.raises(BadInput, match="The Spark session has been stopped, or its JVM has ended: make a new one"):
            act()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pandas.DataFrame({"line": ["a", "b"]}), "a pandas DataFrame: spark.createDataFrame(df) makes one of Spark's"),
        ("lines", "'lines': give a DataFrame of Spark's"),
        (["a\n", None], r"['a\n', None]: give a DataFrame of Spark's"),
        (pandas.Series([1, 2]), "0 1 1 2 dtype: int64: give a DataFrame of Spark's"),
        (None, "None: give a DataFrame of Spark's"),
    ],
    ids=["pandas", "text", "list", "series", "none"],
)
def test_what_is_no_dataframe_of_sparks_is_refused_in_one_line_with_the_way_to_one(
    given: Any, said: str, tmp_path: Path
) -> None:
    acts: list[tuple[str, Callable[[], Any]]] = [
        (f"inputs= holds under 'lines' {said}.", lambda: apply(CountedWords, {"lines": given})),
        (f"write_parts: the first argument is {said}.", lambda: write_parts(given, str(tmp_path / "parts"))),
    ]
    for told, act in acts:
        with pytest.raises(BadInput, match=rf"{re.escape(told)}$"):
            act()


def test_a_dataframe_of_pandas_on_spark_is_refused_without_a_job() -> None:
    class DataFrame:
        def __repr__(self) -> str:
            raise AssertionError

        def to_spark(self) -> None:
            raise AssertionError

    with pytest.raises(BadInput, match=r"pandas on Spark: df\.to_spark\(\) makes one"):
        apply(CountedWords, {"lines": DataFrame()})
