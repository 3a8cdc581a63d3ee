"""Spark's home: the folder of pyspark, into which ``local-cluster`` writes ``work`` whatever the settings say."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def spark_home() -> Path:
    """The folder of the installed pyspark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def linked_home(folder: Path) -> Path:
    """A home of links in ``folder``, for SPARK_HOME of a program that makes a ``local-cluster`` by itself."""
    home = folder / "spark-home"
    home.mkdir()
    for entry in spark_home().iterdir():
        (home / entry.name).symlink_to(entry)
    return home
