"""What is said of lost links and of links that do not come up: pure, the clock a number."""

from __future__ import annotations

from streamlet.runtime.links.links import CUT_BY_COORDINATOR, PEER_CLOSED
from streamlet.runtime.supervision.instructions import GiveUp, TellUser
from streamlet.runtime.supervision.supervisor import Limits, Supervisor
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
