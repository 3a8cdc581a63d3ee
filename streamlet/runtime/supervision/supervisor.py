"""What the coordinator decides: when a worker is started, trusted, given up, replaced, and when a run is over.

Pure. Events are method calls with the time in seconds; what is to be done comes back as instructions, in order.
A worker goes STARTING -> READY (it listens) -> UP (initialised and linked) -> GONE, and from there back to
STARTING with the next epoch. Only when all workers are UP by one version of the book may tuples flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlet.base.backoff import Backoff
from streamlet.runtime.links.dialing import Address
from streamlet.runtime.links.links import Traffic
from streamlet.runtime.supervision.instructions import (
    GiveUp,
    Instruction,
    Kill,
    Replaced,
    SendBook,
    SendCut,
    SendLost,
    SendPause,
    SendStop,
    SendWhole,
    Start,
    Tell,
)
from streamlet.runtime.supervision.link_watch import LinkWatch
from streamlet.runtime.supervision.worker_states import WaitNotice, WorkerRecord, WorkerState

WINDOW_S = 300.0

CLOSE_S = 30.0
"""How long workers may close when a run ends by itself, unless a setting says otherwise."""

INTERRUPT_S = 5.0
"""Drain and closing together after Ctrl-C, likewise."""

STALL_S = 1.0
"""Longer between two ticks, and the coordinator itself stood still."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds."""

    start_s: float = 30.0
    silent_s: float = 10.0
    restarts: int = 20
    drain_s: float = 4.0
    stop_s: float | None = None
    """How long workers may close. None: CLOSE_S, or what the drain left of INTERRUPT_S, and a second at least."""


