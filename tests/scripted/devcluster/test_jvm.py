"""A process under a keeper ends when its owner ends, however that is. Shown with `sleep`, which needs no Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlet.devcluster.errors import ClusterFailed
from streamlet.devcluster.jvm import Jvm, is_stopped, log_tail
from streamlet.devcluster.machine import ProcessIdentity

SLEEP = ["/bin/sleep", "300"]


def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait for the condition, with a deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[Jvm]:
    jvm = Jvm("sleeper", SLEEP, tmp_path / "log")
    yield jvm
    jvm.kill()


def owner(tmp_path: Path, body: str) -> tuple[subprocess.Popen[bytes], ProcessIdentity]:
    """Another process that owns one; ``body`` runs after the start. Returns it and whom it owns."""
    script = f"""
        import os, sys, time
        from pathlib import Path
        from streamlet.devcluster.jvm import Jvm
        jvm = Jvm("sleeper", {SLEEP!r}, Path({str(tmp_path)!r}) / "log", detachable={"release" in body})
        print(jvm.pid, flush=True)
    """
    program = textwrap.dedent(script) + body + "\nsys.stdin.read()\n"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, ProcessIdentity.of(int(process.stdout.readline()))


def finish(process: subprocess.Popen[bytes]) -> None:
    """Let go of the pipes."""
    process.kill()
    process.communicate()


def test_kill_9_of_the_owner_ends_it(tmp_path: Path) -> None:
    """Nothing of the owner's runs any more, and yet the process goes."""
    process, sleeper = owner(tmp_path, "")
    try:
        assert sleeper.alive
        process.kill()
        until(lambda: not sleeper.alive, 5.0)
    finally:
        finish(process)


def test_kill_9_of_the_owner_ends_it_although_a_fork_of_the_owner_lives(tmp_path: Path) -> None:
    """A fork inherits every pipe of the owner; the keeper is not deceived by it."""
    process, sleeper = owner(tmp_path, "if os.fork() == 0: time.sleep(60); os._exit(0)")
    try:
        process.kill()
        process.wait()
        until(lambda: not sleeper.alive, 5.0)
    finally:
        # The fork: it holds the other ends of our pipes, and is in nobody's care.
        for task in Path("/proc").glob("[0-9]*"):
            try:
                if str(tmp_path).encode() in (task / "cmdline").read_bytes():
                    os.kill(int(task.name), signal.SIGKILL)
            except (OSError, ProcessLookupError):
                continue
        finish(process)


def test_kill_9_of_the_keeper_ends_it(jvm: Jvm) -> None:
    """The one who watches cannot be taken out of the way."""
    sleeper = ProcessIdentity.of(jvm.pid)
    jvm._keeper.kill()
    until(lambda: not sleeper.alive, 5.0)


def test_the_end_of_the_thread_that_started_it_changes_nothing(tmp_path: Path) -> None:
    """PR_SET_PDEATHSIG alone would end it here."""
    started: list[Jvm] = []
    thread = threading.Thread(target=lambda: started.append(Jvm("sleeper", SLEEP, tmp_path / "log")))
    thread.start()
    thread.join()
    try:
        # It is there and answers signals: stopped, it shows as stopped.
        started[0].pause()
        until(lambda: state_of(started[0].pid) == "T")
        assert started[0].alive
    finally:
        started[0].kill()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_paused_jvm_is_stopped_in_bounded_time(jvm: Jvm) -> None:
    """Paused and resumed, it shows as such; one that has ended may be ended again, and leaves no zombie."""
    sleeper = ProcessIdentity.of(jvm.pid)
    jvm.pause()
    assert is_stopped(jvm.pid) and state_of(jvm.pid) == "T"
    jvm.resume()
    until(lambda: state_of(jvm.pid) == "S")
    assert not is_stopped(jvm.pid)
    jvm.pause()
    jvm.stop(grace_s=5)
    assert not jvm.alive
    assert not sleeper.alive
    assert not Path(f"/proc/{jvm.pid}").exists() or ProcessIdentity.of(jvm.pid) != sleeper
    jvm.stop(grace_s=5)
    jvm.kill()


def test_what_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """``stop`` is bounded by its grace."""
    log = tmp_path / "log"
    jvm = Jvm("stubborn", ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], log)
    until(lambda: log.read_text() == "ready\n")
    jvm.stop(grace_s=0.2)
    assert not jvm.alive


def test_a_released_one_lives_on(tmp_path: Path) -> None:
    """Only for those made detachable: it outlives its owner and is ended by its identity."""
    process, sleeper = owner(tmp_path, "jvm.release(); print('released', flush=True)")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"released\n"
        process.kill()
        process.wait()
        assert sleeper.alive
        assert sleeper.kill()
        until(lambda: not sleeper.alive)
        assert not sleeper.kill()
    finally:
        finish(process)
        sleeper.kill()


def test_a_detachable_one_dies_with_its_owner_until_it_is_released(tmp_path: Path) -> None:
    """An `up` that is killed half-way leaves nothing."""
    process, sleeper = owner(tmp_path, "pass  # no release")
    try:
        process.kill()
        until(lambda: not sleeper.alive, 5.0)
    finally:
        finish(process)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """Told by the log, and by the process's end."""
    jvm = Jvm("nobody", ["/none/java"], tmp_path / "log")
    until(lambda: not jvm.alive)
    assert "cannot run /none/java" in log_tail(jvm.log)
    jvm.kill()


def test_a_keeper_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names who could not be started."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ClusterFailed, match="nobody could not be started"):
        Jvm("nobody", SLEEP, tmp_path / "log")


def test_log_tail_prefers_errors(tmp_path: Path) -> None:
    """Lines that name an error win over later ones; stack frames are left out."""
    log = tmp_path / "log"
    assert log_tail(log) == "(no log)"
    log.write_text("")
    assert log_tail(log) == "(its log is empty)"
    log.write_text("INFO one\nINFO two\n")
    assert log_tail(log, lines=1) == "INFO two"
    log.write_text("INFO one\nERROR broken\n\tat some.Class\nINFO two\n")
    assert log_tail(log) == "ERROR broken"


def test_a_recycled_pid_is_not_the_process() -> None:
    """The same pid with another start, or of another boot, is gone: not alive, never killed."""
    me = ProcessIdentity.of(os.getpid())
    assert me.alive
    for other in (ProcessIdentity(me.pid, me.started + 1, me.boot), ProcessIdentity(me.pid, me.started, "before")):
        assert not other.alive
        assert not other.kill()
