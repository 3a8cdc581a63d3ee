"""``streamlet runs``: another process lists a living run, shows, pauses, resumes and stops it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamlet.backends.command_listener import CARD, CommandListener
from streamlet.backends.living_runs import LivingRun, RunRefused, living_runs, the_run
from streamlet.backends.run_commands import ShowRun
from streamlet.base.errors import BadInput
from streamlet.cli import runs as cli_runs
from tests.command_line import Streamlet
from tests.patience import PATIENCE_S

TOPOLOGY = """
import time
from streamlet import Bolt, ReliableSpout, Topology

class Slow(ReliableSpout):
    outputs = ["n"]
    n = 0
    def activate(self): self.log("activated")
    def deactivate(self): self.log("deactivated")
    def next_tuple(self):
        time.sleep(0.005)
        self.n += 1
        self.emit([self.n], tup_id=self.n)

class Sink(Bolt):
    def process(self, tup): pass

class NAME(Topology):
    one = Slow.spec()
    two = Slow.spec()
    sink = Sink.spec(inputs=[one, two])
"""


class Runs:
    """A topology's run of its own name, and ``streamlet runs`` about it."""

    def __init__(self, streamlet: Streamlet) -> None:
        self.streamlet = streamlet
        self.name = f"Runs{os.urandom(4).hex()}"

    def start(self, *options: str) -> subprocess.Popen[str]:
        file = self.streamlet.write(TOPOLOGY.replace("NAME", self.name))
        process = self.streamlet.start("run", file, "--workers", "2", *options)
        self.until(lambda: self.ours() and self.status()["state"] == "running" and self.emitted("one") > 0)
        return process

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.streamlet("runs", *arguments)

    def ours(self) -> list[LivingRun]:
        return [run for run in living_runs() if run.topology == self.name]

    def status(self) -> dict[str, Any]:
        return dict(self.ours()[0].ask(ShowRun()).content)

    def emitted(self, spout: str) -> int:
        rows = self.status()["components"]
        return int(next(row["emitted"] for row in rows if row["name"] == spout))

    def stands(self, spout: str) -> bool:
        """Whether a spout emits nothing between two statuses of its own."""
        before = self.emitted(spout)
        time.sleep(2.5)
        return self.emitted(spout) == before

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def runs(streamlet: Streamlet) -> Runs:
    return Runs(streamlet)


def test_a_run_is_listed_shown_and_stopped_from_elsewhere(runs: Runs) -> None:
    process = runs.start()
    (run,) = runs.ours()
    assert run.pid == process.pid and (run.workers, run.backend) == (2, "processes")
    listed = runs()
    assert f"{run.id}" in listed.stdout and runs.name in listed.stdout
    rows = [json.loads(line) for line in runs("--json").stdout.splitlines()]
    assert next(row for row in rows if row["run"] == run.run)["file"].endswith("made.py")
    shown = runs("show", run.id).stdout
    assert f"{runs.name} ({run.id}): running for" in shown and "sink" in shown
    assert json.loads(runs("show", runs.name, "--json").stdout)["state"] == "running"
    stopped = runs("stop", runs.name)
    assert stopped.returncode == 0 and not runs.ours()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "everything that was emitted is done" in out, err


def test_a_paused_spout_emits_nothing_until_it_is_resumed_and_the_other_goes_on(runs: Runs) -> None:
    process = runs.start()
    assert "paused now: one." in runs("pause", runs.name, "--spout", "one").stdout
    runs.until(lambda: runs.status()["paused"] == ["one"])
    time.sleep(1.5)  # a status is a second old at most
    other = runs.emitted("two")
    assert runs.stands("one") and runs.emitted("two") > other
    stood = runs.emitted("one")
    assert json.loads(runs("resume", runs.name, "--json").stdout)["paused"] == []
    runs.until(lambda: runs.emitted("one") > stood)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    heard = [line.split("one: ")[1] for line in err.splitlines() if "one: " in line]
    assert heard == ["activated", "deactivated", "activated", "deactivated"], out


def test_a_pause_outlives_the_worker(runs: Runs) -> None:
    process = runs.start()
    runs("pause", runs.name)
    for worker in runs.status()["workers"]:
        os.kill(worker["pid"], signal.SIGKILL)
    runs.until(lambda: all(row["epoch"] > 1 and row["state"] == "up" for row in runs.status()["workers"]))
    assert runs.status()["paused"] == ["one", "two"]
    assert runs.stands("one") and runs.stands("two")
    runs("resume", runs.name)
    stood = runs.emitted("one")
    runs.until(lambda: runs.emitted("one") > stood)
    assert process.poll() is None


def test_what_cannot_be_done_is_said_in_a_sentence(runs: Runs) -> None:
    """With status 2: what was given is no part of the run, or not in that state."""
    runs.start()
    (run,) = runs.ours()
    about = f"Run {run.id} of {runs.name}: "
    for arguments, said in (
        (("pause", runs.name, "--spout", "three"), f"{about}it has no spout 'three'. Its spouts are: one, two."),
        (("pause", runs.name, "--spout", "one", "--topic", "t"), f"{about}one does not read t."),
        (("pause", runs.name, "--spout", "one", "--partition", "9"), f"{about}one reads no partitions."),
        (("pause", runs.name, "--partition", "3"), f"{about}it has 2 spouts: name the one that is meant"),
        (("resume", runs.name, "--spout", "one"), f"{about}one is not paused."),
        (("show", "nowhere"), "No living run is called 'nowhere'. There are: "),
    ):
        done = runs(*arguments)
        assert (done.returncode, done.stdout) == (2, "") and said in done.stderr and done.stderr.count("\n") == 1, done


