"""JSON and Avro through a real topic: written by librdkafka, read as named fields."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from streamlet import Bolt, Topology, Tuple
from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import AvroScheme, JsonScheme, KafkaHosts, KafkaSpout, SchemaRegistry, SpoutConfig
from tests.scripted.schema_registry_server import registry_server

pytestmark = pytest.mark.real

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "user", "type": "string"}]}


def read(cluster: DevCluster, topic: str, scheme: Any, name: str) -> list[list[Any]]:
    rows: list[list[Any]] = []

    class See(Bolt):
        def process(self, tup: Tuple) -> None:
            rows.append(list(tup.values))

    class Orders(Topology):
        orders = KafkaSpout.spec(
            config=SpoutConfig(KafkaHosts(cluster.bootstrap_servers), topic, id=f"{topic}-{name}", scheme=scheme)
        )
        see = See.spec(inputs=[orders])

    result = Orders.run(backend="inline", until_caught_up=True)
    assert result.reason == "caught_up"
    return rows


def test_json_and_avro_of_another_client_become_named_fields(
    kafka4: DevCluster, make_topic: Callable[..., str]
) -> None:
    plain, avro = make_topic(kafka4), make_topic(kafka4)
    producer = Producer({"bootstrap.servers": kafka4.bootstrap_servers, "enable.idempotence": True})
    for number in range(500):
        order = {"user": f"u{number}"}
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, ORDER, order)
        producer.produce(plain, json.dumps(order), str(number), headers=[("h", b"\xff")])
        producer.produce(avro, b"\0\0\0\0\x05" + stream.getvalue(), str(number))
    assert producer.flush(60) == 0
    rows = read(kafka4, plain, JsonScheme(["user"], record=["key_text", "offset", "headers"]), "json")
    assert rows == [[f"u{number}", str(number), number, [["h", b"\xff"]]] for number in range(500)]
    with registry_server() as server:
        server.schemas[5] = {"schema": json.dumps(ORDER)}
        scheme = AvroScheme(["user"], registry=SchemaRegistry(server.url), record=["key_text"])
        assert read(kafka4, avro, scheme, "avro") == [[f"u{number}", str(number)] for number in range(500)]
        assert server.asked == ["/schemas/ids/5"]
