"""The end of a KafkaBolt's task, on scripted producers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.bolts.kafka import KafkaBolt, shared_producer
from streamlet.bolts.kafka.epochs import CommitPhase
from streamlet.components.context import TopologyContext


class Made:
    """A shared producer that answers nothing."""

    all: list[Made]

    def __init__(self, config: Any, settings: Any) -> None:
        steps = SimpleNamespace(initialize=lambda: None, ended=lambda: None, is_lost=False)
        self.producer = SimpleNamespace(transaction_steps=self.steps_for)
        self.steps, self.heard = steps, lambda: None
        self.max_block_s, self.users, self.left = 1.0, 0, 0
        Made.all.append(self)

    def steps_for(self, heard: Callable[[], None]) -> Any:
        """As a producer's thread does, it keeps ``heard``."""
        self.heard = heard
        return self.steps

    def await_topic(self, topic: str, limit_s: float, bolt: str, log: object) -> None: ...

    def leave(self, limit_s: float) -> None:
        self.left += 1
        shared_producer._shared.clear()


def bolt_with_transactions(monkeypatch: pytest.MonkeyPatch) -> KafkaBolt:
    monkeypatch.setattr(shared_producer, "SharedProducer", Made)
    shared_producer._shared.clear()
    Made.all = []
    spec = KafkaBolt.spec(inputs=[], hosts="kafka://127.0.0.1:1", topic="out")
    bolt = KafkaBolt(**spec.kwargs)
    quiet = {"_rest": lambda rest: None, "_hand_over": lambda call: None}
    vars(bolt).update(quiet, report_metric=lambda name, value: None)
    names = {"topology_name": "t", "topology_id": "run", "component_name": "out", "task_id": 1}
    context = TopologyContext(**{**names, "task_index": 0, "task_count": 1, "clock": ManualClock()})  # type: ignore[arg-type]
    bolt.initialize({"topology.delivery": "exactly-once"}, context)
    return bolt


def test_a_task_that_is_dropped_without_a_clean_end_is_not_held_by_its_producers_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its transaction would stay open until the process ends: readers wait for it, and the exit, too."""
    bolt = bolt_with_transactions(monkeypatch)
    assert bolt._transactions is not None
    bolt._transactions.open_session()
    (made,) = Made.all
    dropped = weakref.ref(bolt)
    made.heard()
    del bolt
    gc.collect()
    assert dropped() is None
    made.heard()


def test_a_producer_that_is_opened_while_the_task_ends_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one was fenced, and a BEGIN was held: the wait for what is under way opens another."""
    bolt = bolt_with_transactions(monkeypatch)
    transactions = bolt._transactions
    assert transactions is not None
    transactions.open_session()

    def lose_and_begin() -> None:
        transactions.close_session()
        transactions.open_session()
        transactions.epochs.phase = CommitPhase.OPEN

    monkeypatch.setattr(bolt, "_go_on", lose_and_begin)
    transactions.epochs.phase = CommitPhase.OPENING
    bolt.cleanup()
    assert [one.left for one in Made.all] == [1, 1]
