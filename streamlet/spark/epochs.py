"""One epoch's partition of a stream, written at most once: a transaction with a marker in it.

The marker is an offset (the epoch's number + 1) of a consumer group of the query's own, stored by the same transaction
as the records. So a second try finds it exactly when the records of the first are there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamlet.base.clock import SystemClock
from streamlet.base.errors import StreamletError
from streamlet.kafka.admin import Admin
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import GroupOffsetCalls, OffsetAndMetadata
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.producer import Producer
from streamlet.kafka.settings.client_config import ClientConfig


class PlanChanged(StreamletError):
    """An epoch was begun with other partitions than it has now."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One task of a micro-batch. A restart changes ``run``."""

    prefix: str
    query: str
    run: str
    number: int
    partition: int

    @property
    def common(self) -> str:
        """The group that tells which epoch any partition has written last."""
        return f"{self.prefix}-{self.query}"

    @property
    def own(self) -> str:
        """The group of this partition's marker, and its transactional id."""
        return f"{self.common}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Marker:
    """What a group's offset says: the last epoch written, its rows, and the run that wrote it.

    ``begun_before``: another run had begun that epoch before.
    """

    number: int
    rows: int
    run: str
    begun_before: bool = False

    def row(self) -> OffsetAndMetadata:
        """Return it as an offset to store."""
        return OffsetAndMetadata(self.number + 1, metadata=f"{self.rows} {self.run}{_AGAIN * self.begun_before}")

    @classmethod
    def of(cls, row: OffsetAndMetadata) -> Marker:
        """Return the marker in a stored offset."""
        rows, _, run = row.metadata.removesuffix(_AGAIN).partition(" ")
        return cls(row.offset - 1, int(rows) if rows.isdigit() else -1, run, row.metadata.endswith(_AGAIN))


_AGAIN = " again"
"""Ends the text of a marker. No run's name has a blank."""


@dataclass(frozen=True, slots=True)
class EpochOutcome:
    """What one task did: rows, and whether another run of the query had written in this epoch already."""

    rows: int
    begun_before: bool = False


def write_epoch(
    epoch: Epoch, producer: Producer, send_all: Callable[[Producer], tuple[str, int]], count: Callable[[], int]
) -> EpochOutcome:
    """Write one partition of an epoch, unless a former try has.

    ``send_all`` hands over the rows and returns a topic of theirs and their number; ``count`` only counts them.
    Raises PlanChanged where the former try had other rows.
    """
    # Rule: the marker is read after init_transactions(). That fences the former try and waits for the end of its
    # transaction, so what is read here can no longer change.
    producer.init_transactions()
    markers = StoredMarkers(producer.config)
    try:
        mine = markers.settled(epoch.own)
        common = markers.committed(epoch.common)
    finally:
        markers.close()
    begun_before = common is not None and common.number == epoch.number and common.run != epoch.run
    if mine is not None and mine.number >= epoch.number:
        check_rows(epoch, mine, count())
        # Rule: what this run has written says itself that the epoch was begun before. By now the common marker is this
        # run's, and the task that saw the old one may have died before it told the driver.
        return EpochOutcome(mine.rows, begun_before or mine.begun_before)
    producer.begin_transaction()
    try:
        topic, rows = send_all(producer)
        marker = {TopicPartition(topic, 0): Marker(epoch.number, rows, epoch.run, begun_before).row()}
        producer.send_offsets_to_transaction(marker, epoch.own)
        producer.send_offsets_to_transaction(marker, epoch.common)
    except BaseException:
        with contextlib.suppress(KafkaError):  # the first error says more than that of a way back
            producer.abort_transaction()
        raise
    producer.commit_transaction()
    return EpochOutcome(rows, begun_before)


