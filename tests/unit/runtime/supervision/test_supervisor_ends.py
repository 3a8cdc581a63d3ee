"""How a run ends, as the coordinator decides it: events in, instructions out, the clock a number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamlet.backends.run_coordinator import STALL_S
from streamlet.base.clock import AwakeClock, ManualClock
from streamlet.runtime.supervision.instructions import GiveUp, Instruction, Kill, TellUser
from streamlet.runtime.supervision.supervisor import Limits
from streamlet.runtime.tasks.in_hand import HOLDS, Holding
from streamlet.runtime.worker.messages import Close, Pause, Quiet, TickNow
from tests.unit.runtime.supervision.supervision_rig import (
    ADDRESS,
    QUIET,
    CheckedSupervisor,
    all_quiet,
    bring_up,
    running,
)

LONGER = TellUser("info", "Draining for longer, for about 17 s in all: more work was found to be under way.")


def untold(out: list[Instruction]) -> list[Instruction]:
    """Leave out what the user reads."""
    return [one for one in out if not isinstance(one, TellUser)]


def test_an_interrupt_drains_before_it_stops() -> None:
    """Only a state told after the pause counts."""
    supervisor = running()
    supervisor.state(0, 1, drained=True, caught_up=False, now=2.0)
    assert supervisor.end("interrupted", 3.0) == [Pause()]
    supervisor.state(0, 1, drained=True, caught_up=False, now=3.0)  # said before it was told
    assert supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=3.1) == []
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=3.2) == [Quiet(1)]
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=3.3) == [], "said before that"
    assert all_quiet(supervisor, 3.4) == [Close(clean=True, settled=True)]
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
    supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=3.2, done=False)
    assert all_quiet(supervisor, 3.3, done=False) == [Close(clean=True, settled=True)]
    assert not supervisor.drained


@pytest.mark.parametrize(("ends_first", "spout"), [(True, True), (False, True), (True, False)])
def test_a_spout_that_comes_back_while_the_run_ends_has_sent_nothing_again(ends_first: bool, spout: bool) -> None:
    """What was open when its worker died is not done. A worker of bolts alone owes nothing."""
    supervisor = running()
    died = 0 if spout else 1
    supervisor.gone(died, 1, "was killed by SIGKILL", 2.0)
    supervisor.tick(2.5)
    if ends_first:
        supervisor.end("interrupted", 2.6)
    bring_up(supervisor, [died], 3.0)
    if not ends_first:
        supervisor.end("interrupted", 3.1)
    all_quiet(supervisor, 3.2, step=0)
    assert all_quiet(supervisor, 3.3) == [Close(clean=True, settled=True)]
    assert supervisor.drained is not (ends_first and spout)


def test_a_drain_that_takes_too_long_is_cut_short() -> None:
    """What was still open is not committed, and is read again by the next run."""
    supervisor = running(limits=Limits(drain_s=4))
    for index in supervisor.workers:
        supervisor.heard(index, 1, 10.0)
    supervisor.end("interrupted", 10.0)
    assert untold(supervisor.tick(13.9)) == []
    assert supervisor.cut_short_s is None
    assert untold(supervisor.tick(14.0)) == [Close(clean=True)]
    assert (supervisor.drained, supervisor.cut_short_s) == (False, 4.0)


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_drain_with_a_death_in_it_knows_whether_its_time_was_over(cut_short: bool) -> None:
    supervisor = running(limits=Limits(drain_s=4))
    supervisor.end("time", 10.0)
    supervisor.gone(1, 1, "was killed by SIGKILL", 11.0)
    supervisor.heard(0, 1, 13.0)
    if not cut_short:
        supervisor.state(0, 1, drained=False, caught_up=False, traffic=QUIET, now=13.0, idle=True)
        supervisor.state(0, 1, drained=False, caught_up=False, traffic=QUIET, now=13.0, idle=True, quiet=1)
    supervisor.tick(14.0)
    assert supervisor.stopping and not supervisor.drained
    assert supervisor.cut_short_s == (4.0 if cut_short else None)


def test_a_drain_that_stands_still_names_whom_it_waits_for() -> None:
    """Also a worker that says nothing: its page does."""
    supervisor = running(limits=Limits(drain_s=20, silent_s=100.0), tasks={3: "slow"}, components={1: "slow, store"})
    supervisor.end("time", 10.0)
    supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=10.1)
    supervisor.processed(1, 1, 5, 11.0)
    supervisor.note_in_hand(1, 1, Holding(3, "process", 1, 11.0, values="['x']"))
    assert supervisor.tick(13.9) == []
    told = [
        TellUser(
            "warning",
            "Nothing was processed for 3 s, and the end of the run waits for worker 1 (slow, store) at work in slow "
            "(task 3) on the tuple ['x']: for 16 s more at most.",
        )
    ]
    assert supervisor.tick(14.0) == told
    assert supervisor.tick(20.0) == []
    supervisor.processed(1, 1, 6, 21.0)
    assert len(supervisor.tick(24.0)) == 1, "it goes on, and stands still once more"


def test_a_drain_whose_queues_are_empty_names_the_worker_with_open_trees() -> None:
    supervisor = running(limits=Limits(drain_s=20, silent_s=100.0))
    supervisor.end("time", 10.0)
    supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=10.1)
    supervisor.state(0, 1, drained=False, idle=True, caught_up=False, traffic=QUIET, now=10.1)
    (told,) = supervisor.tick(13.0)
    assert isinstance(told, TellUser)
    assert "the end of the run waits for open trees of worker 0, which a bolt keeps or waits with" in told.text


def test_a_drain_whose_queues_are_empty_names_the_worker_whose_bolt_has_the_tuples() -> None:
    """And not that of their spout: a thread of a pool is in a call elsewhere."""
    supervisor = running(limits=Limits(drain_s=20, silent_s=100.0), tasks={4: "pool"}, components={1: "pool"})
    supervisor.end("time", 10.0)
    supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=10.1)
    supervisor.state(0, 1, drained=False, idle=True, caught_up=False, traffic=QUIET, now=10.1)
    supervisor.note_in_hand(1, 1, Holding(4, HOLDS, 2, 0.0, has_threads=True))
    (told,) = supervisor.tick(13.0)
    assert isinstance(told, TellUser)
    assert "the end of the run waits for worker 1 (pool) while pool (task 4) held 2 tuples: for" in told.text


@pytest.mark.parametrize(
    ("waits", "drain_s", "limit_s"),
    [
        ({}, None, 4.0),  # nothing measured, or nothing waits
        ({0: (0.0, 0.0), 1: (7.5, 0.03)}, None, 13.0),
        ({0: (3.0, 0.0), 1: (7.5, 0.0)}, None, 13.0),  # side by side
        ({0: (0.0, 8.0), 1: (0.0, 8.0)}, None, 25.0),  # one after the other
        ({1: (500.0, 0.0)}, None, 30.0),  # the message time-out
        ({1: (500.0, 0.0)}, 2.0, 2.0),  # as the user has set it
    ],
)
def test_a_drain_may_take_as_long_as_what_waits(
    waits: dict[int, tuple[float, float]], drain_s: float | None, limit_s: float
) -> None:
    """The window lets tuples wait for longer than 4 s: a slow topology would leave open trees at each end."""
    supervisor = running(limits=Limits(drain_s=drain_s, silent_s=100.0))
    for index, (wait_s, call_s) in waits.items():
        supervisor.waiting(index, 1, wait_s, call_s, 9.0)
        supervisor.waiting(index, 7, 0.0, 0.0, 9.0)  # of another epoch
    assert supervisor.drain_if_asked_now_s == limit_s
    told = [one.text for one in supervisor.end("time", 10.0) if isinstance(one, TellUser)]
    text = f"Draining, for about {limit_s:g} s: so much work is under way."
    assert told == ([text] if drain_s is None and limit_s > 4 else [])
    for index in waits:
        supervisor.waiting(index, 1, 0.0, 0.0, 11.0)  # while it drains
    assert not any(isinstance(one, Close) for one in supervisor.tick(10.0 + limit_s - 0.1))
    assert supervisor.tick(10.0 + limit_s) == [Close(clean=True)]


@pytest.mark.parametrize(
    ("reason", "drain_s", "until"),
    [("time", None, 26.5), ("interrupted", None, 14.0), ("time", 4.0, 14.0)],
)
def test_work_that_is_found_only_while_a_run_drains_makes_the_drain_longer(
    reason: str, drain_s: float | None, until: float
) -> None:
    """What was emitted just before the time was over; not after Ctrl-C, when the user was told how long it takes."""
    supervisor = running(limits=Limits(drain_s=drain_s, silent_s=100.0))
    supervisor.end(reason, 10.0)
    told = []
    for second, wait_s in ((10.5, 10.0), (11.0, 9.5)):
        supervisor.processed(1, 1, int(2 * second), second)
        told += supervisor.waiting(1, 1, wait_s, 0.0, second)
    assert told == ([LONGER] if until > 14 else []), "once"
    assert untold(supervisor.tick(until - 0.1)) == []
    assert untold(supervisor.tick(until)) != []


@pytest.mark.parametrize(("untracked", "told"), [(True, [LONGER]), (False, [])])
def test_a_drain_after_ctrl_c_is_made_longer_for_untracked_tuples_alone(
    untracked: bool, told: list[Instruction]
) -> None:
    supervisor = running(limits=Limits(silent_s=100.0))
    supervisor.end("interrupted", 10.0)
    supervisor.processed(1, 1, 1, 11.0)
    assert supervisor.waiting(1, 1, 10.0, 0.0, 11.0, untracked) == told


def test_work_that_is_found_while_a_run_drains_is_waited_for_no_longer_than_the_message_time_out() -> None:
    supervisor = running(limits=Limits(silent_s=100.0))
    supervisor.end("time", 10.0)
    for second in range(29):
        supervisor.processed(1, 1, 1 + second, 10.0 + second)
        supervisor.waiting(1, 1, 500.0, 1.0, 10.0 + second)
    assert untold(supervisor.tick(39.9)) == []
    assert untold(supervisor.tick(40.0)) == [Close(clean=True)]


def test_a_drain_is_made_no_longer_for_bolts_that_stand_still() -> None:
    """A call that hangs, or a sink that rests: what waits for it gets no less."""
    supervisor = running(limits=Limits(silent_s=100.0))
    supervisor.processed(1, 1, 70, 9.0)
    supervisor.waiting(1, 1, 10.0, 0.0, 9.0)
    supervisor.end("time", 10.0)
    for second in range(1, 16):
        supervisor.processed(1, 1, 71, 10.0 + second)  # one was done before it stood still
        assert supervisor.waiting(1, 1, 10.0, 0.0, 10.0 + second) == []  # a second more than was told is not told
        assert untold(supervisor.tick(10.0 + second)) == []
    assert untold(supervisor.tick(26.9)) == []
    assert untold(supervisor.tick(27.0)) == [Close(clean=True)]


def test_a_drain_that_lasts_much_longer_than_was_told_is_told_each_time() -> None:
    supervisor = running(limits=Limits(silent_s=100.0))
    supervisor.end("time", 10.0)
    told = []
    for second, wait_s in enumerate((2.0, 10.0, 10.0, 20.0), 11):
        supervisor.processed(1, 1, second, float(second))
        told += [one.text for one in supervisor.waiting(1, 1, wait_s, 0.0, float(second)) if isinstance(one, TellUser)]
    assert [text.split(" in all")[0] for text in told] == [
        "Draining for longer, for about 18 s",
        "Draining for longer, for about 30 s",
    ]


@pytest.mark.parametrize("waited_s", [1.0, 12.5])
def test_after_a_long_drain_closing_has_its_own_five_seconds(waited_s: float) -> None:
    supervisor = running()
    supervisor.waiting(1, 1, 7.5, 0.03, 9.0)
    supervisor.end("interrupted", 10.0)
    for index in (0, 1):
        supervisor.state(index, 1, drained=True, caught_up=True, now=10.0 + waited_s, traffic=({}, {}))
    all_quiet(supervisor, 10.0 + waited_s)
    assert supervisor.tick(14.9 + waited_s) == []
    assert {type(one) for one in supervisor.tick(15.0 + waited_s)} == {TellUser, Kill}


def test_caught_up_takes_every_spout() -> None:
    """And a run that is whole: a worker that is just being replaced has not said its last word."""
    supervisor = running(3, frozenset({0, 2}))
    assert supervisor.state(0, 1, drained=True, caught_up=True, now=2.0) == []
    assert supervisor.state(2, 1, drained=True, caught_up=True, now=2.1) == [Pause()]
    assert supervisor.ending == "caught_up"
    assert supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=2.2) == []
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=2.3) == []
    assert supervisor.state(2, 1, drained=True, caught_up=False, traffic=QUIET, now=2.3) == [Quiet(1)]
    assert all_quiet(supervisor, 2.4) == [Close(clean=True, settled=True)]


def test_a_drain_waits_for_the_workers_without_spouts_too() -> None:
    """Where nothing is tracked no spout has an open tree, and still tuples wait at bolts."""
    supervisor = running()
    supervisor.state(1, 1, drained=True, caught_up=False, now=1.5)
    assert supervisor.state(0, 1, drained=True, caught_up=True, now=2.0) == [Pause()]
    assert supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=2.1) == []
    assert supervisor.state(1, 1, drained=True, caught_up=False, traffic=QUIET, now=2.1) == [Quiet(1)]
    assert all_quiet(supervisor, 2.2) == [Close(clean=True, settled=True)]
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
    assert says(2, {}, {1: 1}) == [Quiet(1)]


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
    supervisor.state(0, 1, drained=True, caught_up=False, traffic=QUIET, now=11.0)
    assert all_quiet(supervisor, 11.0) == [Close(clean=True, settled=True)]
    supervisor.stopped(0, 1)
    assert supervisor.tick(14.9) == []
    assert not supervisor.over
    told, killed = supervisor.tick(16.1)
    assert isinstance(told, TellUser) and "worker 1" in told.text and "cleanup" in told.text
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
    all_quiet(supervisor, 17.0)
    for now in range(11, int(until)):
        assert untold(supervisor.tick(float(now))) == []
    supervisor.stopped(0, 1)
    told, killed = supervisor.tick(until)
    assert killed == Kill(1, 1) and isinstance(told, TellUser) and f"within {until - 17:.1f} s" in told.text
    assert supervisor.over and "did not stop" in supervisor.unclosed[1]


@pytest.mark.parametrize(("drained_s", "until"), [(11.0, 15.0), (13.9, 15.0)])
def test_ctrl_c_ends_within_five_seconds_drain_and_closing_together(drained_s: float, until: float) -> None:
    """That is what its default settings promise."""
    supervisor = running()
    supervisor.end("interrupted", 10.0)
    for index in (0, 1):
        supervisor.state(index, 1, drained=True, caught_up=True, now=drained_s, traffic=({}, {}))
    all_quiet(supervisor, drained_s)
    assert supervisor.tick(until - 0.1) == []
    assert {type(i) for i in supervisor.tick(until)} == {TellUser, Kill}


def test_ctrl_c_bounds_a_closing_that_had_more_time() -> None:
    """Whoever is asked to end need not wait for what a run allows itself."""
    supervisor = running()
    supervisor.end("time", 10.0)
    assert supervisor.tick(14.0) == [Close(clean=True)]
    supervisor.end("interrupted", 20.0)
    supervisor.end("interrupted", 21.0)
    assert supervisor.tick(24.9) == []
    assert {type(i) for i in supervisor.tick(25.0)} == {TellUser, Kill}
    assert supervisor.ending == "interrupted"


def test_workers_are_told_who_is_dead_when_a_run_ends() -> None:
    """Nobody is started any more, and what is for the dead would wait for ever. One that starts may still come."""
    supervisor = running(4)
    supervisor.gone(3, 1, "was killed by SIGKILL", 1.5)
    supervisor.tick(1.9)
    supervisor.gone(2, 1, "was killed by SIGKILL", 2.0)
    assert supervisor.end("time", 2.0) == [Pause([2])]
    supervisor.gone(3, 2, "was killed by SIGKILL", 2.1)
    assert supervisor.pause == Pause([2, 3]), "for one that comes later"


def test_a_death_before_all_is_closed_is_remembered_and_told() -> None:
    """While it closes, while the run drains, or shortly before: what its cleanup was to write is missing. Once a worker
    has said that it closed, its end is as it should be.
    """
    supervisor = CheckedSupervisor(4, frozenset({0}), Limits(), {1: "count, store"})
    supervisor.begin(0.0)
    bring_up(supervisor, range(4), 1.0)
    supervisor.gone(3, 1, "was killed by SIGKILL", 1.5)
    supervisor.tick(2.0)
    assert supervisor.end("time", 2.0) == [Pause()]
    for index in (0, 1, 2):
        supervisor.state(index, 1, drained=True, caught_up=False, traffic=QUIET, now=2.0)
    for index in (0, 1, 2):
        out = supervisor.state(index, 1, drained=True, caught_up=False, traffic=QUIET, now=2.0, quiet=1)
    assert out[-2:] == [Kill(3, 2), TellUser("warning", f"{LATE}: {MISSING}", 3, 2)]
    supervisor.stopped(0, 1)
    assert supervisor.gone(0, 1, "ended with status 0", 2.1) == [Kill(0, 1)]
    text = "worker 1 (count, store) was killed by SIGKILL before it had closed"
    assert supervisor.gone(1, 1, "was killed by SIGKILL", 2.2) == [
        Kill(1, 1),
        TellUser("warning", f"{text}: {MISSING}", 1, 1),
    ]
    supervisor.stopped(2, 1)
    assert supervisor.over
    assert supervisor.unclosed == {1: text, 3: LATE}


LATE = "worker 3 had died and was not back when the run ended"
MISSING = "what its cleanup was to write may be missing"


def test_an_end_before_all_are_up_waits_for_nobody_who_is_still_starting() -> None:
    """A run that is stopped while its workers start ends at once."""
    supervisor = CheckedSupervisor(2, frozenset({0}), Limits())
    supervisor.begin(0.0)
    supervisor.ready(0, 1, ADDRESS, 0.1)
    assert supervisor.end("time", 0.2) == [Pause(), Close(clean=True), Kill(1, 1)]
    assert not supervisor.over
    supervisor.stopped(0, 1)
    assert supervisor.over


def test_a_death_during_the_drain_ends_the_run_undrained_once_the_others_queues_are_empty() -> None:
    """Nobody is restarted any more, and open trees are not waited for; what waits untracked at the others is."""
    supervisor = running()
    supervisor.end("time", 5.0)
    out = supervisor.gone(1, 1, "was killed by SIGKILL", 5.1)
    assert not any(isinstance(one, Close | Quiet) for one in out)
    assert supervisor.state(0, 1, drained=False, caught_up=False, traffic=QUIET, now=5.2, idle=True) == [Quiet(1)]
    out = supervisor.state(0, 1, drained=False, caught_up=False, traffic=QUIET, now=5.3, idle=True, quiet=1)
    assert Close(clean=True, settled=True) in out
    assert supervisor.tick(6.0) == []
    assert not supervisor.drained
    assert "was killed by SIGKILL before it was to close" in supervisor.unclosed[1]


def test_a_drain_that_waits_for_open_trees_alone_has_bolts_tick_each_second() -> None:
    """A bolt that collects until its tick keeps them open; so does one that waits for an answer from elsewhere."""
    supervisor = running(2)
    supervisor.end("interrupted", 2.0)

    def say(now: float, drained: bool, idle: bool = True) -> None:
        supervisor.state(0, 1, drained, False, now, traffic=QUIET, idle=idle)
        supervisor.state(1, 1, True, False, now, traffic=QUIET)

    say(2.0, drained=False, idle=False)
    assert supervisor.tick(2.9) == []
    say(3.0, drained=False)
    ticks = {now: TickNow() in supervisor.tick(now) for now in (3.0, 3.9, 4.0, 4.5, 5.0)}
    assert ticks == {3.0: False, 3.9: False, 4.0: True, 4.5: False, 5.0: True}
    say(5.1, drained=False, idle=False)
    assert TickNow() not in supervisor.tick(5.9), "what the tick led to is worked off"


def test_a_spout_is_at_its_end_by_what_it_says_after_the_run_is_whole_again() -> None:
    """Trees failed as lost in between, and are to be replayed."""
    supervisor = running(3, frozenset({0, 1}))
    supervisor.state(0, 1, drained=True, caught_up=True, now=2.0)
    supervisor.gone(2, 1, "died", 3.0)
    assert supervisor.tick(4.0)
    bring_up(supervisor, range(2, 3), 5.0)
    assert supervisor.whole
    assert supervisor.state(1, 1, drained=True, caught_up=True, now=6.0) == []
    supervisor.state(0, 1, drained=True, caught_up=True, now=7.0)
    assert supervisor.ending == "caught_up"


def test_bolts_with_ticks_become_quiet_one_depth_after_the_other() -> None:
    """What the last tick of one emits reaches the next before that one's last tick."""
    supervisor = running(limits=Limits(), quiet_steps=2)
    supervisor.end("time", 5.0)
    for index in (0, 1):
        out = supervisor.state(index, 1, drained=True, caught_up=False, traffic=QUIET, now=5.1)
    assert out == [Quiet(1)]
    assert all_quiet(supervisor, 5.2) == [Quiet(2)]
    assert all_quiet(supervisor, 5.3, step=2) == [Close(clean=True, settled=True)]


