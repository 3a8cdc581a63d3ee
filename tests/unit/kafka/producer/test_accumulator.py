"""The accumulator and the life of its batches: rules one by one, and a machine that does everything in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import MessageTooLarge, NotLeaderOrFollower
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import Broker, Cluster, PartitionInfo, TopicInfo, TopicPartition
from streamlet.kafka.producer.accumulator import AccumulatorSettings, BufferPool, PartitionQueue, RecordAccumulator
from streamlet.kafka.producer.batch_ledger import BatchLedger, Outcome, RetryLimits
from streamlet.kafka.producer.errors import OutcomeUnknown
from streamlet.kafka.producer.producer_batch import BatchState, ProducerBatch, Sequences
from streamlet.kafka.producer.record_future import FutureRecordMetadata, run_callbacks
from streamlet.kafka.records.appending import encode_record

LIMITS = RetryLimits(1 << 31, 10.0)
PARTITIONS = 3
MEMORY = 4000
BATCH = 200


def cluster(leaders: dict[int, int] | None = None, epoch: int = 0) -> Cluster:
    chosen = leaders or {number: 1 + number % 2 for number in range(PARTITIONS)}
    rows = {number: PartitionInfo("t", number, leader, epoch) for number, leader in chosen.items()}
    return Cluster.of([Broker(1, "h", 1), Broker(2, "h", 2)], [TopicInfo("t", None, rows)])


def accumulator(sequences: Sequences | None = None, linger_s: float = 0.0, **changes: int) -> RecordAccumulator:
    chosen = AccumulatorSettings(BATCH, linger_s, 10.0, Backoff(0.1, 1.0), **changes)  # type: ignore[arg-type]
    return RecordAccumulator(chosen, BufferPool(MEMORY), sequences, lambda: 0.5)


def append(made: RecordAccumulator, partition: int, value: bytes, now: float) -> FutureRecordMetadata | None:
    """What the appender does, without waiting; None when there is no memory."""
    queue = made.queue(TopicPartition("t", partition))
    need = len(value) + 40
    batch = queue.open
    if batch is None or not (batch.size + need <= batch.room or made.grow(batch, need)):
        size = made.first_size(need)
        if not made.pool.try_take(size):
            return None
        batch = made.open_batch(queue, size, 0, now)
    part = encode_record(None, value, (), 0, len(batch.parts))
    return FutureRecordMetadata(batch, batch.append(part, 0), 0)


def flying(*batches: ProducerBatch) -> BatchLedger:
    """A ledger with these in flight, as they were sent."""
    made = BatchLedger(accumulator(), LIMITS)
    for batch in batches:
        batch.move(BatchState.IN_FLIGHT)
        made.on_wire[batch] = None
    return made


def ready_nodes(made: RecordAccumulator, now: float, seen: Cluster | None = None) -> dict[int, list[int]]:
    found = made.ready(seen or cluster(), now).nodes
    return {node: sorted(queue.topic_partition.partition for queue in queues) for node, queues in found.items()}


def test_p6_ready_groups_by_leader_and_drains_one_batch_a_partition() -> None:
    """One request a broker."""
    made = accumulator()
    for partition in range(PARTITIONS):
        append(made, partition, b"x", 0.0)
    assert ready_nodes(made, 0.0) == {1: [0, 2], 2: [1]}
    queues = made.ready(cluster(), 0.0).nodes[1]
    assert sorted(batch.topic_partition.partition for batch in made.drain(queues, cluster())) == [0, 2]
    assert ready_nodes(made, 0.0) == {2: [1]}


def test_a_batch_waits_for_linger_unless_it_is_full_or_somebody_hurries() -> None:
    """next_check says when; full, flushing, closing and a full pool end the wait."""
    made = accumulator(linger_s=1.0)
    append(made, 0, b"x", 0.0)
    found = made.ready(cluster(), 0.4)
    assert not found.nodes and found.next_check_s == 0.6
    assert ready_nodes(made, 1.0) == {1: [0]}
    assert made.ready(cluster(), 0.4, hurry=True).nodes
    made.flushes = 1
    assert ready_nodes(made, 0.4) == {1: [0]}
    made.flushes = 0
    append(made, 0, b"x" * BATCH, 0.4)
    assert ready_nodes(made, 0.4) == {1: [0]}


def test_what_stands_behind_a_full_batch_lingers_like_any_other() -> None:
    """A second request of the same turn takes it along only where one of the broker's partitions is due."""
    made = accumulator(linger_s=1.0)
    append(made, 0, b"x" * BATCH, 0.0)
    made.queue(TopicPartition("t", 0)).open = None
    append(made, 0, b"just begun", 0.2)
    found = made.ready(cluster(), 0.4)
    queues = found.nodes[1]
    assert len(made.drain(queues, cluster())) == 1
    assert made.still_due(found, queues, cluster(), 0.4) == [] and round(found.next_check_s, 6) == 0.8
    append(made, 2, b"x" * BATCH, 0.4)
    made.queue(TopicPartition("t", 2)).open = None
    both = [*queues, made.queue(TopicPartition("t", 2))]
    assert made.still_due(found, both, cluster(), 0.4) == both, "it comes along"
    assert made.still_due(made.ready(cluster(), 0.4, hurry=True), queues, cluster(), 0.4) == queues


