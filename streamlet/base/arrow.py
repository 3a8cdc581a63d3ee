"""pyarrow, where something needs it: it is no requirement of streamlet without Spark."""

from __future__ import annotations

import sys
from typing import Any

from streamlet.base.errors import BadInput


def parquet_for(who: str) -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module. Raises BadInput where it is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            f"{who} reads or writes Parquet with pyarrow, which the Python of this worker ({sys.executable}) cannot "
            f"import ({error}). Install it there: {sys.executable} -m pip install 'pyarrow>=18'. Of streamlet's extras "
            "it is part of streamlet-storm[spark]."
        ) from None
    return pyarrow, parquet
