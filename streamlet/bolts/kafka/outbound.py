"""Batches of a KafkaBolt under way, until each record is written or has failed. Pure.

A batch becomes a *delivery*, its records one *lot* for each topic (and partition, where tuples name one). A lot is
offered to the producer, which never waits: it takes records until its memory is full, or refuses a topic that it does
not know yet. Those that it refuses stay here and are offered again. A delivery is over when all its records are. One
with a lot whose topic is not known is *parted*: its other tuples are settled as their records are over.

All of it runs on the worker's loop. Time is given in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from streamlet.bolts.kafka.errors import RecordNotTaken
from streamlet.bolts.kafka.record_maker import Records
from streamlet.components.batch import Batch
from streamlet.components.tuples import OPEN
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer import FutureRecordMetadata
from streamlet.kafka.producer.errors import BufferExhausted

MOST_WAITING = 10_000
"""Records that wait for a topic, above which the bolt takes no more tuples."""

OFFER_AGAIN_S = 0.1
"""Seconds until a lot whose topic is not known is offered again."""


class Takes(Protocol):
    """The two calls of a producer that records go through."""

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata: ...

    def offer(
        self, topic: str, values: Sequence[Any], keys: Sequence[Any] | None = None
    ) -> tuple[Sequence[FutureRecordMetadata], Exception | None]: ...


@dataclass(slots=True, eq=False)
class Delivery:
    """One batch of tuples under way."""

    batch: Batch
    records: Records
    open: int = 0
    """Lots that were not taken whole, and parts of them that were taken and are not over."""
    failed: dict[int, Exception] = field(default_factory=dict)
    """Place in the batch -> why its record was not written."""
    finished: list[Sequence[int]] = field(default_factory=list)
    """Places whose records are over, part by part, while they wait for the others."""
    parted: bool = False
    """Whether its tuples are settled each with its own record."""
    dropped: bool = False
    """Its transaction was aborted, and its tuples have failed."""


@dataclass(slots=True, eq=False)
class Lot:
    """Records of one delivery for one place, in order; ``at`` is the next one.

    The place is a topic, or a partition of it that the tuples name.
    """

    delivery: Delivery
    topic: str
    partition: int | None
    places: Sequence[int]
    at: int = 0
    waits_since: float | None = None
    offer_after: float = 0.0

    @property
    def left(self) -> int:
        """The records that were not taken."""
        return len(self.places) - self.at

    def send(self, producer: Takes) -> tuple[Sequence[FutureRecordMetadata], Exception | None]:
        """Offer the rest; return the futures of those taken, and the error of the first that was not."""
        records = self.delivery.records
        places = self.places[self.at :]
        one_by_one: list[FutureRecordMetadata] = []
        try:
            if records.is_plain:
                whole = len(places) == records.count
                values = records.values if whole else [records.values[at] for at in places]
                keys = records.keys if whole or records.keys is None else [records.keys[at] for at in places]
                return producer.offer(self.topic, values, keys)
            # Extended one by one: what was taken before an error stands in the list.
            one_by_one.extend(self._send_one(producer, records, at) for at in places)
        except Exception as error:  # noqa: BLE001 - also a partitioner of the user's
            return one_by_one, error
        return one_by_one, None

    def _send_one(self, producer: Takes, records: Records, at: int) -> FutureRecordMetadata:
        return producer.send(
            self.topic,
            records.values[at],
            None if records.keys is None else records.keys[at],
            None if records.headers is None else records.headers[at],
            self.partition,
            None if records.timestamps is None else records.timestamps[at],
        )


class Wait(Enum):
    """Why a lot was not taken whole."""

    MEMORY = "buffer_memory is full"
    TOPIC = "its topic or partition is not known"


@dataclass(slots=True, eq=False)
class Outbound:
    """The deliveries of one task.

    ``watch`` sees to it that ``part_over`` is called once records that were taken are over.
    """

    producer: Callable[[], Takes]
    """Returns the producer at hand: one that was lost is made again."""
    max_block_s: float
    watch: Callable[[Sequence[FutureRecordMetadata], Delivery, Sequence[int]], None]
    over: Callable[[Delivery], None]
    """Called with each delivery whose records are all written or failed."""
    some_over: Callable[[Delivery, Sequence[int]], None] | None = None
    """Called with places of a parted delivery whose records are written or failed; None: none is parted."""
    waiting: deque[Lot] = field(default_factory=deque)
    """Lots that were not taken whole, oldest first."""
    waiting_records: int = 0
    open: dict[Delivery, None] = field(default_factory=dict)
    """The deliveries that are not over."""
    under_way: int = 0
    """Records that were taken and are not over."""
    wait: Wait | None = None
    """Why the oldest lot waits."""

    @property
    def wants_no_more(self) -> bool:
        """Whether further tuples should wait in the bolt's queue."""
        return self.wait is Wait.MEMORY or self.waiting_records > MOST_WAITING

    @property
    def untracked(self) -> int:
        """The number of tuples under way that no spout sends again."""
        return sum(
            sum(tup.root == 0 and tup.state == OPEN for tup in delivery.batch.tuples)
            if delivery.parted
            else delivery.batch.roots.count(0)
            for delivery in self.open
        )

    def add(self, batch: Batch, records: Records, now: float) -> None:
        """Take in a batch, and offer its records."""
        delivery = Delivery(batch, records, open=1, failed=records.failed)
        self.open[delivery] = None
        for topic, partition, places in records.shares():
            lot = Lot(delivery, topic, partition, places)
            delivery.open += 1
            self.waiting.append(lot)
            self.waiting_records += len(places)
        self._done(delivery)
        self.offer(now)

    def offer(self, now: float) -> None:
        """Offer what waits, oldest first."""
        # Rule: records of one topic keep their order, so a lot waits behind an older one of the same place; where the
        # producer's memory is full everything waits, or small records would pass large ones for ever.
        later: deque[Lot] = deque()
        behind: set[tuple[str, int | None]] = set()
        self.wait = None
        while self.waiting:
            lot = self.waiting.popleft()
            place = lot.topic, lot.partition
            if place in behind or lot.offer_after > now:
                # Rule: a lot's time counts from when it was first held up, also behind an older one. Counted from its
                # own first offer, the lots of a topic that is not there would be over one after the other.
                lot.waits_since = now if lot.waits_since is None else lot.waits_since
                self.wait = self.wait or Wait.TOPIC
                behind.add(place)
                later.append(lot)
                self._part(lot.delivery)
                continue
            wait = self._offer(lot, now)
            if wait is Wait.MEMORY:
                self.wait = wait
                later.append(lot)
                break
            if wait is Wait.TOPIC:
                self.wait = self.wait or wait
                behind.add(place)
                later.append(lot)
                self._part(lot.delivery)
        later.extend(self.waiting)
        self.waiting = later

    def drop(self) -> list[Delivery]:
        """Offer nothing of the present deliveries any more; return them, each once."""
        # Rule: records that the producer did not take are not offered again: they would go into the next transaction.
        # Those that it took stay open until it says that they are over.
        waiting, self.waiting = self.waiting, deque()
        self.waiting_records, self.wait = 0, None
        dropped = [delivery for delivery in self.open if not delivery.dropped]
        for delivery in dropped:
            delivery.dropped = True
        for lot in waiting:
            self._done(lot.delivery)
        return dropped

    def part_over(self, delivery: Delivery, places: Sequence[int], failed: Sequence[tuple[int, KafkaError]]) -> None:
        """Note that records which the producer had taken are over."""
        self.under_way -= len(places)
        for at, error in failed:
            delivery.failed[places[at]] = error
        if delivery.parted and self.some_over is not None:
            self.some_over(delivery, places)
        else:
            delivery.finished.append(places)
        self._done(delivery)

    def _part(self, delivery: Delivery) -> None:
        """Have the tuples of a delivery settled each with its own record."""
        # Rule: a topic that is not known holds up no tuple but its own. A batch is taken as it waited, and one bad
        # record in it would keep all others open: soon as many as a spout may have.
        if delivery.parted or self.some_over is None:
            return
        delivery.parted = True
        for places in delivery.finished:
            self.some_over(delivery, places)
        delivery.finished.clear()
        # Tuples without a record are in no lot: nothing else would settle them before the last one is over.
        left_out = delivery.records.left_out()
        if left_out:
            self.some_over(delivery, left_out)

    def _done(self, delivery: Delivery) -> None:
        delivery.open -= 1
        if not delivery.open:
            del self.open[delivery]
            self.over(delivery)

    def _offer(self, lot: Lot, now: float) -> Wait | None:
        """Offer a lot; return why it waits, None when it was taken whole."""
        while lot.left:
            error = self._send(lot)
            if error is None:
                break
            if isinstance(error, BufferExhausted):
                return Wait.MEMORY
            if isinstance(error, KafkaError) and error.retriable:
                if lot.waits_since is None:
                    lot.waits_since = now
                if now - lot.waits_since < self.max_block_s:
                    lot.offer_after = now + OFFER_AGAIN_S
                    return Wait.TOPIC
                self._give_up(lot, error)
                break
            # The first one that was not taken is at fault; those behind it go on without it.
            self._fail(lot, error)
        self._done(lot.delivery)
        return None

    def _send(self, lot: Lot) -> Exception | None:
        taken, found = lot.send(self.producer())
        if taken:
            places = lot.places[lot.at : lot.at + len(taken)]
            lot.at += len(taken)
            lot.waits_since = None
            self.waiting_records -= len(taken)
            self.under_way += len(taken)
            lot.delivery.open += 1
            self.watch(taken, lot.delivery, places)
        return found

    def _fail(self, lot: Lot, error: Exception) -> None:
        delivery, place = lot.delivery, lot.places[lot.at]
        delivery.failed[place] = error
        lot.at += 1
        self.waiting_records -= 1
        if delivery.parted and self.some_over is not None:
            self.some_over(delivery, [place])

    def _give_up(self, lot: Lot, error: KafkaError) -> None:
        to = f"topic {lot.topic!r}" if lot.partition is None else f"partition {lot.partition} of topic {lot.topic!r}"
        told = RecordNotTaken(
            f"A record found no way to {to} for {self.max_block_s:g} s (max_block_ms). {error.message}"
        )
        while lot.left:
            self._fail(lot, told)
