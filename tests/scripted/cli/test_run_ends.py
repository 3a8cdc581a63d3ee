"""How a run ends when components do what ends, outlives or holds up their process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pytest

from streamlet.cli.interrupts import SAME_S
from tests.patience import PATIENCE_S

FILE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology
from streamlet.base.errors import BadInput

class Away(BadInput):
    retriable = RETRIABLE

class Few(ReliableSpout):
    outputs = ["n"]
    n = 0
    dies = False
    def initialize(self, conf, context):
        super().initialize(conf, context)
        SPOUT
    def next_tuple(self):
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.n < 5:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 5 and not self.has_unfinished()

class Sink(Bolt):
    def initialize(self, conf, context):
        self.epoch = context.epoch
        INITIALIZE
    def process(self, tup):
        PROCESS
    def cleanup(self):
        CLEANUP

class Made(Topology):
    config = {"topology.workers": 2}
    few = Few.spec()
    sink = Sink.spec(inputs=[few])
"""


def made(
    initialize: str = "pass", process: str = "pass", cleanup: str = "pass", spout: str = "pass", retriable: bool = True
) -> str:
    """The topology with its methods filled in."""
    text = FILE.replace("INITIALIZE", initialize).replace("PROCESS", process).replace("CLEANUP", cleanup)
    return text.replace("SPOUT", spout).replace("RETRIABLE", str(retriable))


FORKS = f"os.fork() or (time.sleep({4 * PATIENCE_S}), os._exit(0))"


def test_a_child_that_outlives_its_worker_does_not_hold_up_the_end(streamlet) -> None:
    """It holds a copy of the worker's channel, which therefore never comes to its end of file."""
    done = streamlet("run", streamlet.write(made(FORKS, cleanup="self.log('cleaned up')")), "--until-caught-up")
    assert done.returncode == 0, done
    assert "cleaned up" in done.stderr and "everything that was emitted is done" in done.stdout


def test_a_worker_that_dies_is_replaced_though_a_child_of_it_lives_on(streamlet) -> None:
    text = made(f"self.epoch > 1 or {FORKS}", "self.epoch > 1 or os.kill(os.getpid(), signal.SIGKILL)")
    done = streamlet("run", streamlet.write(text), "--until-caught-up")
    assert done.returncode == 0, done
    assert "was started again (epoch 2)" in done.stderr


def test_what_a_component_starts_inherits_nothing_of_the_run(streamlet) -> None:
    """Neither the channel nor a link: a program in the background would keep them open."""
    text = made('print(subprocess.run("ls -l /proc/self/fd", shell=True, close_fds=False, text=True,'
                'capture_output=True).stdout, flush=True)')  # fmt: skip
    done = streamlet("run", streamlet.write(text), "--until-caught-up")
    assert done.returncode == 0 and "pipe:" in done.stdout, done
    assert "socket:" not in done.stdout


@pytest.mark.parametrize("backend", ["inline", "processes"])
@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("sys.exit(3)", "sink called sys.exit(3) ("),
        ("raise GeneratorExit('no')", "sink raised GeneratorExit ("),
        ("raise KeyboardInterrupt", "sink raised KeyboardInterrupt ("),
    ],
)
@pytest.mark.parametrize("where", ["process", "initialize"])
def test_a_component_that_exits_is_named_once(streamlet, backend: str, act: str, said: str, where: str) -> None:
    """No replay mends it, so the run ends at the first: component and line stand in one paragraph."""
    workers = ("--workers", "1" if backend == "inline" else "2")
    file = streamlet.write(made(**{where: act}))
    done = streamlet("run", file, "--until-caught-up", "--backend", backend, *workers)
    assert done.returncode == 1, done
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: ") and said in last and f"{file}:" in last, done.stderr
    assert "epoch" not in done.stderr and "bug in streamlet" not in done.stderr


@pytest.mark.parametrize(
    ("cleanup", "how"),
    [
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "was killed by SIGKILL in cleanup of sink (task 2) before it had closed",
        ),
        (f"time.sleep({4 * PATIENCE_S})", "did not stop within"),
    ],
)
def test_a_worker_that_does_not_come_to_close_fails_the_run(streamlet, cleanup: str, how: str) -> None:
    """Every tuple was acked, and what they were kept for was never written: nobody reads them again."""
    conf = ("-c", "streamlet.stop.timeout.secs=0.5")
    done = streamlet("run", streamlet.write(made(cleanup=cleanup)), "--until-caught-up", *conf)
    assert done.returncode == 1, done
    said = done.stderr.splitlines()[-1]
    assert f"worker 1 (sink) {how}" in said and "may be missing" in said
    assert ("streamlet.stop.timeout.secs" in said) == ("did not stop" in how)
    assert "everything that was emitted is done" not in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_a_signal_the_last_line_says_who_could_not_close(streamlet, number: int) -> None:
    """Whoever interrupts has bounded the time: the status stays the shell's."""
    conf = ("-c", "streamlet.stop.timeout.secs=0.5")
    text = made(process="print('a tuple came', flush=True)", cleanup=f"time.sleep({4 * PATIENCE_S})")
    process = streamlet.start("run", streamlet.write(text), *conf)
    for line in process.stdout:
        if "a tuple came" in line:
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number, err
    assert "worker 1 (sink) did not stop within" in out.splitlines()[-1] and "may be missing" in out.splitlines()[-1]


