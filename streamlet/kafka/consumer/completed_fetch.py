"""One partition's part of a fetch answer, handed out batch by batch (Java: ``CompletedFetch``). Pure.

How many records it holds at most, and where the partition is read on after all of it, is read off the batch headers
before anything is unpacked: so the next fetch can be under way while this one is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamlet.kafka.client.leader_requests import FetchedPartition
from streamlet.kafka.consumer.records import Chunk
from streamlet.kafka.fetch.header_scan import scan_headers
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.records.batch import RecordBatch


class CompletedFetch:
    """Records of one partition that wait to be handed out. ``next_offset``: of the first not yet handed out."""

    __slots__ = (
        "_batch",
        "_batches",
        "_index",
        "end_epoch",
        "end_offset",
        "exhausted",
        "fetched",
        "next_epoch",
        "next_offset",
        "node",
        "records_at_most",
    )

    def __init__(self, fetched: FetchedPartition, epoch: int, node: int) -> None:
        """``epoch``: the leader epoch of the record before the position; ``node``: the broker it came from."""
        self.node = node
        self.fetched = fetched
        self.next_offset = fetched.position
        self.next_epoch = epoch
        self.exhausted = False
        self._batches: Iterator[RecordBatch] | None = None
        self._batch: RecordBatch | None = None
        self._index = 0
        scan = scan_headers(fetched.records, fetched.position, epoch)
        self.records_at_most, self.end_offset, self.end_epoch = (
            scan.records_at_most,
            scan.next_offset,
            scan.leader_epoch,
        )

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose records."""
        return self.fetched.topic_partition

    def take(self, limit: int) -> list[Chunk]:
        """At most ``limit`` records, and ``next_offset`` moves behind them.

        Raises what is wrong with the next batch (CorruptRecord and kin); what was taken before stays taken, and
        ``next_offset`` stays at the bad batch.
        """
        chunks: list[Chunk] = []
        left = limit
        while left > 0 and not self.exhausted:
            batch = self._batch
            if batch is None:
                try:
                    batch = self._next_batch()
                except Exception:
                    if chunks:
                        return chunks  # the error comes again with the next call, when nothing stands before it
                    raise
                if batch is None:
                    break
            start = self._index
            stop = min(start + left, len(batch))
            if stop > start:
                chunks.append(Chunk(self.topic_partition, batch, start, stop))
                left -= stop - start
            self.next_epoch = batch.leader_epoch
            if stop == len(batch):
                self._batch = None
                self.next_offset = max(self.next_offset, batch.next_offset)  # never back before the position
            else:
                self._index = stop
                self.next_offset = batch.base_offset + batch.offset_deltas[stop]
        return chunks

    def _next_batch(self) -> RecordBatch | None:
        if self._batches is None:
            self._batches = self.fetched.batches()
        try:
            batch = next(self._batches, None)
        except Exception:
            # A generator that raised is over: begin again where we are, so that the error is told again.
            self._batches = iter(_again(self.fetched, self.next_offset))
            raise
        if batch is None:
            self.exhausted = True
            return None
        self._batch, self._index = batch, 0
        return batch


def _again(fetched: FetchedPartition, offset: int) -> Iterator[RecordBatch]:
    for batch in fetched.batches():
        if batch.next_offset > offset:
            yield batch
