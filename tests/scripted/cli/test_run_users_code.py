"""What a user's module does to its process on the way: it prints, configures logging, leaves work for the exit."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

FILE = """
import atexit, logging.config, os, sys, tempfile
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

AT_IMPORT

class Few(ReliableSpout):
    outputs = ["n"]
    n = 0
    SPOUT
    def next_tuple(self):
        if self.n < 5:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 5 and not self.has_unfinished()
    AFTER

class Sink(Bolt):
    SINK
    def initialize(self, conf, context):
        INITIALIZE
    def process(self, tup):
        if tup.values[0] == 3 and not hasattr(self, "failed"):
            self.failed = True
            raise OSError("the third, once")
        self.report_metric("share", float("nan"))

class Made(Topology):
    few = Few.spec()
    sink = Sink.spec(inputs=[few])
"""

SILENCING = """logging.config.dictConfig(
    {"version": 1, "root": {"level": "ERROR", "handlers": []}, "loggers": {"theirs": {"level": "INFO"}}})"""

CRASH = "        import ctypes; ctypes.string_at(0)\n"

backends = pytest.mark.parametrize("backend", ["inline", "processes"])


def made(
    at_import: str = "pass", initialize: str = "pass", spout: str = "pass", after: str = "pass", sink: str = "pass"
) -> str:
    """Return the topology with these lines in it: in the spout before its own methods and after them, in the bolt."""
    text = FILE.replace("AT_IMPORT", at_import).replace("INITIALIZE", initialize.replace("\n", "\n        "))
    return text.replace("SPOUT", spout).replace("AFTER", after).replace("SINK", sink)


def line_of(file: Path, words: str) -> int:
    """Return the number of the line that has the words."""
    return next(at for at, line in enumerate(Path(file).read_text().splitlines(), 1) if words in line)


@backends
def test_what_is_printed_at_import_and_a_metric_that_is_no_number_leave_json_whole(streamlet, backend: str) -> None:
    text = made("print('at import'); sys.stdout.flush(); os.write(1, b'of a C library')")
    done = streamlet("run", streamlet.write(text), "--backend", backend, "--until-caught-up", "--json")
    assert done.returncode == 0, done
    events = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
    rows = {row["name"]: row for row in events[-1]["components"]}
    assert rows["sink"]["metrics"] == {"share": None} and rows["few"]["acked"] == 5
    assert "at import" in done.stderr and "of a C library" in done.stderr


@backends
def test_json_stays_whole_whatever_is_written_to_standard_output_and_at_the_exit(streamlet, backend: str) -> None:
    text = made("atexit.register(print, 'at exit')", initialize="os.write(1, b'of a C library'); print('printed')")
    file = streamlet.write(text)
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, events[-1]["event"]) == (0, "result"), done
    assert all(words in done.stderr for words in ("at exit", "of a C library", "printed"))
    done = streamlet("check", file, "--json")
    assert json.loads(done.stdout)["valid"] and "at exit" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_that_workers_print_stay_whole(streamlet, unbuffered: str) -> None:
    """Two bolts in two workers print at once, words one by one, more than a buffer holds."""
    lines = "for n in range(3000): print(type(self).__name__, n, 'one', 'two', 'three')"
    text = made(sink=f"def cleanup(self):\n        {lines}").replace(
        "class Made(Topology):", "class Other(Sink):\n    pass\n\nclass Made(Topology):"
    )
    file = streamlet.write(f"{text}    other = Other.spec(inputs=[few])\n")
    done = streamlet("run", file, "--workers", 3, "--until-caught-up", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 0, done
    printed = [line for line in done.stdout.splitlines() if " one" in line or "three" in line]
    assert sorted(printed) == sorted(f"{name} {n} one two three" for name in ("Sink", "Other") for n in range(3000))


def test_what_is_printed_at_import_is_no_part_of_a_graph_or_of_an_answer(streamlet) -> None:
    file = streamlet.write(made("print('at import'); os.write(1, b'of a C library')"))
    assert streamlet("graph", file, "--format", "dot").stdout.startswith("digraph")
    assert json.loads(streamlet("check", file, "--json").stdout)["valid"]


@backends
@pytest.mark.parametrize("where", ["at_import", "initialize"])
def test_logging_that_a_topology_configures_leaves_the_runs_own_lines(streamlet, backend: str, where: str) -> None:
    """``dictConfig`` disables all loggers that are there, by its default, and takes the root's handlers away."""
    text = made(**{where: SILENCING}, after="def activate(self): self.logger.warning('said later')")
    done = streamlet("run", streamlet.write(text), "--backend", backend, "--until-caught-up")
    assert done.returncode == 0, done
    assert "raised OSError" in done.stderr and "the third, once" in done.stderr
    assert "warning few: said later" in done.stderr


