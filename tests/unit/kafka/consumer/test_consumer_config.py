"""Settings of a consumer: those that contradict each other, and words of other clients."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka.consumer.consumer_config import READ_UNCOMMITTED, ConsumerConfig

SERVER = {"bootstrap_servers": "h:1"}


def of(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig.of({**SERVER, **settings})


def test_without_a_word_everything_is_as_in_java() -> None:
    """But for isolation and reset these are the figures that tools and brokers expect."""
    config = of()
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (45_000, 3_000)
    assert (config.max_poll_interval_ms, config.max_poll_records) == (300_000, 500)
    assert (config.auto_offset_reset, config.isolation_level) == ("latest", READ_UNCOMMITTED)
    assert config.enable_auto_commit and config.auto_commit_interval_ms == 5_000


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"heartbeat_interval_ms": 45_000}, "must be below session_timeout_ms = 45000"),
        ({"session_timeout_ms": 2_000}, "heartbeat_interval_ms = 3000 must be below session_timeout_ms = 2000"),
        ({"group_id": ""}, "is not a name of a group"),
        ({"group_instance_id": "i"}, "group_instance_id = 'i' needs a group_id"),
        ({"value_deserializer": "utf-8"}, "must be a function of bytes, as bytes.decode is"),
        ({"key_deserializer": 5}, "key_deserializer = 5 must be a function"),
        ({"partition_assignment_strategy": "range"}, "must be a list: write ['range']"),
        ({"partition_assignment_strategy": 5}, "write ['range', 'cooperative-sticky']"),
        ({"partition_assignment_strategy": []}, "name at least one assignor"),
        ({"auto_offset_reset": "smallest"}, "is called 'earliest' here"),
        ({"auto_offset_reset": "end"}, "is called 'latest' here"),
        ({"auto_offset_reset": "never"}, "earliest, latest, none"),
        ({"isolation_level": "serializable"}, "read_uncommitted, read_committed"),
        ({"max_poll_records": 0}, "max_poll_records = 0"),
        ({"group_protocol": "next"}, "group_protocol = 'next' is not possible: choose from classic, consumer"),
        ({"group_remote_assignor": "range"}, "is for group_protocol = 'consumer'"),
        ({"group_protocol": "consumer", "group_remote_assignor": ""}, "is not a name of an assignor"),
        ({"group_protocol": "consumer", "session_timeout_ms": 45_000}, "group.consumer.session.timeout.ms. Leave it"),
        ({"group.protocol": "consumer", "heartbeat.interval.ms": 3}, "group.consumer.heartbeat.interval.ms. Leave it"),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": ["range"]},
            "the coordinator shares out; group_remote_assignor names its assignor",
        ),
        ({"session_timeout_ms": 1 << 31}, "session_timeout_ms = 2147483648"),
        ({"fetch_max_bytes": 1 << 40}, "fetch_max_bytes"),
    ],
)
def test_settings_no_consumer_can_have_are_refused_with_those_it_can(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as caught:
        of(**settings)
    assert words in caught.value.message and caught.value.message.endswith(".")


def test_a_deserializer_is_a_function_or_has_the_method() -> None:
    class Text:
        def deserialize(self, topic: str, data: bytes) -> str:
            return data.decode()

    given = Text()
    assert of(value_deserializer=given, key_deserializer=bytes.decode).value_deserializer is given


def test_an_assignor_that_does_not_exist_is_refused_before_anything_joins() -> None:
    with pytest.raises(SettingError, match="rnage"):
        of(partition_assignment_strategy=["rnage"])
    assert of(partition_assignment_strategy=["range", "sticky"]).partition_assignment_strategy == ["range", "sticky"]


def test_the_newer_protocol_needs_nothing_but_its_name() -> None:
    config = of(group_id="g", group_protocol="consumer")
    assert (config.group_protocol, config.group_remote_assignor) == ("consumer", None)
    assert of(group_id="g").group_protocol == "classic"


def test_a_static_member_may_be_away_for_its_session() -> None:
    config = of(group_id="g", group_instance_id="i", session_timeout_ms=600_000)
    assert (config.group_instance_id, config.session_timeout_ms) == ("i", 600_000)
