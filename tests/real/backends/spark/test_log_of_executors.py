"""The log file of a run on Spark: what executors' workers say comes to the process that was started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import Streamlet
from tests.scripted.cli.test_kept_view import CHATTY, objects


@pytest.mark.spark
def test_every_line_of_an_executor_says_where_it_comes_from(tmp_path: Path) -> None:
    """As from worker processes: of components, of other loggers, of what is printed, on both streams."""
    command = Streamlet(tmp_path)
    file = command.write(CHATTY)
    done = command(
        *("run", file, "--backend", "spark", "--workers", "2", "--until-caught-up"),
        *("--log-file", "run.log", "--log-format", "json", "-c", "streamlet.log.repeats.secs=0"),
    )
    assert done.returncode == 0, done.stderr
    lines = objects(tmp_path / "run.log")
    worker_of = {line["task"]: line["worker"] for line in lines if line["text"] == "there"}
    assert set(worker_of) == {2, 3} and set(worker_of.values()) == {0, 1}
    said = {"streamlet.stdout": "printed", "streamlet.stderr": "complained", "mine": "plain"}
    for logger, word in {**said, "streamlet.component.sink": "logged"}.items():
        found = [line for line in lines if line["logger"] == logger and line["text"].startswith(f"{word} ")]
        assert sorted(int(line["text"].split()[1]) for line in found) == list(range(1, 7)), logger
        for line in found:
            task = int(line["text"].split()[2])
            where = line["component"], line["task"], line["worker"], line["epoch"]
            assert where == ("sink", task, worker_of[task], 1), line
    (caught,) = [line for line in lines if line["text"] == "caught"]
    assert str(file) in caught["traceback"], "the user's own file, not its copy"