def test_what_stands_behind_a_batch_that_was_sent_again_waits_out_its_own_back_off() -> None:
    made = accumulator()
    queues = [made.queue(TopicPartition("t", 0))]
    first = append(made, 0, b"x", 0.0)
    queues[0].open = None
    second = append(made, 0, b"y", 0.0)
    for _ in range(2):
        made.drain(queues, cluster())
    assert first is not None and second is not None
    for sent, when in ((first, 0.0), (second, 5.0)):
        sent._batch.answered()
        made.reenqueue(sent._batch, when)
    found = made.ready(cluster(), 5.0)
    assert made.drain(found.nodes[1], cluster()) == [first._batch]
    assert made.still_due(found, queues, cluster(), 5.0) == [] and found.next_check_s > 0


def test_batches_grow_while_the_sender_is_busy_and_no_further_than_allowed() -> None:
    """batch_size makes a batch due; it takes more until it is drained, up to growth times as much."""
    made = accumulator(growth=4)
    while (future := append(made, 0, b"x" * 50, 0.0)) is not None and len(
        made.queue(TopicPartition("t", 0)).batches
    ) == 1:
        last = future
    assert 3 * BATCH < last._batch.size <= 4 * BATCH
    assert last._batch.memory >= last._batch.size


def test_e1_queued_batches_expire_by_their_age_head_first() -> None:
    """delivery_timeout after they were begun; appends to them end; the next expiry is known."""
    made = accumulator()
    first, second = append(made, 0, b"x", 0.0), append(made, 1, b"y", 4.0)
    assert first is not None and second is not None
    assert made.next_expiry_s(4.0) == 6.0
    assert made.expired(9.9) == []
    assert made.expired(10.0) == [first._batch]
    assert made.queue(TopicPartition("t", 0)).open is None
    assert made.next_expiry_s(10.0) == 4.0


def test_e1_only_the_head_of_a_queue_is_looked_at() -> None:
    """It is the oldest by rule, so that a turn costs a look at each queue, however long; put out of order by hand."""
    made = accumulator()
    queue = made.queue(TopicPartition("t", 0))
    for created in (5.0, 0.0, 20.0):
        append(made, 0, b"x", created)
        queue.open = None
    young, old, _last = queue.batches
    assert made.expired(10.0) == [] and made.next_expiry_s(10.0) == 5.0
    assert made.expired(15.0) == [young, old], "the head goes, and what stands behind it is the head"
    assert len(queue.batches) == 1


def test_e2_batches_in_flight_expire_by_the_same_clock() -> None:
    """They stay until their answer, GIVEN_UP; one there that is over and not on the wire is a mistake of ours."""
    batch = ProducerBatch(TopicPartition("t", 0), 0, 1.0)
    ledger = flying(batch)
    assert ledger.expire(cluster(), 1.0) == 10.0 and ledger.expire(cluster(), 10.9) > 0 and ledger.ended == []
    assert ledger.expire(cluster(), 11.0) == float("inf") and ledger.ended == [batch]
    assert batch.state is BatchState.GIVEN_UP and isinstance(batch.error, OutcomeUnknown)
    assert list(ledger.on_wire) == [batch] and ledger.expire(cluster(), 12.0) == float("inf")
    assert ledger.ended == [batch], "once"
    other = ProducerBatch(TopicPartition("t", 0), 0, 1.0)
    ledger = flying(other)
    other.answered()
    other.fail(KafkaError("x"))
    try:
        ledger.expire(cluster(), 20.0)
    except RuntimeError as err:
        assert "in flight and over" in str(err)
    else:
        raise AssertionError