CLOSES = """
import os
from streamlet import Bolt, ReliableSpout, Topology

class Few(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if self.n < 300:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 300 and not self.has_unfinished()

class Sink(Bolt):
    def process(self, tup):
        if tup.values[0] == 100:
            os.closerange(3, 1000)

class Made(Topology):
    few = Few.spec()
    sink = Sink.spec(inputs=[few])
"""


def test_a_bolt_that_closes_its_workers_descriptors_is_told_in_one_line(streamlet) -> None:
    """A worker without its channel can say nothing itself; it left three tracebacks. The tuple is named if at work."""
    settings = ("-c", "streamlet.worker.restarts.max=2")
    done = streamlet("run", streamlet.write(CLOSES), "--workers", 2, "--until-caught-up", *settings)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    told = "ended with descriptors closed that are streamlet's own (os.closerange does so)"
    assert done.stderr.count(f"(epoch 1) {told}") == 1 and "ended with status" not in done.stderr, done
    assert told in done.stderr.splitlines()[-1], done


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cleanup_that_closes_its_workers_descriptors_is_told_in_one_line(streamlet, workers: int) -> None:
    """The close that follows met them in two tracebacks, and the end named no reason."""
    file = streamlet.write(made(sink="def cleanup(self): os.closerange(3, 1000)"))
    done = streamlet("run", file, "--workers", workers, "--until-caught-up")
    assert done.returncode == 1 and "streamlet/runtime" not in done.stderr, done
    told = "ended with descriptors closed that are streamlet's own (os.closerange does so) before it had closed"
    assert told in done.stderr.splitlines()[-1], done


@pytest.mark.parametrize("call", ["emit(['a'], anchor=[])", "emit_many([['a']], anchor=[])", "ack(tuple=None)"])
@pytest.mark.parametrize("fields", ["n", "n, k"])
def test_a_wrong_argument_is_refused_with_the_name_of_the_call(streamlet, call: str, fields: str) -> None:
    """As the user wrote it, and not by what stands behind it."""
    file = streamlet.write(made(sink=f"outputs = {fields.split(', ')!r}", initialize=f"self.{call}"))
    done = streamlet("run", file, "--backend", "inline", "--until-caught-up")
    name = call.partition("(")[0]
    assert done.returncode == 1 and f" {name}() got an unexpected keyword argument" in done.stderr, done


CONFIGURES_LATER = """
import logging, logging.config, threading, time
from streamlet import Bolt, ReliableSpout, Topology

def configure():
    logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})

class Slow(ReliableSpout):
    outputs = ["n"]
    n, since = 0, 0.0
    def next_tuple(self):
        if time.monotonic() - self.since > 0.25 and self.n < 10:
            self.n, self.since = self.n + 1, time.monotonic()
            self.emit([self.n], tup_id=self.n)
    def caught_up(self):
        return self.n == 10 and not self.has_unfinished()

class Sink(Bolt):
    def process(self, tup):
        if tup.values[0] == 1:
            CONFIGURE
        if tup.values[0] == 10:
            self.logger.info("the last one came")

class Made(Topology):
    slow = Slow.spec()
    sink = Sink.spec(inputs=[slow])
"""


@backends
@pytest.mark.parametrize("where", ["configure()", "threading.Thread(target=configure).start()"])
def test_logging_that_a_bolt_configures_later_leaves_the_runs_own_lines(streamlet, backend: str, where: str) -> None:
    """In ``process``, as by a library that is imported there, or on a thread: within a second."""
    file = streamlet.write(CONFIGURES_LATER.replace("CONFIGURE", where))
    done = streamlet("run", file, "--backend", backend, "--until-caught-up")
    assert done.returncode == 0, done
    assert "info    sink: the last one came" in done.stderr


