"""What the coordinator decides: events in, instructions out, the clock a number."""

from __future__ import annotations

import random

import pytest

from streamlet.runtime.supervision.blame import CAREFUL_S
from streamlet.runtime.supervision.instructions import (
    AskWhy,
    GiveUp,
    Instruction,
    Kill,
    NoteDeadly,
    Replaced,
    Start,
    TellUser,
)
from streamlet.runtime.supervision.supervisor import Limits, Supervisor, WorkerState
from streamlet.runtime.tasks.in_hand import Holding
from streamlet.runtime.worker.messages import Book, Cut, Lost, Whole
from tests.held_sizes import grown, sizes
from tests.seeds import seeds
from tests.unit.runtime.supervision.supervision_rig import ADDRESS, CheckedSupervisor, bring_up, running


def test_tuples_flow_only_when_every_worker_is_linked_by_one_version() -> None:
    """An older version's links prove nothing."""
    supervisor = CheckedSupervisor(2, frozenset({0}), Limits())
    supervisor.begin(0.0)
    assert [type(i) for i in supervisor.ready(0, 1, ADDRESS, 0.1)] == [Book]
    assert supervisor.linked(0, 1, 1) == []
    assert supervisor.initialized(0, 1) == []
    assert supervisor.ready(1, 1, ADDRESS, 0.2) == [Book(2, {0: (1, *ADDRESS), 1: (1, *ADDRESS)})]
    assert supervisor.initialized(1, 1) == []
    assert supervisor.linked(1, 1, 2) == []
    assert supervisor.linked(0, 1, 2) == [Whole(2)]


def test_a_dead_worker_is_killed_announced_and_replaced_by_the_next_epoch() -> None:
    """In this order, and only after its back-off."""
    supervisor = running()
    out = supervisor.gone(1, 1, "was killed by SIGKILL", 10.0)
    assert out[0] == Kill(1, 1)
    assert Lost(1, 1, "was killed by SIGKILL") in out
    assert out[-1] == Book(supervisor.version, {0: (1, *ADDRESS)})
    assert supervisor.tick(10.0) == [Start(1, 2)]
    assert bring_up(supervisor, [1], 11.0)[-2:] == [Whole(supervisor.version), Replaced(1, 2)]


def test_a_worker_that_dies_before_it_has_seen_a_tuple_took_nothing_along() -> None:
    """So nobody is told that its memory is gone; nor twice of one death."""
    supervisor = CheckedSupervisor(2, frozenset({0}), Limits())
    supervisor.begin(0.0)
    supervisor.gone(1, 1, "ended with status 1", 0.1)
    supervisor.tick(1.0)
    assert bring_up(supervisor, [0, 1], 1.0)[-1] == Whole(supervisor.version)
    supervisor.gone(0, 1, "was killed by SIGKILL", 2.0)
    supervisor.tick(3.0)
    assert bring_up(supervisor, [0], 3.0)[-1] == Replaced(0, 2)
    book = supervisor.link_lost(0, 2, 1, 2, supervisor.version)
    assert book and all(supervisor.linked(at, 2, supervisor.version) == [] for at in (0,))
    assert supervisor.linked(1, 2, supervisor.version) == [Whole(supervisor.version)]


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


def test_a_worker_that_has_closed_and_hangs_up_is_left_to_its_exit() -> None:
    """Another still closes. Its own end, when it comes, is seen as any."""
    supervisor = running()
    supervisor.end("time", 10.0)
    supervisor.tick(1000.0)
    supervisor.stopped(1, 1)
    assert supervisor.hung_up(1, 1, 1000.5) == [] and not supervisor.over
    assert supervisor.hung_up(0, 1, 1000.5)[0] == Kill(0, 1) and supervisor.over
    assert supervisor.gone(1, 1, "ended with status 0", 1001.0) == [Kill(1, 1)]


def test_a_cut_link_starts_the_pair_again_once() -> None:
    """Both ends report it; the second report is of a link already declared void."""
    supervisor = running()
    version = supervisor.version
    out = supervisor.link_lost(0, 1, 1, 1, version)
    assert out == [Cut((0, 1), version + 1), Book(version + 1, {0: (1, *ADDRESS), 1: (1, *ADDRESS)})]
    assert supervisor.link_lost(1, 1, 0, 1, version) == []
    assert not supervisor.whole
    supervisor.linked(0, 1, version + 1)
    assert supervisor.linked(1, 1, version + 1) == [Whole(version + 1)]