def test_the_last_line_names_the_close_that_hangs_and_no_setting_that_is_for_tuples(streamlet) -> None:
    conf = ("streamlet.stop.timeout.secs=2", "streamlet.task.hang.secs=0.5", "streamlet.worker.heartbeat.secs=0.2")
    text = made(cleanup=f"time.sleep({4 * PATIENCE_S})")
    done = streamlet("run", streamlet.write(text), "--until-caught-up", *(f"-c{one}" for one in conf))
    assert done.returncode == 1, done
    said = done.stderr.splitlines()[-1]
    assert "worker 1 (sink) did not stop within" in said
    assert re.search(r": it had been in cleanup of sink \(task 2\) for \d s\b", said), said
    assert "hang.action" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_inline_a_call_that_hangs_is_named_after_the_time_of_the_drain_and_a_second_signal_kills(
    streamlet, number: int
) -> None:
    """No thread can end a call of another: so the one who waits hears what the run waits for."""
    conf = ("--backend", "inline", "-c", "streamlet.drain.timeout.secs=0.5")
    text = made(process=f"print('a tuple came', flush=True); time.sleep({4 * PATIENCE_S})")
    process = streamlet.start("run", streamlet.write(text), *conf)
    next(line for line in process.stdout if "a tuple came" in line)
    process.send_signal(number)
    said = next(line for line in process.stderr if "has been in" in line)
    assert re.search(r"The run has been in process of sink \(task 2\) for \d+ s on a tuple from few, \[1\]\. ", said)
    assert "cannot end before that call returns: a second Ctrl-C or SIGTERM kills it" in said
    assert "made.py" in next(process.stderr)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number


def test_inline_a_second_signal_kills_though_both_come_in_one_call_that_holds_the_interpreters_lock(streamlet) -> None:
    """No thread can look meanwhile: both are found at once, when the lock is let go."""
    blocked = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"  # else it would end the sleep
    holds = "(ctypes.PyDLL(None) if tup.values[0] == 1 else time).sleep(2)"
    text = made(process=f"{blocked}; print('a tuple came', flush=True); {holds}", cleanup="time.sleep(2)")
    process = streamlet.start("run", streamlet.write(f"import ctypes\n{text}"), "--backend", "inline")
    next(line for line in process.stdout if "a tuple came" in line)
    for _ in range(2):
        time.sleep(2 * SAME_S)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and out.splitlines()[-1].startswith("Killed"), err


def test_inline_a_call_that_takes_long_is_named_with_its_stack_and_the_run_goes_on(streamlet) -> None:
    conf = ("--backend", "inline", "-c", "streamlet.task.hang.secs=1")
    text = made(process="tup.values[0] == 3 and time.sleep(2)")
    kept = ("--log-file", "run.log", "--log-format", "json")
    done = streamlet("run", streamlet.write(text), "--until-caught-up", *conf, *kept)
    assert done.returncode == 0, done
    lines = [json.loads(line) for line in (streamlet.folder / "run.log").read_text().splitlines()]
    told = [line for line in lines if "has been in process of" in line["text"] or "went on after" in line["text"]]
    origins = [(each["component"], each["task"], each["worker"], each["epoch"]) for each in told]
    assert origins == [("sink", 2, 0, 1)] * 2
    assert done.stderr.count("The run has been in process of sink (task 2) for") == 1
    assert "on a tuple from few, [3]. Nothing else runs meanwhile.\n" in done.stderr
    assert "in process\n      tup.values[0] == 3 and time.sleep(2)" in done.stderr
    assert "bolt_task.py" not in done.stderr and "sink (task 2) went on after more than" in done.stderr


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_component_that_exits_while_it_closes_ends_the_run_with_1(streamlet, backend: str) -> None:
    workers = ("--workers", "1" if backend == "inline" else "2")
    done = streamlet("run", streamlet.write(made(cleanup="sys.exit(0)")), "--until-caught-up", "--backend", backend,
                     *workers)  # fmt: skip
    assert done.returncode == 1, done
    assert "SystemExit" in done.stderr.splitlines()[-1] and "may be missing" in done.stderr.splitlines()[-1]


