"""Sessions that users have made: settings that are refused, Spark's pages without the secret, decommissioning."""

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
import base64, contextlib, json, os, re, secrets, signal, sys, urllib.request
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
    ({"spark.speculation": "True"}, "spark.speculation=true"),
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
planted = b"planted in each place by a test "
secrets.token_bytes = lambda count: secret
killed, addresses, places = [], [], {}

def forms(value):
    \"\"\"Return how a value may stand in a text.\"\"\"
    return {"text": value.decode(), "hex": value.hex(), "base64": base64.b64encode(value).decode().rstrip("=")}

def found_in(text, value):
    return sorted(name for name, form in forms(value).items() if form in text)

def look_at_pages(spark):
    \"\"\"Search what Spark tells of the application while the slots run.\"\"\"
    above, name = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    for page in ("environment", "allexecutors", "jobs", "stages"):
        places[f"REST {page}"] = f"{above}/api/v1/applications/{name}/{page}"
    for page in ("environment", "executors", "jobs", "stages"):
        places[f"page {page}"] = f"{above}/{page}/"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for place, address in places.items():
        with opener.open(address, timeout=30) as answer:
            text = answer.read().decode()
        places[place] = [found_in(text, planted), found_in(text, secret)]

def listens(pid):
    \"\"\"Return the addresses at which a process listens, as the kernel has them.\"\"\"
    held = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            held.add(os.readlink(f"/proc/{pid}/fd/{number}"))
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
    conf |= {"spark.decommission.enabled": "true", "spark.ui.enabled": "true", "spark.ui.port": "0"}
    # REST has it by a setting, an executor's attribute, a job; a page by the application's name, since much of what a
    # page shows its script fetches by REST.
    all_forms = " ".join(forms(planted).values())
    conf |= {"spark.app.name": all_forms, "spark.planted": all_forms}
    conf |= {"spark.executorEnv.SPARK_EXECUTOR_ATTRIBUTE_PLANTED": all_forms}
    spark = session("local-cluster[2,1,1024]", **conf)
    spark.sparkContext.setJobDescription(all_forms)
    spark.range(2).count()
    spark.sparkContext.setJobDescription(None)

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
            look_at_pages(spark)
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
        "places": {"event log": [found_in(text, planted), found_in(text, secret)], **places},
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
def test_the_secret_is_on_no_page_and_in_no_event_log_and_a_decommissioned_executor_loses_nothing(
    program: Callable[..., str], tmp_path: Path
) -> None:
    """Another value was planted in each place, and the same search finds it there, in each form.

    Workers are named in the event log. They listen at the address that peers reach, alone.
    """
    (tmp_path / "log").mkdir()
    told = json.loads(program(LOOKED_AT, str(tmp_path)).splitlines()[-1])
    assert told["ended"] == "caught_up"
    assert len(told["places"]) == 9
    for place, (planted, secret) in told["places"].items():
        assert (place, planted, secret) == (place, ["base64", "hex", "text"], [])
    names = {f"streamlet Numbered: worker {number}, epoch {epoch}" for number, epoch in ((0, 1), (1, 1), (1, 2))}
    assert names <= set(told["jobs"])
    assert told["listens"] == [["0100007F"]] * 2
    assert told["epochs"] == [1, 2] and len(told["killed"]) == 1
    assert {int(line) for line in (tmp_path / "witness").read_text().split()} == set(range(4000))
