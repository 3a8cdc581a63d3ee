"""Dead letters that a KafkaBolt writes for the spouts, in the transaction that passes over their records.

With ``topology.delivery: exactly-once``. Each comes as a tuple, and is written, acked and aborted like any other, but
for one thing: a letter that the brokers will never take ends the run. Its record was given up already, and passing over
it without a letter would lose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Any

from streamlet.base.errors import text_of
from streamlet.bolts.kafka.errors import LetterRefused, LetterTopicGone
from streamlet.bolts.kafka.record_maker import Records
from streamlet.components.batch import Batch
from streamlet.components.epoch_tuples import LetterRow
from streamlet.kafka.broker_errors import InvalidRecord, UnknownTopicOrPartition
from streamlet.kafka.errors import KafkaError

GONE_S = 10.0
"""Seconds that letters wait for a topic which the brokers do not know, before the run ends."""

OFFERED_S = 300.0
"""Seconds after which letters that were not offered again are under way no more: an aborted one comes again soon."""


def records_of(batch: Batch) -> Records:
    """Return the records of a batch of letters: as they are, by no setting of the bolt's."""
    rows = [LetterRow(*row) for row in batch.rows]
    return Records(
        len(rows),
        [row.topic for row in rows],
        [row.value for row in rows],
        [row.key for row in rows],
        [[(name, value) for name, value in row.headers] for row in rows],
    )


def refused(values: Iterable[Any], error: Exception) -> LetterRefused:
    """Return the error of a letter that is refused for good."""
    row = LetterRow(*values)
    return LetterRefused(row.record, row.topic, text_of(error), is_invalid=isinstance(error, InvalidRecord))


class LetterTopics:
    """The topics that letters wait for, and since when. Times in seconds."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._offered_s: dict[str, float] = {}
        """When letters for it were last given to the producer."""

    def wait(self, batch: Batch, now_s: float) -> None:
        """Note that letters are under way."""
        for topic in dict.fromkeys(row[0] for row in batch.rows):
            self._since_s.setdefault(topic, now_s)
            self._offered_s[topic] = now_s

    def written(self, batch: Batch) -> None:
        """Note that letters are written."""
        for topic in dict.fromkeys(row[0] for row in batch.rows):
            self._since_s.pop(topic, None)

    def check(self, now_s: float, ask: Callable[[str], Sized], connections: Callable[[], str]) -> None:
        """Raise LetterTopicGone for a topic that the brokers do not know.

        ``ask`` returns its partitions, none of one that is gone by now, or raises what it knows of it.
        """
        # An abort does not end the wait, and each attempt comes here again: without this it would go on for ever.
        for topic, since_s in [*self._since_s.items()]:
            if now_s - since_s < GONE_S:
                continue
            # Rule: letters that were not offered again are not waited for. The attempt after an abort may have none.
            if now_s - self._offered_s[topic] >= OFFERED_S:
                del self._since_s[topic]
                continue
            gone: Exception | None = None
            try:
                known = len(ask(topic))
            except UnknownTopicOrPartition as error:
                known, gone = 0, error
            except KafkaError:
                continue  # the brokers do not answer: that passes
            if not known:
                raise LetterTopicGone(topic, now_s - since_s, connections()) from gone
            self._since_s[topic] = now_s
            return
