"""What is refused before anything runs, as far as no JVM is needed for it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from streamlet.backends.spark import SparkBackend, preflight
from streamlet.backends.spark.masters import parse_master
from streamlet.backends.spark.packing import Manifest, Pack
from streamlet.base.errors import BadInput, WrongArgument


def test_the_pyspark_that_the_tests_run_with_is_accepted() -> None:
    preflight.check_pyspark("4.3.0")


@pytest.mark.parametrize(
    ("version", "said"),
    [(None, r"needs pyspark.*streamlet-storm\[spark\]"), ("3.5.4", r"pyspark 3\.5\.4 .*4\.1 or newer")],
)
def test_a_pyspark_that_is_missing_or_old_is_refused(version: str | None, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        preflight.check_pyspark(version)


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


def home_of(folder: Path, version: str) -> dict[str, str]:
    for name in ("bin/spark-submit", f"jars/spark-core_2.13-{version}.jar"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    return {"SPARK_HOME": str(folder)}


def test_a_spark_home_of_another_version_is_refused_with_both(tmp_path: Path) -> None:
    """pyspark starts what stands there, and executors fail in ways that name no version."""
    environ = home_of(tmp_path, "3.5.1")
    with pytest.raises(
        BadInput, match=rf"SPARK_HOME={tmp_path} is Spark 3\.5\.1, .* has pyspark 4\.3\.0.*Unset SPARK_HOME"
    ):
        preflight.check_spark_home(environ, "4.3.0")


def test_a_spark_home_of_this_version_is_accepted_as_is_none(tmp_path: Path) -> None:
    preflight.check_spark_home(home_of(tmp_path, "4.3.1-SNAPSHOT"), "4.3.0")
    preflight.check_spark_home({}, "4.3.0")


def test_a_spark_home_without_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"SPARK_HOME={tmp_path} holds no bin/spark-submit"):
        preflight.check_spark_home({"SPARK_HOME": str(tmp_path)}, "4.3.0")


def test_a_size_that_spark_does_not_know_is_named_with_its_setting() -> None:
    with pytest.raises(BadInput, match=r"spark\.executor\.pyspark\.memory=much is not a size"):
        preflight.check_memory({"spark.executor.pyspark.memory": "much"})
    preflight.check_memory({"spark.executor.pyspark.memory": "1p"})


def test_a_master_that_does_not_answer_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        preflight.check_reachable(parse_master(f"spark://127.0.0.1:1,127.0.0.1:{port}", 1))
    with pytest.raises(BadInput, match=f"No Spark master answers at 127.0.0.1:{port}"):
        preflight.check_reachable(parse_master(f"spark://127.0.0.1:{port}", 1))


def test_speculation_would_copy_a_worker() -> None:
    preflight.check_session({}, 2)
    with pytest.raises(BadInput, match=r"spark\.speculation=true"):
        preflight.check_session({"spark.speculation": "true"}, 2)


def test_settings_that_a_run_takes_back_are_told_with_the_reason() -> None:
    told = preflight.taken_back_text(["spark.speculation", "spark.python.worker.killOnIdleTimeout"])
    assert told.startswith("Spark's own configuration has spark.speculation=true (Spark would start a second copy of ")
    assert "; spark.python.worker.killOnIdleTimeout=true (Spark would kill workers" in told
    assert told.endswith("): the session of this run has them off.")
    assert preflight.taken_back_text(["spark.speculation"]).endswith("has it off.")


def test_a_session_whose_threads_share_one_job_group_is_refused() -> None:
    """A slot could not be cancelled without the others, and the session would keep the group after the run."""
    with pytest.raises(BadInput, match=r"PYSPARK_PIN_THREAD=false.* one job group.*Start the program without"):
        preflight.check_session({}, 2, pins_threads=False)


@pytest.mark.parametrize("value", ["True", "TRUE", " true "])
def test_a_switch_that_spark_takes_for_on_is_on(value: str) -> None:
    """Spark reads it without regard to case, and Python writes ``str(True)`` with a capital letter."""
    for name, more in (
        ("spark.speculation", {}),
        ("spark.python.worker.killOnIdleTimeout", {"spark.python.worker.idleTimeoutSeconds": "30"}),
        ("spark.dynamicAllocation.enabled", {"spark.dynamicAllocation.maxExecutors": "1"}),
    ):
        with pytest.raises(BadInput, match=name.rpartition(".")[0]):
            preflight.check_session({name: value, **more}, 2)


def test_a_session_that_kills_idle_python_workers_is_refused() -> None:
    """A worker of a topology reads nothing from Spark for as long as it lives."""
    kills = {"spark.python.worker.killOnIdleTimeout": "true"}
    preflight.check_session(kills, 2)
    with pytest.raises(BadInput, match=r"killOnIdleTimeout=true: .*after 30 s.*idleTimeoutSeconds=0"):
        preflight.check_session({**kills, "spark.python.worker.idleTimeoutSeconds": "30"}, 2)


def test_dynamic_allocation_that_may_never_have_enough_executors_is_refused() -> None:
    """Nobody would see why the missing workers do not come. Executors that hold a worker are never idle."""
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "2"}
    preflight.check_session(dynamic, 9)
    preflight.check_session({**dynamic, "spark.dynamicAllocation.maxExecutors": "2"}, 4)
    all_cores = {"spark.dynamicAllocation.enabled": "true", "spark.master": "spark://a:7077"}
    preflight.check_session({**all_cores, "spark.dynamicAllocation.maxExecutors": "2"}, 8)
    with pytest.raises(BadInput, match=r"wants 5 workers.*maxExecutors=2 allows 4 slots.*--workers 4"):
        preflight.check_session({**dynamic, "spark.dynamicAllocation.maxExecutors": "2"}, 5)


def test_a_limit_of_memory_within_which_no_worker_starts_is_refused() -> None:
    """Spark divides it by the cores of an executor."""
    preflight.check_memory({"spark.executor.pyspark.memory": "4g", "spark.executor.cores": "2"})
    with pytest.raises(BadInput, match=r"pyspark\.memory=512m .*of 4 cores to 128 MiB.*at least 1024m"):
        preflight.check_memory({"spark.executor.pyspark.memory": "512m", "spark.executor.cores": "4"})
    with pytest.raises(BadInput, match=r"memory=lots is not a size of memory"):
        preflight.check_memory({"spark.executor.pyspark.memory": "lots"})


def test_a_container_with_little_memory_beside_its_heap_is_warned_of() -> None:
    """Where Spark's resource manager kills what uses more; a standalone cluster does not."""
    four = {"spark.executor.cores": "4"}
    said = preflight.overhead_warning("yarn", four)
    assert said is not None and "An executor of 4 slots has 384 MiB" in said and "memoryOverhead=896m" in said
    assert preflight.overhead_warning("yarn", {**four, "spark.executor.memoryOverhead": "1g"}) is None
    assert preflight.overhead_warning("k8s://h", {**four, "spark.executor.memory": "8g"}) is None
    assert preflight.overhead_warning("spark://h:7077", four) is None