def test_an_empty_name_is_that_of_no_run_and_no_part(runs: Runs) -> None:
    """A shell's variable that is not set: `stop "$RUN"` would end the one run that lives, `--spout ""` mean all."""
    one = LivingRun("ab" * 16, "Counts", "counts.py", "processes", 1, 7, 0.0, "socket", b"")
    with pytest.raises(BadInput, match=r"RUN is empty, so it names no run: .* There are: abababab \(Counts\)\."):
        the_run("", [one])
    for option in ("--spout", "--topic"):
        done = runs("pause", runs.name, option, "")
        assert (done.returncode, done.stdout) == (2, "") and f"{option} '' names nothing" in done.stderr


def test_a_run_that_was_to_catch_up_and_was_stopped_did_not_end_well(runs: Runs) -> None:
    """What comes after it in a script goes by the status."""
    process = runs.start("--until-caught-up")
    assert runs("stop", runs.name).returncode == 0
    assert process.wait(PATIENCE_S) == 1


def test_two_runs_of_one_name_are_told_apart_by_their_ids(runs: Runs) -> None:
    runs.start()
    runs.start()
    runs.until(lambda: len(runs.ours()) == 2)
    first, second = runs.ours()
    done = runs("show", runs.name, "--json")
    assert done.returncode == 2 and first.id in done.stderr and second.id in done.stderr
    assert json.loads(runs("show", second.id, "--json").stdout)["pid"] == second.pid


def test_a_run_answers_nobody_who_does_not_know_its_secret(runs: Runs) -> None:
    process = runs.start()
    (run,) = runs.ours()
    stranger = LivingRun(**{name: getattr(run, name) for name in run.__slots__} | {"_secret": b"guess" * 6})
    with pytest.raises(RunRefused, match="does not answer: it does not know this run's secret"):
        stranger.ask(ShowRun())
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(f"\0{run._socket}")
        silent.sendall(b"GET / HTTP/1.1\r\n" * 9)
        assert run.ask(ShowRun()).content["state"] == "running", "a stranger keeps nobody waiting"
    card = next(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"slt-{process.pid}-*")) / CARD
    assert card.stat().st_mode & 0o777 == 0o600 and card.parent.stat().st_mode & 0o777 == 0o700
    assert run._secret.hex() not in "".join(runs("--json").stdout)
    card.unlink()
    runs.until(card.exists)
    shutil.rmtree(card.parent)
    runs.until(card.exists)
    assert runs.status()["state"] == "running" and card.parent.stat().st_mode & 0o777 == 0o700


def test_a_card_is_never_written_into_what_somebody_else_has_put_there(tmp_path: Path) -> None:
    """In the folder of a run that was swept, a link to a file of ours may wait."""
    victim = tmp_path / "mine"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    listener = CommandListener(folder, b"r" * 16, {"topology": "T"}, lambda: None)
    try:
        (folder / CARD).unlink()
        (folder / CARD).with_suffix(".new").symlink_to(victim)
        listener.keep_card()
        assert victim.read_text() == "precious" and (folder / CARD).stat().st_mode & 0o777 == 0o600
        shutil.rmtree(folder)
        folder.write_text("no folder any more")
        listener.keep_card()
    finally:
        listener.close()


def test_who_asks_while_a_run_ends_is_told_that_it_is_over(tmp_path: Path) -> None:
    listener = CommandListener(tmp_path, b"r" * 16, {"topology": "T"}, lambda: None)
    card = json.loads((tmp_path / CARD).read_text())
    run = LivingRun("72" * 16, "T", "t.py", "processes", 1, 1, 0.0, card["socket"], bytes.fromhex(card["secret"]))
    told: list[str] = []

    def ask() -> None:
        try:
            run.ask(ShowRun())
        except RunRefused as error:
            told.append(str(error))

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while listener._commands.qsize() < len(asking):
        listener.serve()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    listener.close()
    for thread in asking:
        thread.join(PATIENCE_S)
    assert told == ["Run 72727272 of T: the run is over."] * len(asking)


def test_a_run_that_stands_still_is_said_to_do_so(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    process = runs.start()
    (run,) = runs.ours()
    monkeypatch.setattr("streamlet.backends.living_runs.ANSWER_S", -4.0)
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(RunRefused, match=r"Run \w+ of Runs\w+ \(process \d+\) does not answer: "):
            run.ask(ShowRun())
    finally:
        process.send_signal(signal.SIGCONT)
    assert run.ask(ShowRun()).content["state"] == "running"


@pytest.mark.parametrize(
    ("given", "said"),
    [("kill", "`streamlet runs stop`"), ("list", "lists the living ones"), ("shw", "'show'"), ("xyzzy", "There are: ")],
)
def test_a_command_about_runs_that_is_not_there_is_answered_with_one_that_is(
    streamlet: Streamlet, given: str, said: str
) -> None:
    done = streamlet("runs", given, "x")
    assert done.returncode == 2 and said in " ".join(done.stderr.split())


def test_a_run_that_ends_by_itself_while_it_is_being_stopped_was_stopped_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending:
        run = id = "ab"
        topology = "Ends"

        def ask(self, command: Any) -> None:
            raise RunRefused("it does not answer")

    living: list[Ending] = []
    monkeypatch.setattr(cli_runs, "the_run", lambda wanted, found: Ending())
    monkeypatch.setattr(cli_runs, "living_runs", lambda: living)
    ended = CliRunner().invoke(cli_runs.stop, ["ab"])
    assert ended.exit_code == 0 and "had ended by itself" in ended.output
    living.append(Ending())
    assert isinstance(CliRunner().invoke(cli_runs.stop, ["ab"]).exception, RunRefused)
