"""Every tuple is accounted for, tracked or not: processed, or left and named. What was processed is counted outside."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import streamlet
from streamlet.backends.contract import RunStatus, Stop
from streamlet.backends.outcome import TuplesLeft
from streamlet.runtime.tasks.slices import SLICE
from tests.command_line import Streamlet
from tests.conformance import from_threads
from tests.conformance.early_and_late import HELD, SHARE, Beginnings, Endings
from tests.conformance.from_threads import CutShort, FromThreads, LateThread, TwoThreads, WithoutWaiting
from tests.conformance.held_up_middle import HeldUpMiddle
from tests.conformance.twice_open import TwiceOpen
from tests.conformance.untracked_ways import COUNT, Ways
from tests.patience import PATIENCE_S
from tests.seeds import seeds

WAYS = ["off", "no id", "unanchored", "ticks"]
WAYS_FILE = Path(__file__).with_name("untracked_ways.py")


def counted_outside(folder: Path) -> int:
    """How many different lines the bolt wrote, by other programs' count."""
    files = sorted(map(str, folder.glob("seen.*")))
    merged = subprocess.run(["sort", "-u", *files], check=True, capture_output=True).stdout
    return int(subprocess.run(["wc", "-l"], check=True, input=merged, capture_output=True).stdout)


def settings(way: str, folder: Path, sleep_s: float) -> dict[str, object]:
    tracked = {} if way != "off" else {"topology.acker.executors": 0}
    return {"accounts.way": way, "accounts.folder": str(folder), "accounts.sleep_s": sleep_s, **tracked}


def workers_of(backend: str, several: int) -> int | None:
    """Return how many workers to ask a backend for: inline has no choice."""
    return None if backend == "inline" else several


@pytest.mark.parametrize(
    ("way", "backend"),
    [*itertools.product(WAYS, ["inline", "processes"]), pytest.param("no id", "spark", marks=pytest.mark.spark)],
)
def test_a_drain_that_is_cut_short_names_each_untracked_tuple_that_it_leaves(
    way: str, backend: str, tmp_path: Path
) -> None:
    """20 000 tuples: those processed and those named are all that were emitted."""
    # Inline has caught up when nothing waits any more, so there the end comes by time.
    seconds = 1.5 if backend == "inline" else None
    with pytest.raises(TuplesLeft, match=r"left [\d,]+ untracked tuples? for ") as caught:
        streamlet.run(
            Ways,
            backend=backend,
            workers=workers_of(backend, 3),
            master="local-cluster[3,1,1024]" if backend == "spark" else None,
            seconds=seconds,
            settings=settings(way, tmp_path, 0.05),
            drain_timeout=0.2,
        )
    result = caught.value.result
    assert caught.value.exit_status == 1
    assert not result.drained
    assert result.left["slow"] > 100, "it was to be cut short"
    for bolt, count in result.left.items():
        assert re.search(rf"\b{count:,}( untracked tuples?)? for {bolt}\b", str(caught.value))
    left_open = result.components["numbers"].open
    assert left_open == 0 or backend == "inline", "of a run that has caught up no tree is open"
    accounted = counted_outside(tmp_path) + sum(result.left.values()) + left_open
    assert accounted == result.components["numbers"].emitted
    assert backend == "inline" or result.components["numbers"].emitted == COUNT
    assert {name: row.lost for name, row in result.components.items() if row.lost} == result.left


@pytest.mark.parametrize(
    ("call", "backend"), [("process", "processes"), ("process_tick", "processes"), ("process_tick", "inline")]
)
def test_what_a_call_emits_when_the_drains_time_is_over_reaches_a_bolt_or_is_named(
    call: str, backend: str, tmp_path: Path
) -> None:
    """The bolt behind it is in another worker, which has nothing to do meanwhile and closes."""
    with pytest.raises(TuplesLeft, match=r"left [\d,]+ untracked tuples? for (held_up|slow)") as caught:
        streamlet.run(
            HeldUpMiddle,
            backend=backend,
            workers=workers_of(backend, 3),
            until_caught_up=True,
            settings={
                "accounts.call": call,
                "accounts.folder": str(tmp_path),
                # Tracked tuples that are acked, of which the end waits for the call; or such as nobody waits for.
                "accounts.way": "unanchored" if call == "process_tick" else "no id",
            },
            drain_timeout=0.3,
        )
    result = caught.value.result
    held_up, slow = result.components["held_up"], result.left.get("slow", 0)
    assert caught.value.exit_status == 1
    assert held_up.emitted == (COUNT if call == "process_tick" else 100)
    assert counted_outside(tmp_path) + slow == held_up.emitted, "the rest waits for the bolt in the middle"


