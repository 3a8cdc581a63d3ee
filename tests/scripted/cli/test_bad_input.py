"""Bad input to the command line: one paragraph on stderr, exit status 2, no traceback, nothing started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GOOD = """
from streamlet import Bolt, Grouping, Spout, Topology

class Lines(Spout):
    outputs = ["line"]
    def next_tuple(self): pass
    def caught_up(self): return True

class Split(Bolt):
    outputs = ["word"]
    def process(self, tup): pass

class Count(Bolt):
    def process(self, tup): pass

class WordCount(Topology):
    config = {"my.limit": 5}
    lines = Lines.spec(par=LINES_PAR)
    split = Split.spec(inputs=SPLIT_INPUTS)
    count = Count.spec(inputs={split: Grouping.fields(COUNT_FIELD)})
"""


def made(lines_par: str = "1", split_inputs: str = "[lines]", count_field: str = '"word"') -> str:
    text = GOOD.replace("LINES_PAR", lines_par).replace("SPLIT_INPUTS", split_inputs)
    return text.replace("COUNT_FIELD", count_field)


def test_the_good_one_is_good(streamlet) -> None:
    """Every test below changes one thing of a topology that runs."""
    done = streamlet("run", streamlet.write(made()), "--backend", "inline", "--until-caught-up")
    assert done.returncode == 0, done


def test_a_missing_file_is_refused(refused) -> None:
    assert "There is no file" in refused("run", "nowhere.py")


def test_a_folder_is_refused_as_no_file(refused, streamlet) -> None:
    assert f"{streamlet.folder} is a folder" in refused("run", streamlet.folder)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("--brokers", "--bootstrap-servers"),
        ("--max-messages", "--max-records"),
        ("--offset", "--from-offset"),
        ("--from-begining", "--from-beginning"),
    ],
)
def test_an_option_of_another_consumer_gets_ours(refused, wrong: str, right: str) -> None:
    assert f"No such option '{wrong}'. Did you mean '{right}'?" in refused("consume", "lines", wrong, "1")


@pytest.mark.parametrize("arguments", [["dev"], []])
def test_a_group_without_a_command_shows_its_commands(streamlet, arguments: list[str]) -> None:
    done = streamlet(*arguments)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("Usage: streamlet") and "Commands:" in done.stdout


def test_a_file_without_a_topology_is_refused(refused, streamlet) -> None:
    assert "holds no topology" in refused("run", streamlet.write("x = 1\n"))


def test_a_file_that_does_not_parse(refused, streamlet) -> None:
    said = refused("run", streamlet.write("x = 1\nclass :\n"))
    assert "does not parse" in said and "line 2" in said


def test_a_file_with_bytes_that_are_no_source(refused, streamlet) -> None:
    path = streamlet.folder / "made.py"
    path.write_bytes(b"x = '\xff\x00'\n")
    assert "does not parse" in refused("run", path)


def test_a_file_that_raises_when_imported_is_refused_with_error_and_line(refused, streamlet) -> None:
    said = refused("run", streamlet.write("x = 1\ny = 1 / 0\n"))
    assert "ZeroDivisionError" in said and "line 2" in said


def test_a_file_that_imports_what_is_not_installed(refused, streamlet) -> None:
    assert "no_such_module_here" in refused("run", streamlet.write("import no_such_module_here\n"))


def test_a_file_that_exits_when_imported_is_refused(refused, streamlet) -> None:
    """A script that parses arguments at its top is no topology, and must not decide our exit status."""
    assert "SystemExit" in refused("run", streamlet.write("import sys\nsys.exit(0)\n"))


def test_a_name_that_no_worker_could_import(refused, streamlet) -> None:
    assert "cannot be imported" in refused("run", streamlet.write(made(), "my-topology.py"))


def test_a_file_named_like_a_module_is_refused(refused, streamlet) -> None:
    assert "Rename the file" in refused("run", streamlet.write(made(), "json.py"))


def test_no_topology_of_that_name(refused, streamlet) -> None:
    said = refused("run", f"{streamlet.write(made())}:WordCnt")
    assert "'WordCnt'" in said and "WordCount" in said


def test_several_topologies_and_no_name(refused, streamlet) -> None:
    said = refused("run", streamlet.write(made() + "\nclass Other(WordCount): pass\n"))
    assert "Other, WordCount" in said


def test_an_unknown_component_in_inputs_is_refused(refused, streamlet) -> None:
    assert "Did you mean 'lines'" in refused("run", streamlet.write(made(split_inputs='["line"]')))


def test_a_fields_grouping_on_a_field_not_declared_is_refused(refused, streamlet) -> None:
    said = refused("run", streamlet.write(made(count_field='"wrod"')))
    assert "count" in said and "declares 'word'" in said and "Did you mean 'word'" in said


def test_a_parallelism_of_zero_is_refused(refused, streamlet) -> None:
    assert "par is 0" in refused("run", streamlet.write(made(lines_par="0")))


def test_a_class_that_no_worker_could_import(refused, streamlet) -> None:
    text = made().replace(
        "class WordCount", "def local():\n    class Inner(Split): pass\n    return Inner\nclass WordCount"
    )
    said = refused("run", streamlet.write(text.replace("Split.spec", "local().spec")))
    assert "inside a function" in said


@pytest.mark.parametrize(
    ("pair", "wanted"),
    [
        ("topology.max.spout.pendin=5", "Did you mean 'topology.max.spout.pending'"),
        ("max.spout.pending=5", "Did you mean 'topology.max.spout.pending'"),
        ("my.limt=5", "Did you mean 'my.limit'"),
        ("topology.max.spout.pending=0", "at least 1"),
        ("topology.max.spout.pending=lots", "cannot be 'lots': a whole number of at least 1 is wanted. It means: open"),
        ("topology.max.spout.pending=2.5", "cannot be '2.5': a whole number of at least 1 is wanted"),
        ("topology.message.timeout.secs=soon", "cannot be 'soon': a number of at least 0.001 is wanted"),
        ("limit=5", "Did you mean 'my.limit'?"),
        ("zzz=5", "This topology has my.limit of its own."),
        ("zzz=5", "`streamlet check --settings FILE` lists all, and says what they mean."),
        ("my.limit=lots", "of type int"),
        ("lines.topic=x", "Lines has none"),
        ("linse.topic=x", "linse.topic"),
        ("streamlet.until.caught.up", "KEY=VALUE"),
        ("=5", "KEY=VALUE"),
    ],
)
def test_a_setting_that_cannot_be(refused, streamlet, pair: str, wanted: str) -> None:
    """An unknown key names the nearest right one; a bad value says what is wanted."""
    assert wanted in refused("run", streamlet.write(made()), "-c", pair)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.toml", "[topology\n", "not valid TOML"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "no table of settings"),
        ("a.toml", "[topology.max.spout]\npendign = 5\n", "Did you mean 'topology.max.spout.pending'"),
        ("a.toml", "topology.max.spout.pending = 2.5\n", "a.toml"),
        ("a.json", '{"lines.topic": "a", "lines.topic": "b"}', "'lines.topic' is given twice"),
        ("a.toml", '"topology.max.spout.pending" = 5\n[topology]\nmax.spout.pending = 6\n', "is given twice"),
    ],
)
def test_a_settings_file_that_cannot_be(refused, streamlet, name: str, text: str, wanted: str) -> None:
    settings = streamlet.write(text, name)
    assert wanted in refused("run", streamlet.write(made()), "--config", settings)


WORD_COUNT = Path(__file__).parents[3] / "topologies" / "word_count.py"


@pytest.mark.parametrize(
    ("pair", "wanted"),
    [
        ("out=5", "Did you mean 'word_count.out'?"),
        ("topic=x", "or 'lines.topic'?"),
        ("lines.topik=x", "Did you mean 'topic'?"),
        ("zzz=5", "This topology has word_count.out, lines.NAME of its own."),
        ("lines.fetch_min_bytes=abc", "fetch_min_bytes cannot be 'abc': it is a whole number of at least 1"),
        ("lines.zzz=5", "buffer_size_bytes, client_id"),
    ],
)
def test_a_setting_of_a_spout_that_cannot_be(refused, pair: str, wanted: str) -> None:
    """However far off a key is, its user gets the right one, or all there are."""
    assert wanted in refused("run", WORD_COUNT, "-c", pair)


def test_a_settings_file_that_is_not_there(refused, streamlet) -> None:
    assert "cannot be read" in refused("run", streamlet.write(made()), "--config", "nowhere.toml")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--backend", "storm"],
        ["--workers", "0"],
        ["--backend", "inline", "--workers", "2"],
        ["--master", "local[2]"],
        ["-t", "0"],
        ["-t", "nan"],
        ["-t", "inf"],
        ["--no-such-option"],
    ],
)
def test_an_impossible_option_names_the_help(refused, streamlet, arguments: list[str]) -> None:
    assert "streamlet run --help" in refused("run", streamlet.write(made()), *arguments)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["nowhere.py"], "There is no file"),
        (["--workers", "0"], "--workers"),
        (["--backend", "storm"], "'storm'"),
        (["-c", "zzz=5"], "zzz"),
        (["-c", "topology.max.spout.pending=abc"], "a whole number of at least 1"),
        (["--config", "nowhere.toml"], "cannot be read"),
    ],
)
def test_a_program_is_told_of_refused_input_too(streamlet, arguments: list[str], wanted: str) -> None:
    """With --json: one result line on stdout with exit status and message; the paragraph on stderr as ever."""
    target = [] if arguments[0].endswith(".py") else [streamlet.write(made())]
    done = streamlet("run", *target, *arguments, "--json")
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["event"], result["reason"]) == ("result", "refused")
    assert result["exit_status"] == done.returncode == 2
    assert wanted in result["message"]
    assert done.stderr == f"Error: {result['message']}\n"


def test_an_unknown_command_names_the_nearest(refused) -> None:
    assert "Did you mean 'check'" in refused("chek")


def test_several_problems_come_together(streamlet) -> None:
    """Each is a numbered paragraph; nobody mends them one by one."""
    done = streamlet("run", streamlet.write(made(lines_par="0", count_field='"wrod"')))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert [line[:2] for line in done.stderr.splitlines()] == ["Er", "1.", "2."]


def test_a_bug_is_called_a_bug(streamlet) -> None:
    """What is not our own error is one paragraph that says so, exit status 1; --debug shows the traceback."""
    text = made().replace(
        "class WordCount", "class Odd(str):\n    def startswith(self, *a): raise KeyError('odd')\nclass WordCount"
    )
    path = streamlet.write(text.replace('"my.limit"', 'Odd("my.limit")'))
    done = streamlet("run", path)
    assert done.returncode == 1 and "This is a bug in streamlet" in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" in streamlet("run", path, "--debug").stderr


def test_debug_shows_the_traceback_of_bad_input_too(streamlet) -> None:
    done = streamlet("run", "nowhere.py", "--debug")
    assert done.returncode == 2 and "Traceback" in done.stderr and "There is no file" in done.stderr
