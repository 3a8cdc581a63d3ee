"""What is said of lost links and of links that do not come up: pure, the clock a number."""

from __future__ import annotations

from itertools import pairwise

import pytest

from streamlet.runtime.links.links import CUT_BY_COORDINATOR, PEER_CLOSED, PEER_RESET
from streamlet.runtime.supervision.instructions import AskWhy, GiveUp, TellUser
from streamlet.runtime.supervision.supervisor import Limits, Supervisor
from streamlet.runtime.supervision.worker_states import HeldUp
from tests.unit.runtime.supervision.supervision_rig import CheckedSupervisor, bring_up, running


def told(out: list[object]) -> list[str]:
    return [i.text for i in out if isinstance(i, TellUser)]


def cut(supervisor: Supervisor, why: str, now: float, end: int = 1, other: int = 0) -> None:
    """Lose the link of a pair, and link it again."""
    epochs = {index: worker.epoch for index, worker in supervisor.workers.items()}
    assert supervisor.link_lost(end, epochs[end], other, epochs[other], supervisor.version, why, now)
    bring_up(supervisor, [], now)
    assert supervisor.whole


def heard(supervisor: Supervisor, now: float) -> list[object]:
    for index, worker in supervisor.workers.items():
        supervisor.heard(index, worker.epoch, now)
    return list(supervisor.tick(now))


def test_why_a_link_was_lost_is_told_with_both_workers() -> None:
    """By the end that knows better, and only when it was not a worker's death, which is told as such."""
    supervisor = running()
    version = supervisor.version
    supervisor.link_lost(1, 1, 0, 1, version, PEER_CLOSED, 2.0)
    supervisor.link_lost(0, 1, 1, 1, version, "a frame came twice", 2.0)
    supervisor.link_lost(1, 1, 0, 1, version, CUT_BY_COORDINATOR, 2.0)
    assert told(heard(supervisor, 2.5)) == []
    (text,) = told(heard(supervisor, 3.0))
    assert text.startswith("worker 0 (epoch 1) lost its link to worker 1 (epoch 1): a frame came twice.")
    assert told(heard(supervisor, 30.0)) == [] or not supervisor.whole


def test_a_link_that_went_with_its_worker_is_not_told() -> None:
    supervisor = running()
    supervisor.link_lost(1, 1, 0, 1, supervisor.version, PEER_CLOSED, 2.0)
    (death,) = told(supervisor.gone(0, 1, "was killed by SIGKILL", 2.3))
    assert "SIGKILL" in death
    assert told(heard(supervisor, 4.0)) == []


def test_a_pair_that_is_cut_often_is_told_now_and_then() -> None:
    supervisor = running()
    lines = []
    for at in range(2, 22):
        cut(supervisor, PEER_CLOSED, float(at))
        lines += told(heard(supervisor, at + 0.5))
    assert len(lines) == 2 and "times since the last report" in lines[1]


def test_a_pair_whose_links_never_last_ends_the_run_by_the_budget_of_restarts() -> None:
    """Made again for ever, each time with all open trees failed, nothing would ever be done."""
    supervisor = running(3, limits=Limits(restarts=3))
    now, out = 2.0, []
    while not (given_up := [i for i in out if isinstance(i, GiveUp)]):
        cut(supervisor, "a tag did not fit", now, 2, 1)
        now += 5.0
        out = heard(supervisor, now)
        assert now < 60.0
    (given_up,) = given_up
    assert "between worker 1 and worker 2 was lost" in given_up.reason and "a tag did not fit" in given_up.reason
    assert "streamlet.worker.restarts.max" in given_up.reason


@pytest.mark.parametrize("tracked", [True, False])
def test_b3_a_pair_whose_links_break_again_and_again_ends_no_run_in_which_tuples_are_done(tracked: bool) -> None:
    """Every 1.5 s for five minutes: ten times what is allowed. Trees are done in between, or, untracked, tuples."""
    supervisor, now, lines = running(3, limits=Limits(restarts=20)), 2.0, []
    for number in range(1, 200):
        cut(supervisor, PEER_RESET, now, 2, 1)
        supervisor.processed(0, 1, 10 * number, now + 0.7)
        supervisor.completed(0, 1, number if tracked else 0, tracked=tracked)
        now += 1.5
        out = heard(supervisor, now)
        assert not any(isinstance(i, GiveUp) for i in out), f"after {number} losses"
        lines += told(out)
    assert 20 < len(lines) < 40 and "times since the last report" in lines[-1], "it is told all the same"


def test_a_pair_over_which_tuples_go_and_no_tree_is_done_ends_the_run() -> None:
    """Bolts work on what is replayed, again and again."""
    supervisor, now, out = running(3, limits=Limits(restarts=20)), 2.0, []
    supervisor.completed(0, 1, 7, tracked=True)
    for number in range(1, 60):
        cut(supervisor, PEER_RESET, now, 2, 1)
        supervisor.processed(0, 1, 10 * number, now)
        supervisor.completed(0, 1, 7, tracked=True)
        now += 1.5
        out += heard(supervisor, now)
    given_up = [i for i in out if isinstance(i, GiveUp)]
    assert given_up and "nothing was done in between" in given_up[0].reason


def test_cuts_long_ago_do_not_count() -> None:
    supervisor = running(limits=Limits(restarts=1))
    for now in (2.0, 1000.0, 2000.0, 3000.0):
        cut(supervisor, PEER_CLOSED, now)
        assert not any(isinstance(i, GiveUp) for i in heard(supervisor, now + 2.0))


