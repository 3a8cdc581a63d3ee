"""A run whose spouts all come to an end by themselves ends by itself; one other spout, and it does not."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, Spout, Topology, Tuple
from streamlet.running import make_request
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig


class Sink(Bolt):
    def process(self, tup: Tuple) -> None: ...


class Endless(Spout):
    outputs = ["n"]

    def next_tuple(self) -> None: ...


def lines(**about: Any) -> Any:
    return KafkaSpout.spec(config=SpoutConfig(KafkaHosts("127.0.0.1:1"), "lines", id="x", **about))


class Bounded(Topology):
    lines = lines(stop_offset="latest")
    sink = Sink.spec(inputs=[lines])


class Open(Topology):
    lines = lines()
    sink = Sink.spec(inputs=[lines])


class Mixed(Topology):
    lines = lines(stop_offset="latest")
    endless = Endless.spec()
    sink = Sink.spec(inputs=[lines, endless])


@pytest.mark.parametrize(
    ("topology", "given", "ends"),
    [
        (Bounded, {}, True),
        (Open, {}, False),
        (Mixed, {}, False),
        (Open, {"lines.stop_offset": "latest"}, True),
        (Mixed, {"lines.stop_offset": "latest"}, False),
    ],
)
def test_a_run_ends_by_itself_where_every_spout_is_bounded(topology: Any, given: dict[str, Any], ends: bool) -> None:
    pairs = [(key, value, "-c") for key, value in given.items()]
    request = make_request(topology.__topology__, pairs, backend="inline")
    assert request.until_caught_up is ends is request.conf["streamlet.until.caught.up"]
