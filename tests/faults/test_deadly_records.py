"""A Kafka record that kills its worker: named by topic, partition and offset, and skipped where the user chose so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, Stop
from streamlet.backends.processes import ProcessesBackend
from streamlet.base.errors import StreamletError
from streamlet.devcluster import DevCluster
from streamlet.model.settings import resolve
from streamlet.runtime.worker.loading import load_topology
from tests.faults.rig import rig
from tests.patience import PATIENCE_S
from tests.read_back import read_back
from tests.run_observer import Watcher

pytestmark = [pytest.mark.real, pytest.mark.faults]

LINES = 4000

FILE = """
import ctypes
from pathlib import Path
from streamlet import Bolt, Topology
from streamlet.spouts.kafka import KafkaSpout, SpoutConfig, ZkHosts

FOLDER = Path(__file__).parent

class Deadly(Bolt):
    def initialize(self, conf, context):
        self.out = (FOLDER / f"done.{{context.task_id}}.{{context.epoch}}").open("a", buffering=1)
    def process(self, tup):
        line = tup.values[0].split()[0]
        if line == "{deadly}":
            ctypes.string_at(0)
        self.out.write(line + "\\n")

class Records(Topology):
    lines = KafkaSpout.spec(config=SpoutConfig(
        ZkHosts("{zookeeper}"), "{topic}", zk_root="/streamlet", id="deadly-{policy}-{workers}", on_poison="{policy}",
        dead_letter_topic="{letters}",
    ))
    deadly = Deadly.spec(inputs=[lines])
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("policy", ["skip", "stop", "dead-letter"])
def test_a_record_that_kills_its_worker_follows_on_poison(
    cluster: DevCluster, tmp_path: Path, make_topic: Callable[..., str], policy: str, workers: int
) -> None:
    """With spout and bolt in one worker the spout dies, too, and reads again from its last commit."""
    with rig(cluster, tmp_path, LINES, seed=4) as made:
        deadly = "0-700"
        letters = make_topic(cluster) if policy == "dead-letter" else ""
        file = tmp_path / f"records_{policy.replace('-', '_')}_{workers}.py"
        file.write_text(
            FILE.format(
                deadly=deadly, zookeeper=cluster.zookeeper, topic=made.name, policy=policy, workers=workers,
                letters=letters,
            )
        )  # fmt: skip
        topology = load_topology(file)
        conf = {"streamlet.until.caught.up": True, "streamlet.worker.heartbeat.secs": 0.2}
        request = RunRequest(
            topology, resolve(topology.config, conf), file=file, workers=workers, until_caught_up=True,
            seconds=PATIENCE_S,
        )  # fmt: skip
        watcher = Watcher()
        error = ""
        try:
            result: Any = ProcessesBackend().run(request, watcher, Stop())
            assert result.reason == "caught_up"
            assert sum(row["given_up"] for row in result.status.partitions) == 1
        except StreamletError as failed:
            error = str(failed)
        deaths = [text for text in watcher.texts if text.startswith("worker ")]
        told = [text for text in deaths if "was killed by SIGSEGV at work in deadly" in text]
        assert 3 <= len(told) <= 5, told
        where = f"topic '{made.name}', partition 0, offset 700"
        if policy == "stop":
            assert where in error and "was under work when its worker died, once too often" in error
            return
        assert not error
        if policy == "skip":
            assert any("offset 700 given up (on_poison=skip)" in text for text in watcher.texts)
        else:
            (letter,) = read_back(cluster, letters, 1)
            headers = {name: value for name, value in letter.headers if name.startswith("streamlet.dlq.")}
            assert letter.value is not None and letter.value.split()[0] == deadly.encode()
            place = [headers[f"streamlet.dlq.{name}"] for name in ("topic", "partition", "offset")]
            assert place == [made.name.encode(), b"0", b"700"]
        done = Counter(line for out in tmp_path.glob("done.*") for line in out.read_text().split())
        assert deadly not in done and len(done) == made.evidence.total - 1
