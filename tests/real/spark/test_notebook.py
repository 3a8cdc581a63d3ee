"""The cells of the page about notebooks, run in order in one process, as a kernel runs them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamlet.devcluster import DevCluster
from tests.docs.pages import ROOT, blocks, first_missing
from tests.marked_processes import Marked
from tests.patience import PATIENCE_S

PAGE = ROOT / "docs" / "guide" / "notebook.md"
INTERRUPTED = "until_caught_up=False"
RUNNING = "words 0 "
"""Of a line of numbers in which nothing has come since."""
ENDED = "this cell has ended"

KERNEL = f"""
import json, signal

names = {{"__name__": "__main__"}}
for cell in json.load(open("cells.json")):
    first, _, rest = cell.partition("\\n")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as ipykernel does before each cell
    try:
        if first.startswith("%%writefile "):
            with open(first.split()[1], "w") as file:
                file.write(rest)
        else:
            exec(compile(cell, "<cell>", "exec"), names)
    except KeyboardInterrupt:
        print("KeyboardInterrupt", flush=True)
    print({ENDED!r}, flush=True)
"""
LENGTHS = 'print(sorted(row.length for row in spark.read.parquet("lengths").select("length").distinct().collect()))'


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Marked]:
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.ui.enabled false\nspark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
    )
    environ = {"SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    started = Marked([sys.executable, "kernel.py"], {**environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path)
    yield started
    started.end()


@pytest.mark.spark
def test_each_cell_shows_what_the_page_has_and_an_interrupt_ends_one_cell_alone(
    kafka4: DevCluster, make_topic: Callable[..., str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The file is edited while a run goes on, as the page says, and the next run has the edit."""
    topic, page = make_topic(kafka4, partitions=2), [block for block in blocks(PAGE) if block.language == "python"]
    cells = [
        block.text.replace("127.0.0.1:9092", kafka4.bootstrap_servers).replace('"lines",', f'"{topic}",')
        for block in page
    ]
    (tmp_path / "cells.json").write_text(json.dumps([*cells, LENGTHS]))
    process = request.getfixturevalue("kernel").process
    for block, cell in zip(page, cells, strict=False):
        said: list[str] = []
        while ENDED not in said:
            line = process.stdout.readline()
            assert line, f"{block}: {process.communicate(timeout=PATIENCE_S)}"
            said.append(line.rstrip("\n"))
            if (
                INTERRUPTED in cell
                and len(found := [text for text in said if RUNNING in text]) == 1
                and found[0] == said[-1]
            ):
                file = tmp_path / "word_lengths.py"
                file.write_text(file.read_text().replace("len(word)", "10 * len(word)"))
                process.send_signal(signal.SIGINT)
        assert ("KeyboardInterrupt" in said) == (INTERRUPTED in cell)
        if block.shown is not None:
            missing = first_missing(block.shown, "\n".join(said), exactly=True)
            assert missing is None, f"{block} does not show {missing!r}: {said}"
    rest, complaints = process.communicate(timeout=PATIENCE_S)
    assert rest.startswith("[3, 5, 40]\n") and process.returncode == 0, rest + complaints
    assert "Traceback" not in complaints
