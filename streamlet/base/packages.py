"""The compiled packages that every part of streamlet imports."""

from __future__ import annotations

import importlib.util
import socket
import sys

COMPILED = ("msgpack", "crc32c", "cramjam")


def refuse_missing() -> None:
    """Raise ModuleNotFoundError where one is missing, with the remedy."""
    # pip installs them with streamlet. They can only be missing where streamlet came alone: on Spark's executors, where
    # it travels as a zip, and nobody but the user can install anything.
    missing = [name for name in COMPILED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"streamlet needs {', '.join(missing)}, which the Python {sys.executable} on {socket.gethostname()} cannot "
            f"import. Install it there: {sys.executable} -m pip install {' '.join(COMPILED)}. On Spark's executors, "
            "PYSPARK_PYTHON may name a Python that has it, instead (`streamlet docs spark-dataframes`).",
            name=missing[0],
        )