def test_p4_a_retry_waits_for_its_back_off_unless_the_leader_is_new() -> None:
    """100 ms, more each time; a newer leader epoch ends the wait (KIP-951)."""
    made = accumulator()
    append(made, 0, b"x", 0.0)
    (batch,) = made.drain(made.ready(cluster(), 0.0).nodes[1], cluster())
    batch.answered()
    made.reenqueue(batch, 1.0)
    assert batch.attempts == 1
    found = made.ready(cluster(), 1.0)
    assert not found.nodes and abs(found.next_check_s - 0.1) < 1e-9
    assert ready_nodes(made, 1.0, cluster(epoch=1)) == {1: [0]}
    assert ready_nodes(made, 1.1) == {1: [0]}


def test_p4_batches_without_sequences_come_back_in_the_order_they_went() -> None:
    """A broken connection fails several at once."""
    made = accumulator()
    queue = made.queue(TopicPartition("t", 0))
    gone = []
    for n in range(3):
        append(made, 0, b"%d" % n, 0.0)
        gone += made.drain([queue], cluster())
    append(made, 0, b"fresh", 0.0)
    for batch in gone:
        batch.answered()
        made.reenqueue(batch, 0.0)
    assert list(queue.batches)[:3] == gone and len(queue.batches) == 4


def test_p8_batches_that_were_never_sent_move() -> None:
    """Those that name their partition, have a key, or were sent before stay."""
    made = accumulator()
    queue = made.queue(TopicPartition("t", 0))
    batches = []
    for kind in ("plain", "keyed", "pinned", "sent"):
        future = append(made, 0, kind.encode(), 0.0)
        assert future is not None
        queue.open = None
        batches.append(future._batch)
    batches[1].keyed = batches[2].pinned = True
    batches[3].attempts = 1
    assert made.move(queue, TopicPartition("t", 1), keyed_too=False) == [batches[0]]
    assert made.move(queue, TopicPartition("t", 1), keyed_too=True) == [batches[1]]
    assert list(queue.batches) == batches[2:]
    assert list(made.queue(TopicPartition("t", 1)).batches) == batches[:2]
    assert batches[0].topic_partition == TopicPartition("t", 1)


