"""What each kind of fault does to a topology on Spark, how it is seen, and when the run has come through it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from streamlet.devcluster.jvm import is_stopped
from tests.faults.spark_hosts import DRIVER, WORKERS
from tests.marked_processes import command_line, descendants, lives
from tests.soak.chaos.scene import Stuck
from tests.soak.chaos.spark_scene import SparkScene

THROUGH_S = 120.0
"""Every partition must be processed again by then, on a busy machine too."""
DEPOSED_S = 15.0
"""A deposed worker that wakes up, and its executor, end within so long."""
SEEN_S = 10.0
"""A fault is seen to be there by then, else it proves nothing."""
PAGES = range(4040, 4044)
"""Ports of a driver's page: the next one is taken while an old driver holds the first."""

MISCOUNT = b"RUNNING to RUNNING is illegal"


@dataclass
class SparkOutcome:
    """One fault: what was open when it came, what was seen of it, and how long it took to come through."""

    number: int
    fault: str
    pending: int
    seen: str
    recovery_s: float
    load: float

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def _nothing() -> None:
    return None


@dataclass
class SparkDeed:
    """A fault that is there. ``new``: so many workers must take others' places before it is over.

    ``heal`` comes after ``hold_s``; with ``from_heal`` the recovery is counted from there. ``after``: once it is over.
    """

    at: int
    seen: Callable[[], str]
    new: int = 0
    hold_s: float = 0.0
    heal: Callable[[], None] = _nothing
    from_heal: bool = False
    after: Callable[[], None] = _nothing


