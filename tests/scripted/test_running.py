"""Running from Python: scripts, packages, notebooks' classes, threads, several at once, errors, Ctrl-C."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamlet
from streamlet import BadInput, Bolt, ReliableSpout, RunResult, RunStatus, SettingError, Stop, Topology, running
from streamlet.backends import InlineBackend
from streamlet.backends.outcome import TreesFailed
from streamlet.base.clock import ManualClock
from streamlet.base.errors import StreamletError, WrongArgument
from streamlet.base.log_line import LogLine, Origin
from tests.patience import PATIENCE_S
from tests.shared_files import shared_files

ROOT = Path(__file__).parents[2]


class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    n = 0

    def next_tuple(self) -> None:
        if self.n < 20:
            self.emit([self.n], tup_id=self.n)
            self.n += 1

    def caught_up(self) -> bool:
        return self.n == 20 and not self.has_unfinished()


class Picky(Bolt):
    def initialize(self, conf: Any, context: Any) -> None:
        self.bad = conf["bad"]

    def process(self, tup: Any) -> None:
        if tup.values[0] == self.bad:
            raise ValueError(f"{self.bad} is a bad number")


class Picking(Topology):
    config = {"bad": -1}
    numbers = Numbers.spec()
    picky = Picky.spec(inputs=[numbers], par=2)


@pytest.fixture(autouse=True)
def _the_path_stays_as_it_was() -> Iterator[None]:
    path = list(sys.path)
    yield
    assert sys.path == path, "a run left its folder on the program's path"


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_result_says_what_each_component_did(backend: str) -> None:
    result = Picking.run(backend=backend, workers=2 if backend == "processes" else None)
    assert (result.reason, result.drained, result.error) == ("caught_up", True, None)
    assert result.components["numbers"].acked == result.components["picky"].executed == 20
    assert 0 < result.seconds < PATIENCE_S
    result.raise_for_error()


def test_the_function_and_the_method_are_one() -> None:
    assert streamlet.run(Picking, backend="inline").components["picky"].acked == 20


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_an_error_of_a_bolt_is_raised_with_its_paragraph(backend: str) -> None:
    with pytest.raises(TreesFailed, match=r"picky \(task \d\) raised ValueError at .*test_running.py:\d+.*3 is a bad"):
        Picking.run(backend=backend, settings={"bad": 3})


def test_an_error_can_be_had_with_the_result() -> None:
    result = Picking.run(backend="inline", settings={"bad": 3}, check=False)
    assert isinstance(result.error, StreamletError) and result.components["numbers"].given_up == 1
    assert result.components["picky"].errors == 1
    with pytest.raises(StreamletError, match="3 is a bad number"):
        result.raise_for_error()


class Breaks(Bolt):
    def initialize(self, conf: Any, context: Any) -> None:
        raise RuntimeError("no such table")


class Breaking(Topology):
    numbers = Numbers.spec()
    breaks = Breaks.spec(inputs=[numbers])


def test_a_run_that_never_began_has_done_nothing() -> None:
    Breaks.process = lambda self, tup: None  # type: ignore[method-assign]
    result = Breaking.run(backend="inline", check=False)
    assert result.reason == "failed" and not result.drained
    assert {name: row.emitted + row.executed for name, row in result.components.items()} == {"numbers": 0, "breaks": 0}
    assert "no such table" in str(result.error)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "storm"}, "There is no backend 'storm'"),
        ({"settings": {"topology.max.spout.pendin": 1}}, "given by settings= .* Did you mean"),
        ({"settings": {"topology.max.spout.pending": "many"}}, "given by settings= cannot be 'many'"),
        ({"settings": {"bad": "many"}}, "given by settings= cannot be 'many'"),
        ({"settings": {"picky.limit": 1}}, "picky"),
    ],
)
def test_what_cannot_be_is_refused_whatever_check_says(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        Picking.run(**{"backend": "inline", "check": False, **options})


def test_a_password_may_come_from_a_program() -> None:
    """A program's memory is not a command line that everybody reads; here nothing wants one."""
    with pytest.raises(SettingError, match="not one that anything in this topology reads"):
        Picking.run(backend="inline", settings={"sasl.password": "geheim"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": -1}, "workers= is -1"),
        ({"workers": 0}, "workers= is 0"),
        ({"workers": True}, "workers= is True"),
        ({"workers": 2.0}, "workers= is 2.0"),
        ({"backend": "inline", "workers": 5}, 'backend="inline" runs everything in this process'),
        ({"backend": InlineBackend(), "workers": 5}, "runs everything in this process"),
        ({"seconds": float("nan")}, "seconds= is nan"),
        ({"seconds": float("inf")}, "seconds= is inf"),
        ({"seconds": -5}, "seconds= is -5"),
        ({"seconds": 0}, "seconds= is 0"),
        ({"seconds": "x"}, "seconds= is 'x'"),
        ({"master": "local[2]"}, 'master= belongs to backend="spark"'),
        ({"backend": "spark", "master": 3}, "master= is 3"),
        ({"until_caught_up": "x"}, "until_caught_up= is 'x'"),
        ({"check": None}, "check= is None"),
        ({"backend": None}, "backend= is None"),
        ({"stop": 1}, "stop= is 1"),
        ({"settings": 3}, "settings= is 3"),
        ({"settings": {3: 3}}, "settings= has the key 3"),
        ({"on_status": 3}, "on_status= is 3"),
        ({"drain_timeout": "long"}, "given by drain_timeout cannot be 'long'"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_starts(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=re.escape(text)):
        Picking.run(**options)


@pytest.mark.parametrize("wrong", [Picking(), Topology, Numbers, "Picking", Picking.__topology__])
def test_a_value_that_is_not_a_topology_is_refused(wrong: Any) -> None:
    with pytest.raises(WrongArgument, match=r"inherits from streamlet.Topology"):
        streamlet.run(wrong)


def test_a_class_that_no_other_process_can_import_runs_inline_alone() -> None:
    class Local(Topology):
        numbers = Numbers.spec()

    with pytest.raises(BadInput, match=r'has it in no line of .*test_running.py.*backend="inline"'):
        Local.run()
    assert Local.run(backend="inline").components["numbers"].acked == 20


def test_runs_work_from_another_thread_and_two_at_once() -> None:
    results: list[RunResult] = []
    backends = ["processes", "processes", "inline"]
    threads = [
        threading.Thread(target=lambda name=name: results.append(Picking.run(backend=name, workers=1)))
        for name in backends
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [result.components["numbers"].acked for result in results] == [20] * 3


def test_another_thread_may_ask_a_run_to_stop() -> None:
    stop, seen = Stop(), []

    def on_status(status: RunStatus) -> None:
        seen.append(status.state)
        if status.state == "running":
            stop.ask()

    result = Picking.run(stop=stop, on_status=on_status, until_caught_up=False, workers=1)
    assert result.reason == "interrupted" and seen[-1] == "ended"


def test_time_ends_a_run_and_a_backend_may_be_an_object() -> None:
    class Jumping(ManualClock):
        def monotonic(self) -> float:
            self.advance(0.01)
            return super().monotonic()

    result = Picking.run(backend=InlineBackend(Jumping()), until_caught_up=False, seconds=5)
    assert result.reason == "time" and 5 <= result.seconds < 10


def test_events_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "streamlet.run"):
        Picking.run(backend="inline", settings={"bad": 3}, check=False)
    assert any("3 is a bad number" in record.message for record in caplog.records if record.levelname == "ERROR")


def test_what_an_executor_prints_is_printed_here(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Of a worker process it stands there already."""
    watch = running._Watch(None, None)
    with caplog.at_level("INFO", "streamlet.run"):
        for logger, printed in (("stdout", False), ("stderr", False), ("stdout", True)):
            line = LogLine("info", f"on {logger}", 0.0, Origin(f"streamlet.{logger}", "sink", 2, 1, 1), printed=printed)
            watch.on_event(line)
    assert capsys.readouterr() == ("on stdout\n", "on stderr\n") and not caplog.records


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = started(folder, *arguments)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


SCRIPT = """
from streamlet import ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    n = 0

    def next_tuple(self):
        if self.n < 20:
            self.emit([self.n], tup_id=self.n)
            self.n += 1

    def caught_up(self):
        return self.n == 20 and not self.has_unfinished()

class Counting(Topology):
    numbers = Numbers.spec()
"""
GUARDED = """
if __name__ == "__main__":
    print("acked", Counting.run(workers=1).components["numbers"].acked)
"""


def test_a_script_runs_itself_in_processes(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(SCRIPT + GUARDED * 2)
    assert ended(tmp_path, "counting.py") == (0, "acked 20\nacked 20\n", "")


def test_a_script_without_its_guard_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(SCRIPT + "\nCounting.run()\n")
    status, _, err = ended(tmp_path, "counting.py")
    assert status == 1 and "calls run while it is imported" in err and 'if __name__ == "__main__":' in err


def test_a_module_of_a_package_may_import_relatively(tmp_path: Path) -> None:
    package = tmp_path / "shop" / "flows"
    package.mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "spouts.py").write_text(SCRIPT.partition("class Counting")[0])
    text = "from streamlet import Topology\nfrom .spouts import Numbers\n"
    text += "class Counting(Topology):\n    numbers = Numbers.spec()\n"
    (package / "counting.py").write_text(text + GUARDED)
    assert ended(tmp_path, "-m", "shop.flows.counting") == (0, "acked 20\n", "")
    code = "from shop.flows.counting import Counting as C; print(C.run(workers=1).reason, C.__module__)"
    assert ended(tmp_path, "-c", code) == (0, "caught_up shop.flows.counting\n", "")


def test_a_class_of_a_prompt_or_notebook_is_told_what_to_do(tmp_path: Path) -> None:
    status, _, err = ended(tmp_path, "-c", SCRIPT + "Counting.run()")
    assert status == 1 and "has no file (a notebook, a prompt" in err and 'backend="inline"' in err
    code = SCRIPT + "print(Counting.run(backend='inline').components['numbers'].acked)"
    assert ended(tmp_path, "-c", code) == (0, "20\n", "")


INTERRUPTED = """
def up(status):
    if status.state == "running":
        print("up", flush=True)

if __name__ == "__main__":
    try:
        Counting.run(workers=1, until_caught_up=False, on_status=up, backend={backend!r})
    except KeyboardInterrupt:
        import signal
        print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_ctrl_c_drains_and_then_interrupts_the_program(tmp_path: Path, backend: str) -> None:
    closing = "    def close(self):\n        print('closed', flush=True)\n\nclass Counting"
    (tmp_path / "counting.py").write_text(
        SCRIPT.replace("class Counting", closing, 1) + INTERRUPTED.format(backend=backend)
    )
    process = started(tmp_path, "counting.py")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out.split("\n")[-3:] == ["closed", "interrupted True", ""] and (process.returncode, err) == (0, "")


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    closing = "    def close(self):\n        print('closing', flush=True)\n        import time; time.sleep(600)\n\n"
    (tmp_path / "counting.py").write_text(
        SCRIPT.replace("class Counting", closing + "class Counting", 1) + INTERRUPTED.format(backend="processes")
    )
    process = started(tmp_path, "counting.py")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    while process.stdout.readline() != "closing\n":
        pass
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == "interrupted True\n" and process.returncode == 0


class Interrupted(InlineBackend):
    """Is interrupted, and cannot go on."""

    def run(self, request: Any, observer: Any, stop: Stop) -> RunResult:
        os.kill(os.getpid(), signal.SIGINT)
        while not stop.asked:
            pass
        raise StreamletError("close failed")


@pytest.mark.parametrize("check", [True, False])
def test_ctrl_c_ends_the_program_though_the_run_failed_meanwhile(check: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "make_backend", lambda *_args, **_kwargs: Interrupted())
    with pytest.raises(KeyboardInterrupt) as caught:
        Picking.run(backend="inline", check=check)
    assert str(caught.value.__cause__) == "close failed"


def test_a_program_from_standard_input_has_no_file(tmp_path: Path) -> None:
    tried = "try:\n    Counting.run(backend='processes')\nexcept streamlet.BadInput as error:\n    print(error)\n"
    done = subprocess.run(
        [sys.executable, "-"],
        input=f"import streamlet\n{SCRIPT}\n{tried}",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE_S,
        check=True,
    )
    assert "has no file (a notebook, a prompt" in done.stdout


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_program_may_have_the_log_of_its_run_in_a_file(tmp_path: Path, backend: str) -> None:
    """With its own log left as it is: what it saw on standard error it sees still."""
    (tmp_path / "talk.py").write_text(
        "import logging\n"
        "from streamlet import Bolt, ReliableSpout, Topology\n"
        "class Numbers(ReliableSpout):\n"
        "    outputs = ['n']\n"
        "    n = 0\n"
        "    def next_tuple(self):\n"
        "        if self.n < 3:\n"
        "            self.n += 1\n"
        "            self.emit([self.n], tup_id=self.n)\n"
        "    def caught_up(self):\n"
        "        return self.n == 3 and not self.has_unfinished()\n"
        "class Sink(Bolt):\n"
        "    def process(self, tup):\n"
        "        self.log(f'number {tup.values[0]}')\n"
        "        print('printed')\n"
        "        logging.getLogger('mine').warning('plain')\n"
        "class Talk(Topology):\n"
        "    numbers = Numbers.spec()\n"
        "    sink = Sink.spec(inputs=[numbers])\n"
    )
    (tmp_path / "program.py").write_text(
        "import logging\nfrom talk import Talk\n"
        "if __name__ == '__main__':\n"
        f"    Talk.run(backend={backend!r}, workers=1, settings={{'streamlet.log.file': 'run.log'}})\n"
        "    logging.getLogger('mine').warning('of the program')\n"
    )
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    log = (tmp_path / "run.log").read_text()
    where = "worker=0 epoch=1 component=sink task=2"
    for number in range(1, 4):
        assert f"{where} streamlet.component.sink: number {number}\n" in log
    assert f"{where} streamlet.stdout: printed\n" in log and f"{where} mine: plain\n" in log
    assert "streamlet.run: Talk begins" in log and "Talk came to its end" in log.splitlines()[-1]
    assert "of the program" not in log and "streamlet.stderr" not in log
    assert done.stdout == 3 * "printed\n"
    assert done.stderr.count("plain") == 3 and "of the program" in done.stderr


def test_a_log_file_that_cannot_be_written_is_raised_in_any_case(tmp_path: Path) -> None:
    settings = {"streamlet.log.file": tmp_path / "none" / "run.log"}
    with pytest.raises(BadInput, match=r"run\.log cannot be written: No such file or directory"):
        Picking.run(backend="inline", check=False, settings=settings)


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_components_read_shared_files_where_their_context_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Files and folders, by paths relative to where the run is started."""
    shared = shared_files(tmp_path)
    topology = importlib.import_module("tests.topologies.reads_shared").ReadsShared
    monkeypatch.chdir(tmp_path)
    relative = {name: os.path.relpath(path) for name, path in shared.items()}
    result = topology.run(backend=backend, settings={"out": str(tmp_path), "streamlet.shared": relative})
    assert result.reason == "caught_up"
    told = [json.loads(path.read_text()) for path in tmp_path.glob("found-*.json")]
    assert len(told) == 2 and {**told[0][0], **told[1][0]} == {"one": 1, "two": 2}
    assert all(row[1:] == [str(shared["numbers"]), str(shared["folder"]), "read"] for row in told)


def test_shared_files_that_are_not_there_are_named_before_anything_runs(tmp_path: Path) -> None:
    settings = {"streamlet.shared": {"model": tmp_path / "model.bin"}}
    with pytest.raises(
        BadInput, match=r"streamlet\.shared has model=.*model\.bin, and no such file or folder is there"
    ):
        Picking.run(backend="inline", check=False, settings=settings)


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 1), (3, 2), (16, 15)])
def test_a_run_that_names_no_number_leaves_a_core_to_the_broker(cores: int, workers: int) -> None:
    """On Spark they are the cluster's, and none is left out."""
    assert running.default_workers("processes", cores) == workers
    assert running.default_workers("spark", cores) == cores


def test_runs_with_a_log_file_leave_no_thread_and_no_descriptor_behind(tmp_path: Path) -> None:
    """A notebook or a scheduler makes a thousand."""
    counts, before = [], {*threading.enumerate()}
    for _ in range(6):
        streamlet.run(Picking, backend="inline", settings={"streamlet.log.file": str(tmp_path / "log")})
        deadline = time.monotonic() + PATIENCE_S
        while {*threading.enumerate()} - before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1:] == counts[:1] * 5
    assert (tmp_path / "log").read_text().count("came to its end") == 6


class Says(Bolt):
    def initialize(self, conf: Any, context: Any) -> None:
        self.tag = conf["tag"]

    def process(self, tup: Any) -> None:
        self.logger.info("LOGGED by %s %d", self.tag, tup.values[0])
        print(f"PRINTED by {self.tag} {tup.values[0]}")
        WAITS[self.tag].wait(PATIENCE_S if tup.values[0] == 10 else 0)


WAITS = {"first": threading.Event(), "second": threading.Event()}


class Saying(Topology):
    config = {"tag": ""}
    numbers = Numbers.spec()
    says = Says.spec(inputs=[numbers])


def test_inline_runs_side_by_side_keep_their_lines_apart(tmp_path: Path) -> None:
    """The first begins, the second begins, the first ends, the second ends: as two threads of a program may."""
    out, level = sys.stdout, logging.getLogger("streamlet.component").level

    def go(tag: str) -> None:
        streamlet.run(Saying, backend="inline", settings={"tag": tag, "streamlet.log.file": str(tmp_path / tag)})

    threads = {tag: threading.Thread(target=go, args=(tag,)) for tag in WAITS}
    for tag, thread in threads.items():
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / tag).exists() or f"LOGGED by {tag} 10" not in (tmp_path / tag).read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    for tag, thread in threads.items():
        WAITS[tag].set()
        thread.join(PATIENCE_S)
    for tag, other in (("first", "second"), ("second", "first")):
        text = (tmp_path / tag).read_text()
        assert f"by {other}" not in text
        assert [text.count(f"{how} by {tag}") for how in ("LOGGED", "PRINTED")] == [20, 20]
    assert sys.stdout is out and logging.getLogger("streamlet.component").level == level


class Endless(ReliableSpout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...


class Waits(Topology):
    config = {"bad": -1}
    numbers = Endless.spec()
    picky = Picky.spec(inputs=[numbers])


class Returns(InlineBackend):
    def run(self, request: Any, observer: Any, stop: Any) -> RunResult:
        return RunResult("caught_up", RunStatus("ended", 0.0), drained=True)


@pytest.mark.parametrize(
    ("topology", "more", "warned"),
    [(Waits, {}, 1), (Waits, {"seconds": 5.0}, 0), (Waits, {"stop": Stop()}, 0), (Picking, {}, 0)],
)
def test_who_waits_for_a_spout_that_never_says_that_it_has_caught_up_is_warned(
    caplog: pytest.LogCaptureFixture, topology: Any, more: dict[str, Any], warned: int
) -> None:
    """All was done, and nothing happened any more."""
    streamlet.run(topology, backend=Returns(), **more)
    said = [record.getMessage() for record in caplog.records if "defines no caught_up" in record.getMessage()]
    assert len(said) == warned and all("The spout numbers defines no caught_up" in text for text in said)
