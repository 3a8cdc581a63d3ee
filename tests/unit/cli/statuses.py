"""A status of a run, and how the live table draws it."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from streamlet.backends.contract import ComponentStatus, RunRequest, RunStatus
from streamlet.cli.table import TableView
from streamlet.model.topology import TopologySpec

ROWS = (
    ComponentStatus("lines", "spout", 1, emitted=1_234_567, acked=1_234_000, failed=12, p50_ms=3.14159, p99_ms=27.4),
    ComponentStatus("count", "bolt", 2, executed=7_000, acked=7_000, p50_ms=0.0042),
)


def status(**more: Any) -> RunStatus:
    return RunStatus("running", 61.5, ROWS, pending=567, **more)


def partitions(count: int) -> tuple[dict[str, Any], ...]:
    return tuple({"topic": "t", "partition": n, "position": 10 * n, "committed": 9 * n, "lag": n} for n in range(count))


def drawn(width: int, shown: RunStatus, notice: str = "") -> str:
    out = io.StringIO()
    view = TableView(Console(file=out, width=width, force_terminal=True, highlight=False, color_system=None))
    view.start(RunRequest(TopologySpec("Words", (), {}), {}), "processes")
    view.on_status(shown)
    if notice:
        view.notice(notice)
    view.close()
    return out.getvalue()