def test_a_silent_worker_is_replaced() -> None:
    """Heartbeats come from a thread of their own, so silence means that the process is stopped or gone."""
    supervisor = running(limits=Limits(silent_s=5))
    supervisor.heard(0, 1, 7.0)
    supervisor.heard(1, 1, 3.0)
    assert supervisor.tick(7.9) == []
    out = supervisor.tick(8.1)
    assert out[0] == Kill(1, 1)
    assert any(isinstance(i, TellUser) and "silent" in i.text for i in out)


def test_a_worker_that_never_starts_is_given_up_by_its_own_limit() -> None:
    """Imports and connections may take longer than a heartbeat."""
    supervisor = CheckedSupervisor(1, frozenset({0}), Limits(start_s=30, silent_s=5))
    supervisor.begin(0.0)
    assert supervisor.tick(29.0) == [AskWhy(frozenset({(0, 1)}))]
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
        supervisor.heard(0, 1, now + 1)
        supervisor.tick(now + 1)
        bring_up(supervisor, [1], now + 2)


def test_a_worker_that_has_worked_between_its_deaths_is_started_at_once() -> None:
    """The pause grows with deaths that follow each other closely, and begins anew after one that came alone."""
    supervisor, waits, now = running(), list[float](), 100.0
    for apart_s in (1.0, 1.0, 1.0, 12.0, 12.0, 1.0):
        supervisor.heard(0, 1, now)
        supervisor.gone(1, supervisor.workers[1].epoch, "was killed by SIGKILL", now)
        restart_at = supervisor.workers[1].restart_at
        assert restart_at is not None
        waits.append(round(restart_at - now, 3))
        assert any(isinstance(i, Start) for i in supervisor.tick(restart_at))
        bring_up(supervisor, [1], restart_at)
        now += apart_s
    assert waits == [0, 0.1, 0.2, 0.4, 0, 0]


def test_deaths_that_a_spout_counts_make_no_pause_longer() -> None:
    """Each brings the end of a tuple nearer: of ten deadly ones thirty deaths follow each other."""
    supervisor, waits, now = running(tasks=TASKS), list[float](), 100.0
    for death in range(8):
        worker = supervisor.workers[1]
        values = f"[{death // 3}]"
        supervisor.heard(0, 1, now)
        supervisor.note_in_hand(1, worker.epoch, Holding(2, "process", 1, 1.0, (1 << 48,), (), values))
        supervisor.gone(1, worker.epoch, "was killed by SIGSEGV", now)
        restart_at = worker.restart_at
        assert restart_at is not None
        waits.append(round(restart_at - now, 3))
        supervisor.tick(restart_at)
        bring_up(supervisor, [1], restart_at)
        now += 1.0
    assert waits == [0] * 8
    supervisor.gone(1, supervisor.workers[1].epoch, "was killed by SIGKILL", now)
    assert supervisor.workers[1].restart_at == now + 0.1, "of what it died of now nobody knows anything"


def test_a_worker_that_never_comes_up_is_given_up() -> None:
    """Each start takes its 30 s, so few fall into the window: the run would wait for ever, for a slot or an import."""
    supervisor = running(limits=Limits(restarts=12))
    bring_up(supervisor, [1], 999.0)
    now, out = 1000.0, supervisor.gone(1, 1, "died", 1000.0)
    starts, told = 0, list[str]()
    while not any(isinstance(i, GiveUp) for i in out):
        now += 0.5
        supervisor.heard(0, 1, now)
        out = supervisor.tick(now)
        starts += sum(isinstance(i, Start) for i in out)
        told += [i.text for i in out if isinstance(i, TellUser)]
        assert starts < 15
    (given_up,) = [i for i in out if isinstance(i, GiveUp)]
    assert (
        "was started 13 times and never came up" in given_up.reason
        and "was not ready 30 s after its start" in given_up.reason
    )
    assert sum("start.timeout.secs" in text for text in told) == 1, "with the first one"
    assert "streamlet.worker.start.timeout.secs" in given_up.reason, "not to look at what its components do"
    assert now > 1300, "as slowly as that, the window would never be full"


