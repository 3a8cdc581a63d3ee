"""Registration of the format in a session, and how streamlet itself reaches the executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlet.base.errors import BadInput
from streamlet.base.installed import installed_version, release
from streamlet.base.python_files import package_files
from streamlet.spark.executors import ALWAYS, check_workers
from streamlet.spark.zips import write_zip

NEEDED = (
    ("pyspark", "4.2", "older ones know no limits for Python's streams"),
    ("pyarrow", "18", "pyspark takes no older one, and would say so in the middle of the job"),
    ("pandas", "2.2", "pyspark takes no older one, and would say so in the middle of the job"),
)
"""Package, its oldest version that serves, and why."""

_INSTALL = "pip install 'streamlet-storm[spark]'"


def register(spark: Any) -> None:
    """Make ``format("streamlet-kafka")`` known to a session. Raises BadInput.

    streamlet travels to the executors as a zip (``addPyFile``); what it needs in compiled form (msgpack, crc32c,
    cramjam, pyarrow, numpy) must be there. A thread that did not make the session
    calls it once more before it writes.
    """
    check_packages()
    from streamlet.spark.source import KafkaDataSource

    context = context_of(spark)
    check_workers(context, ALWAYS)
    context.addPyFile(str(pack(Path(context._temp_dir))))
    spark.dataSource.register(KafkaDataSource)
    # Spark looks for a writer's format in the session that is active in the calling thread, and a thread that did not
    # make the session has none: the write would fail with DATA_SOURCE_NOT_FOUND. createDataFrame() does the same.
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def check_packages() -> None:
    """Refuse a missing or an old package, naming the remedy."""
    for name, oldest, why in NEEDED:
        version = installed_version(name)
        if version is None:
            raise BadInput(
                f"streamlet.spark needs {name}, which this Python does not have. Install it with: {_INSTALL}"
            )
        if release(version) < release(oldest):
            raise BadInput(
                f"{name} {version} is installed, and streamlet.spark needs {oldest} or newer: {why}. Upgrade with: "
                f"pip install -U '{name}>={oldest}'"
            )


def context_of(spark: Any) -> Any:
    """Return a session's context. Raises BadInput for one that has none in this process, and for a stopped one."""
    # A session of Spark Connect has no context here, and asking for it raises.
    if not hasattr(spark, "_jsparkSession"):
        raise BadInput(
            f"The session {type(spark).__name__!r} has no Spark context in this process, as with Spark Connect. "
            "Start the query with spark-submit, or with SparkSession.builder.getOrCreate()."
        )
    check_running(spark)
    return spark.sparkContext


def check_running(spark: Any) -> None:
    """Refuse a session whose context in this process has ended. Raises BadInput."""
    # Rule: ask before anything else of a session is asked. Of one that is over each question fails in another way, and
    # what is said then blames a schema, or says nothing.
    if hasattr(spark, "_jsparkSession") and _has_ended(spark.sparkContext):
        raise BadInput(
            "The Spark session has been stopped, or its JVM has ended: make a new one, with "
            "SparkSession.builder.getOrCreate(), and the DataFrames with that one."
        )


def frame_problem(given: object) -> str:
    """Say why an argument is no DataFrame of Spark's; empty if it is one."""
    # Of its class: of a DataFrame itself this would ask the JVM, which may be gone.
    kind = type(given)
    if hasattr(kind, "isStreaming"):
        return ""
    # Rule: never its repr, which is the table, over several lines. pandas on Spark runs a job for it.
    if kind.__name__ == "DataFrame":
        if hasattr(kind, "to_spark"):
            return "a DataFrame of pandas on Spark: df.to_spark() makes one of Spark's"
        return f"a {kind.__module__.partition('.')[0]} DataFrame: spark.createDataFrame(df) makes one of Spark's"
    return f"{' '.join(repr(given).split()):.80}: give a DataFrame of Spark's"


def _has_ended(context: Any) -> bool:
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 - py4j raises half a dozen kinds when the JVM is gone
        return True


def pack(folder: Path) -> Path:
    """Write streamlet's Python files into a zip in ``folder``; return its path."""
    return write_zip({name: path.read_bytes() for path, name in package_files("streamlet")}, folder, "streamlet")
