"""A run over Avro records whose registry is away, comes back, and lacks one schema."""

from __future__ import annotations

import io
import json
import threading
import time
from typing import Any

import fastavro
import pytest

from streamlet import Bolt, RunResult, Topology, Tuple
from streamlet.spouts.kafka import AvroScheme, KafkaHosts, KafkaSpout, SchemaRegistry, SpoutConfig
from tests.patience import PATIENCE_S
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.schema_registry_server import RegistryServer, registry_server
from tests.whole_batches import BatchFields, NewRecord, encode_batch

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "user", "type": "string"}]}
AWAY_S = 1.5


def framed(schema_id: int, user: str) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, ORDER, {"user": user})
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def bring_back(server: RegistryServer) -> None:
    """Let the registry answer, a while after it was first asked: a run may take its time to begin."""
    deadline = time.monotonic() + PATIENCE_S
    while not server.asked and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(AWAY_S)
    server.status = None


def run(cluster: FakeCluster, server: RegistryServer, record: list[str]) -> tuple[list[str], RunResult]:
    seen: list[str] = []

    class See(Bolt):
        def process(self, tup: Tuple) -> None:
            seen.append(tup.values[0])

    class Orders(Topology):
        orders = KafkaSpout.spec(
            config=SpoutConfig(
                KafkaHosts(cluster.broker.address),
                "orders",
                id="avro",
                scheme=AvroScheme(["user"], registry=SchemaRegistry(server.url), record=record),
                on_poison="skip",
            )
        )
        see = See.spec(inputs=[orders])

    return seen, Orders.run(backend="inline", until_caught_up=True)


@pytest.mark.parametrize("record", [[], ["offset"]], ids=["columns", "records"])
def test_while_the_registry_is_away_no_record_is_given_up_and_then_all_come(
    record: Any, caplog: pytest.LogCaptureFixture
) -> None:
    users = [f"u{number}" for number in range(300)]
    with FakeCluster({"orders": 1}) as cluster, registry_server() as server:
        for begin in range(0, 300, 50):
            records = [NewRecord(framed(1, user)) for user in users[begin : begin + 50]]
            cluster.log("orders", 0).append(encode_batch(records, BatchFields()))
        cluster.log("orders", 0).append(encode_batch([NewRecord(framed(99, "lost")), NewRecord(b"{}")], BatchFields()))
        server.schemas[1] = {"schema": json.dumps(ORDER)}
        server.status = 503
        back = threading.Thread(target=bring_back, args=(server,))
        back.start()
        seen, result = run(cluster, server, record)
        back.join()
        committed = {key: row.committed_offset for key, row in cluster.committed.items()}
    assert seen == users
    assert list(committed.values()) == [302]
    said = [row.getMessage() for row in caplog.records]
    assert [("status 503" in one) for one in said if "waits at offset" in one][:1] == [True]
    assert sum("passed over (on_poison=skip)" in one for one in said) == 2
    # It waits once for a second look at an id that the registry does not know, and is then passed over.
    unknown = [one for one in said if "its schema id is 99" in one]
    assert ["waits at offset" in one for one in unknown] == [True, False]
    assert 1 <= server.asked.count("/schemas/ids/1") <= 5
    assert result.reason == "caught_up"
