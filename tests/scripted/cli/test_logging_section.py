"""The ``[logging]`` section of a settings file: the standard library's handlers get the lines of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.scripted.cli.test_kept_view import CHATTY, drains_beside_a_pipe_that_nobody_reads

PLAIN = """
[logging.formatters.plain]
format = "%(levelname)s|%(name)s|%(component)s|%(task)s|%(worker)s|%(epoch)s|%(message)s"
[logging.handlers.file]
class = "logging.FileHandler"
filename = "section.log"
formatter = "plain"
"""
TO_FILE = PLAIN + '[logging.root]\nlevel = "INFO"\nhandlers = ["file"]\n'

backends = pytest.mark.parametrize("backend", ["inline", "processes"])


def written(folder: Path) -> list[list[str]]:
    return [line.split("|") for line in (folder / "section.log").read_text().splitlines() if line.count("|") == 6]


@backends
def test_each_line_comes_once_with_its_origin(streamlet: Any, backend: str) -> None:
    file = streamlet.write(CHATTY)
    config = streamlet.write(TO_FILE + '[streamlet]\n"log.repeats.secs" = 0\n', "run.toml")
    workers = ("--workers", "1" if backend == "inline" else "2")
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "--config", config, *workers)
    assert done.returncode == 0, done.stderr
    lines = written(streamlet.folder)
    for number in range(1, 7):
        for logger, text in (
            ("mine", "plain"),
            ("streamlet.component.sink", "logged"),
            ("streamlet.stdout", "printed"),
        ):
            (line,) = [line for line in lines if line[1] == logger and line[6].startswith(f"{text} {number} ")]
            task = line[6].split()[-1]
            assert line[2:4] == ["sink", task] and line[4] in "01" and line[5] == "1"
    assert [line[6] for line in lines].count("the same") == 6
    assert lines[0][1:6] == ["streamlet.run", "-", "-", "-", "-"]
    assert lines[-1][6].startswith("Caught up after")
    assert "KeyError: 'none'" in (streamlet.folder / "section.log").read_text()
    assert done.stderr.count("mine: plain 1") == 1, "the terminal is as it was"


OWN_LEVELS = PLAIN + '[logging.root]\nlevel = "WARNING"\nhandlers = ["file"]\n[logging.loggers.mine]\nlevel = "ERROR"\n'
OWN_FILTER = TO_FILE.replace("filename", 'filters = ["own"]\nfilename') + '[logging.filters.own]\nname = "mine"\n'


def test_levels_are_those_of_the_section(streamlet: Any) -> None:
    file = streamlet.write(CHATTY)
    config = streamlet.write(OWN_LEVELS, "run.toml")
    done = streamlet("run", file, "--until-caught-up", "--workers", "2", "--config", config)
    assert done.returncode == 0, done.stderr
    lines = written(streamlet.folder)
    assert {line[0] for line in lines} == {"ERROR"} and "mine" not in {line[1] for line in lines}


def test_a_filter_of_the_section_leaves_out_what_it_is_for(streamlet: Any) -> None:
    file = streamlet.write(CHATTY)
    done = streamlet(
        "run", file, "--until-caught-up", "--workers", "2", "--config", streamlet.write(OWN_FILTER, "run.toml")
    )
    assert done.returncode == 0, done.stderr
    lines = written(streamlet.folder)
    assert len(lines) >= 6 and {line[1] for line in lines} == {"mine"}


def test_a_handler_on_the_terminal_takes_the_place_of_the_runs_own_lines(streamlet: Any) -> None:
    file = streamlet.write(CHATTY)
    console = PLAIN.replace("logging.FileHandler", "logging.StreamHandler").replace('filename = "section.log"\n', "")
    config = streamlet.write(console + '[logging.root]\nlevel = "INFO"\nhandlers = ["file"]\n', "run.toml")
    done = streamlet("run", file, "--until-caught-up", "--workers", "2", "--config", config)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"plain 1 \d", done.stderr)) == 1
    assert re.search(r"^WARNING\|mine\|sink\|\d\|\d\|1\|plain 1 \d$", done.stderr, re.MULTILINE)


ON_OUTPUT = PLAIN.replace("logging.FileHandler", "logging.StreamHandler").replace(
    'filename = "section.log"', 'stream = "ext://sys.stdout"'
)
PRINTING = """
import logging

