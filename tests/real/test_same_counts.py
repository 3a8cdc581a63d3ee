"""One topology, every way to find its brokers, the same counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from streamlet.devcluster import DevCluster
from tests.command_line import ROOT, Streamlet
from tests.real.word_counts import counted, random_lines

TOPOLOGY = """
import sys
sys.path.insert(0, {folder!r})
from word_count import Count, Split

from streamlet import Grouping, Topology
from streamlet.spouts.kafka import *

class WordCount(Topology):
    config = {{"word_count.out": "counts"}}
    lines = KafkaSpout.spec(config=SpoutConfig({hosts}, topic={topic!r}, {offsets}, id={topic!r}), par=2)
    split = Split.spec(inputs=[lines], par=2)
    count = Count.spec(inputs={{split: Grouping.fields("word")}}, par=2)
"""

HOSTS = {
    "StaticHosts": (
        'StaticHosts({{0: "{broker}", 1: "{broker}"}})',
        'zk_root="/same", offset_store=ZkOffsets("{zookeeper}")',
    ),
    "ZkHosts": ('ZkHosts("{zookeeper}")', 'zk_root="/same"'),
    "KafkaHosts": ('KafkaHosts("{broker}")', 'zk_root=""'),
}


@pytest.mark.parametrize(
    ("hosts", "release"), [("StaticHosts", "3.9"), ("ZkHosts", "3.9"), ("KafkaHosts", "3.9"), ("KafkaHosts", "4")]
)
def test_the_same_topology_gives_the_same_counts(
    hosts: str, release: str, request: pytest.FixtureRequest, make_topic: Callable[..., str], streamlet: Streamlet
) -> None:
    """On worker processes, two spout tasks; the truth is what Kafka's own console consumer reads."""
    cluster: DevCluster = request.getfixturevalue("kafka39" if release == "3.9" else "kafka4")
    topic = make_topic(cluster, partitions=2)
    cluster.produce(topic, random_lines())
    truth = Counter(word for line in cluster.console_consume(topic, max_messages=20_000) for word in line.split())
    where, offsets = (
        text.replace("{{", "{").replace("}}", "}")
        for text in (
            part.replace("{broker}", cluster.bootstrap_servers).replace("{zookeeper}", cluster.zookeeper or "")
            for part in HOSTS[hosts]
        )
    )
    text = TOPOLOGY.format(folder=str(ROOT / "topologies"), hosts=where, topic=topic, offsets=offsets)
    file = streamlet.write(text, "counts_of_hosts.py")
    done = streamlet("run", file, "--until-caught-up", "--json", "--workers", "2")
    assert done.returncode == 0, done
    assert counted(streamlet.folder / "counts") == truth
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["event"] == "result" and result["reason"] == "caught_up"
