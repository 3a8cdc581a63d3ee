"""What the coordinator decides: events in, instructions out, the clock a number."""

from __future__ import annotations

import random

import pytest

from streamlet.runtime.instructions import (
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
from streamlet.runtime.ports import Traffic
from streamlet.runtime.supervision import Limits, Supervisor, WorkerState
from tests.seeds import seeds

ADDRESS = ("unix", "/s", 0)
QUIET: Traffic = ({}, {})


def running(workers: int = 2, spouts: frozenset[int] = frozenset({0}), limits: Limits | None = None) -> Supervisor:
    """A supervisor whose workers are all up."""
    supervisor = Supervisor(workers, spouts, limits or Limits())
    assert supervisor.begin(0.0) == [Start(index, 1) for index in range(workers)]
    out = bring_up(supervisor, range(workers), 1.0)
    assert out[-1] == SendWhole(supervisor.version)
    return supervisor


def bring_up(supervisor: Supervisor, indexes: object, now: float) -> list[object]:
    """Let these workers do all that a healthy worker does; every instruction that followed."""
    out: list[object] = []
    epochs = {index: worker.epoch for index, worker in supervisor.workers.items()}
    for index in indexes:  # type: ignore[attr-defined]
        out += supervisor.ready(index, epochs[index], ADDRESS, now)
        out += supervisor.initialized(index, epochs[index])
    for index in supervisor.workers:
        out += supervisor.linked(index, epochs[index], supervisor.version)
    return out


def test_tuples_flow_only_when_every_worker_is_linked_by_one_version() -> None:
    """An older version's links prove nothing."""
    supervisor = Supervisor(2, frozenset({0}), Limits())
    supervisor.begin(0.0)
    assert [type(i) for i in supervisor.ready(0, 1, ADDRESS, 0.1)] == [SendBook]
    assert supervisor.linked(0, 1, 1) == []
    assert supervisor.initialized(0, 1) == []
    assert supervisor.ready(1, 1, ADDRESS, 0.2) == [SendBook(2, {0: (1, ADDRESS), 1: (1, ADDRESS)})]
    assert supervisor.initialized(1, 1) == []
    assert supervisor.linked(1, 1, 2) == []
    assert supervisor.linked(0, 1, 2) == [SendWhole(2)]


def test_a_dead_worker_is_killed_announced_and_replaced_by_the_next_epoch() -> None:
    """In this order, and only after its back-off."""
    supervisor = running()
    out = supervisor.gone(1, 1, "was killed by SIGKILL", 10.0)
    assert out[0] == Kill(1, 1)
    assert SendLost(1, 1) in out
    assert out[-1] == SendBook(supervisor.version, {0: (1, ADDRESS)})
    assert supervisor.tick(10.0) == [Start(1, 2)]
    assert bring_up(supervisor, [1], 11.0)[-2:] == [SendWhole(supervisor.version), Replaced(1, 2)]


def test_a_worker_that_dies_before_it_has_seen_a_tuple_took_nothing_along() -> None:
    """So nobody is told that its memory is gone; nor twice of one death."""
    supervisor = Supervisor(2, frozenset({0}), Limits())
    supervisor.begin(0.0)
    supervisor.gone(1, 1, "ended with status 1", 0.1)
    supervisor.tick(1.0)
    assert bring_up(supervisor, [0, 1], 1.0)[-1] == SendWhole(supervisor.version)
    supervisor.gone(0, 1, "was killed by SIGKILL", 2.0)
    supervisor.tick(3.0)
    assert bring_up(supervisor, [0], 3.0)[-1] == Replaced(0, 2)
    book = supervisor.link_lost(0, 2, 1, 2, supervisor.version)
    assert book and all(supervisor.linked(at, 2, supervisor.version) == [] for at in (0,))
    assert supervisor.linked(1, 2, supervisor.version) == [SendWhole(supervisor.version)]


def test_news_of_an_old_epoch_changes_nothing() -> None:
    """A zombie's messages are void."""
    supervisor = running()
    supervisor.gone(1, 1, "was silent for 10 s", 10.0)
    supervisor.tick(10.1)
    assert supervisor.gone(1, 1, "hung up", 10.2) == []
    assert supervisor.ready(1, 1, ADDRESS, 10.2) == []
    assert supervisor.linked(1, 1, 99) == []
    assert supervisor.link_lost(1, 1, 0, 1, 99) == []
    assert supervisor.workers[1].state is WorkerState.STARTING


def test_a_cut_link_starts_the_pair_anew_once() -> None:
    """Both ends report it; the second report is of a link already declared void."""
    supervisor = running()
    version = supervisor.version
    out = supervisor.link_lost(0, 1, 1, 1, version)
    assert out == [SendCut((0, 1), version + 1), SendBook(version + 1, {0: (1, ADDRESS), 1: (1, ADDRESS)})]
    assert supervisor.link_lost(1, 1, 0, 1, version) == []
    assert not supervisor.whole
    supervisor.linked(0, 1, version + 1)
    assert supervisor.linked(1, 1, version + 1) == [SendWhole(version + 1)]


def test_a_silent_worker_is_replaced() -> None:
    """Heartbeats come from a thread of their own, so silence means that the process is stopped or gone."""
    supervisor = running(limits=Limits(silent_s=5))
    supervisor.heard(0, 1, 7.0)
    supervisor.heard(1, 1, 3.0)
    assert supervisor.tick(7.9) == []
    out = supervisor.tick(8.1)
    assert out[0] == Kill(1, 1)
    assert any(isinstance(i, Tell) and "silent" in i.text for i in out)


def test_silence_while_the_coordinator_stood_still_is_not_the_workers() -> None:
    """After Ctrl-Z and fg, or a pause of the whole machine, workers get their time anew, and no more."""
    supervisor = running(limits=Limits(silent_s=10.0))
    assert supervisor.tick(1.0) == supervisor.tick(2.0) == []
    assert supervisor.tick(300.0) == []
    for now in range(301, 309):
        assert supervisor.tick(now) == []
    supervisor.heard(0, 1, 308.0)
    out = supervisor.tick(309.0) + supervisor.tick(310.0)
    assert [i for i in out if isinstance(i, Kill)] == [Kill(1, 1)]


def test_a_worker_that_never_starts_is_given_up_by_its_own_limit() -> None:
    """Imports and connections may take longer than a heartbeat."""
    supervisor = Supervisor(1, frozenset({0}), Limits(start_s=30, silent_s=5))
    supervisor.begin(0.0)
    assert supervisor.tick(29.0) == []
    assert supervisor.tick(30.0) == []
    assert Kill(0, 1) in supervisor.tick(30.9)


def test_a_crash_loop_ends_the_run_with_a_paragraph() -> None:
    """Restarts wait longer each time, and there is an end to them."""
    supervisor = running(limits=Limits(restarts=3))
    now, waits = 10.0, []
    for _ in range(3):
        out = supervisor.gone(1, supervisor.workers[1].epoch, "ended with status 1", now)
        assert not any(isinstance(i, GiveUp) for i in out)
        died = now
        while not any(isinstance(i, Start) for i in supervisor.tick(now)):
            supervisor.heard(0, 1, now)
            now += 0.05
        waits.append(now - died)
    assert waits == sorted(waits) and waits[-1] > waits[0]
    out = supervisor.gone(1, supervisor.workers[1].epoch, "ended with status 1", now)
    (given_up,) = [i for i in out if isinstance(i, GiveUp)]
    assert "Worker 1 died 4 times" in given_up.reason and "ended with status 1" in given_up.reason


def test_deaths_long_ago_do_not_count() -> None:
    """The budget is for a window."""
    supervisor = running(limits=Limits(restarts=1))
    for now in (0.0, 1000.0, 2000.0):
        out = supervisor.gone(1, supervisor.workers[1].epoch, "died", now)
        assert not any(isinstance(i, GiveUp) for i in out)
        supervisor.tick(now + 1)


def test_an_interrupt_drains_before_it_stops() -> None:
    """Only a state told after the pause counts."""
    supervisor = running()
    supervisor.state(0, 1, drained=True, caught_up=False, now=2.0)
    assert supervisor.end("interrupted", 3.0) == [SendPause()]
    supervisor.state(0, 1, drained=True, caught_up=False, now=3.0)  # said before it was told
    assert supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=3.1) == []
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=3.2) == [SendStop(clean=True)]
    assert supervisor.drained
    assert not supervisor.over
    supervisor.stopped(0, 1)
    supervisor.stopped(1, 1)
    assert supervisor.over


