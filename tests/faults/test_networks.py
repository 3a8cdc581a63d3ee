"""Links over networks that drop, delay, lose and reset: three workers and a coordinator, each on a host of its own."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from streamlet.backends.outcome import TuplesLeft
from streamlet.runtime.links.silence import SILENT_S
from tests.faults.acked_after_stored import ACKED_NUMBERS, check_acks, end, stored
from tests.faults.far_run import FarRun, far_run
from tests.faults.network import Network, Way
from tests.faults.rig import wait_for
from tests.seeds import seeds

pytestmark = pytest.mark.real

FOUND_S = 5.0
"""Seconds in which a half-open link is found. It is told a moment later."""
TOLD_S = FOUND_S + 4.0
"""The settling of a loss (1 s) and a loaded machine are in it."""
SETTLES_S = 2.5
"""Seconds between a loss and the line about it, 1 s in which it settles among them."""
IDLE_S = 1.5
"""Seconds after which nothing is under way any more: the last acks and heartbeats' questions are long over."""
RATE = 400
FLAPS = 12
LOST = re.compile(r"that was lost took ([0-9,]+) untracked tuples? for")


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("driver", "one", "two", "three", "spare") as made:
        yield made


def found_after(run: FarRun, since: float, text: str) -> str:
    line = run.wait_for_text(text, TOLD_S)
    print(f"told after {time.monotonic() - since:.1f} s: {line}")
    return line


@pytest.mark.parametrize("ways", ["both ways", "there", "back"])
def test_b1_a_black_hole_between_two_hosts_is_found_within_five_seconds_and_costs_nothing(
    network: Network, tmp_path: Path, ways: str
) -> None:
    with far_run(network, tmp_path, 4000, **{"numbers.per.second": RATE}) as run:
        run.wait_for_stored(300)
        since = time.monotonic()
        if ways != "back":
            network.way("one", "two").drop = True
        if ways != "there":
            network.way("two", "one").drop = True
        line = found_after(run, since, "lost its link to worker")
        assert time.monotonic() - since < FOUND_S + SETTLES_S
        assert f"nothing has come from the other machine for {SILENT_S:.0f} s" in line
        network.heal()
        run.wait_for_more()
        result = run.finish()
        assert result.reason == "caught_up"
        assert [worker["epoch"] for worker in result.status.workers] == [1, 1, 1]
        run.check()


@pytest.mark.parametrize("ways", ["both ways", "there"])
def test_b1_a_half_open_link_without_traffic_is_found_within_five_seconds_too(
    network: Network, tmp_path: Path, ways: str
) -> None:
    """All that was emitted is done, and nothing more comes: no tuple waits on the link that would show it."""
    gate = tmp_path / "gate"
    with far_run(network, tmp_path, 301, **{"numbers.per.second": RATE, "numbers.gate": str(gate)}) as run:
        run.wait_for_stored(300)
        time.sleep(IDLE_S)
        since = time.monotonic()
        network.way("one", "two").drop = True
        network.way("two", "one").drop = ways == "both ways"
        line = found_after(run, since, "lost its link to worker")
        assert time.monotonic() - since < FOUND_S + SETTLES_S
        assert f"nothing has come from the other machine for {SILENT_S:.0f} s" in line
        network.heal()
        gate.touch()
        result = run.finish()
        assert result.reason == "caught_up"
        assert [worker["epoch"] for worker in result.status.workers] == [1, 1, 1]
        run.check()


def test_b2_a_host_without_power_is_found_by_its_peers_and_its_worker_is_replaced_elsewhere(
    network: Network, tmp_path: Path
) -> None:
    """The old worker, which nobody can reach to kill it, ends by itself."""
    with far_run(network, tmp_path, 4000, **{"numbers.per.second": RATE}) as run:
        run.wait_for_stored(300)
        run.hosts.on[1] = "spare"
        since = time.monotonic()
        run.hosts.power_off("two")
        found_after(run, since, "lost its link to worker 1")
        found_after(run, since, "worker 1 (epoch 1) was silent for 10 s")
        _, old = run.hosts.processes[1, 1]
        wait_for("the cut-off worker to end by itself", lambda: old.poll() is not None, 15)
        run.wait_for_more()
        result = run.finish()
        assert result.reason == "caught_up"
        assert [worker["epoch"] for worker in result.status.workers] == [1, 2, 1]
        run.check()