DYING = """self.dies = context.epoch == 1
        if context.epoch in (2, 3):
            raise Away("No store answers. Start it.")"""


def test_a_replaced_worker_whose_server_is_away_tries_again(streamlet) -> None:
    """What ends a first start at once may pass while the run is under way: it counts as a death, not as the end."""
    done = streamlet("run", streamlet.write(made(spout=DYING)), "--until-caught-up")
    assert done.returncode == 0, done
    for epoch in (2, 3):
        assert f"worker 0 (epoch {epoch}) could not start: No store answers. Start it\n" in done.stderr
    assert "worker 0 was started again (epoch 4)" in done.stderr


def test_tries_of_a_replaced_worker_are_bounded_and_the_end_is_no_refusal(streamlet) -> None:
    """By the budget of restarts; 2 would say that nothing ever ran."""
    conf = ("-c", "streamlet.worker.restarts.max=2")
    done = streamlet("run", streamlet.write(made(spout=DYING)), "--until-caught-up", *conf)
    assert done.returncode == 1 and "died 3 times" in done.stderr and "No store answers" in done.stderr, done


def test_what_no_wait_mends_ends_a_run_that_had_begun_with_1(streamlet) -> None:
    done = streamlet("run", streamlet.write(made(spout=DYING, retriable=False)), "--until-caught-up")
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "Error: No store answers. Start it.", done


def test_what_cannot_start_at_first_is_refused_though_it_might_pass(streamlet) -> None:
    done = streamlet("run", streamlet.write(made(spout="raise Away('No store answers.')")), "--until-caught-up")
    assert done.returncode == 2 and done.stderr.splitlines()[-1] == "Error: No store answers.", done


@pytest.mark.parametrize("backend", ["inline", "processes"])
@pytest.mark.parametrize(("path", "status"), [("written", 0), ("/dev/full", 1)])
def test_what_stands_in_the_buffer_of_a_file_that_a_bolt_left_open_is_written(
    streamlet, tmp_path, backend: str, path: str, status: int
) -> None:
    """Its tuples are acked, so nobody sends them again; where it cannot be written, that is told."""
    opens = f"self.file = open({str(tmp_path / path)!r}, 'w')"  # an absolute path stays as it is
    file = streamlet.write(made(opens, "self.file.write(f'{tup.values[0]}\\n')"))
    done = streamlet("run", file, "--until-caught-up", "--backend", backend)
    assert done.returncode == status, done
    if status:
        assert "Not everything could be written to a file that was left open, '/dev/full'" in done.stderr + done.stdout
    else:
        assert (tmp_path / path).read_text().split() == list("12345")


def test_a_component_that_takes_the_standard_output_away_fails_nothing_at_its_workers_end(streamlet) -> None:
    done = streamlet("run", streamlet.write(made("sys.stdout = sys.stderr = None")), "--until-caught-up")
    assert done.returncode == 0, done


UNTRACKED = """
import time
from streamlet import Bolt, Spout, Topology

class Many(Spout):
    outputs = ["n"]
    left = 30
    def next_tuple(self):
        if self.left:
            self.emit([self.left])
            self.left -= 1

class Slow(Bolt):
    def process(self, tup):
        if tup.values[0] == 30:
            print("a tuple came", flush=True)
        time.sleep(0.25)

class Made(Topology):
    config = {"topology.workers": 2}
    many = Many.spec()
    slow = Slow.spec(inputs=[many])
"""


def drained(streamlet, text: str, backend: str, sign: str) -> dict[str, int]:
    """End a run by a signal once a component prints the sign; what was emitted and executed, by component."""
    process = streamlet.start("run", streamlet.write(text), "--json", "--backend", backend)
    for line in process.stderr:
        if sign in line:
            break
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    result = json.loads(out.splitlines()[-1])
    assert (process.returncode, result["drained"]) == (143, True), out
    return {row["name"]: row["emitted"] or row["executed"] for row in result["components"]}


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_signal_before_anything_was_measured_loses_no_untracked_tuple(streamlet, backend: str) -> None:
    """Nobody knew then how long they would take: the drain had its least time, whatever waited."""
    assert drained(streamlet, UNTRACKED, backend, "a tuple came")["slow"] == 30


