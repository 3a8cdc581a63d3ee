"""An archive of Spark's parsed classes, with which a JVM of the tests starts in half the processor time.

``python -m tests.spark_classes`` makes it, once a Java and a Spark, in the virtual environment: a minute, 200 MB.
``options`` names it to sessions. A JVM that cannot use the archive starts as without it and says nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.spark_home import spark_home

NAME = "spark-classes-{}.jsa"
PATIENCE_S = 300.0
"""Seconds for the dump on a busy machine."""


def archive(prefix: Path = Path(sys.prefix)) -> Path | None:
    """Return where the archive of this Java and this Spark lies, or would lie; None without either."""
    java = _java()
    if java is None or importlib.util.find_spec("pyspark") is None:
        return None
    # The JVM refuses an archive of other jars or another Java: the name changes with them, and a new one is made.
    parts = [Path(java).resolve(), *sorted((spark_home() / "jars").glob("*.jar"))]
    told = [(str(part), part.stat().st_size, part.stat().st_mtime_ns) for part in parts]
    return prefix / NAME.format(hashlib.sha256(repr(told).encode()).hexdigest()[:12])


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


def options() -> dict[str, str]:
    """Return variables for sessions, of drivers and executors; none without an archive."""
    found = archive()
    return _options(f"-XX:SharedArchiveFile={found} {SILENTLY}") if found is not None and found.exists() else {}


SILENTLY = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Some Javas print a line on stdout when they pass over an archive."""


def _options(java: str) -> dict[str, str]:
    # Not JDK_JAVA_OPTIONS: java says on stderr that it has picked them up, and it reaches Kafka's JVMs too.
    executors = f"--conf 'spark.executor.defaultJavaOptions={java}'"
    return {"SPARK_SUBMIT_OPTS": java, "PYSPARK_SUBMIT_ARGS": f"{executors} pyspark-shell"}


def make(path: Path) -> None:
    """Make the archive; raises what went wrong, and leaves nothing then."""
    with tempfile.TemporaryDirectory(prefix="spark-classes-") as name:
        folder = Path(name)
        class_path = _watched_session(folder)
        names = folder / "all.classes"
        names.write_text("".join(f"{line}\n" for line in _names(sorted(folder.glob("jvm-*.classes")))))
        # Beside its place, and renamed when it is whole: others may be starting JVMs.
        made = path.with_suffix(f".{os.getpid()}")
        lists = [f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={made}"]
        command = [str(_java()), "-Xshare:dump", *lists, "-cp", class_path]
        try:
            subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True)
            made.replace(path)
        finally:
            made.unlink(missing_ok=True)
    for old in path.parent.glob(NAME.format("*")):
        if old != path:
            old.unlink()


def _watched_session(folder: Path) -> str:
    """Use Spark as tests do, its JVMs writing down what they load; the driver's class path."""
    from streamlet.backends.spark.masters import DEFAULT_MASTER, parse_master
    from streamlet.backends.spark.spark_session import open_session
    from streamlet.base.environment import environment

    # By open_session, which gives local-cluster a home of links: its executors write `work` into Spark's home.
    with environment(_options(f"-XX:DumpLoadedClassList={folder}/jvm-%p.classes")):
        session = open_session(parse_master(DEFAULT_MASTER, 1), "classes", debug=False, cancelled=lambda: False)
    try:
        session.context.parallelize([1, 2], 2).map(str).collect()
        _use_dataframes(session.spark, folder)
        class_path = str(session.context._jvm.java.lang.System.getProperty("java.class.path"))
        # The links go with the session. To a JVM a file is the same by any link.
        return class_path.replace(f"{session.directory}/home", str(spark_home()))
    finally:
        session.close()


def _use_dataframes(spark: Any, folder: Path) -> None:  # Any: pyspark's session
    def same(batches: Iterable[Any]) -> Iterable[Any]:
        yield from batches

    frame = spark.range(100).selectExpr("id", "cast(id as string) as text", "timestamp_seconds(id) as at")
    frame.repartition(2, "id").mapInArrow(same, frame.schema).write.parquet(f"{folder}/frame")
    stored = spark.read.parquet(f"{folder}/frame")
    stored.groupBy("text").count().orderBy("text").toPandas()
    stored.groupBy("text").applyInPandas(lambda group: group, frame.schema).collect()
    stream = spark.readStream.schema(frame.schema).parquet(f"{folder}/frame")
    counted = stream.groupBy("text").count().writeStream.outputMode("complete").format("memory").queryName("counted")
    counted.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()


def _names(lists: Iterable[Path]) -> Iterable[str]:
    """Classes, once each, of the loaders that an archive serves."""
    lines = {line for each in lists for line in each.read_text().splitlines()}
    return sorted({line.split(" id: ")[0] for line in lines if not line.startswith("#") and " source: " not in line})


def main(say: Callable[[str], object] = print, words: Sequence[str] = ()) -> int:
    """Make the archive where it is missing; tests do without one that cannot be made."""
    argparse.ArgumentParser(
        prog="python -m tests.spark_classes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(words)
    path = archive()
    if path is None or path.exists():
        return 0
    try:
        make(path)
    except Exception as error:
        say(f"No archive of Spark's classes could be made, and tests start Spark without it: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(words=sys.argv[1:]))
