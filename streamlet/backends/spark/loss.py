"""Explains the end of Spark's application under a run. Knows no pyspark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from streamlet.base.errors import StreamletError


class SparkLost(StreamletError):
    """Spark's application is gone, and with it every executor."""


class Loss(Enum):
    """How an application ended."""

    JVM_ENDED = "Spark's driver JVM ended"
    STOPPED = "The Spark application was stopped"


_REMEDIES = {
    Loss.JVM_ENDED: "If it was killed for memory, give it less to do or the machine more.",
    Loss.STOPPED: "That is done by a program that stops its session, by a person on the page of Spark's master, or by "
    "the master itself when executors fail one after the other: their logs say why, and that page leads to them.",
}


def spark_lost(loss: Loss, running: bool, said: Iterable[str] = ()) -> SparkLost:
    """Return the error for an application that is gone. ``said``: what Spark said of its jobs meanwhile."""
    when = "while the topology ran" if running else "before the topology ran"
    # A job that only came too late says no more than that.
    causes = [text for text in said if not re.search("SparkContext was shut down|stopped SparkContext", text)]
    words = causes[0].removeprefix("was lost by Spark: ").strip(". ") if causes else ""
    cause = f" ({words})" if words and loss is Loss.STOPPED else ""
    again = " What is tracked and was not acked will be read again by the next run." if running else ""
    return SparkLost(f"{loss.value} {when}, and its executors with it{cause}.{again} {_REMEDIES[loss]}")