def test_a_run_that_has_caught_up_drains_as_long_as_tuples_are_processed() -> None:
    """Half a minute without one ends it; a limit of the user's own counts from the beginning."""
    supervisor = running()
    supervisor.end("caught_up", 10.0)
    for second in range(1, 100):
        for index in (0, 1):
            supervisor.heard(index, 1, 10.0 + second)
            supervisor.processed(index, 1, min(second, 50), 10.0 + second)
        out = supervisor.tick(10.0 + second)
        if second == 80:
            assert out == [Close(clean=True, settled=False)]
            break
        assert untold(out) == []
    supervisor = running(limits=Limits(drain_s=4.0))
    supervisor.end("caught_up", 10.0)
    supervisor.processed(0, 1, 1, 13.0)
    assert supervisor.tick(14.0) == [Close(clean=True, settled=False)]


def _starting(run: CheckedSupervisor) -> None: ...


def _up(run: CheckedSupervisor) -> None:
    bring_up(run, range(2), 1.0)


def _one_waits_for_its_restart(run: CheckedSupervisor) -> None:
    _up(run)
    run.gone(1, 1, "was killed", 2.0)


def _a_link_is_lost(run: CheckedSupervisor) -> None:
    _up(run)
    run.link_lost(0, 1, 1, 1, run.version, "it broke", 2.0)