def test_a_worker_does_what_was_left_for_its_exit(streamlet, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    left = f"self.mark = atexit.register(Path({str(mark)!r}).write_text, 'done')"
    done = streamlet("run", streamlet.write(made(initialize=left)), "--until-caught-up")
    assert done.returncode == 0, done
    assert mark.read_text() == "done"


@pytest.mark.parametrize(("secs", "cut"), [(1.5, False), (60, True)])
def test_what_takes_long_at_a_workers_exit_is_waited_for_or_named(
    streamlet, tmp_path: Path, secs: float, cut: bool
) -> None:
    """A last flush over a network: it was cut after half a second, without a word."""
    mark = tmp_path / "mark"
    left = f"import time; atexit.register(lambda: (time.sleep({secs}), Path({str(mark)!r}).write_text('done')))"
    done = streamlet("run", streamlet.write(made(initialize=left)), "--until-caught-up")
    assert done.returncode == 0, done
    assert mark.exists() is not cut
    assert ("worker 0 had closed, did not end by itself and was killed" in done.stderr) is cut, done.stderr


@pytest.mark.parametrize(
    ("crash", "how"),
    [("os.kill(os.getpid(), 11)", "was killed by SIGSEGV"), ("os._exit(3)", "ended with status 3")],
)
def test_a_worker_that_dies_of_what_was_left_for_its_exit_is_named_and_fails_the_run(
    streamlet, tmp_path: Path, crash: str, how: str
) -> None:
    """Functions that were registered before never run."""
    mark = tmp_path / "mark"
    left = f"import os; atexit.register(Path({str(mark)!r}).write_text, 'done'); atexit.register(lambda: {crash})"
    done = streamlet("run", streamlet.write(made(initialize=left)), "--until-caught-up")
    assert done.returncode == 1 and not mark.exists(), done
    said = f"worker 0 (epoch 1) had closed and {how} at its exit"
    assert said in " ".join(done.stderr.split()) and "`atexit`" in done.stderr, done.stderr


def test_a_worker_that_dies_at_its_exit_while_others_still_close_is_named_too(streamlet) -> None:
    """Its death is known before anybody asks how the workers have ended."""
    dies = "import os; self.first = context.task_index == 0\nif self.first: atexit.register(lambda: os._exit(3))"
    closes = "par = 2\n    def cleanup(self):\n        import time; time.sleep(0 if self.first else 1.5)"
    text = made(initialize=dies, sink=closes)
    done = streamlet("run", streamlet.write(text), "--until-caught-up", "--workers", "2")
    assert done.returncode == 1, done
    assert "had closed and ended with status 3 at its exit" in " ".join(done.stderr.split()), done.stderr


def test_a_worker_has_time_for_its_exit_while_others_still_close(streamlet, tmp_path: Path) -> None:
    """Its channel has ended by then, and so has that of one that hung up."""
    mark = tmp_path / "mark"
    flush = f"import time; time.sleep(1); Path({str(mark)!r}).write_text('done')"
    flushes = f"self.first = context.task_index == 0\nif self.first: atexit.register(lambda: exec({flush!r}))"
    closes = "par = 2\n    def cleanup(self):\n        import time; time.sleep(0 if self.first else 2.5)"
    text = made(initialize=flushes, sink=closes)
    done = streamlet("run", streamlet.write(text), "--until-caught-up", "--workers", "2")
    assert done.returncode == 0 and mark.exists(), done


def test_a_worker_that_ends_with_its_errors_status_has_not_died_at_its_exit(streamlet) -> None:
    """After a ``cleanup`` that raises, a process ends with a status as well."""
    raises = "def cleanup(self): raise OSError('the disk is full')"
    done = streamlet("run", streamlet.write(made(sink=raises)), "--until-caught-up")
    assert done.returncode == 1 and "the disk is full" in done.stderr and "had closed" not in done.stderr, done


@backends
def test_a_spout_may_read_a_regular_file_and_return_its_descriptor(streamlet, backend: str) -> None:
    """No kernel watches one: it is always readable, so the spout is asked."""
    spout = "def fileno(self): self.file = open(__file__); return self.file.fileno()"
    done = streamlet("run", streamlet.write(made(spout=spout)), "--backend", backend, "--until-caught-up")
    assert done.returncode == 0, done


@backends
@pytest.mark.parametrize(
    ("spout", "words"),
    [
        ("def fileno(self): return -1", "returned -1 from fileno"),
        ("def fileno(self): return 'pipe'", "returned 'pipe' from fileno"),
        (
            "def initialize(self, conf, context): self.timer_interval_s = 0",
            "timer_interval_s = 0. It is the seconds between calls of on_timer, more than 0",
        ),
        ("def initialize(self, conf, context): self.timer_interval_s = 'often'", "timer_interval_s = 'often'"),
    ],
)
def test_a_spout_that_cannot_be_watched_or_timed_is_named(streamlet, backend: str, spout: str, words: str) -> None:
    done = streamlet("run", streamlet.write(made(spout=spout)), "--backend", backend, "--until-caught-up")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"The spout few {'has' if 'timer' in spout else ''}".strip() in done.stderr.replace("\n", " ")
    assert words in " ".join(done.stderr.split())


RECONNECTING = """
import os, time
from streamlet import Bolt, ReliableSpout, Topology

class Few(ReliableSpout):
    outputs = ["n"]
    n = acked = 0
    def initialize(self, conf, context):
        self.connect()
    def connect(self):
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.write(self.write_end, b"0123456789")
    def fileno(self):
        return self.read_end
    def next_tuple(self):
        if self.acked == self.n < 9 and (self.n < 5 or time.monotonic() > self.closed + 2.5):  # looked at each second
            os.read(self.read_end, 1) if self.n < 3 or "HOW" != "stays closed" else None
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def ack(self, tup_id):
        super().ack(tup_id)
        self.acked += 1
        if tup_id == 3:
            self.closed = time.monotonic()
            os.close(self.read_end), os.close(self.write_end)
            kept = [os.dup(0) for _ in range(4)] if "HOW" == "another number" else []
            self.connect() if "HOW" != "stays closed" else None
    def caught_up(self):
        return self.n == 9 and not self.has_unfinished()

class Sink(Bolt):
    def process(self, tup): pass

class Made(Topology):
    config = {"topology.max.spout.pending": 1}
    few = Few.spec()
    sink = Sink.spec(inputs=[few])
"""


@backends
@pytest.mark.parametrize("how", ["the same number", "another number", "stays closed"])
def test_a_spout_whose_descriptor_is_closed_is_asked_for_its_next_one(streamlet, backend: str, how: str) -> None:
    """As a client's that connects again. The loop's own error ended the run, without the spout's name."""
    file = streamlet.write(RECONNECTING.replace("HOW", how))
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "--json")
    assert done.returncode == 0, done
    result = json.loads(done.stdout.splitlines()[-1])
    assert [row["acked"] for row in result["components"]] == [9, 9]
    warned = "The spout few (task 1) returned" in done.stdout and "each millisecond" in done.stdout
    assert warned == (how == "stays closed") and "Traceback" not in done.stderr


