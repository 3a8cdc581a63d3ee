"""Executors whose Python lacks packages: one paragraph before a job, where pyspark's own worker would die."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.marked_processes import Marked
from tests.patience import PATIENCE_S
from tests.spark_home import linked_home

pytestmark = pytest.mark.spark
REPOSITORY = Path(__file__).parents[3]

PROGRAM = """
from pyspark.sql import SparkSession
import streamlet.spark.executors
from streamlet.base.errors import BadInput
from tests.topologies.total_lines import TotalLines

builder = SparkSession.builder.master("local-cluster[1,1,1024]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "OFF").getOrCreate()
streamlet.spark.executors._of_this_machine = lambda context: []  # the same Python, which would be found first
lines = spark.range(3).selectExpr("CAST(id AS STRING) AS line")
for act in (
    lambda: streamlet.spark.register(spark),
    lambda: streamlet.spark.apply(TotalLines, {"lines": lines}, schemas={"total": "n long"})["total"].collect(),
):
    try:
        print(act())
    except BadInput as error:
        print(error)
spark.stop()
"""


def test_a_python_of_executors_that_lacks_packages_is_told_before_a_job(tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "program.py").write_text(PROGRAM)
    environ = {"PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": str(bare), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ |= {"SPARK_HOME": str(linked_home(tmp_path))}
    run = Marked([sys.executable, "program.py"], environ, cwd=tmp_path)
    try:
        out, complaints = run.process.communicate(timeout=PATIENCE_S)
    finally:
        run.end()
    assert run.process.returncode == 0, complaints
    said = out.splitlines()
    assert len(said) == 2, said
    for line in said:
        assert line.startswith(f"Spark's Python workers on {os.uname().nodename} run ")
        assert "which cannot import msgpack, crc32c, cramjam, pyarrow, numpy. " in line
        assert "-m pip install 'msgpack>=1.2.4' " in line
