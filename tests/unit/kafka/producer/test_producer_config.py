"""Settings of a producer: what follows from them, and those that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka.producer.producer_config import ProducerConfig
from streamlet.kafka.records.compression import Compression

SERVER = {"bootstrap_servers": "h:1"}


def of(**settings: Any) -> ProducerConfig:
    return ProducerConfig.of({**SERVER, **settings})


@pytest.mark.parametrize(("acks", "number"), [("all", -1), (-1, -1), ("-1", -1), (0, 0), ("0", 0), (1, 1), ("1", 1)])
def test_acks_have_one_number_whichever_way_they_are_written(acks: Any, number: int) -> None:
    assert of(acks=acks).acks_number == number


@pytest.mark.parametrize("acks", [2, True, 1.0, "every", None])
def test_acks_of_no_kind_are_refused(acks: Any) -> None:
    """True is 1 to Python: the leader alone would be waited for where somebody meant "yes, all"."""
    with pytest.raises(SettingError, match="choose 'all'"):
        of(acks=acks)


@pytest.mark.parametrize(
    ("settings", "idempotent"),
    [
        ({}, True),
        ({"acks": 1}, False),
        ({"retries": 0}, False),
        ({"max_in_flight_requests_per_connection": 6}, False),
        ({"enable_idempotence": False}, False),
        ({"transactional_id": "x"}, True),
    ],
)
def test_batches_are_numbered_unless_another_setting_rules_it_out(settings: dict[str, Any], idempotent: bool) -> None:
    assert of(**settings).idempotent is idempotent


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"enable_idempotence": True, "acks": 1}, "acks = 1 contradicts enable_idempotence = True, which needs acks"),
        ({"transactional_id": "x", "acks": 0}, "acks = 0 contradicts transactional_id"),
        ({"transactional_id": "x", "retries": 0}, "needs retries above 0"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "a broker remembers five batches"),
        ({"transactional_id": "x", "enable_idempotence": False}, "transactions stand on it"),
        ({"transactional_id": ""}, "transactional_id is empty"),
        ({"batch_size": 2_000_000, "buffer_memory": 1_000_000}, "no batch could ever be begun"),
        ({"delivery_timeout_ms": 1_000}, "a record could expire before its first answer is due"),
        ({"value_serializer": "utf-8"}, "must be a function of the value"),
        ({"compression_type": "rar"}, "gzip, snappy, lz4, zstd"),
        ({"partitioner": "rendezvous"}, "rendezvous"),
        ({"partition_failover": "some"}, "off, keyless, all"),
        ({"buffer_memory": 10}, "buffer_memory = 10"),
    ],
)
def test_settings_no_producer_can_have_are_refused_with_those_it_can(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as caught:
        of(**settings)
    assert words in caught.value.message and caught.value.message.endswith(".")


def test_a_long_linger_moves_the_default_deadline_and_never_one_that_was_given() -> None:
    """A default that stops being one by another setting would be refused for what nobody wrote."""
    assert of(linger_ms=100_000, request_timeout_ms=30_000).delivery_timeout_s == 130
    assert of().delivery_timeout_s == 120
    with pytest.raises(SettingError, match="linger_ms \\+ request_timeout_ms = 130000"):
        of(linger_ms=100_000, request_timeout_ms=30_000, delivery_timeout_ms=119_999)


def test_a_batch_is_ready_before_it_is_too_large_for_a_request() -> None:
    assert of(batch_size=16_384).batch_bytes == 16_384
    assert of(batch_size=9_000_000, max_request_size=1_000_000).batch_bytes == 1_000_000


@pytest.mark.parametrize(
    ("name", "codec"), [(None, Compression.NONE), ("none", Compression.NONE), ("zstd", Compression.ZSTD)]
)
def test_no_compression_has_two_names(name: Any, codec: Compression) -> None:
    assert of(compression_type=name).compression is codec