def check_rows(epoch: Epoch, mine: Marker, rows: int) -> None:
    """Refuse an epoch whose partition was written with other rows. Raises PlanChanged. Pure."""
    if mine.number > epoch.number:
        raise PlanChanged(
            f"Partition {epoch.partition} of this query has written epoch {mine.number} already, and epoch "
            f"{epoch.number} is to be written now: the checkpoint is older than what is in the topic. Restore the "
            "newer checkpoint, or start with a new one, which begins a new query."
        )
    if rows != mine.rows:
        # Fewer rows are refused, too: retention may have taken them, but a finer cut has moved them to a partition
        # without a marker, which would write them again.
        raise PlanChanged(
            f"Epoch {epoch.number} was begun before, and its partition {epoch.partition} had {mine.rows} rows, which "
            f"are in the topic; now it has {rows}. The batch is cut otherwise than before (minPartitions, "
            "maxRecordsPerPartition, shuffle partitions), or some of its records are no longer there, so it cannot be "
            "said which of its rows are written. The options that it had help only while no partition has written in "
            f"the new cut. If they do not, delete the consumer groups {epoch.common!r}, '{epoch.common}-0', "
            f"'{epoch.common}-1' and so on, and start the query again: it writes the whole epoch once more, and rows "
            "of it may be in the topic twice. Or start with a new checkpoint, which begins a new query."
        )


def check_plan(epoch: int, query: str, written: Collection[int], prefix: str, settings: ClientConfig) -> None:
    """Refuse an epoch that was begun with rows in other partitions. Raises PlanChanged.

    ``written``: the partitions with rows now. On the driver, for an epoch that a former run had begun. Needs DESCRIBE
    on groups.
    """
    common = f"{prefix}-{query}-"
    with Admin(**_of_client(settings)) as admin:
        numbers = [name[len(common) :] for name in admin.list_groups() if name.startswith(common)]
    others = [f"{common}{number}" for number in numbers if number.isdigit() and int(number) not in written]
    markers = StoredMarkers(settings)
    try:
        refuse_left_over(epoch, len(written), {name: markers.settled(name) for name in others})
    finally:
        markers.close()


def refuse_left_over(epoch: int, written: int, markers: Mapping[str, Marker | None]) -> None:
    """Refuse an epoch with markers of partitions without rows now. Raises PlanChanged. Pure."""
    found = {name: marker for name, marker in sorted(markers.items()) if marker is not None and marker.number == epoch}
    if found:
        names = ", ".join(map(repr, found))
        raise PlanChanged(
            f"Epoch {epoch} was begun before with rows in other partitions than the {written} that have some now: its "
            f"marker is in the consumer groups {names}, so {sum(marker.rows for marker in found.values())} of its rows "
            "may be in the topic twice. No option undoes that: the partitions of now are written, too. Delete these "
            "groups and start the query again as it is now: it goes on after this epoch. Or start with a new "
            "checkpoint, which begins a new query."
        )


class StoredMarkers:
    """The markers in a query's groups."""

    def __init__(self, settings: ClientConfig) -> None:
        self._client = KafkaClient(ClientConfig.of(_of_client(settings)), SystemClock())

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def settled(self, group: str) -> Marker | None:
        """Return a group's newest marker, once no open transaction can change it."""
        return self._newest(group, require_stable=True)

    def committed(self, group: str) -> Marker | None:
        """Return a group's newest marker, past all open transactions."""
        # Rule: wait for open transactions only in a partition's own group. All partitions write to the common one, so
        # a single open transaction would stop every task until its time is up; and that marker only advises.
        return self._newest(group, require_stable=False)

    def _newest(self, group: str, *, require_stable: bool) -> Marker | None:
        calls = GroupOffsetCalls(self._client, group)
        rows = self._client.wait_retrying(partial(calls.fetch, None, require_stable=require_stable), _STORED_S)
        return max(map(Marker.of, rows.values()), key=lambda marker: marker.number, default=None)


_STORED_S = 60.0
"""Seconds to find a group's coordinator and its offsets."""


def _of_client(settings: ClientConfig) -> dict[str, Any]:  # Any: as each setting's annotation says
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(ClientConfig)}