def test_what_failed_while_the_run_drained_is_not_done() -> None:
    """Spouts are paused, so nothing is replayed: the drain ends, and the run has not drained."""
    supervisor = running()
    supervisor.end("interrupted", 3.0)
    supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=3.1)
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=3.2, done=False) == [
        SendStop(clean=True)
    ]
    assert not supervisor.drained


def test_a_drain_that_takes_too_long_is_cut_short() -> None:
    """What was still open is not committed, and is read again by the next run."""
    supervisor = running(limits=Limits(drain_s=4))
    for index in supervisor.workers:
        supervisor.heard(index, 1, 10.0)
    supervisor.end("interrupted", 10.0)
    assert supervisor.tick(13.9) == []
    assert supervisor.tick(14.0) == [SendStop(clean=True)]
    assert not supervisor.drained


def test_caught_up_takes_every_spout() -> None:
    """And a run that is whole: a worker that is just being replaced has not said its last word."""
    supervisor = running(3, frozenset({0, 2}))
    assert supervisor.state(0, 1, drained=True, caught_up=True, now=2.0) == []
    assert supervisor.state(2, 1, drained=True, caught_up=True, now=2.1) == [SendPause()]
    assert supervisor.ending == "caught_up"
    assert supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=2.2) == []
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=2.3) == []
    assert supervisor.state(2, 1, drained=True, caught_up=False, traffic=QUIET, now=2.3) == [SendStop(clean=True)]


