"""A topology on the Spark session of a program: a script, a notebook's kernel, ``spark-submit``."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.marked_processes import NUMBERED, REPOSITORY, Marked
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.spark

ON_A_SESSION = """
import signal, sys, time
from pyspark.sql import SparkSession
from numbered import Numbered
from streamlet import BadInput
from streamlet.backends import SparkBackend

def settings(name, **more):
    return {"out": OUT, **{key.replace("_", "."): value for key, value in more.items()}}

def told(status):
    print(status.state, flush=True)

if __name__ == "__main__":
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    spark = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", quick).config(
        "spark.ui.enabled", "false").getOrCreate()
    idle = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
    spark.conf.set(idle, "true")
    before, handler = dict(spark.conf.getAll), signal.getsignal(signal.SIGINT)

    endless = {"numbers_count": 10**6, "numbers_per_second": 500.0}
    try:
        Numbered.run(backend=SparkBackend(spark), workers=2, settings=settings("second", **endless), on_status=told)
    except KeyboardInterrupt:
        print("drained", flush=True)

    hanging = {**endless, "numbers_nap": 600.0}
    try:
        Numbered.run(backend=SparkBackend(spark), workers=2, settings=settings("third", **hanging), on_status=told)
    except KeyboardInterrupt:
        print("killed", flush=True)

    tracker = spark.sparkContext.statusTracker()
    for _ in range(100):
        if not tracker.getActiveJobsIds():
            break
        time.sleep(0.1)
    same = dict(spark.conf.getAll) == before, signal.getsignal(signal.SIGINT) is handler, tracker.getActiveJobsIds()
    print("left", *same, spark.range(5).count(), flush=True)
    spark.stop()
    try:
        Numbered.run(backend=SparkBackend(spark), settings=settings("fourth"))
    except BadInput as error:
        print(error, flush=True)
"""

SUBMITTED = """
from streamlet import Bolt, ReliableSpout, Topology

class Three(ReliableSpout):
    outputs = ["number"]
    more = 3

    def next_tuple(self):
        if self.more:
            self.more -= 1
            self.emit([self.more], tup_id=self.more)

    def caught_up(self):
        return not self.more and not self.has_unfinished()

class Show(Bolt):
    def process(self, tup):
        self.logger.info("saw %s", tup.values[0])
        print("printed", tup.values[0])

class Main(Topology):
    three = Three.spec()
    show = Show.spec(inputs=[three])

if __name__ == "__main__":
    result = Main.run(backend="spark", workers=1)
    print("ended:", result.reason, result.components["show"].acked, flush=True)
"""


@pytest.fixture
def begun() -> Iterator[list[Marked]]:
    made: list[Marked] = []
    yield made
    for each in made:
        each.end()


def lines_until(process: subprocess.Popen[str], wanted: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line == f"{wanted}\n":
            return
    raise AssertionError(f"it ended without {wanted!r}")


def test_the_session_of_a_script_is_used_interrupted_and_left_as_it_was(tmp_path: Path, begun: list[Marked]) -> None:
    """Drained by Ctrl-C; killed by two although a bolt hangs. Then Spark goes on, with its own handler."""
    script = tmp_path / "script.py"
    script.write_text(ON_A_SESSION.replace("OUT", repr(str(tmp_path))))
    environ = {"PYTHONPATH": f"{NUMBERED.parent}:{REPOSITORY}", "SPARK_LOCAL_IP": "127.0.0.1"}
    begun.append(Marked([sys.executable, str(script)], environ, cwd=tmp_path))
    process = begun[0].process
    for times, ended in ((1, "drained"), (2, "killed")):
        lines_until(process, "running")
        process.send_signal(signal.SIGINT)
        if times == 2:
            lines_until(process, "draining")  # which hangs
            process.send_signal(signal.SIGINT)
        lines_until(process, ended)
    stored = [int(line) for line in (tmp_path / "witness").read_text().split()]
    assert stored and set(range(max(stored))) <= set(stored)
    said, complaints = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, complaints
    assert "Traceback" not in complaints
    assert said.splitlines()[0] == "left True True [] 5"
    assert "SparkBackend was given has been stopped" in said


def test_a_program_of_spark_submit_runs_on_its_session(tmp_path: Path, begun: list[Marked]) -> None:
    """The topology stands in the program itself; the master is the one that was given to spark-submit."""
    (tmp_path / "topology_main.py").write_text(SUBMITTED)
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None
    submit = str(Path(pyspark.origin).parent / "bin" / "spark-submit")
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = ["--master", "local[1]", "--driver-java-options", quick, "--conf", "spark.ui.enabled=false"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environ = {"PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1", **python}
    begun.append(Marked([submit, *conf, "topology_main.py"], environ, cwd=tmp_path))
    said, complaints = begun[0].process.communicate(timeout=PATIENCE_S)
    assert begun[0].process.returncode == 0, complaints
    assert "ended: caught_up 3" in said and said.count("printed ") == 3
