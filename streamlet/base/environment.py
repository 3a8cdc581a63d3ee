"""Environment variables for the time of a run."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables, and put the former ones back at the end."""
    # Put back, since the process may live on: a script's, a test's, or an executor's that runs the next Spark task.
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    _read_zone(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _read_zone(variables)


def _read_zone(variables: Mapping[str, str]) -> None:
    """Have the C library read a changed time zone."""
    # Rule: in a living process the time zone is read again with its variable. The C library has read it once, and all
    # times of components were of another zone. What else is read at a start alone comes too late here.
    if "TZ" in variables:
        time.tzset()