def test_a_drain_waits_for_the_workers_without_spouts_too() -> None:
    """Where nothing is tracked no spout has an open tree, and still tuples wait at bolts."""
    supervisor = running()
    supervisor.state(1, 1, drained=True, caught_up=False, now=1.5)
    assert supervisor.state(0, 1, drained=True, caught_up=True, now=2.0) == [SendPause()]
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=2.1) == []
    assert supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=2.1) == [SendStop(clean=True)]
    assert supervisor.drained


def test_a_drain_waits_for_frames_that_nobody_has_read() -> None:
    """A worker that was idle says so once; what reaches it afterwards is in its sender's count."""
    supervisor = running(3, frozenset({0}))
    supervisor.end("interrupted", 2.0)

    def says(worker: int, sent: dict[int, int], received: dict[int, int]) -> list[Instruction]:
        return supervisor.state(worker, 1, drained=True, caught_up=False, traffic=(sent, received), now=2.1)

    assert says(2, {}, {}) == []
    assert says(0, {1: 1}, {}) == []
    assert says(1, {}, {}) == [], "a frame is on its way to it"
    assert says(1, {2: 1}, {0: 1}) == [], "and it has sent one on"
    assert says(2, {}, {1: 1}) == [SendStop(clean=True)]


def test_frames_of_one_pair_do_not_stand_for_those_of_another() -> None:
    """One was sent to 1 and one received by 2, but not the same: 1 has passed its one on, and has not said so yet."""
    supervisor = running(3, frozenset({0}))
    supervisor.end("interrupted", 2.0)
    supervisor.state(0, 1, drained=True, caught_up=False, traffic=({1: 1}, {}), now=2.1)
    supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=2.1)
    assert supervisor.state(2, 1, drained=True, caught_up=False, traffic=({}, {1: 1}), now=2.1) == []


def test_a_worker_that_does_not_stop_is_killed_at_its_deadline() -> None:
    """A cleanup that hangs must not keep the run from ending; it is named."""
    supervisor = running(limits=Limits(stop_s=5.0))
    supervisor.end("interrupted", 10.0)
    supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=11.0)
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=11.0) == [SendStop(clean=True)]
    supervisor.stopped(0, 1)
    assert supervisor.tick(14.9) == []
    assert not supervisor.over
    told, killed = supervisor.tick(16.1)
    assert isinstance(told, Tell) and "worker 1" in told.text and "cleanup" in told.text
    assert killed == Kill(1, 1)
    assert supervisor.over
    assert supervisor.tick(17.0) == []


@pytest.mark.parametrize(
    ("reason", "stop_s", "until"),
    [("caught_up", None, 47.0), ("time", None, 47.0), ("interrupted", None, 22.0), ("interrupted", 9.0, 26.0),
     ("time", 9.0, 26.0)],
)  # fmt: skip
def test_closing_has_its_own_time_however_long_the_drain_took(reason: str, stop_s: float | None, until: float) -> None:
    """After Ctrl-C it is shorter."""
    supervisor = running(limits=Limits(drain_s=30.0, stop_s=stop_s))
    supervisor.end(reason, 10.0)
    for index in (0, 1):
        supervisor.state(index, 1, drained=True, caught_up=True, now=17.0, traffic=({}, {}))
    for now in range(11, int(until)):
        assert supervisor.tick(float(now)) == []
    supervisor.stopped(0, 1)
    told, killed = supervisor.tick(until)
    assert killed == Kill(1, 1) and isinstance(told, Tell) and f"within {until - 17:.1f} s" in told.text
    assert supervisor.over and "did not stop" in supervisor.unclosed[1]


@pytest.mark.parametrize(("drained_s", "until"), [(11.0, 15.0), (13.9, 15.0)])
def test_ctrl_c_ends_within_five_seconds_drain_and_closing_together(drained_s: float, until: float) -> None:
    """That is what its default settings promise."""
    supervisor = running()
    supervisor.end("interrupted", 10.0)
    for index in (0, 1):
        supervisor.state(index, 1, drained=True, caught_up=True, now=drained_s, traffic=({}, {}))
    assert supervisor.tick(until - 0.1) == []
    assert {type(i) for i in supervisor.tick(until)} == {Tell, Kill}