@pytest.mark.parametrize("call", ["initialize", "its constructor"])
def test_a_component_that_ends_its_process_at_the_first_start_is_not_started_for_a_minute(call: str) -> None:
    """Once tuples have flowed it is as patient as with any death: what it needs may be back soon."""
    deaths = []
    fresh = CheckedSupervisor(2, frozenset({0}), Limits(restarts=20))
    fresh.begin(0.0)
    fresh.ready(0, 1, ADDRESS, 0.1)
    for supervisor in (fresh, running(limits=Limits(restarts=20))):
        now, out, count = 10.0, list[Instruction](), 0
        while not any(isinstance(i, GiveUp) for i in out):
            epoch = supervisor.workers[1].epoch
            supervisor.note_in_hand(1, epoch, Holding(2, call, 1, now))
            out, count = supervisor.gone(1, epoch, "was killed by SIGSEGV", now), count + 1
            while supervisor.workers[1].epoch == epoch and not any(isinstance(i, GiveUp) for i in out):
                now += 0.5
                supervisor.heard(0, 1, now)
                supervisor.tick(now)
        deaths.append(count)
        (given_up,) = [i for i in out if isinstance(i, GiveUp)]
        assert (f"{count} times" in given_up.reason) and ("what that call does" in given_up.reason) == (count == 5)
    assert deaths == [5, 21]


def deaths_until_the_end(
    supervisor: Supervisor, how: str = "ended with status 3", has_plan: bool = True, remedy: str = ""
) -> tuple[int, str]:
    """Let worker 1 die in each of its starts, before it is ready; how often, and the reason of the end."""
    now, count = 10.0, 0
    while True:
        epoch = supervisor.workers[1].epoch
        supervisor.note_in_hand(1, epoch, None, has_plan)
        out, count = supervisor.gone(1, epoch, how, now, remedy), count + 1
        for given_up in out:
            if isinstance(given_up, GiveUp):
                return count, given_up.reason
        while supervisor.workers[1].epoch == epoch:
            now += 0.5
            hear_all(supervisor, now)
            supervisor.tick(now)


def starting() -> Supervisor:
    """A supervisor of two workers, of which the first is ready."""
    supervisor = CheckedSupervisor(2, frozenset({0}), Limits(restarts=20))
    supervisor.begin(0.0)
    supervisor.ready(0, 1, ADDRESS, 0.1)
    return supervisor


def test_a_worker_that_ends_while_it_imports_is_given_up_after_five_starts_with_the_place() -> None:
    """It would end there each time; and no component was made that could be looked at."""
    count, reason = deaths_until_the_end(starting())
    assert count == 5 and "was started 5 times and never came up" in reason
    assert "ended with status 3 while it imported the topology's file, before any component was made" in reason
    assert "look at what that file, and what it imports, does" in reason and "restarts.max" not in reason


def test_once_tuples_have_flowed_an_import_has_the_patience_of_any_death() -> None:
    supervisor = running(limits=Limits(restarts=20))
    supervisor.gone(1, 1, "was killed by SIGKILL", 5.0)
    hear_all(supervisor, 6.0)
    supervisor.tick(6.0)
    count, reason = deaths_until_the_end(supervisor)
    assert count == 20 and "while it imported" in reason


@pytest.mark.parametrize(
    ("how", "has_plan", "remedy"),
    [
        ("could not be started: [Errno 24] Too many open files", True, "look at `ulimit -n`."),
        ("was lost by Spark: its executor is gone", False, ""),
    ],
)
def test_a_start_that_the_system_or_spark_refuses_keeps_its_patience(how: str, has_plan: bool, remedy: str) -> None:
    """It may succeed later; and it counts for no import that ends by itself."""
    count, reason = deaths_until_the_end(starting(), how, has_plan, remedy)
    assert count == 21 and "while it imported" not in reason
    supervisor = starting()
    for now in (10.0, 20.0, 30.0, 40.0):
        epoch = supervisor.workers[1].epoch
        supervisor.note_in_hand(1, epoch, None, has_plan)
        supervisor.gone(1, epoch, how, now, remedy)
        hear_all(supervisor, now + 9)
        supervisor.tick(now + 9)
    assert deaths_until_the_end(supervisor)[0] == 5


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
                assert instruction == Whole(supervisor.version)
                assert all(w.linked == supervisor.version for w in supervisor.workers.values())
        supervisor.tick(now)
    supervisor.tick(now + 6)
    out = bring_up(supervisor, range(3), now + 6)
    assert supervisor.whole, out


def silent_until(
    supervisor: Supervisor,
    until: float,
    share: float | None,
    count: int = 64,
    halted: bool = False,
    began: float = 0.0,
) -> list[Instruction]:
    """Let worker 1 be silent from 3 s on and use this share of a processor; all instructions from then on."""
    out: list[Instruction] = []
    now, until = began + 3.0, began + until
    supervisor.heard(1, supervisor.workers[1].epoch, now)
    while now < until and not out:
        now += 0.25
        supervisor.heard(0, 1, now)
        for index, epoch in supervisor.silent_workers(now):
            assert index == 1
            supervisor.note_in_hand(index, epoch, Holding(2, "process", count, 1.0, (7,), values="['x']"))
            supervisor.note_processor_time(index, epoch, None if share is None else share * now, now, halted)
        out = supervisor.tick(now)
    return out