def is_all(seen: int, left: dict[str, int]) -> bool:
    """Tell whether the tuples seen and left make COUNT, but for a slice that was at work."""
    return COUNT <= seen + sum(left.values()) <= COUNT + SLICE


@pytest.mark.faults
def test_a_worker_killed_in_the_drain_takes_no_untracked_tuple_along_in_silence(tmp_path: Path) -> None:
    """The run ends with its name, how many tuples were lost by its last heartbeat, and all numbers."""
    killed: list[int] = []

    def kill(status: RunStatus) -> None:
        rows = {row.name: row for row in status.components}
        if rows["numbers"].emitted == COUNT and rows["slow"].executed > 200 and not killed:
            pid = int((tmp_path / "slow.pid").read_text())
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    with pytest.raises(TuplesLeft, match=r"It left up to [\d,]+ (untracked tuples )?for ") as caught:
        streamlet.run(Ways, backend="processes", workers=3, settings=settings("no id", tmp_path, 0.05), on_status=kill)
    assert killed and "was killed by SIGKILL" in str(caught.value)
    result = caught.value.result
    assert result.left["slow"] > 100 and result.components["slow"].lost == result.left["slow"]
    assert is_all(counted_outside(tmp_path), result.left)


@pytest.mark.faults
@pytest.mark.parametrize("seed", seeds("killed in mid-run", 3))
@pytest.mark.parametrize(("way", "at_once"), [("off", True), ("no id", False)])
def test_what_workers_killed_in_mid_run_take_along_is_numbered_and_fails_the_run(
    way: str, at_once: bool, seed: int, tmp_path: Path
) -> None:
    """Of three workers those of both bolts are killed, at moments of chance: seen and lost are all that was emitted."""
    rng = random.Random(seed)
    moments = {bolt: rng.randint(500, COUNT // 4) for bolt in ("pass_on", "slow")}
    killed: dict[str, int] = {}
    looks: list[tuple[float, str, dict[str, tuple[int, int]]]] = []

    def kill(status: RunStatus) -> None:
        rows = {row.name: row for row in status.components}
        counts = {name: (row.emitted, row.executed) for name, row in rows.items()}
        looks.append((round(status.elapsed_s, 2), status.state, counts))
        for bolt, moment in moments.items():
            if status.state == "running" and rows[bolt].executed > moment and bolt not in killed:
                victims = moments if at_once else [bolt]
                killed.update((name, int((tmp_path / f"{name}.pid").read_text())) for name in victims)
                time.sleep(rng.uniform(0, 0.9))  # a status comes once a second, just behind the heartbeats
                for name in victims:
                    os.kill(killed[name], signal.SIGKILL)
                if len(killed) == len(moments):
                    both.touch()
                return

    # On a busy machine all tuples may have left their spout before a bolt has done a few hundred: small ones fit into
    # the buffers of sockets. So the last one waits, and the run cannot drain before both are killed.
    both = tmp_path / "both are killed"
    more = {
        "streamlet.inbox.high.water.tuples": 2000,
        "topology.max.spout.pending": 10**6,
        "accounts.last_after": str(both),
    }
    with pytest.raises(TuplesLeft, match=r"untracked tuples were lost: (up to )?[\d,]+ at ") as caught:
        streamlet.run(
            Ways,
            backend="processes",
            workers=3,
            settings={**settings(way, tmp_path, 0.01), **more},
            on_status=kill,
            drain_timeout=PATIENCE_S,
        )
    result = caught.value.result
    assert (len(killed), result.drained, result.reason) == (2, True, "caught_up"), (moments, looks, str(caught.value))
    lost = {name: row.lost for name, row in result.components.items() if row.lost}
    seen = counted_outside(tmp_path)
    print(f"seed {seed}: {seen} seen, lost {lost}")
    # A slow bolt's turn at work may have been seen and be counted as lost; nothing may be neither.
    assert result.components["numbers"].emitted == COUNT <= seen + sum(lost.values()) <= COUNT + 2 * SLICE


@pytest.mark.faults
def test_the_json_result_has_what_a_worker_killed_in_the_drain_left(tmp_path: Path) -> None:
    """The same numbers as in Python, for a script."""
    given = [f"-c{key}={value}" for key, value in settings("no id", tmp_path, 0.05).items()]
    process = Streamlet(tmp_path).start(
        "run", f"{WAYS_FILE}:Ways", "--workers=3", "--until-caught-up", "--json", *given
    )
    killed, last = False, {}
    assert process.stdout and process.stderr
    with process:
        for line in process.stdout:
            last = json.loads(line)
            rows = {row["name"]: row for row in last["components"]} if last["event"] == "status" else {}
            if not killed and rows and rows["numbers"]["emitted"] == COUNT and rows["slow"]["executed"] > 200:
                os.kill(int((tmp_path / "slow.pid").read_text()), signal.SIGKILL)
                killed = True
        said = process.stderr.read()
    assert killed and process.returncode == 1 and "It left up to" in said
    assert (last["event"], last["exit_status"], last["drained"]) == ("result", 1, False)
    lost = {row["name"]: row["lost"] for row in last["components"] if row["lost"]}
    assert lost["slow"] > 100
    assert is_all(counted_outside(tmp_path), lost)


@pytest.mark.parametrize("backend", ["inline", "processes"])
@pytest.mark.parametrize("way", ["no id", "ticks"])
def test_a_run_that_has_caught_up_drains_as_long_as_its_bolts_work(way: str, backend: str, tmp_path: Path) -> None:
    """Five seconds and more of work wait when the spout has caught up; that took 4 s at most and dropped the rest."""
    result = streamlet.run(
        Ways, backend=backend, workers=workers_of(backend, 3), settings=settings(way, tmp_path, 0.006)
    )
    assert (result.reason, result.drained, result.left) == ("caught_up", True, {})
    assert result.seconds > 4.5
    assert counted_outside(tmp_path) == COUNT


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_what_is_emitted_before_all_workers_stand_arrives(backend: str, tmp_path: Path) -> None:
    """In a spout's and a bolt's ``initialize`` and in early ticks: 20 000, tracked and untracked."""
    conf = {"accounts.folder": str(tmp_path)}
    result = streamlet.run(Beginnings, backend=backend, workers=workers_of(backend, 3), settings=conf)
    assert result.drained and result.left == {}
    assert result.components["early"].emitted == 2 * SHARE
    assert counted_outside(tmp_path) == 4 * SHARE == COUNT


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_what_a_spout_emits_in_fail_while_the_run_drains_is_processed(backend: str, tmp_path: Path) -> None:
    """It vanished: a spout that is paused for good was not looked at any more."""
    stop = Stop()

    def ask(status: RunStatus) -> None:
        if (tmp_path / "all held").exists():
            stop.ask()
            if status.state == "draining" or backend == "inline":
                (tmp_path / "draining").touch()

    result = streamlet.run(
        Endings,
        backend=backend,
        workers=workers_of(backend, 2),
        until_caught_up=False,
        settings={"accounts.folder": str(tmp_path)},
        drain_timeout=PATIENCE_S,
        on_status=ask,
        stop=stop,
    )
    assert counted_outside(tmp_path) == HELD
    assert (result.drained, result.status.pending, result.components["again"].acked) == (True, 0, HELD)


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_what_other_threads_emit_ack_and_fail_is_all_processed(backend: str, tmp_path: Path) -> None:
    """20 000 tuples emitted by four threads, through a pool and an asyncio loop; some fail once and come again."""
    conf = {"accounts.folder": str(tmp_path), "streamlet.threads.queue.max": 100}
    result = streamlet.run(FromThreads, backend=backend, workers=workers_of(backend, 3), settings=conf)
    assert (result.reason, result.drained, result.left) == ("caught_up", True, {})
    assert counted_outside(tmp_path) == from_threads.COUNT
    numbers = result.components["numbers"]
    assert (numbers.acked, numbers.failed) == (from_threads.COUNT, from_threads.COUNT // 100)


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_an_id_that_two_threads_emit_is_refused_on_the_thread_that_came_second(backend: str, tmp_path: Path) -> None:
    """The run goes on: each emit that was taken is done, and once an id is done it is free."""
    conf = {"accounts.folder": str(tmp_path)}
    result = streamlet.run(TwoThreads, backend=backend, workers=workers_of(backend, 2), settings=conf)
    refused = int((tmp_path / "refused").read_text())
    assert (result.reason, result.drained) == ("caught_up", True) and refused > 0
    assert counted_outside(tmp_path) == from_threads.COUNT
    numbers = result.components["numbers"]
    assert (numbers.acked, numbers.failed) == (2 * from_threads.COUNT - refused, 0)


@pytest.mark.parametrize(("backend", "workers"), [("inline", None), ("processes", 1), ("processes", 2)])
def test_a_drain_that_is_cut_short_names_what_other_threads_had_emitted(
    backend: str, workers: int | None, tmp_path: Path
) -> None:
    """What was taken over from them and waits for the loop, too."""
    with pytest.raises(TuplesLeft, match=r"left [\d,]+ untracked tuples? for ") as caught:
        streamlet.run(
            CutShort,
            backend=backend,
            workers=workers,
            seconds=0.5,
            settings={"threads.results": str(tmp_path)},
            drain_timeout=0.2,
        )
    taken, processed = (int((tmp_path / name).read_text()) for name in ("taken", "processed"))
    assert taken > 1000 and processed + sum(caught.value.result.left.values()) == taken


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_threads_that_are_refused_at_once_and_emit_again_lose_nothing_and_keep_their_order(
    backend: str, tmp_path: Path
) -> None:
    """With ``streamlet.threads.wait.secs`` 0 an emit raises instead of waiting; 20 000 tuples of four threads."""
    conf = {"accounts.folder": str(tmp_path), "streamlet.threads.queue.max": 10, "streamlet.threads.wait.secs": 0}
    result = streamlet.run(WithoutWaiting, backend=backend, workers=workers_of(backend, 2), settings=conf)
    assert (result.reason, result.drained, result.left) == ("caught_up", True, {})
    refusals = (tmp_path / "refusals").read_text().splitlines()
    assert len(refusals) > 20 and all(
        "10 tuples of such calls were waiting already (0 s for room" in text for text in refusals
    )
    assert counted_outside(tmp_path) == result.components["numbers"].acked == from_threads.COUNT
    (seen,) = tmp_path.glob("seen.*")
    numbers = [*map(int, seen.read_text().split())]
    each = from_threads.COUNT // from_threads.THREADS
    for k in range(from_threads.THREADS):
        assert [n for n in numbers if n // each == k] == [*range(k * each, (k + 1) * each)]


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_thread_that_emits_when_the_run_ends_is_refused_and_what_was_taken_is_processed(
    backend: str, tmp_path: Path
) -> None:
    stop = Stop()

    def ask(status: RunStatus) -> None:
        if any(row.emitted > 1000 for row in status.components):
            stop.ask()

    result = streamlet.run(
        LateThread,
        backend=backend,
        workers=workers_of(backend, 2),
        until_caught_up=False,
        settings={"accounts.folder": str(tmp_path), "streamlet.threads.queue.max": 1000},
        drain_timeout=PATIENCE_S,
        on_status=ask,
        stop=stop,
    )
    taken, kind, *words = (tmp_path / "refused").read_text().split()
    assert kind == "BadEmit" and "while the run ends" in " ".join(words)
    assert counted_outside(tmp_path) == int(taken) == result.components["late"].emitted > 1000


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_an_id_that_is_emitted_twice_while_it_is_open_is_refused_each_time_and_nothing_is_lost(
    backend: str, tmp_path: Path
) -> None:
    """20 000 ids, each tried twice: taken, one of the two tuples could not be replayed. An id that is done is free."""
    result = streamlet.run(
        TwiceOpen,
        backend=backend,
        workers=workers_of(backend, 2),
        until_caught_up=True,
        settings={"accounts.folder": str(tmp_path)},
    )
    counts, said = json.loads((tmp_path / "counts").read_text())
    assert set(counts) == {"refused", "refused of old", "taken of old"} and counts["refused"] == COUNT
    assert all("tup_id N was emitted again while" in text for text in said) and said
    lines = subprocess.run(["cat", *tmp_path.glob("seen.*")], check=True, capture_output=True).stdout.count(b"\n")
    assert counted_outside(tmp_path) == COUNT and lines == COUNT + counts["taken of old"]
    assert result.components["numbers"].acked == lines and result.components["numbers"].failed == 0