def test_ctrl_c_bounds_a_closing_that_had_more_time() -> None:
    """Whoever is asked to end need not wait for what a run allows itself."""
    supervisor = running()
    supervisor.end("time", 10.0)
    assert supervisor.tick(14.0) == [SendStop(clean=True)]
    supervisor.end("interrupted", 20.0)
    supervisor.end("interrupted", 21.0)
    assert supervisor.tick(24.9) == []
    assert {type(i) for i in supervisor.tick(25.0)} == {Tell, Kill}
    assert supervisor.ending == "interrupted"


def test_a_death_before_all_is_closed_is_remembered_and_told() -> None:
    """While it closes, while the run drains, or shortly before: what its cleanup was to write is missing. Once a worker
    has said that it closed, its end is as it should be.
    """
    supervisor = Supervisor(4, frozenset({0}), Limits(), {1: "count, store"})
    supervisor.begin(0.0)
    bring_up(supervisor, range(4), 1.0)
    supervisor.gone(3, 1, "was killed by SIGKILL", 1.5)
    supervisor.tick(2.0)
    assert supervisor.end("time", 2.0)[-2:] == [Kill(3, 2), Tell("warning", f"{LATE}: {MISSING}")]
    supervisor.stopped(0, 1)
    assert supervisor.gone(0, 1, "ended with status 0", 2.1) == [Kill(0, 1)]
    text = "worker 1 (count, store) was killed by SIGKILL before it had closed"
    assert supervisor.gone(1, 1, "was killed by SIGKILL", 2.2) == [Kill(1, 1), Tell("warning", f"{text}: {MISSING}")]
    supervisor.stopped(2, 1)
    assert supervisor.over
    assert supervisor.unclosed == {1: text, 3: LATE}


LATE = "worker 3 had died and was not back when the run ended"
MISSING = "what its cleanup was to write may be missing"


def test_an_end_before_all_are_up_waits_for_nobody_who_is_still_starting() -> None:
    """A run that is stopped while its workers start ends at once."""
    supervisor = Supervisor(2, frozenset({0}), Limits())
    supervisor.begin(0.0)
    supervisor.ready(0, 1, ADDRESS, 0.1)
    assert supervisor.end("time", 0.2) == [SendPause(), SendStop(clean=True), Kill(1, 1)]
    assert not supervisor.over
    supervisor.stopped(0, 1)
    assert supervisor.over


def test_a_death_during_the_drain_ends_the_run_undrained() -> None:
    """Nobody is restarted any more."""
    supervisor = running()
    supervisor.end("time", 5.0)
    out = supervisor.gone(1, 1, "was killed by SIGKILL", 5.1)
    assert SendStop(clean=True) in out
    assert supervisor.tick(6.0) == []
    assert not supervisor.drained
    assert "was killed by SIGKILL before it was to close" in supervisor.unclosed[1]


@pytest.mark.parametrize("seed", seeds("supervision", 5))
def test_any_schedule_of_deaths_and_cuts_becomes_whole_again(seed: int) -> None:
    """Liveness: when faults end, healthy workers bring the run up, and never by a version that is not the latest."""
    rng = random.Random(seed)
    supervisor = running(3, frozenset({0}), Limits(restarts=10_000))
    now = 1.0
    for _ in range(300):
        now += rng.random() * 0.2
        for index in supervisor.workers:
            supervisor.heard(index, supervisor.workers[index].epoch, now)
        index = rng.randrange(3)
        worker = supervisor.workers[index]
        peer = rng.choice([other for other in range(3) if other != index])
        act = rng.randrange(6)
        if act == 0:
            supervisor.gone(index, rng.choice([worker.epoch, worker.epoch - 1]), "died", now)
        elif act == 1:
            version = rng.randint(0, supervisor.version)
            supervisor.link_lost(index, worker.epoch, peer, supervisor.workers[peer].epoch, version)
        elif act == 2:
            supervisor.ready(index, worker.epoch, ADDRESS, now)
        elif act == 3:
            supervisor.initialized(index, worker.epoch)
        elif act == 4:
            out = supervisor.linked(index, worker.epoch, rng.randint(0, supervisor.version))
            for instruction in out:
                assert instruction == SendWhole(supervisor.version)
                assert all(w.linked == supervisor.version for w in supervisor.workers.values())
        supervisor.tick(now)
    supervisor.tick(now + 6)
    out = bring_up(supervisor, range(3), now + 6)
    assert supervisor.whole, out
