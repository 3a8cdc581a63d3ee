"""KafkaBolt: each tuple becomes a record, and is acked when the record is acknowledged.

Everything here runs on the worker's loop and waits for nothing, but ``initialize`` and ``cleanup``, which are bounded.
The producer's thread only leaves a note (``_part_over``) and wakes the loop once for all notes that wait.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Unpack

from streamlet.base.errors import SettingError, StreamletError, text_of
from streamlet.base.notices import Notices
from streamlet.bolts.kafka.bolt_config import KafkaBoltConfig, override_names, topology_names, wrong_fields
from streamlet.bolts.kafka.errors import RecordsLeft, StaleTuple, outcome_is_unknown
from streamlet.bolts.kafka.letters import LetterTopics, records_of, refused
from streamlet.bolts.kafka.outbound import Delivery, Outbound, Wait
from streamlet.bolts.kafka.shared_producer import ProducerPlace
from streamlet.bolts.kafka.transactions import Transactions, is_records_own
from streamlet.components.batch import Batch
from streamlet.components.bolt import Bolt, KeptInTests
from streamlet.components.component import BoltPort
from streamlet.components.context import TopologyContext
from streamlet.components.epoch_tuples import EPOCHS, LETTERS
from streamlet.kafka.errors import KafkaError, copy_of
from streamlet.kafka.producer import FutureRecordMetadata
from streamlet.kafka.producer.append import check_record
from streamlet.kafka.producer.producer_config import ProducerOptions
from streamlet.kafka.producer.record_future import FailedRecords, call_when_over
from streamlet.model.delivery import is_exactly_once
from streamlet.model.spec import BOLT, ComponentSpec

START_S = 15.0
"""Seconds that a start waits for the partitions of its topic."""

CLOSE_S = 3.0
"""Seconds that a stop waits for records that are under way."""

TELL_WAIT_S = 2.0
"""Seconds of waiting for the producer after which the log says so."""

TELL_AGAIN_S = 60.0
"""Seconds before it says so again."""

MOST_TOPICS = 5
"""Topics that a line of the log names."""


class KafkaBolt(Bolt):
    """Writes tuples to Kafka. A tuple is acked when its record is acknowledged, and failed with the record's error.

    Use :meth:`spec` in a topology::

        out = KafkaBolt.spec(inputs=[count], hosts="kafka://kafka1:9092", topic="counts", key="word", value="count")
    """

    # Long: the runtime's calls, most of them short, over one Outbound. The pure parts are in `outbound`, `record_maker`
    # and `epochs`; the transactions are in `transactions`.

    auto_ack = False
    answers_for_held = True  # the producer's delivery_timeout_ms bounds it
    named_values = True
    commits_epochs = True
    timer_interval_s: ClassVar[float | None] = 0.1

    def __init__(self, bolt_config: KafkaBoltConfig) -> None:
        self.bolt_config = bolt_config
        self._maker = bolt_config.record_maker()
        self._place: ProducerPlace | None = None
        self._transactions: Transactions | None = None
        """With ``topology.delivery: exactly-once``."""
        self._with_transaction: list[Batch] = []
        """Batches that fail when the transaction is aborted."""
        self._letter_topics = LetterTopics()
        self._failures: list[Exception] = []
        """Why records of the transaction failed, as far as nobody was informed."""
        self._notes: deque[tuple[Delivery, Sequence[int], FailedRecords]] = deque()
        """Written by the producer's thread, taken by the loop."""
        self._woken = False
        self._waits_since: float | None = None
        self._told: Notices[str] = Notices(TELL_AGAIN_S)
        self._skipped = 0

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: object = None,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        outputs: object = None,
        *,
        hosts: Any = None,
        topic: Any = None,
        topic_field: str | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
        **settings: Unpack[ProducerOptions],
    ) -> ComponentSpec:
        """Return this bolt as a line of a topology. Raises SettingError.

        ``key``, ``value``, ``partition``, ``timestamp_ms`` and the values of ``headers``: the name of a field, or a
        function of the tuple. ``topic``: the topic's name, or a function. ``settings``: those of a Producer.
        """
        if outputs:
            raise SettingError(f"{cls.__name__}.spec: outputs is {outputs!r}, and this bolt emits nothing.")
        more: dict[str, Any] = dict(settings)
        own = KafkaBoltConfig(
            hosts,
            topic,
            topic_field,
            key,
            value,
            headers,
            partition,
            timestamp_ms,
            more.pop("key_serializer", None),
            more.pop("value_serializer", None),
            more,
        )
        tasks = cls.par if par is None else par
        merged = {**cls.config, **(config or {})}
        return ComponentSpec(cls, BOLT, name=name, inputs=inputs, par=tasks, config=merged, kwargs={"bolt_config": own})

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        return override_names()

    @classmethod
    def with_overrides(cls, kwargs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        config = kwargs["bolt_config"]
        return {**kwargs, "bolt_config": config.with_text(overrides) if overrides else config}

    @classmethod
    def topology_keys(cls) -> frozenset[str]:
        return topology_names()

    @classmethod
    def wiring_problems(
        cls, kwargs: Mapping[str, Any], sources: Iterable[tuple[str, Sequence[str]]]
    ) -> Iterable[tuple[str, str]]:
        yield from wrong_fields(kwargs["bolt_config"], [*sources])

    @classmethod
    def exactly_once_problems(cls, kwargs: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the settings that transactions cannot work with."""
        try:
            kwargs["bolt_config"].producer_config(transactional_id="any")
        except SettingError as error:
            yield f"topology.delivery is exactly-once. {error.message}", "Leave the setting out."

    @classmethod
    def at_least_once_problems(cls, kwargs: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the setting that needs transactions."""
        if kwargs["bolt_config"].settings.get("transactional_id") is not None:
            yield (
                "transactional_id is given, and topology.delivery is not exactly-once: records belong to no "
                "transaction.",
                "Leave it out, or set topology.delivery.",
            )

    @classmethod
    def kept_in_tests(cls, kwargs: Mapping[str, Any], component: str) -> KeptInTests:
        """Return what makes the records of a batch, as ``MadeRecord``."""
        config = kwargs["bolt_config"]
        maker, producers = config.record_maker(), config.producer_config()

        def kept(batch: Batch) -> tuple[list[Any], Mapping[int, Exception]]:
            made, written = maker.make(batch), []
            # Rule: a test asks the producer's own checks of a record. Without them it keeps one that no run would
            # write, and its tuple is acked here and fails there.
            for at, record in made.placed():
                topic, key, value, headers, partition, timestamp_ms = record
                try:
                    check_record(producers, topic, key, value, headers, partition, timestamp_ms)
                    written.append(record)
                except (StreamletError, ValueError) as error:
                    made.failed[at] = error
            return written, made.failed

        return kept

    # -- life -----------------------------------------------------------------------------------------------

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        self._hand_over = port.hand_over
        self._complain = port.complain
        self._fail_told = port.fail_told
        self._rest = port.rest

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Connect, and learn the topic's partitions."""
        config = self.bolt_config
        self._now = context.clock.monotonic
        name = None
        if is_exactly_once(conf):
            # Rule: the same in every run, so that a new run fences what is left of the one before.
            name = f"{context.topology_name}.{context.component_name}"
            self.exit_on_exception = True  # type: ignore[misc]  # of this task: a tuple without a root ends the run
        else:
            for problem, remedy in self.at_least_once_problems({"bolt_config": config}):
                raise SettingError(f"KafkaBolt: {problem} {remedy}")
        place = ProducerPlace(config.producer_config(name), config.producer_settings(name), context.topology_id)
        shared = place.take()
        self._place = place
        # A transaction's tuples are settled together.
        some_over = self._settle_some if name is None else None
        self._out = Outbound(lambda: place.producer, shared.max_block_s, self._watch, self._settle, some_over)
        if name is not None:
            self._transactions = Transactions(
                context.component_name,
                config.where,
                context.clock,
                place,
                _let_go(self._wake),
                self._write,
                self._drop,
                self.ack,
                self.fail,
            )
        if isinstance(config.topic, str):
            # All tasks wait for the same: the first one speaks for them.
            say = partial(self.logger.log, logging.DEBUG if context.task_index else logging.INFO, "%s")
            shared.await_topic(config.topic, START_S, context.component_name, say)

    def cleanup(self) -> None:
        """Wait, for a bounded time, for records under way; leave the producer."""
        # The drain has waited for tracked tuples. The rest is untracked, or the drain was cut short.
        place, transactions = self._place, self._transactions
        if place is None:
            return
        deadline = time.monotonic() + CLOSE_S
        while (self._out.open or (transactions is not None and transactions.busy)) and time.monotonic() < deadline:
            self._go_on()
            time.sleep(0.002)
        left, untracked = len(self._out.open), self._out.untracked
        self._report()
        self._place = None
        place.leave(max(deadline - time.monotonic(), 0.1))
        said = f"{left} batches of tuples are under way to {self.bolt_config.where}, {CLOSE_S:g} s after the drain"
        if untracked:
            raise RecordsLeft(
                f"{said}. {untracked} of these tuples are not tracked: their records may not be written, and nobody "
                "sends them again. See whether the brokers run; with tracking a spout reads such tuples again."
            )
        if left:
            self.log(f"{said}: their records may or may not be written, and the next run reads them again.", "warning")

    # -- tuples ---------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        """Give the records of a batch to the producer."""
        if self._transactions is None:
            self._write(batch)
        elif batch.stream == EPOCHS:
            self._transactions.told(batch)
        else:
            self._transactions.take(batch)

    def _write(self, batch: Batch, stale: Sequence[int] = ()) -> None:
        if batch.stream == LETTERS:
            made = records_of(batch)
            self._letter_topics.wait(batch, self._now())
        else:
            made = self._maker.make(batch)
        made.failed.update((at, StaleTuple("Its attempt is over.")) for at in stale)
        self._skipped += made.skipped
        self._out.add(batch, made, self._now())
        self._tell_failures()
        self._weigh()

    def _drop(self) -> None:
        """Fail all tuples under way: their transaction is aborted."""
        for batch in [*self._with_transaction, *(delivery.batch for delivery in self._out.drop())]:
            self.fail(batch)
        self._with_transaction.clear()
        self._failures.clear()
        self._weigh()

    def on_timer(self) -> None:
        """Offer waiting records again, settle those that are over, report the metrics."""
        self._go_on()
        self._report()
        if self._transactions is not None:
            self._transactions.raise_refusal()
            if self._place is not None and self._transactions.has_session:
                producer = self._place.producer
                self._letter_topics.check(self._now(), producer.partitions_for, producer.connections)

    def _report(self) -> None:
        self.report_metric("records_waiting", self._out.waiting_records)
        self.report_metric("records_under_way", self._out.under_way)
        self.report_metric("tuples_skipped", self._skipped)
        if self._transactions is not None:
            self.report_metric("transactions_committed", self._transactions.epochs.committed)
            self.report_metric("transactions_aborted", self._transactions.epochs.aborted)

    def _go_on(self) -> None:
        # Before the notes are taken: one that comes from here on wakes the loop again.
        self._woken = False
        while self._notes:
            self._out.part_over(*self._notes.popleft())
        if self._transactions is not None:
            self._transactions.poll()
        if self._out.waiting:
            self._out.offer(self._now())
        self._tell_failures()
        self._weigh()

    def _weigh(self) -> None:
        """Take tuples only while the producer takes records; say so when it takes none for long."""
        wait = self._out.wait
        self._rest(self._out.wants_no_more)
        if wait is None:
            if self._waits_since is not None and "wait" in self._told:
                self._told.take_left_out()
                self.log(f"goes on writing to {self.bolt_config.where}", "info")
            self._waits_since = None
            return
        now = self._now()
        self._waits_since = self._waits_since or now
        if now - self._waits_since >= TELL_WAIT_S and self._told.due("wait", now) is not None:
            self._tell_wait(wait)

    def _tell_wait(self, wait: Wait) -> None:
        assert self._place is not None
        memory = self._place.producer.config.buffer_memory >> 20
        where, see = self.bolt_config.where, "the brokers run"
        why = f"buffer_memory ({memory} MiB) is full of records that no broker has acknowledged"
        if wait is Wait.TOPIC:
            # Rule: by its own name. Of a topic that is named by a field, a warning said nothing by which to find it.
            names = sorted({lot.topic for lot in self._out.waiting})
            where = f"topic {', '.join(map(repr, names[:MOST_TOPICS]))}"
            where += f" and {len(names) - MOST_TOPICS} more" if len(names) > MOST_TOPICS else ""
            why = f"the brokers do not say which partitions {'it has' if len(names) == 1 else 'they have'}"
            see = "there is such a topic, and whether the brokers run"
        self.log(
            f"waits with records for {where}: {why}. Nothing is lost, and spouts pause when its queue is full. See "
            f"whether {see}.",
            "warning",
        )

    # -- what came of them ----------------------------------------------------------------------------------

    def _watch(self, futures: Sequence[FutureRecordMetadata], delivery: Delivery, places: Sequence[int]) -> None:
        call_when_over(futures, partial(self._part_over, delivery, places))

    def _part_over(self, delivery: Delivery, places: Sequence[int], failed: FailedRecords) -> None:
        """Note that records are over, and wake the loop. The producer's thread."""
        # One call is handed over for all notes that wait: a deque needs no lock, and the loop takes the flag back
        # before it looks.
        self._notes.append((delivery, places, failed))
        self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            with contextlib.suppress(ValueError):  # BadEmit: the run ends, and cleanup looks by itself
                self._hand_over(self._go_on)

    def _settle(self, delivery: Delivery) -> None:
        """Ack the tuples of a delivery, but fail those whose records failed."""
        batch = delivery.batch
        if delivery.dropped:
            return
        kept = False
        if batch.stream == LETTERS and not delivery.failed:
            self._letter_topics.written(batch)
        for at in sorted(delivery.failed):
            error, tup = delivery.failed[at], batch.tuples[at]
            if self._transactions is not None and not isinstance(error, StaleTuple):
                if batch.stream == LETTERS and is_records_own(error):
                    self._transactions.refuse(refused(tup.values, error))
                    kept = True
                    continue
                self._failures.append(error)
                # Rule: what fails with the transaction fails when that is aborted. Before, its spout would take the
                # failure for the record's own.
                if not is_records_own(error):
                    kept = True
                    continue
            self._fail_told(tup, error)
            if not isinstance(error, StaleTuple):
                self._complain(self._told_of(error, tup.root != 0), tup)
        if kept:
            self._with_transaction.append(batch)
        else:
            self.ack(batch)

    def _settle_some(self, delivery: Delivery, places: Sequence[int]) -> None:
        """Ack the tuples of written records; fail those of failed ones."""
        for at in places:
            tup, error = delivery.batch.tuples[at], delivery.failed.pop(at, None)
            if error is None:
                self.ack(tup)
            else:
                self._fail_told(tup, error)
                self._complain(self._told_of(error, tup.root != 0), tup)

    def _tell_failures(self) -> None:
        """Say why the transaction failed, once that is known."""
        # Not in `_settle`, which Outbound calls in the middle of an offer: what ends a transaction drops its lots. And
        # a record's own error is looked for until all are over: the others of the transaction may fail before it.
        own = next(filter(is_records_own, self._failures), None)
        if self._failures and (own is not None or not self._out.under_way):
            why, self._failures = own or self._failures[0], []
            assert self._transactions is not None
            self._transactions.record_failed(why)

    def _told_of(self, error: Exception, tracked: bool) -> Exception:
        """Return a record's own error as a paragraph about its tuple."""
        said = text_of(error)
        if outcome_is_unknown(error):
            said += " Whether the record was written is not known: sent again, it may be there twice."
        then = (
            "Its tuple has failed, and its spout was informed."
            if tracked
            else "Its tuple is not tracked, so nobody sends it again."
        )
        text = f"{self.component_name} could not write a record to {self.bolt_config.where}: {said} {then}"
        told: Exception = copy_of(error) if isinstance(error, KafkaError) else RecordFailed(text)
        if isinstance(told, StreamletError):
            told.message = text
        told.args = (text,)
        return told


def _let_go(wake: Callable[[], None]) -> Callable[[], None]:
    """Return a call of a method that does not keep its object."""
    # Rule: a producer's thread keeps no bolt. One that its worker has dropped would keep the producer in turn, with its
    # transaction open: readers wait for it, and so does the end of the process.
    kept = weakref.WeakMethod(wake)

    def called() -> None:
        found = kept()
        if found is not None:
            found()

    return called


class RecordFailed(StreamletError):
    """A record was not written, by no error of Kafka's."""
