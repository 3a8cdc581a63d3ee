"""Known bugs, each a small patch: the suite must catch every one of them.

A patch replaces a text that stands exactly once in a file by another. Each is a fault that such programs really have
had, in a place where a test has to notice. ``python -m tests.planted.plant`` applies them one at a time.
"""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """A patch, and the tests that may catch it (the tests of the room, not the one that is known to)."""

    name: str
    file: str
    """Below ``streamlet/``."""
    old: str
    new: str
    tests: tuple[str, ...]


LOSSES = ("tests/unit/backends",)
LEDGER = ("tests/unit/tracking", "tests/unit/runtime/tasks")
TASKS = ("tests/unit/runtime/tasks", "tests/unit/components", "tests/scripted/backends/test_inline.py")
LOOP = ("tests/scripted/runtime/worker", "tests/unit/runtime")
LINKS = ("tests/unit/runtime/links", "tests/scripted/runtime/links")
SUPERVISION = ("tests/unit/runtime/supervision", "tests/scripted/backends/test_run_coordinator.py")
SPOUT = ("tests/unit/spouts", "tests/scripted/spouts")
RECORDS = ("tests/unit/kafka/records", "tests/unit/kafka/fetch")
PRODUCER = ("tests/unit/kafka/producer", "tests/scripted/kafka/producer")
CONSUMER = ("tests/unit/kafka/consumer", "tests/scripted/kafka/consumer")
BOLT = ("tests/unit/bolts", "tests/scripted/bolts")
NET = ("tests/unit/kafka/net", "tests/scripted/kafka/net", "tests/unit/kafka/metadata")