class SparkDeeds:
    """Plays faults in a scene; what chance decides, the seed decides."""

    def __init__(self, scene: SparkScene, seed: int) -> None:
        self.scene = scene
        self.chance = random.Random(f"deeds {seed}")

    def play(self, number: int, kind: str) -> SparkOutcome | None:
        """One fault, from the quiet before it until the run has come through."""
        scene = self.scene
        try:
            scene.work(self.chance.uniform(0.5, 2.5))
            if kind == "cut links":
                self._apart()
            self._await_work()
            return self._play(number, kind)
        except Stuck as stuck:
            scene.violation(f"#{number} {kind}: {stuck}")
            scene.network.heal()
            scene.spark.revive()
            scene.start_again()
            return None

    def _play(self, number: int, kind: str) -> SparkOutcome:
        scene = self.scene
        scene.until("a tree that is open", lambda: scene.tally.pending)
        before, pending = set(scene.tally.began), scene.tally.pending
        deed: SparkDeed = getattr(self, f"_{kind.replace(' ', '_')}")()
        scene.tally.mark(deed.at)
        scene.work(deed.hold_s)
        with contextlib.suppress(Stuck):  # a link may be idle while it is cut
            scene.until("something to be seen", lambda: bool(deed.seen()), SEEN_S)
        seen = deed.seen()
        deed.heal()
        since = time.monotonic_ns() if deed.from_heal else deed.at
        if deed.from_heal:
            scene.tally.mark(since)
        scene.until(f"recovery from #{number} {kind}", lambda: self._through(deed, before), THROUGH_S)
        took_s = max(0, self._through(deed, before) - since) / 1e9
        outcome = SparkOutcome(number, kind, pending, seen, took_s, round(os.getloadavg()[0], 1))
        deed.after()
        scene.check_commits()
        if not seen:
            scene.violation(f"#{number} {kind}: nothing was seen of it, so it proves nothing")
        return outcome

    def _through(self, deed: SparkDeed, before: set[int]) -> int:
        """When every partition, and each worker that had to be replaced, was processing again; 0: not yet."""
        tally = self.scene.tally
        new = sorted(ns for pid, ns in tally.began.items() if pid not in before)
        through = tally.through()
        if through is None or len(new) < deed.new or len(self.scene.workers()) != 2:
            return 0
        return max(through, *new[: deed.new]) if deed.new else through

    def _await_work(self) -> None:
        """Until lines come through on both workers, and trees are open."""
        scene = self.scene
        scene.tally.mark(time.monotonic_ns())
        scene.until(
            "work before a fault",
            lambda: bool(scene.tally.through() and len(scene.workers()) == 2 and scene.tally.pending),
        )

    def _apart(self) -> None:
        """See to it that the two executors are on two hosts: after a loss, both are on one."""
        scene = self.scene
        scene.until("two workers", lambda: len(scene.workers()) == 2)
        while len({scene.network.host_of(pid) for pid in scene.workers()}) == 1:
            scene.say("    both executors are on one host: one is moved")
            moved = scene.workers()[0]
            os.kill(scene.spark.executor_of(moved), signal.SIGKILL)
            scene.until("the moved executor", lambda moved=moved: not lives(moved))
            scene.until("two workers", lambda: len(scene.workers()) == 2)

    def _pick(self) -> int:
        return self.chance.choice(sorted(self.scene.workers(), key=self.scene.tally.began.__getitem__))

    # -- the kinds

    def _kill_python(self) -> SparkDeed:
        pid, at = self._pick(), time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        return SparkDeed(at, lambda: _gone([pid]), new=1)

    def _kill_executor(self) -> SparkDeed:
        executor = self.scene.spark.executor_of(self._pick())
        family, at = [executor, *descendants(executor)], time.monotonic_ns()
        os.kill(executor, signal.SIGKILL)
        return SparkDeed(at, lambda: _gone([executor]), new=1, after=lambda: self._await_gone(family))

    def _stop_executor(self) -> SparkDeed:
        """The JVM, alone or with its Python, for longer than the leases of its workers and its own."""
        scene, executor = self.scene, self.scene.spark.executor_of(self._pick())
        family = [executor, *descendants(executor)]
        whole = self.chance.random() < 0.5
        stopped = family if whole else [executor]
        mine = [pid for pid in scene.workers() if pid in family]
        before, at = set(scene.tally.began), time.monotonic_ns()
        _signal(stopped, signal.SIGSTOP)
        scene.deposed.update(mine)

        def go_on() -> None:
            scene.pump()
            if set(scene.tally.began) - before:  # somebody has their place
                scene.tally.woken.update(dict.fromkeys(mine, time.monotonic_ns()))
            _signal(stopped, signal.SIGCONT)

        seen = f"{'the whole executor' if whole else 'its JVM'} stands still"
        return SparkDeed(
            at, lambda: seen if not lives(executor) or is_stopped(executor) else "", len(mine),
            self.chance.uniform(12.0, 22.0), go_on, after=lambda: self._await_gone(mine),
        )  # fmt: skip

    def _lose_machine(self) -> SparkDeed:
        """Power fails on a host: nobody hears of the end of what ran there. Later it is back."""
        scene = self.scene
        host = scene.network.host_of(self._pick())
        assert host is not None
        mine = [pid for pid in scene.workers() if scene.network.host_of(pid) == host]
        other = [name for name in WORKERS if name != host]
        at = time.monotonic_ns()
        scene.spark.power_off(host)

        def known(*hosts: str) -> bool:
            return bool(scene.spark.state()[1] == sorted(map(scene.network.address, hosts)))

        def back() -> None:
            scene.until("the master to give the machine up", lambda: known(*other))
            scene.network.heal()
            scene.spark.start(host)
            scene.until("the machine to be back", lambda: known(*WORKERS))

        return SparkDeed(at, lambda: f"{host} with {_gone(mine)}", len(mine), after=back)

    def _restart_master(self) -> SparkDeed:
        scene, at = self.scene, time.monotonic_ns()
        log = scene.spark.log_of(DRIVER)
        said = log.stat().st_size
        scene.spark.kill(DRIVER)
        down = scene.spark.state()[0]

        def again() -> None:
            scene.spark.start(DRIVER)
            ready = ("ALIVE", sorted(map(scene.network.address, WORKERS)))
            scene.until("the master to know its workers", lambda: scene.spark.state() == ready)

        def count() -> None:
            scene.work(3.0)
            # A worker of Spark that registers while the master recovers has its executor started once more, under the
            # same number (Spark 4.3). The master grants no other when that one dies: only a new application helps.
            if MISCOUNT in log.read_bytes()[said:]:
                scene.say("    Spark's master counts an executor twice: the run is started again")
                scene.miscounts += 1
                scene.start_again()

        def seen() -> str:
            return "no master for a while" if down != "ALIVE" else ""

        return SparkDeed(at, seen, hold_s=self.chance.uniform(1.0, 6.0), heal=again, after=count)

    def _kill_driver(self) -> SparkDeed:
        """The process, or its JVM alone; then the same command again, once it has ended."""
        scene, number = self.scene, len(self.scene.runs)
        jvm = next(pid for pid in scene.of_run(number) if "org.apache.spark.deploy.SparkSubmit" in command_line(pid))
        which = self.chance.choice(["the driver", "its JVM"])
        old = [pid for host in WORKERS for pid in scene.spark.below(host)]
        scene.ends, at = True, time.monotonic_ns()
        os.kill(scene.run.pid if which == "the driver" else jvm, signal.SIGKILL)
        scene.until("the end of the driver", lambda: scene.run.ended, 60)
        scene.await_end(number, old)
        scene.start_run()
        scene.ends = False
        return SparkDeed(at, lambda: f"{which} is gone", new=2)

    def _cancel_job(self) -> SparkDeed:
        """A slot's job, with the link in the driver's page."""
        scene = self.scene
        with scene.network.inside(DRIVER):
            page = next(page for port in PAGES if _asked(page := f"http://{scene.spark.address}:{port}") is not None)
            (app,) = _asked(page) or []
            jobs = _asked(page, f"/{app['id']}/jobs?status=running") or []
            job = self.chance.choice([job for job in jobs if "worker" in job.get("description", "")])
            at = time.monotonic_ns()
            with _open(f"{page}/jobs/") as answer:  # the link is a form with a token
                (token,) = set(re.findall(r'name="csrfToken" value="(\w+)"', answer.read().decode()))
            _open(f"{page}/jobs/job/kill/", f"id={job['jobId']}&csrfToken={token}".encode()).close()
        return SparkDeed(at, lambda: f"job {job['jobId']} ({job['description']})", new=1)

    def _cut_links(self) -> SparkDeed:
        """Between the two executors, one way or both, dropped or reset."""
        scene, (one, other) = self.scene, WORKERS
        ways = self.chance.choice([[(one, other)], [(other, one)], [(one, other), (other, one)]])
        how = self.chance.choice(["drop", "drop", "reset"])
        passed, lost, at = scene.network.way(*ways[0]).passed, scene.network.lost, time.monotonic_ns()
        for way in ways:
            setattr(scene.network.way(*way), how, True)

        def seen() -> str:
            hit = scene.network.lost - lost if how == "drop" else scene.network.way(*ways[0]).passed - passed
            return f"{how}, {' and '.join(f'{a} to {b}' for a, b in ways)}: {hit} packets" if hit else ""

        hold_s = self.chance.uniform(1.0, 9.0) if how == "drop" else 0.5
        return SparkDeed(at, seen, hold_s=hold_s, heal=scene.network.heal, from_heal=True)

    def _await_gone(self, pids: list[int]) -> None:
        """A process that was given up ends by itself."""
        scene = self.scene
        with contextlib.suppress(Stuck):
            scene.until("deposed workers to end", lambda: not any(map(lives, pids)), DEPOSED_S)
        if left := [pid for pid in pids if lives(pid)]:
            scene.violation(f"{len(left)} processes that were given up live on for {DEPOSED_S:.0f} s: {left}")
            _signal(left, signal.SIGKILL)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _gone(pids: list[int]) -> str:
    """Say that they are gone; nothing if any is not."""
    deadline = time.monotonic() + 2.0
    while any(map(lives, pids)):
        if time.monotonic() > deadline:
            return ""
        time.sleep(0.001)
    return f"{', '.join(map(str, pids))} gone"


def _open(url: str, data: bytes | None = None) -> Any:
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, data, 10)


def _asked(page: str, path: str = "") -> Any:
    """What the page's interface for programs says; None where nobody answers."""
    with contextlib.suppress(OSError), _open(f"{page}/api/v1/applications{path}") as answer:
        return json.load(answer)
    return None
