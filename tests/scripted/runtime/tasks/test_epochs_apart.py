"""Exactly once: tuples about epochs are the runtime's own, and in no counter that a user reads."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Batch, Bolt, Topology
from streamlet.components.epoch_tuples import EPOCHS, LETTERS
from streamlet.components.spout import Spout


class Numbers(Spout):
    """Emits three numbers, and tells the end of an epoch after each, and gives a dead letter along."""

    outputs = ["n"]
    tells_epochs = True

    def initialize(self, conf: Any, context: Any) -> None:
        self.left = 3
        self.open: set[Any] = set()

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.open |= {self.left, ("told", self.left), ("letter", self.left)}
            self.emit([self.left], tup_id=self.left)
            self.emit(["end", self.left], tup_id=("told", self.left), stream=EPOCHS)
            self.emit(["dead", None, b"v", [], "a record"], tup_id=("letter", self.left), stream=LETTERS)

    def ack(self, tup_id: Any) -> None:
        self.open.discard(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.open.discard(tup_id)

    def caught_up(self) -> bool:
        return not self.left and not self.open


class Commits(Bolt):
    """Acks all, batch by batch, or tuple by tuple; fails what it is told about epochs where it is asked to."""

    auto_ack = False
    commits_epochs = True
    by_tuple = fails = False

    def process_batch(self, batch: Batch) -> None:
        for given in batch.tuples if self.by_tuple else [batch]:
            (self.fail if self.fails and batch.stream != "default" else self.ack)(given)


@pytest.mark.parametrize("by_tuple", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_tuples_about_epochs_are_in_no_counter(by_tuple: bool, fails: bool) -> None:
    kind = type("Commits", (Commits,), {"by_tuple": by_tuple, "fails": fails})

    class Epochs(Topology):
        config = {"topology.delivery": "exactly-once"}
        numbers = Numbers.spec()
        out = kind.spec(inputs=[numbers])

    result = Epochs.run(backend="inline", check=False)
    numbers, out = result.components["numbers"], result.components["out"]
    assert (numbers.emitted, numbers.acked, numbers.failed) == (3, 3, 0)
    assert (out.emitted, out.executed, out.acked, out.failed) == (0, 3, 3, 0)
