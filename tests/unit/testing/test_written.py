"""TopologyTester with bolts that write outside: nothing is written, and their records are kept for the test."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamlet import BadInput, Batch, Bolt, ReliableSpout, Topology, Tuple
from streamlet.bolts.dataframe import DataFrameSink
from streamlet.bolts.kafka import KafkaBolt
from streamlet.bolts.kafka.errors import RecordNotMade
from streamlet.bolts.kafka.record_maker import MadeRecord
from streamlet.spouts.kafka import JsonScheme, KafkaHosts, KafkaSpout, SpoutConfig
from streamlet.testing import BoltTester, TopologyTester

NOBODY = "127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no connection be made by this thread: a test that asks for one fails at once."""
    own = threading.get_ident()

    def refusing(connect: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            assert threading.get_ident() != own, f"a connection to {given[-1]}"
            return connect(*given)  # a thread that another test has left

        return called

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refusing(getattr(socket.socket, name)))


class Enrich(Bolt):
    outputs = ["user", "order"]

    def process(self, tup: Tuple) -> None:
        user, amount = tup.values.user, tup.values.amount  # type: ignore[attr-defined]
        self.emit([user, {"amount": amount, "at": tup.values.offset}])  # type: ignore[attr-defined]


class Enriching(Topology):
    orders = KafkaSpout.spec(
        config=SpoutConfig(
            KafkaHosts(NOBODY), topic="orders", id="enrich", scheme=JsonScheme(["user", "amount"], record=["offset"])
        )
    )
    enrich = Enrich.spec(inputs=[orders], par=2)
    out = KafkaBolt.spec(inputs=[enrich], hosts=NOBODY, topic="enriched", key="user", value="order", par=2)


class ExactlyOnce(Enriching):
    config = {"topology.delivery": "exactly-once"}
    out = KafkaBolt.spec(
        inputs=[Enriching.enrich], hosts=NOBODY, topic="enriched", key="user", value="order", transactional_id="eu"
    )


@pytest.mark.parametrize("topology", [Enriching, ExactlyOnce])
def test_a_kafka_bolt_writes_nothing_and_its_records_are_kept(topology: Any) -> None:
    with TopologyTester(topology, {"orders": [["ann", 3, 0], ["bob", 5, 1]]}) as test:
        test.run()
        assert test.acked("orders") == [["ann", 3, 0], ["bob", 5, 1]]
        assert test.status("out").acked == 2
        first = min(test.written("out"))
        assert (first.topic, first.key, json.loads(first.value)) == ("enriched", b"ann", {"amount": 3, "at": 0})
        assert first == MadeRecord("enriched", b"ann", b'{"amount":3,"at":0}')
        test.give("orders", ["eve", 7, 2])
        assert [record.key for record in test.written("out")][-1] == b"eve"


def test_settings_reach_the_bolt_that_stands_in() -> None:
    given = {"orders": [["ann", 3, 0]]}
    with TopologyTester(Enriching, given, settings={"out.topic": "elsewhere"}) as test:
        test.run()
        assert [record.topic for record in test.written("out")] == ["elsewhere"]
    with pytest.raises(BadInput, match="topik"):
        TopologyTester(Enriching, given, settings={"out.topik": "elsewhere"})


class Orders(ReliableSpout):
    outputs = ["user", "where"]

    def next_tuple(self) -> None: ...


class Routed(Topology):
    orders = Orders.spec()
    out = KafkaBolt.spec(
        inputs=[orders],
        hosts=NOBODY,
        topic=lambda tup: tup.values.where,
        value=lambda tup: tup.values.user.upper(),
        headers={"from": "user"},
        partition=lambda tup: len(tup.values.user),
        timestamp_ms=lambda tup: 1_000,
    )


def test_functions_of_the_tuple_make_the_record_and_none_skips_it() -> None:
    with TopologyTester(Routed, {"orders": [["ann", "there"], ["bob", None]]}) as test:
        test.run()
        assert test.written("out") == [MadeRecord("there", None, b"ANN", [("from", b"ann")], 3, 1_000)]
        assert test.acked("orders") == [["ann", "there"], ["bob", None]]


