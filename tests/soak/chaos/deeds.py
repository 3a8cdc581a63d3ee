"""What each kind of fault does, how it is seen to be there, how it is undone, and when the run has come through it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamlet.devcluster.jvm import is_stopped
from tests.marked_processes import lives
from tests.soak.chaos.scene import TOPIC, Scene, Started, Stuck
from tests.soak.chaos.schedule import Kind, Step

THROUGH_S = 90.0
"""Every partition must be processed again by then, on a busy machine too."""
FENCED_MARGIN_S = 5.0
"""A worker that stands still for longer than its time-out and this must have been given up."""
UNDEAD_S = 10.0
"""A deposed worker that wakes up ends within so long."""
GOES_ON_S = 3.0
"""From so long on, a fault that should hold up nobody must let lines through while it lasts."""
HOLDS_UP_NOBODY: frozenset[Kind] = frozenset(
    {
        ("stop", "coordinator"), ("kill", "zookeeper"), ("stop", "zookeeper"), ("silence", "zookeeper"),
        ("slow", "zookeeper"), ("fill", "disk"),
    }
)  # fmt: skip


@dataclass
class Outcome:
    """One fault: what was open when it came, what was seen of it, and how long it took to come through."""

    number: int
    fault: str
    step: str
    pending: int
    load: float
    alone: bool
    """No other fault came meanwhile."""
    seen: str = ""
    went_on: int = 0
    """Lines done while it lasted."""
    held_s: float = 0.0
    recovery_s: float | None = None
    """From its end (or from a fault without one) until everything hurt was processing again."""
    fenced_s: float | None = None

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Deed:
    """A fault that is there. ``seen``: what shows that it is; empty if nothing does."""

    at: int
    seen: Callable[[], str]
    undo: Callable[[], None]
    through: Callable[[], int | None]
    fenced: Callable[[], float | None] = lambda: None


def _nothing() -> None:
    return None


class Deeds:
    """Plays the steps of a schedule in a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.outcomes: list[Outcome] = []

    def play(self, step: Step) -> list[Outcome]:
        """One step, from the quiet before it until the run has come through."""
        scene = self.scene
        scene.work(step.gap_s)
        try:
            self._await_work(step)
            return self._play(step)
        except Stuck as stuck:
            scene.violation(f"{step}: {stuck}")
            self._start_over()
            return []

    def _play(self, step: Step) -> list[Outcome]:
        scene = self.scene
        inner: tuple[Outcome, Deed] | None = None
        outer, deed = self._do(step, alone=step.meanwhile is None)
        before, began = scene.tally.done, time.monotonic()
        if step.meanwhile is not None:
            scene.work(step.meanwhile.gap_s)
            inner = self._do(step.meanwhile, alone=False)
        scene.work(step.hold_s - (time.monotonic() - began))
        outer.went_on, outer.held_s = scene.tally.done - before, time.monotonic() - began
        if step.hold_s:
            outer.seen = deed.seen()
        healed = time.monotonic_ns() if step.hold_s else deed.at
        scene.tally.mark(healed)
        deed.undo()
        both = [(outer, deed), *([inner] if inner else [])]
        for outcome, one in both:
            # A line that waits for a commit is no recovery: what was hurt must have worked again.
            scene.until(f"recovery from {outcome.step}", one.through, THROUGH_S)
            outcome.recovery_s = max(0.0, ((one.through() or 0) - (healed if one is deed else one.at)) / 1e9)
            outcome.fenced_s = one.fenced()
            outcome.seen = outcome.seen or one.seen()
            self._judge(step, outcome)
        return [outcome for outcome, _ in both]

    def _do(self, step: Step, alone: bool) -> tuple[Outcome, Deed]:
        scene = self.scene
        scene.pump()
        if alone or step.meanwhile is not None:
            # A fault proves something where trees are open, and of few lines none is for moments. Within another one,
            # what is open may wait where no bolt has seen it.
            scene.until("a tree that is open", lambda: scene.tally.pending)
        outcome = Outcome(
            step.number, " ".join(step.kind), str(step), scene.tally.pending, round(os.getloadavg()[0], 1), alone
        )
        self.outcomes.append(outcome)
        return outcome, getattr(self, f"_{step.what}_{step.whom}")(step)

    def _judge(self, step: Step, outcome: Outcome) -> None:
        say = self.scene.violation
        if not outcome.pending and outcome.number == step.number:
            say(f"{outcome.step}: nothing was pending, so it proves nothing")
        if not outcome.seen:
            say(f"{outcome.step}: nothing was seen of the fault, so it proves nothing")
        goes_on = step.kind in HOLDS_UP_NOBODY and outcome.alone and outcome.held_s > GOES_ON_S
        if goes_on and not outcome.went_on:
            say(f"{outcome.step}: nothing was processed while it lasted")
        if (
            outcome.fault == "stop worker"
            and outcome.held_s > self.scene.timeout_s + FENCED_MARGIN_S
            and outcome.fenced_s is None
        ):
            say(f"{outcome.step}: the worker was not given up")

    def _await_work(self, step: Step) -> None:
        """Until lines come through, all three workers are there, and servers that are to be hurt are whole."""
        scene = self.scene
        scene.tally.mark(time.monotonic_ns())
        scene.until("work before a fault", scene.tally.through)
        scene.until("every worker", lambda: len(self._workers()) == len(scene.run.workers) > 0)
        if step.whom in ("broker", "zookeeper") and step.what in ("kill", "stop"):
            while not scene.servers.healthy(TOPIC):
                scene.work(0.3)

    def _start_over(self) -> None:
        """After a violation: undo everything, and start the run again."""
        scene = self.scene
        scene.order({"do": "heal"})
        (scene.disk / "filler").unlink(missing_ok=True)
        for server in [*scene.servers.brokers, *scene.servers.zookeepers]:
            if server.running.alive:
                server.running.resume()
            else:
                server.launch()
        scene.ends = True
        scene.run.process.close()
        for pid in scene.run.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        scene.start_run()
        scene.ends = False

    def _workers(self) -> list[int]:
        """Workers that are there and not stopped, by number."""
        return [pid for _, pid in sorted(self.scene.run.workers.items()) if lives(pid) and not is_stopped(pid)]

    # -- processes of the run

    def _kill_worker(self, step: Step) -> Deed:
        run, pid = self.scene.run, self._pick_worker(step)
        at = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        return Deed(at, lambda: "" if lives(pid) else f"{pid} is gone", _nothing, lambda: self._succeeded(run, pid))

    def _stop_worker(self, step: Step) -> Deed:
        scene = self.scene
        run, pid = scene.run, self._pick_worker(step)
        at = time.monotonic_ns()
        os.kill(pid, signal.SIGSTOP)

        def undo() -> None:
            scene.pump()
            if pid in run.killed:
                scene.tally.woken[pid] = time.monotonic_ns()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        def through() -> int | None:
            if pid not in run.killed:
                return scene.tally.through()
            if lives(pid) and time.monotonic_ns() - scene.tally.woken.get(pid, 0) > UNDEAD_S * 1e9:
                scene.violation(f"{step}: a deposed worker lives on for {UNDEAD_S:.0f} s after it was woken up")
                os.kill(pid, signal.SIGKILL)
            return None if lives(pid) else self._succeeded(run, pid) and scene.tally.through()

        def fenced() -> float | None:
            return (run.killed[pid][0] - at) / 1e9 if pid in run.killed else None

        return Deed(at, lambda: "it stands still" if is_stopped(pid) else "", undo, through, fenced)

    def _succeeded(self, run: Started, pid: int) -> int | None:
        """When the worker that took this one's place began to process; of the whole run, if a new one was begun."""
        if run is not self.scene.run:
            return self.scene.tally.through()
        after = run.successor.get(pid)
        while after is not None and after not in self.scene.tally.began:  # it may have been killed before it began
            after = run.successor.get(after)
        return None if after is None else self.scene.tally.began[after]

    def _pick_worker(self, step: Step) -> int:
        there = self._workers()
        return there[int(step.pick * len(there))]

    def _kill_coordinator(self, step: Step) -> Deed:
        scene = self.scene
        run, at = scene.run, time.monotonic_ns()
        scene.ends = True
        run.process.signal(signal.SIGKILL)
        run.process.status(10)
        if not step.more["at_once"]:
            scene.await_orphans(run)
        scene.start_run()
        scene.ends = False
        if step.more["at_once"]:
            scene.await_orphans(run)
        return Deed(at, lambda: "it is gone", _nothing, scene.tally.through)

    def _stop_coordinator(self, step: Step) -> Deed:
        pid, at = self.scene.run.process.pid, time.monotonic_ns()
        os.kill(pid, signal.SIGSTOP)
        seen = lambda: "it stands still" if is_stopped(pid) else ""  # noqa: E731
        return Deed(at, seen, lambda: os.kill(pid, signal.SIGCONT), self.scene.tally.through)

    # -- servers

    def _pick_broker(self, step: Step) -> tuple[int, str]:
        leaders = [state["leader"] for state in self.scene.servers.states(TOPIC).values()]
        number = sorted(set(leaders))[int(step.pick * len(set(leaders)))]
        return number, f"broker {number}, leader of {leaders.count(number)} partitions,"

    def _kill_broker(self, step: Step) -> Deed:
        scene = self.scene
        number, who = self._pick_broker(step)
        jvm, at = scene.servers.brokers[number].running, time.monotonic_ns()
        jvm.kill()
        return Deed(
            at,
            lambda: "" if jvm.alive else f"{who} is gone",
            lambda: scene.servers.revive_broker(number, scene.pump),
            scene.tally.through,
        )

    def _stop_broker(self, step: Step) -> Deed:
        number, who = self._pick_broker(step)
        return self._stop_jvm(self.scene.servers.brokers[number].running, who)

    def _pick_zookeeper(self, step: Step) -> tuple[int, str]:
        leader = self.scene.servers.leader()
        if step.pick < 0.5:
            return leader, f"ZooKeeper {leader}, the leader,"
        number = (leader + 1 + (step.pick >= 0.75)) % len(self.scene.servers.zookeepers)
        return number, f"ZooKeeper {number}, a follower,"

    def _kill_zookeeper(self, step: Step) -> Deed:
        scene = self.scene
        number, who = self._pick_zookeeper(step)
        jvm, at = scene.servers.zookeepers[number].running, time.monotonic_ns()
        jvm.kill()
        return Deed(
            at,
            lambda: "" if jvm.alive else f"{who} is gone",
            lambda: scene.servers.revive_zookeeper(number),
            scene.tally.through,
        )

    def _stop_zookeeper(self, step: Step) -> Deed:
        number, who = self._pick_zookeeper(step)
        return self._stop_jvm(self.scene.servers.zookeepers[number].running, who)

    def _stop_jvm(self, jvm: Any, who: str) -> Deed:
        at = time.monotonic_ns()
        jvm.pause()
        return Deed(
            at,
            lambda: f"{who} stands still" if jvm.alive and is_stopped(jvm.pid) else "",
            jvm.resume,
            self.scene.tally.through,
        )

    # -- connections

    def _cut(self, step: Step) -> Deed:
        at = time.monotonic_ns()
        cut = self.scene.order({"do": "cut", "group": step.whom})["open"]
        return Deed(at, lambda: f"{cut} connections" if cut else "", _nothing, self.scene.tally.through)

    def _hinder(self, step: Step) -> Deed:
        """Silence or slow a group, until all is healed."""
        scene, at = self.scene, time.monotonic_ns()
        before = scene.order({"do": step.what, "group": step.whom, **step.more})

        def seen() -> str:
            passed = scene.order({"do": "count", "group": step.whom})["passed"] - before["passed"]
            return f"{before['open']} connections, {passed} bytes meanwhile" if before["open"] else ""

        return Deed(at, seen, lambda: scene.order({"do": "heal"}) and None, scene.tally.through)

    _cut_links = _cut_kafka = _cut_zookeeper = _cut
    _silence_links = _silence_kafka = _silence_zookeeper = _hinder
    _slow_links = _slow_kafka = _slow_zookeeper = _hinder

    # -- disk and clock

    def _fill_disk(self, _: Step) -> Deed:
        filler, at = self.scene.disk / "filler", time.monotonic_ns()

        def fill() -> str:
            with filler.open("ab", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1 << 16))
                except OSError as error:
                    return "no space left" if error.errno == errno.ENOSPC else ""

        fill()
        return Deed(at, fill, filler.unlink, self.scene.tally.through)

    def _step_clock(self, step: Step) -> Deed:
        clock, at = self.scene.folder / "clock", time.monotonic_ns()
        offset, reads = _clock(clock)
        offset += step.more["by_s"] * 1_000_000_000
        with clock.open("r+b") as file:
            file.write(struct.pack("<q", offset))

        def seen() -> str:
            with contextlib.suppress(Stuck):
                self.scene.until("the run to read the clock", lambda: _clock(clock)[1] > reads, 10)
            return f"read {_clock(clock)[1] - reads} times" if _clock(clock)[1] > reads else ""

        return Deed(at, seen, _nothing, self.scene.tally.through)


def _clock(path: Path) -> tuple[int, int]:
    offset, reads = struct.unpack("<qq", path.read_bytes())
    return offset, reads
