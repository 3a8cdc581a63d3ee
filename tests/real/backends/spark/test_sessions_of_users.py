"""Sessions that users have made: settings that are refused, an event log without the secret, decommissioning."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.marked_processes import NUMBERED, REPOSITORY, Marked
from tests.patience import PATIENCE_S
from tests.spark_home import linked_home

pytestmark = pytest.mark.spark

BEGINNING = """
import json, os, re, secrets, signal, sys
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
    session("local[2]").stop()  # what a JVM is started with, its later sessions have too
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
killed, addresses = [], []

def listens(pid):
    \"\"\"Return the addresses at which a process listens, as the kernel has them.\"\"\"
    held = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]

def executor_leaves(spark, executor, pid):
    \"\"\"Spark decommissions it, as where its machine is to go; then it goes.\"\"\"
    jvm, scheduler = spark._jvm, spark.sparkContext._jsc.sc().schedulerBackend()
    why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("its machine goes", jvm.scala.Option.empty())
    assert scheduler.decommissionExecutor(executor, why, False, False)
    above = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    jvm_pid = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(jvm_pid, signal.SIGKILL)

if __name__ == "__main__":
    folder, gate = Path(sys.argv[1]), f"{sys.argv[1]}/gate"
    log = {"enabled": "true", "compress": "false", "dir": f"file://{folder}/log"}
    conf = {f"spark.eventLog.{name}": value for name, value in log.items()}
    spark = session("local-cluster[2,1,1024]", **conf, **{"spark.decommission.enabled": "true"})

    def look(status):
        stored = folder / "witness"
        if status.state != "running" or not stored.exists() or len(stored.read_text().split()) < 200:
            return
        if not addresses:
            addresses.extend(listens(row["pid"]) for row in status.workers)
        elif not killed:
            row = status.workers[1]
            killed.append(row["executor"])
            executor_leaves(spark, row["executor"], row["pid"])
        elif status.workers[1]["epoch"] == 2:
            Path(gate).touch()

    result = Numbered.run(
        backend=SparkBackend(spark), workers=2, on_status=look,
        settings={"out": str(folder), "numbers.count": 4000, "numbers.per.second": 900.0, "numbers.gate": gate},
    )
    spark.stop()
    text = "".join(path.read_text() for path in (folder / "log").rglob("*") if path.is_file())
    print(json.dumps({
        "ended": result.reason, "killed": killed, "listens": addresses,
        "epochs": [row["epoch"] for row in result.status.workers],
        "secret": secret.decode() in text or secret.hex() in text,
        "jobs": re.findall('"spark.job.description":"([^"]*)"', text),
    }), flush=True)
"""
)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., str]]:
    made: list[Marked] = []

    def run(text: str, *arguments: str) -> str:
        (tmp_path / "program.py").write_text(text)
        environ = {"PYTHONPATH": f"{NUMBERED.parent}:{REPOSITORY}", "PYSPARK_PYTHON": sys.executable}
        environ |= {"SPARK_HOME": str(linked_home(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"}
        made.append(Marked([sys.executable, "program.py", *arguments], environ, cwd=tmp_path))
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
def test_the_event_log_names_workers_and_no_secret_and_a_decommissioned_executor_loses_nothing(
    program: Callable[..., str], tmp_path: Path
) -> None:
    """Spark's pages are made of what is in its event log. Workers listen at the address that peers reach, alone."""
    (tmp_path / "log").mkdir()
    told = json.loads(program(LOOKED_AT, str(tmp_path)).splitlines()[-1])
    assert (told["ended"], told["secret"]) == ("caught_up", False)
    names = {f"streamlet Numbered: worker {number}, epoch {epoch}" for number, epoch in ((0, 1), (1, 1), (1, 2))}
    assert names <= set(told["jobs"])
    assert told["listens"] == [["0100007F"]] * 2
    assert told["epochs"] == [1, 2] and len(told["killed"]) == 1
    assert {int(line) for line in (tmp_path / "witness").read_text().split()} == set(range(4000))
