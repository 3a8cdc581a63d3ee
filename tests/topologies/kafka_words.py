"""Words of a topic's records, counted at each word and by the tick; a run leaves its counts in files at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Grouping, Topology, TopologyContext, Tuple
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig
from tests.topologies.counted_words import Count, Lower, Split, Window


class Keep(Bolt):
    """The last number of each word, and the sum of its windows."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.file = Path(conf["kept"]) / f"{context.task_index}.json"
        self.numbers: dict[str, dict[str, int]] = {"count": {}, "window": {}}

    def process(self, tup: Tuple) -> None:
        word, n = tup.values
        numbers = self.numbers[tup.component]
        numbers[word] = max(numbers.get(word, 0), n) if tup.component == "count" else numbers.get(word, 0) + n

    def cleanup(self) -> None:
        self.file.write_text(json.dumps(self.numbers))


class KafkaWords(Topology):
    """lines -> split -> lower -> count, and -> window; keep reads both."""

    config = {"kept": ""}
    lines = KafkaSpout.spec(config=SpoutConfig(KafkaHosts("127.0.0.1:9092"), "lines", id="words"))
    split = Split.spec(inputs=[lines])
    lower = Lower.spec(inputs=[split])
    count = Count.spec(inputs={lower: Grouping.fields("word")}, par=2)
    window = Window.spec(inputs={lower: Grouping.fields("word")}, par=2)
    keep = Keep.spec(inputs={count: Grouping.fields("word"), window: Grouping.fields("word")})
