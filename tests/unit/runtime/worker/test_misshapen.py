"""What a worker says is looked at before it is used: the shape of each message."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamlet.runtime.tasks.task_stats import TaskStats
from streamlet.runtime.worker.messages import FROM_WORKER, BadMessage, from_worker

GOOD: list[dict[str, Any]] = [
    {"t": "ready", "address": ["unix", "/tmp/x/w0.1", 0], "pid": 7, "host": "", "executor": ""},
    {"t": "initialized"},
    {"t": "linked", "version": 1 << 40},
    {
        "t": "beat",
        "tasks": {1: TaskStats().snapshot(), 2: TaskStats().snapshot()},
        "partitions": [{"topic": "t", "lag": None}],
        "pending": 4,
        "unfinished": 5,
        "initializing": "",
        "hanging": [{"task": 1, "call": "process", "seconds": 31.0, "tuple": "['a']"}],
        "wait_s": 7.5,
        "call_s": 0.03,
        "done": {2: 9},
        "emitted": {2: 10},
        "handed": {1: 7},
        "sent": {2: 9},
        "lost": {"count": 2},
    },
    {
        "t": "state",
        "drained": True,
        "caught_up": False,
        "done": True,
        "traffic": [{1: 4}, {}],
        "idle": True,
        "quiet": 1,
    },
    {"t": "exchanged", "worker": 1, "epoch": 3, "sent": {2: 9}, "read": {1: 4}},
    {"t": "unfit", "why": "has been in process", "task": 2, "roots": [7 << 48], "values": "[1]"},
    {
        "t": "event",
        "level": "info",
        "text": "there",
        "time_s": 1.5,
        "logger": "mine",
        "component": "count",
        "task": 2,
        "trace": "",
        "printed": False,
        "left_out": 0,
    },
    {"t": "complaint", "text": "it raised"},
    {"t": "link_lost", "worker": 1, "epoch": 1, "version": 2, "why": "the peer closed it"},
    {"t": "failed", "message": "no", "status": 1, "trace": "", "retriable": False, "drains": False},
    {"t": "unlinked", "worker": 1, "why": "it did not answer"},
    {
        "t": "stopped",
        "errors": ["ValueError: no"],
        "left": {"count": 3},
        "traces": [],
        "sent": {2: 1},
        "read": {1: {1: 5}},
    },
]
EVENT = next(message for message in GOOD if message["t"] == "event")
BAD = [None, True, -1, 1.5, "text", b"bytes", [], ["unix"], [1], {}, {1: 2}, {"a": "b"}]


def misshapen(message: dict[str, Any], workers: int, tasks: int) -> str | None:
    """Why the message is refused; None of a good one."""
    try:
        from_worker(message, workers, tasks)
    except BadMessage as wrong:
        return str(wrong)
    return None


def test_each_kind_is_known_by_an_example() -> None:
    assert {message["t"] for message in GOOD} == set(FROM_WORKER)


@pytest.mark.parametrize("message", GOOD, ids=lambda message: message["t"])
def test_what_workers_say_is_well_shaped(message: dict[str, Any]) -> None:
    assert misshapen(message, 2, 2) is None


@pytest.mark.parametrize("message", GOOD, ids=lambda message: message["t"])
def test_a_field_left_out_is_told_by_its_name(message: dict[str, Any]) -> None:
    for name in set(message) - {"t"}:
        wrong = misshapen({key: value for key, value in message.items() if key != name}, 2, 2)
        assert wrong is not None and repr(name) in wrong and message["t"] in wrong


@pytest.mark.parametrize(
    "message",
    [{"t": "no such"}, {**GOOD[9], "worker": 2}, {**GOOD[5], "worker": 2},
     {**GOOD[3], "tasks": {3: TaskStats().snapshot()}},
     {**GOOD[3], "tasks": {0: TaskStats().snapshot()}},
     {**GOOD[3], "hanging": [{"task": 3, "call": "process", "seconds": 31.0, "tuple": ""}]},
     {**EVENT, "task": 3}, {**EVENT, "time_s": float("nan")}, {**EVENT, "time_s": 1e12}, {**EVENT, "time_s": -1.0}],
)  # fmt: skip
def test_what_does_not_exist_is_refused(message: dict[str, Any]) -> None:
    assert misshapen(message, 2, 2) is not None


def mutated(rng: random.Random) -> dict[str, Any]:
    """A message with one field, at any depth, replaced."""
    message: dict[str, Any] = dict(rng.choice(GOOD))
    node: Any = message
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        at = rng.choice(keys) if keys else None
        if at is None or at == "t":
            return message
        inner = node[at]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.7:
            node[at] = inner = inner.copy()
            node = inner
            continue
        node[at] = rng.choice(BAD)
        return message
