"""A project as streamparse's users have it, run as it stands but for the imports' package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "src/bolts/__init__.py": "",
    "src/bolts/counts.py": """
import os
from collections import Counter
from streamlet import BatchingBolt, Bolt

GREETING = os.environ.get("PROJECT_GREETING", "nobody set it")

class Upper(Bolt):
    outputs = ["word", "count"]
    auto_ack = False
    par = 2

    def initialize(self, storm_conf, context):
        assert storm_conf["topology.name"] == self.topology_name == "WordCount"
        assert context["componentid"] == context.component_name == "upper"
        self.open, self.failed = [], set()

    def process(self, tup):
        if tup.values.number % 50 == 0 and tup.values.number not in self.failed:
            self.failed.add(tup.values.number)
            self.fail(tup.id)
            return
        self.open.append(tup.id)
        self.emit(tup=[tup.values.word.upper(), 1], anchors=[tup.id])
        self.ack(self.open.pop())

class Total(BatchingBolt):
    ticks_between_batches = 2

    def group_key(self, tup):
        return tup.values.word

    def initialize(self, storm_conf, context):
        self.totals = Counter()

    def process_batch(self, key, tups):
        self.totals[key] += sum(tup.values.count for tup in tups)
        self.report_metric(f"total {key}", self.totals[key])

    def cleanup(self):
        with open(self.storm_conf["out"], "w") as file:
            print(GREETING, self.pid == os.getpid(), dict(sorted(self.totals.items())), file=file)
""",
    "src/spouts/__init__.py": "",
    "src/spouts/words.py": """
from streamlet import ReliableSpout

class Words(ReliableSpout):
    outputs = ["word", "number"]
    at = 0

    def next_tuple(self):
        if self.at < 300:
            self.at += 1
            self.emit(tup=[("dog", "cat", "ape")[self.at % 3], self.at], tup_id=self.at)

    def caught_up(self):
        return self.at == 300 and not self.has_unfinished()
""",
    "topologies/wordcount.py": """
from bolts.counts import Total, Upper
from spouts.words import Words
from streamlet import Grouping, Topology

class WordCount(Topology):
    config = {"topology.environment": {"PROJECT_GREETING": "from the config"}, "out": ""}
    words = Words.spec()
    upper = Upper.spec(inputs={words: Grouping.fields("number")})
    total = Total.spec(inputs={upper: Grouping.fields("word")}, config={"topology.tick.tuple.freq.secs": 0.05})
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(project: Path, backend: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamlet", "run", "topologies/wordcount.py", "--backend", backend, "--json"]
    options = ["--until-caught-up", "-c", f"out={project / 'out'}"]
    return subprocess.run([*command, *options], cwd=project, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_streamparse_project_runs_to_its_end(project: Path, backend: str) -> None:
    done = run(project, backend)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["reason"] == "caught_up"
    rows = {row["name"]: row for row in result["components"]}
    assert (rows["words"]["acked"], rows["words"]["failed"], rows["upper"]["acked"]) == (300, 6, 300)
    greeting, _, rest = (project / "out").read_text().rpartition(" True ")
    assert rest.strip() == "{'APE': 100, 'CAT': 100, 'DOG': 100}"
    # Inline, the process had imported the file before its config was known.
    assert greeting == ("nobody set it" if backend == "inline" else "from the config")