def test_no_worker_is_stopped_by_what_asks_for_the_terminal(streamlet) -> None:
    """Its group is in the background: a password that a client asked for stopped it, each time it was started."""
    text = made(process="os.kill(os.getpid(), signal.SIGTTIN); os.kill(os.getpid(), signal.SIGTTOU)")
    done = streamlet("run", streamlet.write(text), "--until-caught-up", "-c", "streamlet.worker.timeout.secs=4")
    assert done.returncode == 0 and "silent" not in done.stderr, done


FAILS_SOME = """
from streamlet import Bolt, Spout, Topology

class Numbers(Spout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 60:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
        elif self.n == 60:
            self.n += 1
            print("all is out", flush=True)

class Hears(Numbers):
    def fail(self, tup_id):
        pass

class Bad(Bolt):
    def process(self, tup):
        if tup.values[0] % 20 == 0:
            self.fail(tup)

class Made(Topology):
    numbers = WHO.spec()
    bad = Bad.spec(inputs=[numbers])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
@pytest.mark.parametrize(("who", "status"), [("Numbers", 1), ("Hears", 143)])
def test_a_signal_calls_what_failed_open_or_given_up_and_never_both(
    streamlet, backend: str, who: str, status: int
) -> None:
    """Both were said of the same trees, with the status of a run that was only stopped."""
    file = streamlet.write(FAILS_SOME.replace("WHO", who))
    process = streamlet.start("run", file, "--backend", backend)
    for line in process.stdout:
        if "all is out" in line:
            break
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, out + err
    if who == "Numbers":
        assert "numbers: 3 given up; nobody sends them again." in out and "open" not in out
        assert "3 tuple trees of the spout numbers failed and nobody sent them again" in err
    else:
        assert "3 tuple trees still open (numbers 3), to be replayed by the next run" in out
        assert "given up" not in out + err


def test_when_the_time_is_over_who_failed_trees_that_wait_is_named_and_not_the_drain(streamlet) -> None:
    """The drain had worked off everything, and its time was not over."""
    done = streamlet("run", streamlet.write(FAILS_SOME.replace("WHO", "Hears")), "-t", "1.5")
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "3 tuple trees of numbers had failed and not been sent again by then" in said
    assert "bad failed 3 tuples by itself" in said and "drain" not in said


HANGS_WITH_RETRIES = """
import time
from streamlet import Backoff, Bolt, ReliableSpout, Topology

class Many(ReliableSpout):
    outputs = ["n"]
    n = 0
    max_fails = None
    replay_backoff = Backoff(initial=1000.0, maximum=1000.0)
    def next_tuple(self):
        if self.n < 400:
            self.n += 1
            self.emit([self.n], self.n)

class Hangs(Bolt):
    def process(self, tup):
        if tup.values[0] == 301:
            print("it hangs", flush=True)
            time.sleep(1000)
        if tup.values[0] % 3 == 0:
            self.fail(tup)
        else:
            print("done", tup.values[0], file=open("done", "a"))

class Made(Topology):
    config = {"topology.max.spout.pending": 150}
    many = Many.spec()
    hangs = Hangs.spec(inputs=[many])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_kill_during_a_call_that_hangs_counts_what_waits_for_its_next_try(streamlet, backend: str) -> None:
    """The last heartbeat was of before: 8 were said to be open where 81 were not done."""
    process = streamlet.start("run", streamlet.write(HANGS_WITH_RETRIES), "--json", "--backend", backend, "--workers=1")
    next(line for line in process.stderr if "it hangs" in line)
    time.sleep(2 * SAME_S)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(2 * SAME_S)
    out, err = process.communicate(timeout=PATIENCE_S)
    result = json.loads(out.splitlines()[-1])
    (many,) = (row for row in result["components"] if row["name"] == "many")
    done = len((streamlet.folder / "done").read_text().splitlines())
    assert (process.returncode, done) == (143, 200), err
    # All that were emitted: a hundred that failed, and what waits behind the call.
    assert result["pending"] == many["open"] >= 100 and 300 < done + many["open"] <= 400


CHAIN = """
import time
from streamlet import Bolt, Spout, Topology

class Many(Spout):
    outputs = ["n"]
    left = 1500
    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([self.left])

class First(Bolt):
    outputs = ["n"]
    def process(self, tup):
        time.sleep(0.001)
        self.emit([tup.values[0]])

class Slow(Bolt):
    def process(self, tup):
        time.sleep(0.006)
        if tup.values[0] == 1300:
            print("the chain works", flush=True)

class Made(Topology):
    config = {"topology.workers": 2}
    many = Many.spec()
    first = First.spec(inputs=[many])
    slow = Slow.spec(inputs=[first])
"""