def test_what_a_run_waits_for_is_said_once() -> None:
    """Who is not up, with the component if that is known, and which pairs are not linked, and why."""
    supervisor = CheckedSupervisor(4, frozenset({0}), Limits(start_s=60.0), {3: "store"})
    supervisor.begin(0.0)
    for index in (0, 1, 2):
        supervisor.ready(index, 1, ("unix", "/s", 0), 0.5)
    for index in (0, 2):
        supervisor.initialized(index, 1)
    supervisor.initializing(1, 1, "count")
    supervisor.unlinked(2, 1, 0, "it did not accept this worker's epoch")
    supervisor.heard(3, 1, 9.0)
    assert [text for at in range(10) for text in told(heard(supervisor, float(at)))] == []
    (text,) = told(heard(supervisor, 10.0))
    assert "worker 3 (store) does not listen yet" in text
    assert "worker 1 is still initialising its components (last begun: count)" in text
    assert "worker 2 cannot reach worker 0 (it did not accept this worker's epoch)" in text
    assert "worker 0 is not" not in text
    assert [text for at in range(11, 30) for text in told(heard(supervisor, float(at)))] == []


def test_links_that_do_not_come_up_in_silence_are_said_too() -> None:
    supervisor = running(3)
    supervisor.link_lost(2, 1, 1, 1, supervisor.version, PEER_CLOSED, 2.0)
    supervisor.linked(0, 1, supervisor.version)
    lines = [text for at in range(2, 20) for text in told(heard(supervisor, float(at)))]
    assert "lost its link" in lines[0]
    assert len(lines) == 2
    assert all(f"worker {index} is not linked with every other" in lines[1] for index in (1, 2))
    assert "worker 0" not in lines[1]


AWAY = HeldUp(frozenset({(1, 2)}), "waits for a task slot of spark://h:7077", "The master does not answer at h:7077.")


def without_slot(start_s: float = 60.0) -> Supervisor:
    """A run whose worker 1 was started again at 2.2 s, and gets no place."""
    supervisor = running(2, limits=Limits(start_s=start_s, silent_s=1e9), components={1: "count"})
    supervisor.gone(1, 1, "was lost by Spark", 2.0)
    assert [i.epoch for i in supervisor.tick(2.2) if hasattr(i, "epoch")] == [2]
    return supervisor


def tell(supervisor: Supervisor, since: int, until: int, answer: HeldUp | None) -> dict[int, str]:
    """What is told, by seconds, while the launcher gives that answer a second after it was asked."""
    lines: dict[int, str] = {}
    for at in range(since, until):
        out = supervisor.tick(float(at))
        lines |= dict.fromkeys([at] * bool(told(list(out))), " ".join(told(list(out))))
        for ask in out:
            if isinstance(ask, AskWhy) and answer is not None:
                supervisor.held_up(HeldUp(answer.workers & ask.workers, answer.lacks, answer.why))
    return lines


def test_why_a_worker_gets_no_place_to_start_on_is_told_with_what_to_do_and_what_is_kept() -> None:
    """Its components are not at fault: they have not been imported."""
    (text,) = tell(without_slot(), 3, 60, AWAY).values()
    assert text == (
        "No tuple has flowed for 10 s: worker 1 (count) waits for a task slot of spark://h:7077. The master does not "
        "answer at h:7077. Nothing that was acked is lost; what was open is replayed, by this run once they have begun "
        "or by the next one."
    )


def test_another_reason_is_told_again_and_not_each_time_that_numbers_change() -> None:
    supervisor = without_slot(start_s=1e9)
    first = tell(supervisor, 3, 15, None)
    assert "does not listen yet" in first[13]
    lines = tell(supervisor, 15, 30, AWAY)
    for at in range(30, 100, 7):
        lines |= tell(supervisor, at, at + 7, HeldUp(AWAY.workers, AWAY.lacks, f"The cluster has {at} cores."))
    assert all("waits for a task slot" in line for line in lines.values())
    times = sorted(lines)
    assert times[0] <= 21 and len(times) == 3
    assert all(after - before >= 30 for before, after in pairwise(times)), times


def test_a_worker_that_got_no_place_in_time_is_not_told_to_look_at_its_imports() -> None:
    """The reason was told just before: it stands in the end of the run, not in each line."""
    supervisor = without_slot(start_s=20.0)
    lines = tell(supervisor, 3, 25, AWAY)
    late = lines[23]
    assert late == (
        "worker 1 (epoch 2) was not ready 20 s after its start (it waits for a task slot of spark://h:7077)"
    )
    fresh = without_slot(start_s=8.0)
    (late,) = [line for line in tell(fresh, 3, 12, AWAY).values() if "not ready" in line]
    assert "The master does not answer at h:7077" in late and "imports" not in late


def test_an_answer_about_a_worker_that_was_started_again_since_is_not_told_of_the_next() -> None:
    supervisor = without_slot(start_s=6.0)
    supervisor.held_up(AWAY)
    supervisor.tick(9.0)
    supervisor.tick(9.5)
    assert supervisor.workers[1].epoch == 3
    lines = told(list(supervisor.tick(13.0)))
    assert any("worker 1 (count) does not listen yet" in line for line in lines), lines


def test_a_launcher_is_asked_only_about_workers_that_take_long_to_start() -> None:
    supervisor = without_slot()
    asked = [(at, i.workers) for at in range(3, 18) for i in supervisor.tick(float(at)) if isinstance(i, AskWhy)]
    assert asked == [(8, {(1, 2)}), (13, {(1, 2)})]
    assert not any(isinstance(i, AskWhy) for at in range(2, 30) for i in running().tick(float(at)))