def test_a_tuple_without_a_record_fails_and_the_others_are_kept() -> None:
    with TopologyTester(Routed, {"orders": [[None, "there"], ["bob", "there"]]}) as test:
        with pytest.raises(RecordNotMade, match="value raised AttributeError"):
            test.run()
        assert [record.value for record in test.written("out")] == [b"BOB"]
        assert test.failed("orders") == [[None, "there"]] and test.acked("orders") == [["bob", "there"]]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"topic": lambda tup: "a b"}, "topic = 'a b'"),
        ({"partition": lambda tup: 1 << 40}, "partition = 1099511627776"),
        ({"timestamp_ms": lambda tup: 1 << 70}, "give whole milliseconds"),
        ({"headers": lambda tup: {"\ud800": b""}}, "is not a pair of a name and bytes"),
        ({"value": lambda tup: "x" * 2_000_000}, "max_request_size is 1048576"),
        ({"max_request_size": 120}, "max_request_size is 120"),
    ],
)
def test_a_record_that_no_run_would_write_fails_its_tuple(settings: dict[str, Any], why: str) -> None:
    """It was kept as written, and the tuple was acked."""
    given = {"inputs": [Routed.orders], "hosts": NOBODY, "topic": "there", "value": "user", **settings}
    made: Any = type("Refused", (Topology,), {"orders": Routed.orders, "out": KafkaBolt.spec(**given)})
    with TopologyTester(made, {"orders": [["a" * 100, "x"], ["a", "x"]]}, raise_errors=False) as test:
        test.run()
        assert [record.value for record in test.written("out")] == [b"a"] * ("max_request_size" in settings)
        assert why in test.fail_reasons("orders")[0]


def test_a_data_frame_sink_writes_no_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    class Kept(Topology):
        orders = Orders.spec()
        out = DataFrameSink.spec(inputs=[orders], path=str(tmp_path / "not there"), schema="user string")

    with TopologyTester(Kept, {"orders": [["ann", "x"], [3, "x"]]}, raise_errors=False) as test:
        test.run()
        assert test.written("out") == [{"user": "ann"}]
        assert test.acked("orders") == [["ann", "x"]] and test.failed("orders") == [[3, "x"]]
    assert not [*tmp_path.iterdir()]


class Store(Bolt):
    """A user's own, which says by itself what a test keeps."""

    def initialize(self, conf: Any, context: Any) -> None:
        raise AssertionError("a test must not come here")

    def process(self, tup: Tuple) -> None: ...

    @classmethod
    def kept_in_tests(cls, kwargs: Mapping[str, Any], component: str) -> Any:
        def make(batch: Batch) -> tuple[list[Any], dict[int, Exception]]:
            return [f"{component}: {row[0]}" for row in batch.rows], {}

        return make


def test_a_bolt_of_ones_own_may_say_what_is_kept() -> None:
    class Storing(Topology):
        orders = Orders.spec()
        store = Store.spec(inputs=[orders])

    with TopologyTester(Storing, {"orders": [["ann", "x"]]}) as test:
        test.run()
        assert test.written("store") == ["store: ann"]


def test_what_is_no_writing_bolt_is_refused_in_words() -> None:
    with TopologyTester(Enriching, {"orders": []}) as test:
        with pytest.raises(BadInput, match=r"enrich writes nothing that a test keeps.*Those that do: 'out'"):
            test.written("enrich")
        with pytest.raises(BadInput, match="no component 'nosuch'"):
            test.written("nosuch")
    with pytest.raises(BadInput, match=r"KafkaBolt writes to Kafka.*TopologyTester\(YourTopology"):
        BoltTester(Enriching.out)
    with pytest.raises(BadInput, match=r"out is a bolt.*written\('out'\)"):
        TopologyTester(Enriching, {"orders": [], "out": []})
