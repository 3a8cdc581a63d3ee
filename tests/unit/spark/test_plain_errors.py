"""Errors of ours leave a Python worker of Spark as their paragraph; those of others keep their traceback."""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.streaming import StatefulProcessor
from pyspark.util import handle_worker_exception

from streamlet.base.errors import StreamletError
from streamlet.spark import sink, source
from streamlet.spark.applying import operators
from streamlet.spark.plain_errors import plain_errors

SECRET = "PYTHON_WORKER_FACTORY_SECRET"


@plain_errors
class Called:
    """What Spark calls: a method, and a generator."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def plan(self) -> None:
        raise self.error

    def read(self) -> Iterator[int]:
        yield 1
        raise self.error


def told(error: Exception, method: str, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> str:
    """What pyspark itself makes of an error that leaves."""
    monkeypatch.setattr(os, "environ", environ)
    out = io.BytesIO()
    try:
        [*(getattr(Called(error), method)() or [])]
    except Exception as raised:
        handle_worker_exception(raised, out)
    return out.getvalue()[8:].decode()


@pytest.mark.parametrize("method", ["plan", "read"])
def test_an_error_of_ours_is_told_as_its_paragraph_in_a_worker_of_sparks(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(StreamletError("No."), method, monkeypatch, {SECRET: "s"})
    assert said == "streamlet.base.errors.StreamletError: No.\n"


@pytest.mark.parametrize(("error", "environ"), [(ValueError("a bug"), {SECRET: "s"}), (StreamletError("No."), {})])
def test_any_other_error_keeps_its_traceback_and_so_does_any_other_process(
    error: Exception, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(error, "read", monkeypatch, environ).startswith("Traceback")
    assert environ == {name: value for name, value in environ.items() if name == SECRET}


def test_every_class_that_spark_calls_is_wrapped() -> None:
    """Each of its methods that Spark knows by name."""
    called: list[Any] = [operators.MappedStage]
    for module in (source, sink, operators):
        kinds = (DataSource, DataSourceReader, DataSourceWriter, StatefulProcessor)
        called += [
            one
            for _, one in inspect.getmembers(module, inspect.isclass)
            if one.__module__ == module.__name__ and (issubclass(one, kinds) or hasattr(one, "initialOffset"))
        ]
    assert len(called) > 5
    for one in called:
        own = {name for name, value in vars(one).items() if inspect.isfunction(value)}
        names = [name for name in own if not name.startswith("_") or name == "__call__"]
        assert names and all(hasattr(vars(one)[name], "__wrapped__") for name in names), one