class Supervisor:
    """The state of a run. One thread. ``holds``: which components each worker has, for the sentences about it."""

    def __init__(
        self, workers: int, spout_workers: frozenset[int], limits: Limits, holds: Mapping[int, str] = {}
    ) -> None:
        self.workers = {index: WorkerRecord() for index in range(workers)}
        self._holds = holds
        self._links = LinkWatch(limits.restarts, WINDOW_S)
        self._wait_notice = WaitNotice()
        self.spout_workers = spout_workers
        self.limits = limits
        self.version = 0
        self.whole = False
        self.began = False
        """It was whole once: from then on, components have seen tuples."""
        self.ending: str | None = None
        self.drained = False
        self.unclosed: dict[int, str] = {}
        """How workers went whose components had seen tuples and did not close: "worker 1 (count) was killed ..."."""
        self._deadline = 0.0
        self._ended_s = self._stopped_s = 0.0
        self._cut: dict[tuple[int, int], int] = {}
        self._replaced: set[int] = set()
        self._stopping = False
        self._ticked: float | None = None
        self._backoff = Backoff(initial=0.1, maximum=5.0, jitter=0.0)

    # -- events ----------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Instruction]:
        """The run starts."""
        return [self._start(index, now) for index in self.workers]

    def ready(self, index: int, epoch: int, address: Address, now: float) -> list[Instruction]:
        """A worker listens."""
        worker = self.workers[index]
        if worker.epoch != epoch or worker.state is not WorkerState.STARTING:
            return []
        worker.state, worker.address, worker.heard_s = WorkerState.READY, address, now
        return self._new_book()

    def initialized(self, index: int, epoch: int) -> list[Instruction]:
        """A worker's components are initialised."""
        worker = self.workers[index]
        if worker.epoch != epoch:
            return []
        worker.initialized = True
        return self._maybe_whole()

    def initializing(self, index: int, epoch: int, component: str) -> None:
        """Which component a worker was initialising of late; none when it has done them all."""
        if self.workers[index].epoch == epoch:
            self.workers[index].begun = component

    def starts_again(self, index: int, epoch: int) -> bool:
        """Whether this is a replacement that has not come up yet: what it lacks, the one before it had."""
        worker = self.workers[index]
        return self.began and worker.epoch == epoch > 1 and not worker.initialized

    def linked(self, index: int, epoch: int, version: int) -> list[Instruction]:
        """A worker has every link of a version of the book."""
        worker = self.workers[index]
        if worker.epoch != epoch:
            return []
        worker.linked = version
        if version == self.version:
            self._links.linked(index)
        return self._maybe_whole()

    def unlinked(self, index: int, epoch: int, peer: int, why: str) -> None:
        """A worker dialled another, in vain."""
        if self.workers[index].epoch == epoch:
            self._links.refused(index, peer, why)

    def heard(self, index: int, epoch: int, now: float) -> None:
        """Any sign of life."""
        if self.workers[index].epoch == epoch:
            self.workers[index].heard_s = now

    def state(
        self,
        index: int,
        epoch: int,
        drained: bool,
        caught_up: bool,
        now: float,
        done: bool = True,
        traffic: Traffic | None = None,
    ) -> list[Instruction]:
        """What a worker says of its open trees and its spouts' ends. Not ``done``: some failed, unreplayed.

        ``traffic``: what went over its links until now; None before it was told of the run's end, and what it says of
        being drained is of no use then: its spouts may still emit.
        """
        worker = self.workers[index]
        if worker.epoch != epoch:
            return []
        worker.caught_up, worker.done = caught_up, done
        worker.drained = drained and traffic is not None
        worker.traffic = traffic or ({}, {})
        if self.ending is None and self.whole and self._all_spouts("caught_up"):
            return self.end("caught_up", now)
        return self._maybe_stop(now)

    def link_lost(
        self, index: int, epoch: int, peer: int, peer_epoch: int, version: int, why: str = "", now: float = 0.0
    ) -> list[Instruction]:
        """A worker lost a link that was made by ``version``. If both live on, they link anew by the next version.

        Both ends report the same loss: the second report, and one of a link already declared void, changes nothing.
        """
        worker, other = self.workers[index], self.workers[peer]
        if worker.epoch != epoch or other.epoch != peer_epoch or self._stopping:
            return []
        pair = (min(index, peer), max(index, peer))
        if version < self._cut.get(pair, 0):
            self._links.lost_too((index, epoch), (peer, peer_epoch), why)
            return []
        if other.state is WorkerState.GONE or worker.state is WorkerState.GONE:
            return []
        self._links.lost((index, epoch), (peer, peer_epoch), why, now)
        book = self._new_book()
        self._cut[pair] = self.version
        return [SendCut(pair, self.version), *book]

    def gone(self, index: int, epoch: int, why: str, now: float) -> list[Instruction]:
        """A worker ended, hung up, or was silent for too long."""
        worker = self.workers[index]
        if worker.epoch != epoch or worker.state is WorkerState.GONE:
            return []
        was_up = worker.state is WorkerState.UP
        worker.state, worker.address = WorkerState.GONE, None
        self._links.gone(index)
        kill: list[Instruction] = [Kill(index, epoch)]
        if self._stopping:
            return [*kill, *self._not_closed(index, f"{why} before it had closed")]
        self.whole = False
        lost = [*kill, Tell("warning", f"worker {index} (epoch {epoch}) {why}"), SendLost(index, epoch)]
        if self.ending is not None:
            # Nothing is replayed any more: what was open stays uncommitted for the next run.
            return [*lost, *self._not_closed(index, f"{why} before it was to close"), *self._stop(now)]
        if self.began:
            self._replaced.add(index)
        worker.deaths.append(now)
        while worker.deaths and now - worker.deaths[0] > WINDOW_S:
            worker.deaths.popleft()
        worker.barren = 0 if was_up else worker.barren + 1
        if max(len(worker.deaths), worker.barren) > self.limits.restarts:
            often = f"died {len(worker.deaths)} times within {WINDOW_S:.0f} s"
            if worker.barren > self.limits.restarts:
                often = f"was started {worker.barren} times and never came up"
            return [
                *lost,
                GiveUp(
                    f"{self._called(index, 'Worker')} {often}, the last time because it {why}. Restarting it again "
                    "would not help: look at what its components do just before, or raise "
                    "streamlet.worker.restarts.max."
                ),
            ]
        worker.restart_at = now + self._backoff.delay(len(worker.deaths) - 1)
        return [*lost, *self._new_book()]

    def end(self, reason: str, now: float) -> list[Instruction]:
        """Somebody or something wants the run to end: drain first."""
        if self.ending is not None:
            if reason == "interrupted" != self.ending:
                self._hurry(now)
            return []
        self.ending = reason
        self._ended_s = now
        self._deadline = now + self.limits.drain_s
        if not self.whole:
            return [SendPause(), *self._stop(now)]
        return [SendPause(), *self._maybe_stop(now)]

    def _hurry(self, now: float) -> None:
        """Ctrl-C while the run ends by itself: it has no more time than after any Ctrl-C."""
        self.ending, self._ended_s = "interrupted", now
        limit = self._closed_by(now) if self._stopping else now + self.limits.drain_s
        self._deadline = min(self._deadline, limit)

    def stopped(self, index: int, epoch: int) -> None:
        """A worker has closed its components."""
        if self.workers[index].epoch == epoch:
            self.workers[index].stopped = True

    def tick(self, now: float) -> list[Instruction]:
        """Time passes: restarts that are due, workers that were silent, a drain that takes too long."""
        out: list[Instruction] = []
        self._forgive_own_stall(now)
        if self.ending is not None and not self._stopping and now >= self._deadline:
            out += self._stop(now)
        if self._stopping:
            return out if now < self._deadline else [*out, *self._end_the_rest(now)]
        out += [*self._links.tick(now), *self._say_what_is_waited_for(now)]
        for index, worker in self.workers.items():
            if worker.state is WorkerState.GONE:
                if worker.restart_at is not None and now >= worker.restart_at:
                    out.append(self._start(index, now))
                continue
            limit = self.limits.start_s if worker.state is WorkerState.STARTING else self.limits.silent_s
            if now - worker.heard_s > limit:
                verb = "did not start" if worker.state is WorkerState.STARTING else "was silent"
                out += self.gone(index, worker.epoch, f"{verb} for {limit:g} s", now)
        return out

    def _say_what_is_waited_for(self, now: float) -> list[Instruction]:
        text = self._wait_notice.waits_for(self.whole, self.version, self.workers, self._links, self._called, now)
        return [Tell("warning", text)] if text else []

    def _forgive_own_stall(self, now: float) -> None:
        """While the coordinator stood still it heard nobody, whoever spoke: that silence is its own.

        Ctrl-Z, or a machine that was held up with everything on it: the workers get their time anew.
        """
        before, self._ticked = self._ticked, now
        if before is not None and now - before > STALL_S:
            for worker in self.workers.values():
                worker.heard_s = min(now, worker.heard_s + now - before)

    @property
    def over(self) -> bool:
        """Every worker has stopped or is gone."""
        return self._stopping and all(w.stopped or w.state is WorkerState.GONE for w in self.workers.values())

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _start(self, index: int, now: float) -> Start:
        before = self.workers[index]
        epoch = before.epoch + 1
        worker = WorkerRecord(WorkerState.STARTING, epoch, heard_s=now, deaths=before.deaths, barren=before.barren)
        self.workers[index] = worker
        return Start(index, epoch)

    def _new_book(self) -> list[Instruction]:
        self.version += 1
        self.whole = False
        book = {index: (w.epoch, w.address) for index, w in self.workers.items() if w.address is not None}
        return [SendBook(self.version, book)]

    def _maybe_whole(self) -> list[Instruction]:
        if self.whole or self._stopping:
            return []
        for worker in self.workers.values():
            if worker.address is None or not worker.initialized or worker.linked != self.version:
                return []
        for worker in self.workers.values():
            worker.state = WorkerState.UP
        self.whole = self.began = True
        replaced = [Replaced(index, self.workers[index].epoch) for index in sorted(self._replaced)]
        self._replaced.clear()
        return [SendWhole(self.version), *replaced]

    def _all_spouts(self, what: str) -> bool:
        return all(getattr(self.workers[index], what) for index in self.spout_workers)

    def _maybe_stop(self, now: float) -> list[Instruction]:
        # Every worker: where nothing is tracked, tuples still wait at bolts whose spouts have no open tree.
        if self.ending is None or self._stopping or not all(w.drained for w in self.workers.values()):
            return []
        if self._on_its_way():
            return []
        self.drained = all(w.done for w in self.workers.values())
        return self._stop(now)

    def _on_its_way(self) -> bool:
        """Whether a frame was sent that its receiver had not read when it last said to be idle.

        Every worker was idle when it spoke, though not all at the same moment. Had one become busy since, then by a
        frame, and the first of these was sent before its sender spoke: it is in one count of this pair and not in the
        other (Mattern 1987, vector counters). One sum over all pairs would not do.
        """
        workers = self.workers.items()
        return any(
            one.traffic[0].get(other, 0) != receiver.traffic[1].get(index, 0)
            for index, one in workers
            for other, receiver in workers
            if other != index
        )

    def _stop(self, now: float) -> list[Instruction]:
        self._stopping = True
        self._stopped_s, self._deadline = now, self._closed_by(now)
        out: list[Instruction] = [SendStop(clean=True)]
        for index, worker in self.workers.items():
            if worker.state is WorkerState.STARTING:
                out.append(self._kill(index))  # what has not come up holds nothing that wants closing
            if worker.state is WorkerState.GONE:
                out += self._not_closed(index, "had died and was not back when the run ended")
        return out

    def _closed_by(self, now: float) -> float:
        if self.limits.stop_s is not None:
            return now + self.limits.stop_s
        if self.ending == "interrupted":
            if self.limits.drain_s >= INTERRUPT_S:  # whoever lets the drain take longer gave up that bound
                return now + INTERRUPT_S
            return max(self._ended_s + INTERRUPT_S, now + 1.0)
        return now + CLOSE_S

    def _end_the_rest(self, now: float) -> list[Instruction]:
        """Whoever has not closed by the deadline hangs, most likely in its user's code: the run ends without it."""
        out: list[Instruction] = []
        for index, worker in self.workers.items():
            if not worker.stopped and worker.state is not WorkerState.GONE:
                how = f"did not stop within {now - self._stopped_s:.1f} s and was killed"
                told = self._not_closed(index, how) or [Tell("warning", f"{self._called(index)} {how}")]
                out += [*told, self._kill(index)]
        return out

    def _not_closed(self, index: int, how: str) -> list[Instruction]:
        """A worker is gone at the end of the run and has not said that its components are closed."""
        if not self.began or self.workers[index].stopped or index in self.unclosed:
            return []  # no tuple was ever seen, all is well, or this is known
        self.unclosed[index] = text = f"{self._called(index)} {how}"
        return [Tell("warning", f"{text}: what its cleanup was to write may be missing")]

    def _called(self, index: int, noun: str = "worker") -> str:
        """``worker 1 (count, store)``."""
        return f"{noun} {index} ({self._holds[index]})" if index in self._holds else f"{noun} {index}"

    def _kill(self, index: int) -> Kill:
        worker = self.workers[index]
        worker.state, worker.address = WorkerState.GONE, None
        return Kill(index, worker.epoch)