@pytest.mark.parametrize("seed", seeds("flaps"))
def test_b3_links_that_are_reset_again_and_again_are_made_again_and_nothing_is_lost_or_sent_twice(
    network: Network, tmp_path: Path, seed: int
) -> None:
    """Each pair after the other, every 0.5 to 1.5 s; each time the link was there again and had brought tuples.

    Each pair loses more links than restarts.max: that is for those between which nothing is done.
    """
    rng, out = random.Random(seed), tmp_path / "out"
    conf = {"numbers.per.second": RATE, "streamlet.worker.restarts.max": FLAPS // 3 - 2}
    with far_run(network, tmp_path, 0, file=ACKED_NUMBERS, **conf) as run:
        wait_for("numbers to be stored", lambda: stored(out) > 300, told=run.told)
        for flap in range(FLAPS):
            pair = [("one", "two"), ("one", "three"), ("two", "three")][flap % 3]
            time.sleep(rng.uniform(0.5, 1.5))  # the fault itself: how often it comes
            ways = network.both(*pair)
            passed = sum(way.passed for way in ways)
            for way in ways:
                way.reset = True
            wait_for("a segment to be reset", partial(_passed, ways, passed), told=run.told)
            time.sleep(0.2)  # and how long it lasts
            network.heal()
            wait_for("more to be stored", partial(_stored, out, stored(out) + 50), told=run.told)
        end(out)
        result = run.finish()
        assert any("lost its link" in text for text in run.observer.texts)
        assert not [text for text in run.observer.texts if "tag does not match" in text]
        assert [worker["epoch"] for worker in result.status.workers] == [1, 1, 1]
        (numbers,) = (row for row in result.status.components if row.name == "numbers")
        assert numbers.failed > 0 == numbers.timed_out
        check_acks(out)


@pytest.mark.parametrize("fault", ["reset", "drop"])
def test_untracked_tuples_that_lost_links_take_along_are_counted_to_the_last_and_fail_the_run(
    network: Network, tmp_path: Path, fault: str
) -> None:
    """Each bolt was given what was emitted to it, less what is said to be lost; by a witness's count, too."""
    conf = {"numbers.per.second": 1500, "topology.acker.executors": 0}
    with far_run(network, tmp_path, 20_000, **conf) as run:
        for flap in range(3 if fault == "reset" else 1):  # nearly all is on a link that drops it until it is found
            run.wait_for_more(1000)
            ways = network.both(*[("one", "two"), ("one", "three"), ("two", "three")][flap])
            known = sum("lost its link" in text for text in run.observer.texts)
            for way in ways:
                setattr(way, fault, True)
            wait_for("the loss", partial(_told_losses, run, known + 1), told=run.told)
            network.heal()
        with pytest.raises(TuplesLeft) as caught:
            run.finish()
        result = caught.value.result
        rows = {row.name: row for row in result.status.components}
        assert len(run.stored()) == len(set(run.stored())) == rows["squares"].executed
        assert rows["numbers"].emitted == 20_000 == rows["squares"].executed + rows["squares"].lost
        assert rows["squares"].emitted == rows["sums"].executed + rows["sums"].lost
        assert rows["squares"].lost + rows["sums"].lost > 0
        told = sum(int(found.replace(",", "")) for text in run.observer.texts for found in LOST.findall(text))
        assert told == rows["squares"].lost + rows["sums"].lost, run.told()
        assert [worker["epoch"] for worker in result.status.workers] == [1, 1, 1]


def _told_losses(run: FarRun, least: int) -> bool:
    return sum("lost its link" in text for text in run.observer.texts) >= least


def _passed(ways: Iterable[Way], before: int) -> bool:
    return sum(way.passed for way in ways) > before


def _stored(out: Path, least: int) -> bool:
    return stored(out) >= least


def test_b4_a_slow_network_that_loses_a_tenth_of_all_packets_cuts_no_link(network: Network, tmp_path: Path) -> None:
    hosts = ("driver", "one", "two", "three")
    for one in hosts:
        for other in hosts:
            if one != other:
                network.way(one, other).delay_s = 0.05
    with far_run(network, tmp_path, 3000, **{"numbers.per.second": RATE}) as run:
        run.wait_for_stored(100)
        for way in network.both("one", "two"):
            way.loss = 0.1
        result = run.finish()
        assert network.lost > 10
        assert not [text for text in run.observer.texts if "lost its link" in text]
        assert [worker["epoch"] for worker in result.status.workers] == [1, 1, 1]
        run.check()


def test_b2_a_coordinator_that_is_cut_off_replaces_the_workers_and_the_old_ones_end(
    network: Network, tmp_path: Path
) -> None:
    with far_run(network, tmp_path, 4000, **{"numbers.per.second": RATE, "streamlet.worker.timeout.secs": 3.0}) as run:
        run.wait_for_stored(300)
        old = [process for _, process in run.hosts.processes.values()]
        run.hosts.off |= {"one", "two", "three"}
        run.hosts.on = ["spare"] * 3
        for host in ("one", "two", "three"):
            network.black_hole("driver", host)
        wait_for("the old workers to end", lambda: all(each.poll() is not None for each in old), 20)
        result = run.finish()
        assert [worker["epoch"] for worker in result.status.workers] == [2, 2, 2]
        run.check()


def test_b8_a_run_over_ipv6_alone_stores_every_number(network: Network, tmp_path: Path) -> None:
    with far_run(network, tmp_path, 500, six=True) as run:
        run.wait_for_stored(1)
        assert run.addresses() == [network.address6(host) for host in ("one", "two", "three")]
        run.finish()
        run.check()
