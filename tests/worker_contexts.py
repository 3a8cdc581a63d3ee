"""What a worker's loop is built from, where a test plays the worker."""

from __future__ import annotations

import random
from typing import Any

from streamlet.base.clock import ManualClock
from streamlet.model.plan import make_plan
from streamlet.model.settings import resolve
from streamlet.model.topology import TopologySpec
from streamlet.runtime.tasks.building import WorkerContext


def made_context(
    spec: TopologySpec, workers: int = 1, worker: int = 0, conf: dict[str, Any] | None = None, **more: Any
) -> WorkerContext:
    """One worker of a plan: epoch 1, a clock that stands, a seed, and nobody who hears of errors."""
    parts: dict[str, Any] = {
        "epoch": 1,
        "topology_id": "t",
        "clock": ManualClock(),
        "rng": random.Random(1),
        "report": lambda *error: None,
        "wake": lambda: None,
    }
    conf = resolve({}, conf or {})
    return WorkerContext(plan=make_plan(spec, workers), worker=worker, conf=conf, **{**parts, **more})
