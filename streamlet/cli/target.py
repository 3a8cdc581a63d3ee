"""``FILE[:TOPOLOGY]`` on the command line."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from streamlet.base.readable import is_there
from streamlet.model.topology import TopologySpec


@dataclass(frozen=True, slots=True)
class TopologyTarget:
    """A topology's file and, if given, the topology's name in it."""

    file: Path
    attribute: str | None = None

    def load(self) -> TopologySpec:
        """Import the file. Raises CannotLoad (exit status 2).

        What it prints meanwhile goes to standard error: standard output is the command's own.
        """
        from streamlet.runtime.worker.loading import load_topology

        with _prints_to_standard_error():
            return load_topology(self.file, self.attribute)

    def __str__(self) -> str:
        return f"{self.file}:{self.attribute}" if self.attribute else str(self.file)


@contextlib.contextmanager
def _prints_to_standard_error() -> Iterator[None]:
    """Send standard output to standard error while entered.

    What a C library writes, too.
    """
    sys.stdout.flush()
    try:
        saved = os.dup(1)
    except OSError:  # it was closed: nothing can be written there
        saved = -1
    with contextlib.redirect_stdout(sys.stderr):
        try:
            if saved >= 0:
                os.dup2(2, 1)
            yield
        finally:
            if saved >= 0:
                os.dup2(saved, 1)
                os.close(saved)


def parse_target(value: str) -> TopologyTarget:
    """Split at the last colon, if a class name follows.

    A file's name may hold a colon, too.

    >>> parse_target("word_count.py:WordCount").attribute
    'WordCount'
    >>> parse_target("word_count.py").attribute is None
    True
    """
    file, colon, attribute = value.rpartition(":")
    if colon and file and attribute.isidentifier() and not is_there(Path(value)):
        return TopologyTarget(Path(file), attribute)
    return TopologyTarget(Path(value))


def _parse(ctx: click.Context, param: click.Parameter, value: str | None) -> TopologyTarget | None:
    return None if value is None else parse_target(value)


target_argument = click.argument("target", callback=_parse, metavar="FILE[:TOPOLOGY]")
optional_target = click.argument("target", callback=_parse, metavar="[FILE[:TOPOLOGY]]", required=False)
debug_option = click.option("--debug", is_flag=True, help="Show the traceback of an error, and debug logs.")