BUGS = (
    # -- untracked tuples
    Bug(
        "a tuple that a bolt kept and dropped counts as done",
        "runtime/tasks/held_tuples.py",
        "            self._dropped(tup)\n",
        "",
        TASKS,
    ),
    Bug(
        "an error that ends the run leaves whole slices",
        "runtime/tasks/bolt_task.py",
        "                self._break_off(work, size)\n",
        "",
        TASKS,
    ),
    Bug(
        "rows of threads that the loop has taken are not counted until they are collected",
        "runtime/tasks/other_threads.py",
        "self._untracked_taken + self.untracked",
        "self.untracked",
        LOOP,
    ),
    Bug(
        "calls that were taken with one that ends the run are dropped",
        "runtime/worker/loop.py",
        "            bolt.calls.give_back(calls[made:])\n",
        "",
        LOOP,
    ),
    Bug(
        "what is taken back without a tree is not failed",
        "runtime/tasks/spout_task.py",
        "        self._failed(ids, FailReason.LOST)\n        return lost\n",
        "        return lost\n",
        LOOP,
    ),
    Bug(
        "rows behind the one of a split batch that ends the run count as done",
        "runtime/tasks/bolt_task.py",
        "max(0, work.left - size) + self._split_left",
        "max(0, work.left - size)",
        LOOP,
    ),
    Bug(
        "open trees of a dead spout that hears no failures are forgotten",
        "backends/run_numbers.py",
        "        self.taken.update(+final)\n",
        "",
        LOSSES,
    ),
    Bug(
        "a spout that comes back while the run ends has nothing open",
        "runtime/supervision/supervisor.py",
        "not (missing or self._too_late)",
        "not missing",
        SUPERVISION,
    ),
    Bug(
        "a commit begins after the place was given back",
        "spouts/kafka/ownership/emit_gate.py",
        "ended = self._grant is not None and self._step.poll()",
        "ended = self._step.poll()",
        SPOUT,
    ),
    Bug(
        "what a dead worker had read of another dead one is forgotten",
        "backends/untracked_losses.py",
        " + death.known.read_of_dead[of]",
        "",
        LOSSES,
    ),
    Bug(
        "what went between two that died is counted by both",
        "backends/untracked_losses.py",
        "elif task.worker not in death.unasked:",
        "else:",
        LOSSES,
    ),
    Bug(
        "what was sent to a worker that had closed is taken for read",
        "backends/untracked_losses.py",
        "self._closed[worker] = _LastWords(sent, read)",
        "self._closed[worker] = _LastWords({}, read)",
        LOSSES,
    ),
    Bug(
        "what a lost link took along is not looked for again",
        "runtime/links/link_account.py",
        "        self.sent -= lost\n",
        "",
        LINKS,
    ),
    Bug(
        "an emit without anchors does not say that nobody tracks it",
        "runtime/tasks/bolt_emits.py",
        "            put = box.switch(stream)\n            box.has_untracked = True\n",
        "            put = box.switch(stream)\n",
        TASKS,
    ),
    Bug(
        "an untracked tuple is held though nobody keeps it",
        "runtime/tasks/held_tuples.py",
        "getrefcount(tup) <= KEPT_HERE",
        "getrefcount(tup) < KEPT_HERE",
        TASKS,
    ),
    Bug(
        "an id of another thread is claimed after it was looked for",
        "components/reliable_spout.py",
        "if self._handed[tup_id] is not claim:",
        "if tup_id not in self._handed:",
        TASKS,
    ),
    # -- trees
    Bug(
        "a delta is or-ed in", "tracking/acker.py", "trees[root] = value ^ delta", "trees[root] = value | delta", LEDGER
    ),
    Bug(
        "a tree that is not open fails again",
        "tracking/acker.py",
        "if self.open.pop(root, None) is not None]",
        "if self.open.pop(root, None) or True]",
        LEDGER,
    ),
    Bug(
        "roots are those of the epoch before",
        "tracking/roots.py",
        "task_id << EPOCH_BITS | epoch & (1 << EPOCH_BITS) - 1",
        "task_id << EPOCH_BITS",
        LEDGER,
    ),
    Bug(
        "a tree stands twice among those of a batch",
        "tracking/shared_roots.py",
        "        distinct = dict.fromkeys(each_root(distinct))",
        "        return SharedRoots(tuple(each_root(distinct)))",
        LEDGER,
    ),
    Bug(
        "acks of a turn come before its failures",
        "runtime/tasks/ledgers.py",
        "        if self._fails:\n            failed = list(self._fails)",
        "        if self._fails and not self._acks:\n            failed = list(self._fails)",
        LEDGER,
    ),
    Bug(
        "rows of a block stay without edges where a bolt acks by hand",
        "runtime/tasks/bolt_task.py",
        "        self._parts = not (run.multi or (self.bolt.auto_ack and self.bolt.auto_fail))",
        "        self._parts = not (run.multi or self.bolt.auto_fail)",
        TASKS,
    ),
    Bug(
        "a block that goes on behind a batch is not closed",
        "runtime/tasks/settling.py",
        "    if edges[stop - 1] or not roots[stop - 1]:",
        "    if not edges[stop - 1] or not roots[stop - 1]:",
        TASKS,
    ),
    Bug(
        "the shares of a block do not make up its edge",
        "runtime/tasks/settling.py",
        "            edges[at] ^= shares\n",
        "            edges[at] |= shares\n",
        TASKS,
    ),
    Bug(
        "what a batch that is split had emitted stays",
        "runtime/tasks/bolt_emits.py",
        "            box.withdraw(before)",
        "            box.mark()",
        TASKS,
    ),
    Bug(
        "two anchors of one tree share an edge",
        "runtime/tasks/bolt_emits.py",
        "edges[root] = edges.get(root, 0) ^ (0 if entry in entries else edge)",
        "edges[root] = 0 if entry in entries else edge",
        TASKS,
    ),
    Bug(
        "a tuple that was failed can be acked",
        "runtime/tasks/settling.py",
        "    if tup.state != OPEN:\n        return False\n    left_of = _left_of(tup)",
        "    left_of = _left_of(tup)",
        TASKS,
    ),
    Bug(
        "a tuple that a bolt kept is filled again",
        "runtime/tasks/bolt_task.py",
        "            if getrefcount(tup) != UNKEPT:",
        "            if getrefcount(tup) > UNKEPT + 1:",
        TASKS,
    ),
    Bug(
        "a failed batch of anchors fails its first root only",
        "runtime/tasks/settling.py",
        "    left = _left_of(tup)",
        "    left = _left_of(tup)[:1]",
        TASKS,
    ),
    # -- replay
    Bug(
        "what was lost with a worker counts as a failure",
        "components/reliable_spout.py",
        "blame = self.fail_reason is not FailReason.LOST",
        "blame = True",
        TASKS,
    ),
    Bug(
        "a replay of many is a replay of one",
        "components/reliable_spout.py",
        "            if kept.many\n",
        "            if False\n",
        TASKS,
    ),
    Bug(
        "a retry of a record starts its count again",
        "spouts/kafka/retry.py",
        "        self._scheduled.pop(offset, None)\n\n    def acked",
        "        self._scheduled.pop(offset, None)\n        self._failures.pop(offset, None)\n\n    def acked",
        SPOUT,
    ),
    Bug(
        "a retry is due at once",
        "spouts/kafka/retry.py",
        "self._schedule(offset, now_s + self._backoff.delay(failures, self._uniform))",
        "self._schedule(offset, now_s)",
        SPOUT,
    ),
    # -- routing
    Bug(
        "a key beyond the cache goes to the first task",
        "runtime/tasks/emitter.py",
        "return self._choices[key_hash(key) % len(self._choices)]",
        "return self._choices[0 if len(self) > 2 else key_hash(key) % len(self._choices)]",
        TASKS,
    ),
    Bug(
        "shuffle forgets its last task",
        "runtime/tasks/emitter.py",
        "position = 0 if position >= last else position + 1",
        "position = 0 if position >= last - 1 else position + 1",
        TASKS,
    ),
    # -- links
    Bug(
        "a frame that was changed is believed",
        "runtime/links/wire.py",
        "            if not hmac.compare_digest(_tag(self._key, self._number, payload), buffer[at + 4 : body]):",
        "            if False:",
        LINKS,
    ),
    Bug(
        "a dialer without the secret is let in",
        "runtime/links/handshake.py",
        'if not hmac.compare_digest(proof, _proof(secret, b"dial", hello, nonce)):',
        "if len(proof) != 32:",
        LINKS,
    ),
    Bug(
        "tuples of another worker's tasks are taken",
        "runtime/links/route_check.py",
        "if width < 0 or self._worker_of[run.source] != incoming.worker:",
        "if width < 0:",
        LINKS,
    ),
    Bug(
        "columns of unequal length are taken",
        "runtime/links/wire.py",
        "        and len(run.roots) == len(run.edges) == len(run.values)\n",
        "        and len(run.roots) == len(run.edges)\n",
        LINKS,
    ),
    # -- fencing, supervision, drain
    Bug(
        "a replaced worker's channel is taken",
        "backends/run_coordinator.py",
        "        if self.supervisor.workers[worker].epoch != epoch:\n            channel.close()\n            return\n",
        "",
        SUPERVISION,
    ),
    Bug(
        "an old epoch's address is put into the book",
        "runtime/supervision/supervisor.py",
        "if worker.epoch != epoch or worker.state is not WorkerState.STARTING:",
        "if worker.state is not WorkerState.STARTING:",
        SUPERVISION,
    ),
    Bug(
        "a drained worker counts from before the pause",
        "runtime/supervision/supervisor.py",
        "counts = traffic is not None and quiet >= self._quiet",
        "counts = True",
        SUPERVISION,
    ),
    Bug(
        "deaths of long ago count",
        "runtime/supervision/supervisor.py",
        "        while now - worker.deaths[0][0] > WINDOW_S:\n            worker.deaths.popleft()\n",
        "",
        SUPERVISION,
    ),
    # -- the spout's ledger and its positions
    Bug(
        "a failed offset does not hold the commit",
        "spouts/kafka/offset_ledger.py",
        "        return min(lowest, low[0]) if low else lowest\n",
        "        return lowest\n",
        SPOUT,
    ),
    Bug(
        "what retention took is not counted",
        "spouts/kafka/partition_counters.py",
        "        self._sums.lost += gone.end - gone.first - again\n",
        "",
        SPOUT,
    ),
    Bug(
        "an ack of another opening of the partition is taken",
        "spouts/kafka/spout.py",
        "            manager = self._slots.get(slot)\n            if manager",
        "            manager = self._slots.get(slot) or next(iter(self._slots.values()), None)\n            if manager",
        SPOUT,
    ),
    Bug(
        "an answer of another leadership is emitted",
        "spouts/kafka/spout_fetcher.py",
        "manager.buffer.position != position or manager.current_leader_epoch != leader_epoch:",
        "manager.buffer.position != position:",
        SPOUT,
    ),
    Bug(
        "a topic that was made again is read at the old offset",
        "spouts/kafka/spout_fetcher.py",
        "if known is not None and manager.topic_id != known:",
        "if False:",
        SPOUT,
    ),
    Bug(
        "damaged bytes are passed over",
        "spouts/kafka/read_buffer.py",
        "                    self.refetch()\n                    raise\n",
        "                    self._fetched.popleft()\n                    continue\n",
        SPOUT,
    ),
    Bug(
        "a batch that lies behind the end is said to wait",
        "spouts/kafka/read_buffer.py",
        "if self.waiting and (len(self.waiting) >= LOADED or self._loaded_bytes >= LOADED_BYTES):",
        "if len(self.waiting) >= LOADED or self._loaded_bytes >= LOADED_BYTES:",
        SPOUT,
    ),
    Bug(
        "records behind the fixed end are emitted",
        "spouts/kafka/read_buffer.py",
        "for offset in self.waiting.cut(self._end):",
        "for offset in self.waiting.cut(self._end + 1):",
        SPOUT,
    ),
    Bug(
        "an owner that was deposed takes its partition back",
        "spouts/kafka/stores/zookeeper_offsets.py",
        "if mine is not None and node is not None and node.owner_epoch != mine.owner_epoch:",
        "if False:",
        SPOUT,
    ),
    Bug(
        "an own claim whose answer was lost looks like a stranger's",
        "spouts/kafka/stores/zookeeper_offsets.py",
        "if claim is None or found is None or found[0] != claim.data:",
        "if True:",
        SPOUT,
    ),
    # -- records and fetch positions
    Bug(
        "a fetch session goes on though a partition of it went",
        "kafka/fetch/fetch_session.py",
        "if self._starts_over or self._ids_changed(known_ids):",
        "if self._ids_changed(known_ids):",
        RECORDS,
    ),
    Bug(
        "checksums are not looked at",
        "kafka/records/record_batch.py",
        "        if found != header.crc:",
        "        if False:",
        RECORDS,
    ),
    Bug(
        "records of aborted transactions are delivered",
        "kafka/records/record_batch.py",
        "            self._hidden.add(coming.pop()[0])",
        "            coming.pop()",
        RECORDS,
    ),
    Bug(
        "an abort marker does not end the hiding",
        "kafka/records/record_batch.py",
        "                self._hidden.discard(batch.header.producer_id)",
        "                pass",
        RECORDS,
    ),
    Bug(
        "the read position skips a record",
        "kafka/records/record_batch.py",
        "found = max(found, base + delta + 1)",
        "found = max(found, base + delta + 2)",
        RECORDS,
    ),
    Bug(
        "a log that parted is read on",
        "kafka/fetch/truncation.py",
        "if epoch_end is not None and epoch_end < (position if log_end is None else min(position, log_end)):",
        "if epoch_end is not None and epoch_end < 0:",
        RECORDS,
    ),
    # -- producer
    Bug(
        "sequences count batches and not records",
        "kafka/producer/producer_batch.py",
        "row.next = increment_sequence(row.next, batch.count)",
        "row.next = increment_sequence(row.next, 1)",
        PRODUCER,
    ),
    Bug(
        "retries overtake each other",
        "kafka/producer/producer_batch.py",
        "return not row.in_flight or row.in_flight[0].base_sequence == batch.base_sequence",
        "return True",
        PRODUCER,
    ),
    Bug(
        "a batch that the log has already is failed",
        "kafka/producer/batch_ledger.py",
        "if error is None or isinstance(error, DuplicateSequenceNumber):",
        "if error is None:",
        PRODUCER,
    ),
    Bug(
        "what was sent and not answered is said not to be in the log",
        "kafka/producer/batch_ledger.py",
        "        if not batch.was_sent:\n",
        "        if True:\n",
        PRODUCER,
    ),
    Bug(
        "memory is given back while the socket still sends from it",
        "kafka/producer/accumulator.py",
        "if batch.on_wire or not batch.is_over or not batch.memory:",
        "if not batch.is_over or not batch.memory:",
        PRODUCER,
    ),
    Bug(
        "a transaction ends while a batch is on the wire",
        "kafka/producer/batch_ledger.py",
        "return not self.on_wire and all(batch.is_over for batch in self._accumulator.live)",
        "return all(batch.is_over for batch in self._accumulator.live)",
        PRODUCER,
    ),
    Bug(
        "a key goes where Java does not send it",
        "kafka/producer/partitioners.py",
        "return (murmur2(key) & 0x7FFFFFFF) % count",
        "return murmur2(key) % count",
        PRODUCER,
    ),
    # -- group
    Bug(
        "topics that nobody reads any more are asked about",
        "kafka/metadata/metadata.py",
        "        for topic in self.topics - wanted:\n            self.remove_topic(topic)\n",
        "",
        ("tests/scripted/kafka/consumer/test_topics.py", "tests/unit/kafka/consumer"),
    ),
    Bug(
        "an assignment of an old generation is taken",
        "kafka/consumer/classic_group.py",
        "if generation != self.membership.generation:",
        "if False:",
        CONSUMER,
    ),
    Bug(
        "a heartbeat's answer to an old generation ends the membership",
        "kafka/consumer/membership.py",
        "        if generation != self.generation:\n            return  # an older",
        "        if False:\n            return  # an older",
        CONSUMER,
    ),
    Bug(
        "the bad record of a column is passed over",
        "kafka/consumer/delivery.py",
        "chunk = Chunk(tp, chunk.batch, chunk.start, chunk.start + index)",
        "chunk = Chunk(tp, chunk.batch, chunk.start, chunk.start + index + 1)",
        CONSUMER,
    ),
    # -- connections
    Bug(
        "a topic's earlier id is believed",
        "kafka/metadata/topic_ids.py",
        "return topic_id in self._replaced.get(topic, ())",
        "return False",
        NET,
    ),
    Bug(
        "an answer to another request is believed",
        "kafka/net/network_client.py",
        "if entry is None or found != entry.correlation_id:",
        "if entry is None:",
        NET,
    ),
    Bug(
        "a server that does not know the password is believed",
        "kafka/net/sasl.py",
        "if not hmac.compare_digest(found, self._server_signature):",
        "if False:",
        NET,
    ),
    Bug(
        "an older leader is taken for the newer",
        "kafka/metadata/metadata.py",
        "if fresh.leader_epoch < seen:",
        "if False:",
        NET,
    ),
    # -- pieces, columns, small batches
    Bug(
        "a batch that is split comes again as its call has left it",
        "runtime/tasks/bolt_task.py",
        "[copied(values) for values in batch.peek()]",
        "batch.peek()",
        TASKS,
    ),
    Bug(
        "a piece leaves for a task that is full",
        "runtime/links/links.py",
        "            if run.target in full:",
        "            if False:",
        LOOP,
    ),
    Bug(
        "rows that are emitted at once are shared out from the next task on",
        "runtime/tasks/emitter.py",
        "order[(first + at) % size]",
        "order[(first + at + 1) % size]",
        TASKS,
    ),
    Bug(
        "what follows a damaged batch is not fetched again",
        "spouts/kafka/read_buffer.py",
        "self._fetch_again_from(self._batch_end)",
        "self._fetch_again_from(self.position)",
        SPOUT,
    ),
    # -- dead letters
    Bug(
        "a record is done before its dead letter is acknowledged",
        "spouts/kafka/manager.py",
        "            self.given_up.append(GivenUp(*original, tries, fault))\n",
        "            self.ledger.given_up(offset)\n",
        SPOUT,
    ),
    Bug(
        "a batch is taken apart while some of it waits to be emitted",
        "spouts/kafka/dead_letters/original_records.py",
        "self._whole_bytes <= WHOLE_BYTES or batch.next_offset > position",
        "self._whole_bytes <= WHOLE_BYTES",
        SPOUT,
    ),
    Bug(
        "a dead letter that the brokers refuse counts as written",
        "spouts/kafka/dead_letters/dead_letter_writer.py",
        "            if error is None:",
        "            if error is None or not error.retriable:",
        SPOUT,
    ),
    Bug(
        "what a bolt said stays behind where a frame is split",
        "runtime/links/wire.py",
        "fails=last, causes=_of(last, causes))",
        "fails=last, causes={})",
        LINKS,
    ),
    Bug(
        "a letter that was replayed is replayed again",
        "spouts/kafka/dead_letters/dead_letter_choice.py",
        "        if letter.place not in log.replayed and wanted.takes(letter):",
        "        if wanted.takes(letter):",
        SPOUT,
    ),
    # -- KafkaBolt
    Bug(
        "a tuple of a KafkaBolt is acked when its record is sent",
        "bolts/kafka/outbound.py",
        "            lot.delivery.open += 1\n            self.watch",
        "            self.watch",
        BOLT,
    ),
    Bug(
        "a KafkaBolt acks a tuple whose record failed",
        "bolts/kafka/bolt.py",
        "                    continue\n            self._fail_told(tup, error)\n",
        "                    continue\n",
        BOLT,
    ),
    Bug(
        "a record of a KafkaBolt passes one that waits for the same topic",
        "bolts/kafka/outbound.py",
        "            if place in behind or lot.offer_after > now:",
        "            if lot.offer_after > now:",
        BOLT,
    ),
    Bug(
        "what a KafkaBolt keeps is in no answer of a census",
        "runtime/worker/queue_census.py",
        "            for batch in live.task.held.batches if isinstance(live.task, BoltTask) else ():",
        "            for batch in ():",
        (*LOOP, *BOLT),
    ),
    Bug(
        "a part of a split batch is not waited for",
        "kafka/producer/record_future.py",
        "        if not self._groups[0][0].children:\n            self._take_off()",
        "        self._groups.popleft()",
        PRODUCER,
    ),
    Bug(
        "a bolt that rests is given tuples",
        "runtime/worker/back_pressure.py",
        "self._inbox.order(waits | self._rested)",
        "self._inbox.order(waits)",
        LOOP,
    ),
    Bug(
        "what threads hold is no suspect of a death",
        "runtime/supervision/blame.py",
        "        return [each for each in beside if each.task in self._tasks]",
        "        return [each for each in beside[:1] if each.task in self._tasks]",
        SUPERVISION,
    ),
    Bug(
        "two suspects hold tuples at once",
        "runtime/worker/one_by_one.py",
        "return frozenset() if held < self._room else",
        "return frozenset() if held <= self._room else",
        LOOP,
    ),
    # -- sets of trees
    Bug(
        "a set: children are XORed in for each tree of it",
        "runtime/tasks/settling.py",
        "left.append((root, edge if entry in entries else edge ^ tup.children))",
        "left.append((root, edge ^ tup.children))",
        TASKS,
    ),
    Bug(
        "a set: what failed stays in it",
        "runtime/tasks/settling.py",
        "        if edge and (root.__class__ is SharedRoots or root & 1):",
        "        if edge and root.__class__ is SharedRoots:",
        LEDGER,
    ),
    Bug(
        "a set: what could not be sent is taken out of other workers' ledgers",
        "runtime/tasks/ledgers.py",
        "            if owner_task(entry) in self.spouts:\n                self._acks",
        "            if True:\n                self._acks",
        LEDGER,
    ),
    Bug(
        "a set: a tree of it fails a second time",
        "tracking/pending.py",
        "if found is None or place in found.failed or place >= len(found.ids):",
        "if found is None or place >= len(found.ids):",
        LEDGER,
    ),
    Bug(
        "a set: failed messages are acked with the others",
        "tracking/pending.py",
        "        if not self.failed:\n            return self.ids",
        "        if True:\n            return self.ids",
        LEDGER,
    ),
    Bug(
        "a set: it is looked for by its first tree only",
        "tracking/overdue.py",
        "return end_of(max(self._doubtful)) if self._doubtful else 0",
        "return max(self._doubtful, default=-1) + 1",
        LEDGER,
    ),
    Bug(
        "a set: a parted one is acked as a whole",
        "spouts/kafka/offset_ledger.py",
        "if found is None or found[0] is not offsets:\n            return False",
        "if found is None:\n            return True",
        SPOUT,
    ),
    Bug(
        "a set: an offset in it does not hold the commit",
        "spouts/kafka/offset_ledger.py",
        "min(next(iter(self._first), self.position), next(iter(self._sets), self.position))",
        "next(iter(self._first), self.position)",
        SPOUT,
    ),
    Bug(
        "a batch grows by the last call of another size alone",
        "runtime/tasks/batch_bound.py",
        "filter(None, (self._other, self._least))",
        "filter(None, (self._other,))",
        TASKS,
    ),
    Bug(
        "it rests though no fetch is under way",
        "spouts/kafka/spout.py",
        "(at_hand or self._until_caught_up) and self._parts.fetcher.all_asked",
        "(at_hand or self._until_caught_up)",
        SPOUT,
    ),
)