def _draining(run: CheckedSupervisor) -> None:
    _up(run)
    run.end("interrupted", 2.0)


def _closing(run: CheckedSupervisor) -> None:
    _draining(run)
    for step in range(1, 3):
        all_quiet(run, 2.0, step=step)


@pytest.mark.parametrize(
    "phase",
    [_starting, _up, _one_waits_for_its_restart, _a_link_is_lost, _draining, _closing],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("away_s", [48.0, 86_400.0])
def test_a_coordinator_that_was_away_for_a_day_blames_no_worker_and_ends_nothing(
    phase: Callable[[CheckedSupervisor], None], away_s: float
) -> None:
    """A lid that was shut, by the clock that the coordinator gives it: whatever was due is judged by what is heard."""
    clock = ManualClock(start_s=0.0)
    awake = AwakeClock(clock, STALL_S)
    run = CheckedSupervisor(2, frozenset({0}), Limits())
    run.begin(0.0)
    phase(run)
    while awake.monotonic() < 2.0:
        clock.advance(0.25)
    run.heard(0, run.workers[0].epoch, 2.0)
    run.heard(1, run.workers[1].epoch, 2.0)
    epochs = [worker.epoch for worker in run.workers.values()]
    clock.advance(away_s)
    for _ in range(4):  # a second in which its workers' words are read
        out = run.tick(awake.monotonic())
        assert not [one for one in out if isinstance(one, (Kill, GiveUp, Close))], out
        clock.advance(0.25)
    assert not run.over and run.silent_workers(awake.monotonic()) == []
    assert [worker.epoch for worker in run.workers.values()] == epochs or phase is _one_waits_for_its_restart


@pytest.mark.parametrize("ends", [False, True])
def test_a_death_in_a_drain_promises_nothing_that_only_a_replacement_does(ends: bool) -> None:
    """It spoke of tuples that come one by one until it is known which killed it."""
    supervisor = running(tasks={2: "store"})
    if ends:
        supervisor.end("interrupted", 3.0)
    supervisor.note_in_hand(1, 1, Holding(2, "process", 3, 1.0))
    texts = [one.text for one in supervisor.gone(1, 1, "was killed by SIGKILL", 3.1) if isinstance(one, TellUser)]
    assert "at work in store (task 2) on one of 3 tuples" in texts[0]
    assert ("one by one" in texts[0]) is not ends