@backends
def test_a_bolt_that_cannot_be_timed_is_named(streamlet, backend: str) -> None:
    zero = "def __init__(self): self.timer_interval_s = 0"
    done = streamlet("run", streamlet.write(made(sink=zero)), "--backend", backend)
    told = " ".join(done.stderr.split())
    assert done.returncode == 1 and "a bug in streamlet" not in told and "Traceback" not in told
    assert "The bolt sink has timer_interval_s = 0. It is the seconds between calls of on_timer, more than 0" in told


@backends
@pytest.mark.parametrize("method", ["fileno", "caught_up", "partition_status"])
def test_a_spout_whose_question_raises_is_named_with_its_method(streamlet, backend: str, method: str) -> None:
    """What streamlet asks a spout beside its tuples is the user's code, too."""
    file = streamlet.write(made(after=f"def {method}(self): return 1 / 0"))
    done = streamlet("run", file, "--backend", backend, "--until-caught-up")
    told = " ".join(done.stderr.split())
    assert done.returncode == 1 and "a bug in streamlet" not in told
    place = f"{file}:{line_of(file, '1 / 0')}"
    assert f"The spout few (task 1) raised ZeroDivisionError in {method} ({place}): " in told


@backends
@pytest.mark.parametrize(
    ("method", "task"),
    [
        ("cleanup", "few (task 1)"),
        ("deactivate", "few (task 1)"),
        ("close", "few (task 1)"),
        ("cleanup", "sink (task 2)"),
    ],
)
def test_a_component_that_cannot_close_is_named_with_its_method(
    streamlet, backend: str, method: str, task: str
) -> None:
    bad = f"def {method}(self): {{}}['a key']"
    text = made(after=bad) if task.startswith("few") else made(sink=bad)
    file = streamlet.write(text)
    done = streamlet("run", file, "--backend", backend, "--until-caught-up")
    told = " ".join(done.stderr.split())
    assert done.returncode == 1
    place = f"{file}:{line_of(file, 'a key')}"
    assert f"closing it raised: KeyError in {method} of {task} at {place}: 'a key'. What `cleanup` or" in told
    debug = streamlet("run", file, "--backend", backend, "--until-caught-up", "--debug").stderr
    assert f"in {method}\n    {bad}\n" in debug and "\nKeyError: 'a key'\n" in debug


