"""A task's part in exactly once: what its attempts do with its partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.components.epoch_tuples import ASK
from streamlet.components.spout import FailReason
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.attempt import AttemptPhase
from streamlet.spouts.kafka.exactly_once import ExactlyOnce
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.partition_counters import PartitionCounters


class Rig:
    """Attempts over one partition, the first of them under way."""

    def __init__(self) -> None:
        self.counts = PartitionCounters()
        self.manager: Any = SimpleNamespace(partition=Partition("t", 0), ledger=SimpleNamespace(counts=self.counts))
        self.told: list[tuple[str, int]] = []
        coordinator: Any = SimpleNamespace(
            on_parted=lambda call: None,
            get_manager=lambda partition: self.manager,
            hold=lambda: None,
        )
        gate: Any = SimpleNamespace(may_emit=lambda now_s: False)
        config = SpoutConfig(KafkaHosts("a:9092"), "t", id="g", on_poison="skip")
        self.it = ExactlyOnce(config, 1.0, coordinator, None, gate, self.emit, lambda: 0.0, lambda: 0.5)  # type: ignore[arg-type]
        self.it.attempt.phase = AttemptPhase.RUNNING

    def emit(self, row: list[Any], tup_id: tuple[int, int], stream: str) -> None:
        self.told.append((row[0], tup_id[1]))


@pytest.mark.parametrize(
    ("reason", "final", "failures"),
    [(FailReason.FAILED, False, 1), (FailReason.CRASHED, True, 1), (FailReason.LOST, False, 0)],
)
def test_a_failure_that_counts_as_a_try_is_counted_in_the_status(
    reason: FailReason, final: bool, failures: int
) -> None:
    rig = Rig()
    rig.it.failed(rig.manager, 3, reason, final=final)
    for kind, number in rig.told:
        assert kind == ASK
        rig.it.attempt.acked(number, 0.0)
    assert rig.counts.failed == failures
