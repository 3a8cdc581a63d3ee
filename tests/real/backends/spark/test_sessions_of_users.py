"""Sessions that users have made: settings that are refused, pages and event log without the secret, decommissioning."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.marked_processes import NUMBERED, REPOSITORY, Marked
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.spark

BEGINNING = """
import json, os, secrets, signal, sys, urllib.request
from pathlib import Path
from pyspark.sql import SparkSession
from numbered import Numbered
from streamlet import BadInput
from streamlet.backends import SparkBackend

def session(master, **conf):
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder = SparkSession.builder.master(master).config("spark.driver.extraJavaOptions", quick)
    for name, value in {"spark.ui.enabled": "false", "spark.log.level": "ERROR", **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
"""

REFUSALS = (
    BEGINNING
    + """
if __name__ == "__main__":
    for conf in json.loads(sys.argv[1]):
        spark = session("local[2]", **conf)
        try:
            Numbered.run(backend=SparkBackend(spark), workers=2, settings={"out": sys.argv[2]})
        except BadInput as error:
            print(str(error), flush=True)
        spark.stop()
"""
)

REFUSED = [
    ({"spark.speculation": "true"}, "spark.speculation=true"),
    (
        {"spark.python.worker.killOnIdleTimeout": "true", "spark.python.worker.idleTimeoutSeconds": "30"},
        "killOnIdleTimeout=true: Spark would kill each worker after 30 s",
    ),
    (
        {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "1"},
        "maxExecutors=1 allows 1 slots",
    ),
    ({"spark.executor.pyspark.memory": "64m"}, "spark.executor.pyspark.memory=64m"),
]

LOOKED_AT = (
    BEGINNING
    + """
secret = b"known to this test, in 32 bytes "
secrets.token_bytes = lambda count: secret
seen, killed = {}, []

def pages(spark):
    at = spark.sparkContext.uiWebUrl.replace(spark.conf.get("spark.driver.host"), "127.0.0.1")
    api = f"/api/v1/applications/{spark.sparkContext.applicationId}/"
    for page in ("/jobs/", "/stages/", "/executors/", "/environment/", api + "jobs", api + "environment"):
        with urllib.request.urlopen(at + page, timeout=10) as answer:
            seen[page.replace(api, "")] = answer.read().decode()

def executor_leaves(spark, executor, pid):
    \"\"\"Spark decommissions it, as where its machine is to go; then it goes.\"\"\"
    jvm, scheduler = spark._jvm, spark.sparkContext._jsc.sc().schedulerBackend()
    why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("its machine goes", jvm.scala.Option.empty())
    assert scheduler.decommissionExecutor(executor, why, False, False)
    above = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    jvm_pid = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(jvm_pid, signal.SIGKILL)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": f"file://{folder}/log"}
    ui = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.decommission.enabled": "true"}
    spark = session("local-cluster[2,1,1024]", **ui, **log)

    def look(status):
        stored = folder / "witness"
        if status.state != "running" or not stored.exists() or len(stored.read_text().split()) < 200:
            return
        if not seen:
            pages(spark)
        elif not killed:
            row = status.workers[1]
            killed.append(row["executor"])
            executor_leaves(spark, row["executor"], row["pid"])

    result = Numbered.run(
        backend=SparkBackend(spark), workers=2, on_status=look,
        settings={"out": str(folder), "numbers.count": 4000, "numbers.per.second": 300.0},
    )
    spark.stop()
    seen["log"] = "".join(path.read_text() for path in (folder / "log").rglob("*") if path.is_file())
    print(json.dumps({
        "ended": result.reason, "seen": seen, "killed": killed,
        "epochs": [row["epoch"] for row in result.status.workers],
        "told": [name for name, text in seen.items() if secret.decode() in text or secret.hex() in text],
    }), flush=True)
"""
)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., str]]:
    made: list[Marked] = []

    def run(text: str, *arguments: str) -> str:
        (tmp_path / "program.py").write_text(text)
        environ = {"PYTHONPATH": f"{NUMBERED.parent}:{REPOSITORY}", "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "program.py", *arguments]
        made.append(Marked(command, {**environ, "PYSPARK_PYTHON": sys.executable}, cwd=tmp_path))
        said, complaints = made[-1].process.communicate(timeout=PATIENCE_S)
        assert made[-1].process.returncode == 0, complaints
        return said

    yield run
    for each in made:
        each.end()


def test_settings_that_a_run_does_not_survive_are_refused_on_the_session_that_has_them(
    program: Callable[..., str], tmp_path: Path
) -> None:
    said = program(REFUSALS, json.dumps([conf for conf, _ in REFUSED]), str(tmp_path)).splitlines()
    assert [text in line for line, (_, text) in zip(said, REFUSED, strict=True)] == [True] * len(REFUSED), said
    assert not (tmp_path / "witness").exists()


@pytest.mark.faults
def test_pages_and_event_log_name_workers_and_no_secret_and_a_decommissioned_executor_loses_nothing(
    program: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "log").mkdir()
    told = json.loads(program(LOOKED_AT, str(tmp_path)).splitlines()[-1])
    assert (told["ended"], told["told"]) == ("caught_up", [])
    jobs = {job.get("description") for job in json.loads(told["seen"]["jobs"])}
    assert {f"streamlet Numbered: worker {number}, epoch 1" for number in (0, 1)} <= jobs
    assert "streamlet Numbered: worker 1, epoch 2" in told["seen"]["log"]
    assert set(told["seen"]) == {"/jobs/", "/stages/", "/executors/", "/environment/", "jobs", "environment", "log"}
    assert told["epochs"] == [1, 2] and len(told["killed"]) == 1
    assert {int(line) for line in (tmp_path / "witness").read_text().split()} == set(range(4000))
