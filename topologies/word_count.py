"""Word count: lines of a Kafka topic become counted words.

    streamlet dev up                                     # ZooKeeper on 127.0.0.1:2181, Kafka on 127.0.0.1:9092
    streamlet dev topic lines --partitions 2
    streamlet dev produce lines README.md
    streamlet run topologies/word_count.py --until-caught-up -c word_count.out=/tmp/counts

Other addresses, topics and ids: ``-c lines.hosts=zk://HOST:PORT``, ``-c lines.topic=NAME``, ``-c lines.id=NAME``.
The counts stand in the memory of the ``count`` tasks and leave it once, when the topology ends (``cleanup``): one
JSON file a task. ``streamlet docs counts-that-survive`` says what that means when a worker dies, and what to do.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Grouping, Topology, TopologyContext, Tuple
from streamlet.spouts.kafka import KafkaSpout, SpoutConfig, ZkHosts


class Split(Bolt):
    """A line in, its words out. Each word is anchored to its line."""

    outputs = ["word"]

    def process(self, tup: Tuple) -> None:
        for word in tup.values[0].split():
            self.emit([word])


class Count(Bolt):
    """Counts words in memory; the fields grouping brings every copy of a word to the same task."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: dict[str, int] = {}
        self.file = Path(conf["word_count.out"]) / f"counts.{context.task_index}.json"

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def cleanup(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.file.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self.counts, ensure_ascii=False))
        unfinished.replace(self.file)


class WordCount(Topology):
    config = {"word_count.out": "counts"}

    lines = KafkaSpout.spec(
        config=SpoutConfig(hosts=ZkHosts("127.0.0.1:2181"), topic="lines", zk_root="/streamlet", id="demo"), par=1
    )
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={split: Grouping.fields("word")}, par=2)
