"""What is refused before anything runs, as far as no JVM is needed for it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from streamlet.backends.spark import preflight
from streamlet.backends.spark.masters import parse_master
from streamlet.base.errors import BadInput

GOOD = {"pyspark": "4.3.0", "pyarrow": "26.0.1", "pandas": "2.3.3"}


def test_what_the_tests_run_with_is_accepted() -> None:
    preflight.check_packages(GOOD)


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"pyspark": None, "pandas": None}, r"needs pyspark and pandas.*streamlet-storm\[spark\]"),
        ({"pyarrow": None}, r"needs pyarrow.*streamlet-storm\[spark\]"),
        ({"pandas": "3.0.1"}, r"pandas 3\.0\.1 .*'pandas>=2\.2,<3'"),
        ({"pyspark": "3.5.4"}, r"pyspark 3\.5\.4 .*4\.1 or newer"),
    ],
)  # fmt: skip
def test_packages_that_are_missing_or_do_not_fit(versions: dict[str, str | None], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        preflight.check_packages({**GOOD, **versions})


@pytest.mark.parametrize(
    ("said", "version"),
    [('openjdk version "17.0.15" 2025', 17), ('java version "1.8.0_392"', 8), ("", None)],
)
def test_a_java_version_is_read_from_what_java_prints(said: str, version: int | None) -> None:
    assert preflight.java_version(said) == version


def test_without_any_java_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no `java` on the PATH.*default-jre-headless"):
        preflight.check_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    """Spark's scripts look there only, whatever the PATH has."""
    with pytest.raises(BadInput, match=f"JAVA_HOME={tmp_path}"):
        preflight.check_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})


def test_an_old_java_is_refused_with_the_version_spark_needs(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(BadInput, match=r"is Java 11\. Spark needs Java 17"):
        preflight.check_java({"PATH": str(tmp_path)})


def test_a_master_that_does_not_answer_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        preflight.check_reachable(parse_master(f"spark://127.0.0.1:1,127.0.0.1:{port}", 1))
    with pytest.raises(BadInput, match=f"No Spark master answers at 127.0.0.1:{port}"):
        preflight.check_reachable(parse_master(f"spark://127.0.0.1:{port}", 1))


def test_speculation_would_copy_a_worker() -> None:
    preflight.check_session({})
    with pytest.raises(BadInput, match=r"spark\.speculation=true"):
        preflight.check_session({"spark.speculation": "true"})


def test_a_compiled_package_that_an_executor_lacks_is_named() -> None:
    report = preflight.PythonReport("node7", "/opt/py/bin/python", {"crc32c": "ModuleNotFoundError: No module"}, "")
    with pytest.raises(BadInput, match=r"node7 .*cannot import crc32c .*/opt/py/bin/python -m pip install 'crc32c"):
        preflight.judge([report], ("10.0.0.1", 5))


def test_an_executor_that_cannot_reach_the_driver() -> None:
    report = preflight.PythonReport("node7", "python", {}, "timed out")
    with pytest.raises(BadInput, match=r"node7 cannot reach the driver at 10\.0\.0\.1:5 \(timed out\)"):
        preflight.judge([report], ("10.0.0.1", 5))


def test_another_python_is_named_with_both_versions() -> None:
    said = preflight.explain_probe(
        "org.apache.spark...PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: "
        "3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.\n\tat org.apache"
    )
    assert "executors run Python 3.12 and this is Python 3.11" in said


def test_what_pyspark_itself_lacks_on_an_executor_is_named() -> None:
    assert "cannot import pyarrow" in preflight.explain_probe(
        "ModuleNotFoundError: No module named 'pyarrow'\n\tat a.B"
    )


def test_the_telling_line_of_a_java_error_is_found() -> None:
    cause = 'Caused by: java.io.IOException: Cannot run program "nix"'
    said = f"An error occurred\n: org.apache.spark.SparkException: Job aborted.\n\tat a.B\n{cause}\n\tat a.C"
    assert preflight.error_line(said) == f"{cause}."
