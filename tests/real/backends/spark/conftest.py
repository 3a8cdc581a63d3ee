"""The command line with Spark below it."""

from tests.marked_processes import run

__all__ = ["run"]