class Printing(logging.Handler):
    def emit(self, record):
        print(self.format(record) + "\\n", end="", flush=True)  # at once: workers write there, too
"""
PRINTED = PLAIN.replace("logging.FileHandler", "printing.Printing").replace('filename = "section.log"\n', "")
BUFFERED = '[logging.handlers.buffer]\nclass = "logging.handlers.MemoryHandler"\ncapacity = 1\ntarget = "file"\n'


@backends
@pytest.mark.parametrize(
    ("section", "handler"),
    [
        (ON_OUTPUT, "file"),
        (ON_OUTPUT.replace("sys.stdout", "sys.__stdout__"), "file"),
        (ON_OUTPUT.replace("sys.stdout", "sys.__stdout__") + BUFFERED, "buffer"),
        (PRINTED, "file"),
    ],
    ids=["stream", "first stream", "buffered", "printed"],
)
def test_with_json_a_handler_on_standard_output_writes_to_standard_error(
    streamlet: Any, backend: str, section: str, handler: str
) -> None:
    """Its lines stood between the objects, and whoever reads them stopped there."""
    file = streamlet.write(CHATTY)
    streamlet.write(PRINTING, "printing.py")
    path = {"PYTHONPATH": f"{streamlet.environment['PYTHONPATH']}:{streamlet.folder}"}
    root = f'[logging.root]\nlevel = "INFO"\nhandlers = ["{handler}"]\n'
    given = ("--backend", backend, "--until-caught-up", "--config", streamlet.write(section + root, "run.toml"))
    done = streamlet("run", file, "--json", *given, **path)
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert objects[-1]["event"] == "result"
    logged = [each for each in objects if each["event"] == "log" and "logged 1 " in each["text"]]
    assert {(each["component"], each["worker"], each["epoch"]) for each in logged} == {("sink", 0, 1)}
    said = re.compile(r"^WARNING\|mine\|sink\|\d\|\d\|1\|plain 1 \d$", re.MULTILINE)
    assert said.search(done.stderr)
    plain = streamlet("run", file, *given, **path)
    assert said.search(plain.stdout), "without it the section is taken at its word"


THREADED = """
import logging, threading
from streamlet import Bolt, ReliableSpout, Topology

class Once(ReliableSpout):
    outputs = ["n"]
    left = 1
    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit(["n"], tup_id="only")
    def caught_up(self):
        return not (self.left or self.has_unfinished())

class Calls(Bolt):
    def process(self, tup):
        client = threading.Thread(target=logging.getLogger("client").warning, args=("slow answer",))
        client.start()
        client.join()

class Threaded(Topology):
    once = Once.spec()
    calls = Calls.spec(inputs=[once])
