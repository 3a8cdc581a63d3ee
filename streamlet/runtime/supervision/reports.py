"""What a worker may tell its coordinator: the shape of each message, checked before anything of it is used. Pure.

A worker that speaks has proved who it is. But it runs its users' code, and what that can break must end the worker, and
not the run: the next worker may be free of what ailed this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamlet.runtime.tasks.task_stats import COUNTERS, SLOTS

Message = dict[str, Any]
Test = Callable[[Any], bool]


def _is(kind: type) -> Test:
    return lambda value: type(value) is kind


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _texts(value: Any) -> bool:
    return type(value) is list and all(type(text) is str for text in value)


def _address(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) == 3
        and value[0] in ("unix", "tcp")
        and type(value[1]) is str
        and _natural(value[2])
    )


def _rows(value: Any) -> bool:
    return type(value) is list and all(type(row) is dict for row in value)


def _snapshot(value: Any) -> bool:
    return (
        type(value) is dict
        and all(_natural(value.get(counter)) for counter in COUNTERS)
        and type(latency := value.get("latency")) is list
        and len(latency) == SLOTS
        and all(map(_natural, latency))
        and type(metrics := value.get("metrics")) is dict
        and all(type(name) is str and type(number) is float for name, number in metrics.items())
    )


def _tasks(value: Any) -> bool:
    return type(value) is dict and all(_natural(task) and _snapshot(snapshot) for task, snapshot in value.items())


def _traffic(value: Any) -> bool:
    return value is None or (type(value) is list and len(value) == 2 and all(map(_counts, value)))


def _counts(value: Any) -> bool:
    return type(value) is dict and all(_natural(worker) and _natural(frames) for worker, frames in value.items())


SHAPES: Mapping[str, Mapping[str, Test]] = {
    "ready": {"address": _address, "pid": _natural},
    "initialized": {},
    "linked": {"version": _natural},
    "beat": {
        "tasks": _tasks,
        "partitions": _rows,
        "pending": _natural,
        "unfinished": _natural,
        "initializing": _is(str),
    },
    "state": {"drained": _is(bool), "caught_up": _is(bool), "done": _is(bool), "traffic": _traffic},
    "event": {"level": _is(str), "text": _is(str)},
    "complaint": {"text": _is(str)},
    "link_lost": {"worker": _natural, "epoch": _natural, "version": _natural, "why": _is(str)},
    "failed": {"message": _is(str), "status": _natural, "trace": _is(str), "retriable": _is(bool)},
    "unlinked": {"worker": _natural, "why": _is(str)},
    "stopped": {"errors": _texts},
}


def misshapen(message: Message, workers: int, tasks: int) -> str | None:
    """What is wrong with a worker's message, for a sentence; None of a good one.

    ``workers`` and ``tasks`` are how many the run has: what a message names must be one of them.
    """
    kind = message["t"]
    shape = SHAPES.get(kind)
    if shape is None:
        return f"sent a message of kind {kind[:40]!r}, which there is none of"
    for name, test in shape.items():
        if name not in message or not test(message[name]):
            return f"sent a message of kind {kind!r} without a proper {name!r}"
    if kind in ("link_lost", "unlinked") and message["worker"] >= workers:
        return f"lost a link to worker {message['worker']}, and there are {workers}"
    if kind == "beat" and not all(1 <= task <= tasks for task in message["tasks"]):
        return "sent numbers of a task that does not exist"
    return None
