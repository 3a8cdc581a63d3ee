"""An epoch that is tried again: what is refused, and the way out that the error names."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.spark import epochs
from streamlet.spark.epochs import (
    Epoch,
    EpochOutcome,
    Marker,
    PlanChanged,
    check_plan,
    check_rows,
    refuse_left_over,
    write_epoch,
)
from streamlet.spark.options import SinkOptions
from streamlet.spark.sink import StreamWriter, Written, WrittenColumns

EPOCH = Epoch("p", "query", "run-2", 7, 1)


def test_the_rows_of_before_pass_and_others_are_refused_with_the_way_out() -> None:
    mine = Marker(7, 10, "run-1")
    check_rows(EPOCH, mine, 10)
    for rows in (0, 5, 20):
        with pytest.raises(PlanChanged, match=rf"had 10 rows, which are in the topic; now it has {rows}\.") as caught:
            check_rows(EPOCH, mine, rows)
        assert "delete the consumer groups 'p-query', 'p-query-0', 'p-query-1' and so on" in str(caught.value)
        assert "new checkpoint" in str(caught.value)


def test_an_epoch_older_than_the_marker_is_refused() -> None:
    with pytest.raises(PlanChanged, match="has written epoch 9 already, and epoch 7 is to be written"):
        check_rows(EPOCH, Marker(9, 10, "run-1"), 10)


def test_markers_of_partitions_that_are_gone_are_named_all_for_they_must_be_deleted() -> None:
    old, same = Marker(6, 3, "run-1"), Marker(7, 3, "run-1")
    refuse_left_over(7, 1, {"p-query-1": old, "p-query-2": None})
    with pytest.raises(
        PlanChanged, match=r"than the 1 that have some now.* 6 of its rows may be in the topic twice"
    ) as caught:
        refuse_left_over(7, 1, {"p-query-3": same, "p-query-1": same, "p-query-2": old})
    assert "the consumer groups 'p-query-1', 'p-query-3'," in str(caught.value)
    assert "Delete these groups and start the query again as it is now" in str(caught.value)


class Names:
    """An administrator of a cluster with the groups of one query, and one of another query."""

    def __init__(self, **_: Any) -> None: ...

    def __enter__(self) -> Names:
        return self

    def __exit__(self, *_: object) -> None: ...

    def list_groups(self) -> list[str]:
        return ["p-query", "p-query-0", "p-query-1", "p-query-2", "p-query-old-1", "p-other-1"]


def test_a_partition_that_has_no_rows_any_more_is_found_by_its_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "Admin", Names)
    monkeypatch.setattr(epochs, "KafkaClient", Client)
    monkeypatch.setattr(epochs, "GroupOffsetCalls", Groups)
    Groups.rows = {
        "p-query-0": Marker(7, 2, "run-1"),
        "p-query-1": Marker(7, 3, "run-1"),
        "p-query-2": Marker(6, 4, "run-1"),
        "p-query-old-1": Marker(7, 5, "run-1"),
        "p-other-1": Marker(7, 6, "run-1"),
    }
    settings = Transactions.config
    check_plan(7, "query", {0, 1}, "p", settings)
    options = SinkOptions("t", False, "p", {"bootstrap_servers": "here:9092"})
    writer = StreamWriter(options, WrittenColumns("t", False, False, False))
    writer.commit([Written(2, False, "query", 0), Written(0, query="query", partition=1)], 7)
    with pytest.raises(PlanChanged, match="in the consumer groups 'p-query-1', so 3 of its rows"):
        writer.commit([Written(2, True, "query", 0), Written(0, query="query", partition=1)], 7)


class Groups:
    """Groups of a cluster where another partition's transaction is open in the common one."""

    rows: dict[str, Marker]

    def __init__(self, client: Any, group: str) -> None:
        self._group = group

    def fetch(self, partitions: None, *, require_stable: bool) -> dict[int, Any]:
        if require_stable and self._group == EPOCH.common:
            raise TimeoutError("an open transaction")
        return {0: self.rows[self._group].row()} if self._group in self.rows else {}


class Client:
    def __init__(self, *_: Any) -> None: ...

    def wait_retrying(self, make: Any, _timeout_s: float) -> Any:
        return make()

    def close(self) -> None: ...


class Transactions:
    """A producer that notes what happens to its transaction."""

    config = ProducerConfig(bootstrap_servers="here:9092")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


def test_a_task_that_is_tried_again_still_tells_that_another_run_had_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "KafkaClient", Client)
    monkeypatch.setattr(epochs, "GroupOffsetCalls", Groups)
    Groups.rows = {EPOCH.common: Marker(7, 4, "run-1")}
    producer: Any = Transactions()
    stored: list[Any] = []
    producer.send_offsets_to_transaction = lambda offsets, group: stored.append((group, *offsets.values()))
    assert write_epoch(EPOCH, producer, lambda _: ("t", 5), lambda: 5) == EpochOutcome(5, begun_before=True)
    Groups.rows = {group: Marker.of(row) for group, row in stored}
    assert write_epoch(EPOCH, producer, lambda _: ("t", 5), lambda: 5) == EpochOutcome(5, begun_before=True)
    for marker in (Marker(7, 4, ""), Marker(7, 4, "", True), Marker(7, 4, "run-1", True)):
        assert Marker.of(marker.row()) == marker


def test_an_open_transaction_of_another_partition_stops_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "KafkaClient", Client)
    monkeypatch.setattr(epochs, "GroupOffsetCalls", Groups)
    Groups.rows = {EPOCH.common: Marker(7, 4, "run-1"), EPOCH.own: Marker(6, 2, "run-1")}
    producer: Any = Transactions()
    assert write_epoch(EPOCH, producer, lambda _: ("t", 5), lambda: 5) == EpochOutcome(5, begun_before=True)
    assert producer.calls[0] == "init_transactions"
    assert producer.calls[-1] == "commit_transaction"