class BatchLife(RuleBasedStateMachine):
    """Appends, drains, answers in any order, retries, splits, expiry: with sequences, five in flight a partition."""

    @initialize(idempotent=st.booleans())
    def begin(self, idempotent: bool) -> None:
        self.sequences = Sequences(False) if idempotent else None
        if self.sequences is not None:
            self.sequences.set_id(1, 0)
        self.made = accumulator(self.sequences)
        self.ledger = BatchLedger(self.made, LIMITS)
        self.now = 0.0
        self.sent: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.futures: list[tuple[int, bytes, FutureRecordMetadata, list[object]]] = []
        self.wire: dict[int, list[ProducerBatch]] = {number: [] for number in range(PARTITIONS)}
        self.log: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.gave_up: set[bytes] = set()
        self.count = 0

    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.integers(0, 300))
    def append(self, partition: int, size: int) -> None:
        self.count += 1
        value = b"%d." % self.count + b"x" * size
        future = append(self.made, partition, value, self.now)
        if future is None:
            assert self.made.pool.in_use > 0
            return
        calls: list[object] = []
        future.add_both(calls.append)
        self.sent[partition].append(value)
        self.futures.append((partition, value, future, calls))

    @rule()
    def drain(self) -> None:
        for queues in self.made.ready(cluster(), self.now).nodes.values():
            free: list[PartitionQueue] = [
                queue for queue in queues if len(self.wire[queue.topic_partition.partition]) < 5
            ]
            for batch in self.ledger.drain(free, cluster()):
                self.wire[batch.topic_partition.partition].append(batch)

    def _arrive(self, partition: int) -> ProducerBatch | None:
        if not self.wire[partition]:
            return None
        return self.wire[partition].pop(0)

    def _answer(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        self.ledger.answered([batch], {batch.topic_partition: Outcome(error, 0)}, self.now)
        self._end()

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def acknowledge(self, partition: int) -> None:
        batch = self._arrive(partition)
        if batch is None:
            return
        if not batch.is_over:
            self.log[partition] += self._values(batch)
        self._answer(batch, None)

    @rule(partition=st.integers(0, PARTITIONS - 1), split=st.booleans())
    def refuse(self, partition: int, split: bool) -> None:
        """The leader moved: everything on the wire behind this one is refused, too."""
        while (batch := self._arrive(partition)) is not None:
            if not batch.is_over and split and batch.count > 1:
                self._answer(batch, MessageTooLarge())
                split = False
            else:
                self._answer(batch, NotLeaderOrFollower())

    @rule(step=st.sampled_from([0.05, 0.5, 3.0]))
    def wait(self, step: float) -> None:
        self.now += step
        self.ledger.expire(cluster(), self.now)
        for batch in self.ledger.ended:
            self.gave_up.update(self._values(batch))
        self._end()
        if self.sequences is not None:
            self.sequences.settle_unresolved()
            if self.sequences.bump_wanted:
                self.sequences.bump_epoch()

    def _values(self, batch: ProducerBatch) -> list[bytes]:
        found = []
        for partition, value, future, _calls in self.futures:
            if future._place()[0] is batch:
                assert partition == batch.topic_partition.partition
                found.append(value)
        return found

    def _end(self) -> None:
        ended, self.ledger.ended = self.ledger.ended, []
        for batch in ended:
            run_callbacks(batch)
            self.made.forget(batch)

    @invariant()
    def order_is_kept_and_each_is_once(self) -> None:
        if not hasattr(self, "log"):
            return
        for partition, values in self.log.items():
            assert len(set(values)) == len(values)
            order = [self.sent[partition].index(value) for value in values]
            if self.sequences is not None:
                assert order == sorted(order)
        for _partition, value, future, calls in self.futures:
            assert len(calls) == int(future.is_done)
            if future.is_done:
                assert future.failed() == (value in self.gave_up)

    @invariant()
    def memory_adds_up(self) -> None:
        if not hasattr(self, "log"):
            return
        held = {future._place()[0] for _p, _v, future, _c in self.futures}
        flying = {batch for rows in self.wire.values() for batch in rows}
        assert sum(batch.memory for batch in held | flying) == self.made.pool.in_use
        assert all(batch.memory and batch.parts for batch in flying), "its bytes may still be sent"

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        for _ in range(200):
            if not self.made.incomplete and not any(self.wire.values()):
                break
            self.drain()
            for partition in range(PARTITIONS):
                self.acknowledge(partition)
            self.wait(0.05)
        assert not self.made.incomplete
        assert all(future.is_done for _p, _v, future, _c in self.futures)
        assert self.made.pool.in_use == 0 and len(self.ledger.on_wire) == 0 and len(self.made.live) == 0
        self.order_is_kept_and_each_is_once()


TestBatchLife = BatchLife.TestCase
TestBatchLife.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_e2_what_is_sent_again_expires_though_a_younger_batch_is_in_flight_before_it() -> None:
    """The order of sending is not that of age once there are retries."""
    young, old = (ProducerBatch(TopicPartition("t", 0), 0, created) for created in (5.0, 0.0))
    ledger = flying(young, old)
    assert ledger.expire(cluster(), 0.0) == 10.0
    assert ledger.expire(cluster(), 10.0) == 5.0 and ledger.ended == [old]
    assert ledger.expire(cluster(), 15.0) == float("inf") and ledger.ended == [old, young]


def test_p8_what_moved_expires_by_its_own_age() -> None:
    """It stands among the others as old as it is: each queue's head is its oldest."""
    made = accumulator()
    append(made, 0, b"old", 0.0)
    append(made, 1, b"young", 9.0)
    (old,) = made.move(made.queue(TopicPartition("t", 0)), TopicPartition("t", 1), keyed_too=False)
    assert made.next_expiry_s(0.0) == 10.0
    assert made.expired(10.0) == [old]