def test_a_process_that_is_set_to_spark_connect_is_refused_by_name() -> None:
    preflight.check_connect({})
    with pytest.raises(BadInput, match=r"set to Spark Connect \(SPARK_REMOTE=sc://h\).*classic session"):
        preflight.check_connect({"SPARK_REMOTE": "sc://h"})


def test_a_backend_of_a_session_of_spark_connect_is_refused_by_name() -> None:
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(BadInput, match=r"session of Spark Connect.*SparkSession\.builder\.master"):
        SparkBackend(connected)


def test_what_is_no_session_is_refused_where_it_is_given() -> None:
    with pytest.raises(WrongArgument, match=r"takes a pyspark\.sql\.SparkSession, and 'local' is not one"):
        SparkBackend("local")


def report(missing: dict[str, str] | None = None, reach: str = "", pyspark: str = "4.3.0") -> preflight.PythonReport:
    return preflight.PythonReport("node7", "/opt/py", "linux-x86_64", pyspark, missing or {}, reach)


WITHOUT = {"crc32c": "ModuleNotFoundError: No module"}
THERE = ("10.0.0.1", 5)


def test_a_compiled_package_that_an_executor_lacks_is_named_with_both_remedies() -> None:
    with pytest.raises(BadInput, match=r"node7 .*crc32c .*`streamlet pack.*--archive.*/opt/py -m pip install 'crc32c"):
        preflight.judge([report(WITHOUT)], THERE, "4.3.1")


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        ("linux-aarch64", r"env\.tar\.gz was packed on linux-aarch64, and the executors on node7 are linux-x86_64"),
        ("linux-x86_64", r"node7 .*cannot import crc32c from env\.tar\.gz .*may be older"),
    ],
)
def test_an_archive_that_does_not_serve_an_executor_is_named_with_the_platforms(platform: str, said: str) -> None:
    pack = Pack(Path("env.tar.gz"), Manifest("0.1.0", "3.11", platform, {"crc32c": "2.7"}))
    with pytest.raises(BadInput, match=said):
        preflight.judge([report(WITHOUT)], THERE, "4.3.1", pack)