def test_a_lasting_id_that_raises_is_named_with_its_method(streamlet) -> None:
    """A slow bolt's tuples are noted by name before they are processed."""
    after = "def lasting_id(self, tup_id): return [][tup_id]"
    sink = "def process(self, tup): time.sleep(0.01)"
    text = made("import time", after=after).replace(
        "    def process(self, tup):", f"    {sink}\n    def other(self, tup):"
    )
    file = streamlet.write(text)
    done = streamlet("run", file, "--workers", "1", "--until-caught-up")
    told = " ".join(done.stderr.split())
    place = f"{file}:{line_of(file, 'tup_id]')}"
    assert done.returncode == 1
    assert f"The spout few (task 1) raised IndexError in lasting_id ({place}): list index out of range. A spout" in told


@backends
@pytest.mark.parametrize(("seconds", "reason"), [("120", "caught_up"), ("0.6", "time")])
def test_a_time_beside_caught_up_is_the_latest_end(streamlet, backend: str, seconds: str, reason: str) -> None:
    """The first of the two ends the run."""
    endless = "n = -10**9" if reason == "time" else "pass"
    file = streamlet.write(made(spout=endless))
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "-t", seconds, "--json")
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["reason"] == reason
    assert done.returncode == result["exit_status"] == (1 if reason == "time" else 0)


@backends
def test_the_last_line_says_that_the_time_was_over_before_the_run_caught_up(streamlet, backend: str) -> None:
    file = streamlet.write(made(spout="n = -10**9"))
    late = streamlet("run", file, "--backend", backend, "--until-caught-up", "-t", "0.6")
    assert late.returncode == 1 and "not caught up; " in late.stdout.splitlines()[-1]
    set_so = streamlet("run", file, "--backend", backend, "-c", "streamlet.until.caught.up=true", "-t", "0.6")
    assert set_so.returncode == 1 and "not caught up; " in set_so.stdout.splitlines()[-1]
    timed = streamlet("run", file, "--backend", backend, "-t", "0.6")
    assert timed.returncode == 0 and "not caught up" not in timed.stdout


def test_a_crash_of_the_process_is_told_with_its_place(streamlet) -> None:
    """Inline there is no other process that could tell it."""
    file = streamlet.write(made().replace("        if tup.values", CRASH + "        if tup.values"))
    done = streamlet("run", file, "--backend", "inline", "--until-caught-up")
    assert done.returncode == -signal.SIGSEGV, done
    assert "Segmentation fault" in done.stderr
    assert f'"{file}", line {line_of(file, "string_at")} in process' in done.stderr


def test_who_has_chosen_where_a_crash_is_told_keeps_it_there(streamlet) -> None:
    chosen = "import faulthandler; theirs = open('crash.txt', 'w'); faulthandler.enable(theirs)"
    file = streamlet.write(made(at_import=chosen).replace("        if tup.values", CRASH + "        if tup.values"))
    done = streamlet("run", file, "--backend", "inline", "--until-caught-up")
    assert done.returncode == -signal.SIGSEGV and "Segmentation fault" not in done.stderr, done
    assert f"line {line_of(file, 'string_at')} in process" in (file.parent / "crash.txt").read_text()


EDITED = """
from pathlib import Path
from streamlet import Bolt, ReliableSpout, Topology

class One(ReliableSpout):
    outputs = ["n"]
    n = 0
    def next_tuple(self):
        if not self.n:
            self.n = 1
            self.emit([1], tup_id=1)
    def caught_up(self):
        return self.n == 1 and not self.has_unfinished()

def innocent():
    return "innocent"

def guilty():
    raise ValueError("bad")

class Sink(Bolt):
    def initialize(self, conf, context):
        file = Path(__file__)
        file.write_text("# new\\n# new\\n# new\\n" + file.read_text())
    def process(self, tup):
        guilty()

class Made(Topology):
    one = One.spec()
    sink = Sink.spec(inputs=[one])
"""


def test_a_traceback_shows_the_lines_that_run_after_an_edit_too(streamlet) -> None:
    """Python would read them from the edited file, where others stand at these numbers."""
    done = streamlet("run", streamlet.write(EDITED), "--until-caught-up")
    assert done.returncode == 1, done
    assert 'raise ValueError("bad")' in done.stderr and "innocent" not in done.stderr, done.stderr