TASKS = {1: "lines", 2: "count"}


def test_a_silent_worker_that_works_is_left_alone_up_to_a_limit() -> None:
    supervisor = running(limits=Limits(silent_s=5, busy_s=60), tasks=TASKS)
    (told,) = silent_until(supervisor, 9.0, 0.9)
    assert isinstance(told, TellUser)
    assert "has been silent for 5 s and uses its processor at work in count (task 2) on one of 64 tuples" in told.text
    assert supervisor.workers[1].busy
    out: list[Instruction] = []
    now = 8.25
    while now < 70.0 and not out:
        now += 0.25
        supervisor.heard(0, 1, now)
        for index, epoch in supervisor.silent_workers(now):
            supervisor.note_processor_time(index, epoch, 0.9 * now, now)
        out = supervisor.tick(now)
    assert 63.0 < now < 64.0 and out[0] == Kill(1, 1)
    assert any(isinstance(i, TellUser) and "silent for 60 s, though it used its processor" in i.text for i in out)


@pytest.mark.parametrize(("share", "said"), [(0.002, "and used no processor time"), (None, "was silent for 5 s")])
def test_a_silent_worker_that_does_nothing_is_replaced_in_time(share: float | None, said: str) -> None:
    """Threads that wait for the interpreter's lock use a little; where nobody can look, silence alone counts."""
    supervisor = running(limits=Limits(silent_s=5), tasks=TASKS)
    out = silent_until(supervisor, 9.0, share)
    assert out[0] == Kill(1, 1)
    (told,) = (i.text for i in out if isinstance(i, TellUser))
    assert said in told and ("processor" in told) == (share is not None)


def test_a_tuple_is_not_charged_for_a_signal_that_stopped_its_worker() -> None:
    """The state of the process tells: a tuple that hangs does not stop it. One that does so each time is found."""
    charged = silent_until(running(limits=Limits(silent_s=5), tasks=TASKS), 9.0, 0.002, 1)
    assert [i.roots for i in charged if isinstance(i, Lost)] == [[7]]
    assert any(isinstance(i, NoteDeadly) for i in charged)
    supervisor = running(limits=Limits(silent_s=5), tasks=TASKS)
    for epoch, excused in enumerate((True, True, False), 1):
        began = 12.0 * (epoch - 1)
        out = silent_until(supervisor, 9.0, 0.002, 1, halted=True, began=began)
        assert out[0] == Kill(1, epoch) and any(isinstance(i, NoteDeadly) for i in out) is not excused
        (lost,) = (i for i in out if isinstance(i, Lost))
        assert lost.roots == ([] if excused else [7]) and ("SIGSTOP" in lost.how) is excused
        assert ("count" in lost.how) is not excused
        supervisor.heard(0, 1, began + 12.0)
        assert any(isinstance(i, Start) for i in supervisor.tick(began + 12.0))
        bring_up(supervisor, [1], began + 12.0)


def test_a_worker_that_speaks_again_is_no_longer_busy() -> None:
    supervisor = running(limits=Limits(silent_s=5), tasks=TASKS)
    silent_until(supervisor, 9.0, 0.9)
    supervisor.heard(1, 1, 9.0)
    assert supervisor.tick(9.1) == [] and not supervisor.workers[1].busy and supervisor.silent_workers(9.2) == []


def test_a_death_of_a_known_tuple_weighs_a_quarter_and_is_told_to_all() -> None:
    supervisor = running(limits=Limits(restarts=1), tasks=TASKS)
    for death in range(3):
        epoch = supervisor.workers[1].epoch
        supervisor.note_in_hand(1, epoch, Holding(2, "process", 1, 1.0, (1 << 48,), (), "['x']"))
        out = supervisor.gone(1, epoch, "was killed by SIGSEGV", 10.0 + 9 * death)
        how = "was killed by SIGSEGV at work in count (task 2) on the tuple ['x']"
        assert Lost(1, epoch, how, [1 << 48], [2], CAREFUL_S) in out
        assert not any(isinstance(i, GiveUp) for i in out)
        supervisor.heard(0, 1, 15.0 + 9 * death)
        supervisor.tick(15.0 + 9 * death)
        bring_up(supervisor, [1], 15.0 + 9 * death)
    out = supervisor.gone(1, supervisor.workers[1].epoch, "was killed by SIGSEGV", 50.0)
    assert any(isinstance(i, GiveUp) for i in out), "of what it died of now nobody knows anything"


