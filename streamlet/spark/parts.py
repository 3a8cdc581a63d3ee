"""A DataFrame as parts for a DataFrameSpout: written by the executors, seen by the driver, listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlet.base.arrow import parquet_for
from streamlet.base.errors import BadInput, StreamletError
from streamlet.base.whole_file import write_whole
from streamlet.spark.registration import check_packages, check_running, frame_problem
from streamlet.spouts.dataframe.parts import MANIFEST, hidden, manifest_text, path_problem

WHO = "streamlet.spark.write_parts"


def write_parts(frame: Any, folder: str) -> str:
    """Write a DataFrame for a DataFrameSpout, a file for each partition; return the folder's absolute path.

    The folder must be new or empty, and one that driver and executors share. Raises BadInput, and StreamletError where
    the driver does not see all that was written.
    """
    check_packages()
    if wrong := frame_problem(frame):
        raise BadInput(f"{WHO}: the first argument is {wrong}.")
    check_running(frame.sparkSession)
    if frame.isStreaming:
        raise BadInput(
            f"{WHO} writes a batch, and this DataFrame is a stream: parts are listed once they are all there. Write "
            "each micro-batch into a folder of its own, with writeStream.foreachBatch(lambda rows, number: "
            'write_parts(rows, f"/shared/parts-{number}")), or read with spark.read.'
        )
    from streamlet.spark.applying.frame_types import types_problems

    if problem := path_problem(folder, f"{WHO}: folder"):
        raise BadInput(f"{problem}.")
    if problems := [*types_problems("The DataFrame", frame.schema)]:
        raise BadInput("\n".join(problems))
    place = Path(folder).absolute()
    if place.exists() and any(place.iterdir()):
        raise BadInput(
            f"{WHO}: {place} is not empty. A spout reads all that lies in its folder: give a new one, or empty it."
        )
    written = _write(frame, place)
    seen = _rows_seen(place)
    if sum(seen.values()) != written:
        raise StreamletError(
            f"{WHO}: the executors wrote {written} rows into {place}, and this machine sees {sum(seen.values())} of "
            "them there. Each executor has written on its own machine: give a folder that driver and executors share, "
            "as of NFS or another mounted file system."
        )
    write_whole(place / MANIFEST, lambda file: file.write(manifest_text(seen).encode()))
    return str(place)


def _write(frame: Any, place: Path) -> int:
    """Write a file for each partition; return how many rows the executors have written."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    # Rule: let the executors count in the same job. To read the files again would ask the same machines, and each sees
    # its own.
    observed = Observation()
    counted = frame.observe(observed, count(lit(1)).alias("rows"))
    # Rule: the path as it stands, for Hadoop takes "%20" for a name. Written there, no row would be seen in the folder.
    counted.write.mode("append").option("maxRecordsPerFile", 0).parquet(f"file://{place}")
    rows: int = observed.get["rows"]
    return rows


def _rows_seen(place: Path) -> dict[str, int]:
    _, parquet = parquet_for(WHO)
    if not place.is_dir():
        return {}
    names = [entry.name for entry in place.iterdir() if not hidden(entry.name)]
    return {name: parquet.read_metadata(place / name).num_rows for name in names}