def test_an_executor_that_cannot_reach_the_driver() -> None:
    with pytest.raises(BadInput, match=r"node7 cannot reach the driver at 10\.0\.0\.1:5 \(timed out\)"):
        preflight.judge([report(reach="timed out")], THERE, "4.3.1")


def test_another_pyspark_on_an_executor_is_named() -> None:
    said = r"node7 \(/opt/py\) has pyspark 4\.1\.2 and this one has 4\.3\.1.*'pyspark==4\.3\.1'"
    with pytest.raises(BadInput, match=said):
        preflight.judge([report(pyspark="4.1.2")], THERE, "4.3.1")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ImportError: libarrow.so: failed to map segment from shared object", "spark.executor.pyspark.memory"),
        ("java.io.InvalidClassException: a.B; local class incompatible", "another version of Spark"),
    ],
)
def test_what_kept_the_first_python_task_from_running_is_explained(error: str, said: str) -> None:
    assert said in preflight.explain_probe(error)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("Caused by: java.io.InvalidClassException: a.B; local class incompatible", "another version of Spark"),
        ("java.net.BindException: Cannot assign requested address: Service 'sparkDriver'", "spark.driver.host"),
        ("java.lang.IllegalArgumentException: Too large frame: 5211883372140375593", "Is it the master's web page?"),
        (
            "Caused by: java.io.IOException: Connection closed\n\tat a.B\nReason: All masters are unresponsive!",
            "does (java.io.IOException: Connection closed). Check that the port is the master's",
        ),
        (
            "a.UnknownHostException\n\tat a.B\nSuppressed: a.CompletionException: Rethrowing it",
            "a.UnknownHostException. Look at spark.driver.host",
        ),
        ("Error: the heap could not be reserved", "the heap could not be reserved"),
        ("ImportError: no such codec\nFor SparkR, use setLogLevel(newLevel).", "ImportError: no such codec."),
    ],
)
def test_what_kept_a_session_from_starting_is_explained(error: str, said: str) -> None:
    assert said in preflight.explain_start(error)


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("[Errno 28] No space left on device", "make room"),
        ("[Errno 13] Permission denied: '/local/x.tar'", "user may write to"),
        ("invalid header", "`tar -tf` reads it"),
    ],
)
def test_an_executor_that_cannot_unpack_is_named_with_the_remedy(why: str, remedy: str) -> None:
    said = preflight.explain_probe(f"RuntimeError: no unpacking in /local/x on node7: {why}\n\tat a.B")
    assert "executor on node7 could not unpack" in said and f"in /local/x, a folder of spark.local.dir: {why}." in said
    assert remedy in said and "PYSPARK_PYTHON" not in said


def test_a_first_python_task_that_somebody_cancelled_is_told_as_that() -> None:
    cancelled = "[SPARK_JOB_CANCELLED] Job 0 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA"
    said = preflight.explain_probe(f"An error occurred\n: org.apache.spark.SparkException: {cancelled}\n\tat a.B")
    assert "was cancelled" in said and "Job 0 cancelled as part of cancellation of all jobs" in said
    assert "cancelAllJobs" in said and "PYSPARK_PYTHON" not in said


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


def test_what_py4j_puts_before_javas_words_is_left_out() -> None:
    said = (
        "An error occurred while calling z:o.a.s.collect.\n: org.apache.spark.SparkException: Job 2 cancelled\n\tat a.B"
    )
    assert preflight.error_line(said) == "org.apache.spark.SparkException: Job 2 cancelled."