def test_a_worker_that_asks_for_it_is_replaced_and_in_a_drain_ended() -> None:
    supervisor = running()
    out = supervisor.unfit(1, 1, "ran out of memory", 10.0)
    assert out[0] == Kill(1, 1) and "was replaced because it ran out of memory" in out[1].text  # type: ignore[union-attr]
    supervisor = running()
    supervisor.end("interrupted", 9.0)
    out = supervisor.unfit(1, 1, "ran out of memory", 10.0)
    assert out[0] == Kill(1, 1) and "was ended because it ran out of memory" in out[1].text  # type: ignore[union-attr]
    assert supervisor.workers[1].restart_at is None
    assert "was ended because it ran out of memory before it was to close" in supervisor.unclosed[1]


def test_a_worker_that_closes_is_not_ended_by_what_it_asked_for_before() -> None:
    supervisor = running()
    supervisor.end("interrupted", 9.0)
    supervisor.end("interrupted", 9.5)
    supervisor.tick(10_000.0)
    assert supervisor.stopping and supervisor.unfit(1, 1, "has been in one call for 30 s", 10_001.0) == []


def test_a_worker_that_hangs_is_replaced_also_where_another_had_died_meanwhile() -> None:
    """Its loop links with nobody: the run would wait for it for ever, all heartbeats sound."""
    supervisor = running(3)
    supervisor.gone(1, 1, "was killed by SIGSEGV", 10.0)
    hear_all(supervisor, 11.0)
    supervisor.tick(11.0)
    epoch = supervisor.workers[1].epoch
    supervisor.ready(1, epoch, ADDRESS, 12.0)
    supervisor.initialized(1, epoch)
    for index in (1, 2):
        supervisor.linked(index, supervisor.workers[index].epoch, supervisor.version)
    assert not supervisor.whole, "worker 0 hangs"
    assert supervisor.unfit(1, epoch, "asks before it is up", 13.0) == []
    assert supervisor.unfit(0, 1, "has been in one call for 30 s", 30.0)[0] == Kill(0, 1)
    assert supervisor.unfit(0, 1, "has been in one call for 31 s", 31.0) == [], "it is being replaced"
    hear_all(supervisor, 32.0)
    supervisor.tick(32.0)
    bring_up(supervisor, [0], 33.0)
    assert supervisor.whole


def hear_all(supervisor: Supervisor, now: float) -> None:
    for index, worker in supervisor.workers.items():
        supervisor.heard(index, worker.epoch, now)


def test_nobody_is_started_while_the_run_ends() -> None:
    """A replacement that was due would read on, and its trees be open at the end."""
    supervisor = running()
    supervisor.gone(1, 1, "was killed by SIGKILL", 10.0)
    supervisor.end("failed", 10.01)
    assert not any(isinstance(one, Start) for at in (10.2, 11.0, 13.0) for one in supervisor.tick(at))


def test_what_a_run_keeps_does_not_grow_with_its_deaths_and_lost_links() -> None:
    """4 000 deaths, each on a tuple of its own, and 4 000 lost links: a run of months."""
    supervisor = running(3, limits=Limits(restarts=50), tasks={1: "numbers", 2: "sink"})
    now, kept = 10.0, []
    for count in range(8000):
        now += 30.0
        index, other = count % 3, (count + 1) % 3
        worker = supervisor.workers[index]
        if count % 2:
            held = Holding(2, "process", 1, now, (count,), ((count, b"%d" % count, str(count)),), f"[{count}]")
            supervisor.note_in_hand(index, worker.epoch, held)
            supervisor.gone(index, worker.epoch, "was killed by SIGKILL", now)
            now += 10.0
            hear_all(supervisor, now)
            supervisor.tick(now)
            bring_up(supervisor, [index], now)
        else:
            peer = supervisor.workers[other]
            supervisor.link_lost(index, worker.epoch, other, peer.epoch, supervisor.version, "reset", now)
            bring_up(supervisor, [], now)
            hear_all(supervisor, now)
            supervisor.tick(now + 2)
        assert supervisor.ending is None and supervisor.whole
        if count in (3999, 7999):
            kept.append(sizes(supervisor))
    assert grown(*kept, allowed=10) == {}