"""


@backends
@pytest.mark.parametrize("section", [None, ON_OUTPUT], ids=["shown", "section"])
def test_with_json_what_a_library_logs_on_a_thread_is_an_event_on_each_backend(
    streamlet: Any, backend: str, section: str | None
) -> None:
    """A thread is at work on no task that anybody knows of."""
    given = ["--json", "--backend", backend, "--until-caught-up"]
    if section is not None:
        root = '[logging.root]\nlevel = "INFO"\nhandlers = ["file"]\n'
        given += ["--config", streamlet.write(section + root, "run.toml")]
    done = streamlet("run", streamlet.write(THREADED), *given)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (logged,) = (each for each in events if each["event"] == "log" and "slow answer" in each["text"])
    assert logged["text"] == "client: slow answer" and events[-1]["event"] == "result"
    assert done.stderr.count("slow answer") == (0 if section is None else 1)


def test_with_json_a_handler_that_opens_standard_output_by_name_is_refused(streamlet: Any) -> None:
    config = streamlet.write(TO_FILE.replace("section.log", "/dev/stdout"), "run.toml")
    done = streamlet("run", streamlet.write(CHATTY), "--json", "--until-caught-up", "--config", config)
    assert done.returncode == 2 and "handler 'file' writes to the file of standard output, where" in done.stderr
    assert all(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1"])
def test_with_json_a_log_file_that_is_standard_output_is_refused(streamlet: Any, name: str) -> None:
    """Its lines stood between the objects, and behind the result, which is the last one whatever happens."""
    done = streamlet("run", streamlet.write(CHATTY), "--json", "--until-caught-up", "--log-file", name)
    assert done.returncode == 2 and f"The log file {name} is standard output" in " ".join(done.stderr.split()), done
    assert all(json.loads(line) for line in done.stdout.splitlines())


@backends
def test_a_topologys_own_configuration_takes_nothing_away(streamlet: Any, backend: str) -> None:
    quiet = 'import logging.config\nlogging.config.dictConfig({"version": 1, "root": {"handlers": []}})\n'
    file = streamlet.write(quiet + CHATTY)
    config = streamlet.write(TO_FILE, "run.toml")
    done = streamlet("run", file, "--backend", backend, "--until-caught-up", "--config", config)
    assert done.returncode == 0, done.stderr
    assert {"streamlet.component.sink", "mine"} <= {line[1] for line in written(streamlet.folder)}


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (TO_FILE.replace("section.log", "none/section.log"), "Unable to configure handler 'file'.*No such file"),
        (TO_FILE.replace("FileHandler", "NoHandler"), "Unable to configure handler 'file'.*NoHandler"),
        (TO_FILE.replace("%(task)s", "%(tusk)s"), "the formatter of handler 'file' fails with .*tusk"),
        (TO_FILE.replace('handlers = ["file"]', 'handlers = ["flie"]'), "flie"),
        (TO_FILE.replace('level = "INFO"', 'level = "LOUD"'), "LOUD"),
        ("[logging]\nversion = 2\n", "Unsupported version: 2"),
    ],
)
def test_a_wrong_section_is_refused_before_the_start(streamlet: Any, refused: Any, section: str, why: str) -> None:
    file = streamlet.write(CHATTY)
    config = streamlet.write(section, "run.toml")
    said = refused("run", file, "--until-caught-up", "--config", config)
    assert f"[logging] in {config} cannot be used: " in said and re.search(why, said), said
    assert "Nothing was started." in said and "there" not in said.replace("there is", "")


def test_a_table_named_logging_of_the_topology_itself_stays_its_own(streamlet: Any) -> None:
    text = CHATTY.replace("    numbers = Numbers.spec()", '    config = {"logging": {}}\n    numbers = Numbers.spec()')
    file = streamlet.write(text.replace('self.log("there")', 'self.log(str(conf["logging"]))'))
    config = streamlet.write('[logging]\nmine = "yes"\n', "run.toml")
    done = streamlet("run", file, "--until-caught-up", "--config", config)
    assert done.returncode == 0, done.stderr
    assert "{'mine': 'yes'}" in done.stderr


def test_a_handler_that_hangs_holds_nothing_up(streamlet: Any) -> None:
    """Its pipe is opened, and never read: the run goes on, says so, and ends."""
    config = streamlet.write(TO_FILE, "run.toml")
    told = "lacks lines: one of its handlers has not returned for"
    drains_beside_a_pipe_that_nobody_reads(streamlet, "section.log", ("--config", config), told)


def test_a_full_disk_under_a_handler_is_told_once(streamlet: Any) -> None:
    file = streamlet.write(CHATTY)
    (streamlet.folder / "section.log").symlink_to("/dev/full")
    config = streamlet.write(TO_FILE, "run.toml")
    done = streamlet("run", file, "--until-caught-up", "--workers", "2", "--config", config)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("lacks lines: a handler failed with OSError: [Errno 28] No space left on device") == 1
    assert "--- Logging error ---" not in done.stderr