SLOW_FIRST = """
import time
from streamlet import Bolt, Spout, Topology

class Many(Spout):
    outputs = ["n"]
    left = 40
    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([self.left])

class Slow(Bolt):
    outputs = ["n"]
    def process(self, tup):
        time.sleep(0.1)
        self.emit([tup.values[0]])
        print("mid", flush=True)

class Last(Bolt):
    def process(self, tup):
        print("end", flush=True)

class Made(Topology):
    many = Many.spec()
    slow = Slow.spec(inputs=[many])
    last = Last.spec(inputs=[slow])
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_what_a_slow_bolt_has_done_is_done_when_its_drain_is_cut(streamlet, backend: str) -> None:
    """The bolt behind it in the same worker had got nothing: 37 results were left that stood ready."""
    process = streamlet.start(
        "run", streamlet.write(SLOW_FIRST), "--backend", backend, "--workers=1", "--drain-timeout=1", "--json"
    )
    for _ in range(5):
        next(line for line in process.stderr if "mid" in line)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    result = json.loads(out.splitlines()[-1])
    slow, last = ((row["acked"], row["executed"]) for row in result["components"][1:])
    assert process.returncode == 1 and 5 <= slow[1] < 40, err
    assert slow[1] - last[1] <= 2, result["components"]


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_signal_to_a_chain_of_bolts_loses_no_untracked_tuple(streamlet, backend: str) -> None:
    """What waits at a fast bolt has the slow one behind it to go to, and its time was told by the fast one's."""
    done = drained(streamlet, CHAIN, backend, "the chain works")
    assert done["slow"] == done["many"] > 100


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_at_the_end_of_its_time_a_run_says_how_long_it_drains(streamlet, backend: str) -> None:
    done = streamlet("run", streamlet.write(UNTRACKED), "--backend", backend, "-t", 2)
    # A worker that is slow to measure its bolts makes it the second kind.
    assert done.returncode == 0 and re.search(r"Draining(,| for longer,) for about \d+ s", done.stderr), done


def status_of_one_that_waits(run: subprocess.Popen[str], signals: int) -> int:
    """Send signals to a run that is over and waits for the reader of its output; return its exit status."""
    assert run.stderr is not None
    for line in run.stderr:
        if "The run is over, and waits for the reader of its standard output" in line:
            break
    for _ in range(signals):
        run.send_signal(signal.SIGTERM)
        time.sleep(2 * SAME_S)
    return run.wait(PATIENCE_S)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_run_that_is_over_says_whom_it_waits_for_and_a_signal_leaves_the_rest_out(streamlet, signals: int) -> None:
    """Nobody reads its standard output: it stood there without a word, and signals were told as a drain and a kill."""
    process = streamlet.start("run", streamlet.write(made(process="print('x' * 100_000)")), "--until-caught-up")
    assert status_of_one_that_waits(process, signals) == 0, "all was done"
    said = process.stderr.read()
    assert "Draining" not in said and "Killed" not in said, said
    assert "The run is over. What nobody reads of its output is left out." in said
    # The second one ends it at once, and nothing is counted.
    assert signals == 2 or "Standard output lacks 1 line or more" in said, said


LARGE_RESULT = "[self.report_metric(f'{n:0100}', 1) for n in range(1500)]"
"""More than a pipe holds, in the result that --json prints."""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_two_signals_to_a_run_that_is_over_and_failed_leave_its_error(streamlet, more: tuple[str, ...]) -> None:
    """Nobody reads its standard output, so the table waits; the error did with it, and was left out."""
    process = f"print('x' * 100_000); {LARGE_RESULT}; raise ValueError('no such table')"
    run = streamlet.start("run", streamlet.write(made(process=process)), "--until-caught-up", *more)
    assert status_of_one_that_waits(run, 2) == 1
    said = run.stderr.read()
    assert "Error: " in said and "no such table" in said and "Killed" not in said, said


@pytest.mark.parametrize("signals", [1, 2])
def test_what_stands_in_an_open_files_buffer_is_written_before_the_end_waits_for_a_reader(
    streamlet, tmp_path, signals: int
) -> None:
    """In this very process. Status 0, everything done, and an empty file."""
    opens = f"self.file = open({str(tmp_path / 'written')!r}, 'w')"
    line = f"self.file.write(f'{{tup.values[0]}}\\n'); {LARGE_RESULT}"
    run = streamlet.start(
        "run", streamlet.write(made(opens, line)), "--until-caught-up", "--backend", "inline", "--json"
    )
    assert status_of_one_that_waits(run, signals) == 0
    assert (tmp_path / "written").read_text().split() == list("12345")
