"""Errors of ours as Spark tells them: the paragraph, and no traceback of our own code around it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Iterator
from typing import Any, TypeVar

from streamlet.base.errors import StreamletError

_HIDE = "SPARK_HIDE_TRACEBACK"
"""Read by pyspark when an error leaves a Python worker, as ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``
sets it."""
_WORKER = "PYTHON_WORKER_FACTORY_"
"""How names begin that Spark's JVM gives to a Python process of its own, and to no other."""

Called = TypeVar("Called", bound=type)


@contextlib.contextmanager
def paragraph_alone() -> Iterator[None]:
    """Have Spark tell an error of ours without its traceback."""
    # Rule: an error of ours says what, where and what to do, and frames of our code say none of it. Any other error
    # keeps its traceback, which is all that there is. The process ends with this error, so no later one is cut short.
    try:
        yield
    except StreamletError:
        if any(name.startswith(_WORKER) for name in os.environ):
            os.environ[_HIDE] = "1"
        raise


def plain_errors(cls: Called) -> Called:
    """Wrap each method that Spark calls in ``paragraph_alone``."""
    for name, value in [*vars(cls).items()]:
        if inspect.isfunction(value) and (name == "__call__" or not name.startswith("_")):
            setattr(cls, name, _alone(value))
    return cls


def _alone(function: Any) -> Any:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        with paragraph_alone():
            return function(*given, **named)

    @functools.wraps(function)
    def generate(*given: Any, **named: Any) -> Iterator[Any]:
        with paragraph_alone():
            yield from function(*given, **named)

    return generate if inspect.isgeneratorfunction(function) else call
