"""What is no setting of the client's: whose it is, what it is called, or why there is none; in one paragraph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.kafka import Admin, ClientConfig, Consumer, ConsumerConfig, Producer, ProducerConfig
from streamlet.kafka.admin import AdminConfig
from streamlet.kafka.settings.foreign_names import _ABSENT, _RENAMED, PAGE, unknown

SERVERS = "127.0.0.1:1"
CONFIGS: Mapping[Callable[..., Any], type[ClientConfig]] = {
    Producer: ProducerConfig,
    Consumer: ConsumerConfig,
    Admin: AdminConfig,
}


def refused(client: Callable[..., Any], **settings: Any) -> str:
    """What the client's constructor says of these."""
    with pytest.raises(SettingError) as caught:
        client(**{"bootstrap_servers": SERVERS, **settings})
    assert "\n" not in caught.value.message and len(caught.value.message) < 400
    return caught.value.message


@pytest.mark.parametrize(
    ("client", "name", "says"),
    [
        (Producer, "group_id", "'group_id' is a setting of the Consumer, and none of the Producer: leave it out here."),
        (Producer, "enable.auto.commit", "'enable.auto.commit' is a setting of the Consumer, and none of the Producer"),
        (Producer, "value_deserializer", "and none of the Producer: the one here is value_serializer."),
        (Producer, "consumer_timeout_ms", "is a setting of the Consumer"),
        (Producer, "default_api_timeout_ms", "the Consumer, and none of the Producer: the one here is max_bl"),
        (Consumer, "acks", "'acks' is a setting of the Producer, and none of the Consumer: leave it out here."),
        (Consumer, "linger.ms", "is a setting of the Producer"),
        (Consumer, "value_serializer", "and none of the Consumer: the one here is value_deserializer."),
        (Consumer, "max_block_ms", "and none of the Consumer: the one here is default_api_timeout_ms."),
        (Admin, "acks", "'acks' is a setting of the Producer, and none of the Admin: leave it out here."),
        (Admin, "group.id", "is a setting of the Consumer, and none of the Admin"),
    ],
)  # fmt: skip
def test_a_setting_of_another_client_is_answered_with_ours(client: Callable[..., Any], name: str, says: str) -> None:
    assert says in refused(client, **{name: "x"})


@pytest.mark.parametrize(
    ("client", "name", "says"),
    [
        (Producer, "compression.codec", "it is called compression_type here."),
        (Consumer, "compression_codec", "it is called compression_type here, and is a setting of the Producer."),
        (Producer, "message.max.bytes", "it is called max_request_size here."),
        (Producer, "queue_buffering_max_kbytes", "it is called buffer_memory here (in bytes)."),
        (Consumer, "metadata.broker.list", "it is called bootstrap_servers here."),
        (Admin, "ssl.ca.location", "it is called ssl_cafile here."),
    ],
)
def test_a_name_that_others_have_for_it(client: Callable[..., Any], name: str, says: str) -> None:
    assert refused(client, **{name: "x"}) == f"Unknown client setting {name!r}: {says}"


@pytest.mark.parametrize(
    ("client", "name", "says"),
    [
        (Producer, "api_version", "agreed on with each broker by itself; leave it out"),
        (Producer, "on_delivery", "add_callback"),
        (Producer, "interceptor.classes", "there are no interceptors"),
        (Consumer, "topics", r"Consumer\('lines', group_id='g'\)"),
        (Consumer, "zookeeper.connect", "give bootstrap_servers"),
        (Admin, "sasl.jaas.config", "sasl_plain_username"),
        (Admin, "ssl_ciphers", "give that as ssl_context"),
    ],
)
def test_a_setting_that_there_is_not_says_why(client: Callable[..., Any], name: str, says: str) -> None:
    with pytest.raises(SettingError, match=f"There is no setting '{name}': .*{says}"):
        client(bootstrap_servers=SERVERS, **{name: "x"})


def test_a_slip_of_the_pen_has_few_near_names_and_the_page() -> None:
    """Never the whole list; nothing at all where nothing is like it."""
    assert (
        refused(Producer, ack="all")
        == f"Unknown client setting 'ack': the nearest one is acks. `streamlet docs {PAGE}` lists them all."
    )
    assert "the nearest ones are retry_backoff_ms, retry_backoff_max_ms" in refused(Producer, retry_backof_ms=1)
    assert "the nearest one is linger_ms" in refused(Producer, **{"linger.msx": 1})
    assert refused(Admin, zzz=1) == (
        f"Unknown client setting 'zzz', and no name of the Admin is like it: `streamlet docs {PAGE}` lists them all."
    )


def test_dotted_names_are_the_same_settings() -> None:
    """Kafka's own spelling is taken, and named as it was written when it is refused; both at once are one too many."""
    dotted = {"bootstrap.servers": SERVERS, "linger.ms": 5, "security.protocol": "PLAINTEXT", "max.block.ms": 7}
    config = ProducerConfig.of(dotted)
    assert (config.linger_ms, config.max_block_ms) == (5, 7)
    assert "linger_ms is given twice, as 'linger.ms' too" in refused(Producer, **{"linger_ms": 1, "linger.ms": 2})


def test_every_word_of_the_tables_is_true() -> None:
    """What a name is said to be called is a setting, and no name that is said not to be there is one."""
    names = {kind: {field.name for field in dataclasses.fields(kind)} for kind in CONFIGS.values()}
    every = set().union(*names.values())
    assert {right.partition(", ")[0] for right in _RENAMED.values()} <= every
    assert not every & (set(_RENAMED) | set(_ABSENT)) and not set(_RENAMED) & set(_ABSENT)
    for name in (*_RENAMED, *_ABSENT):
        assert unknown(name, "Producer", names[ProducerConfig], {}).endswith(".")


@pytest.mark.parametrize(
    ("client", "settings", "says"),
    [
        (Producer, {"acks": 2}, "acks = 2 is not possible: choose 'all'"),
        (Producer, {"acks": True}, "acks = True is not possible"),
        (Producer, {"acks": [1]}, "acks = [1] is not possible"),
        (Producer, {"compression_type": "brotli"}, "choose from none, gzip, snappy, lz4, zstd."),
        (Producer, {"partitioner": 3}, "partitioner = 3 is not a partitioner: choose from uniform_sticky, "),
        (Producer, {"partitioner": "round"}, "partitioner = 'round' is not a partitioner"),
        (Producer, {"key_serializer": 5}, "key_serializer = 5 must be a function"),
        (Producer, {"value_serializer": "utf-8"}, "value_serializer = 'utf-8' must be a function"),
        (Producer, {"buffer_memory": 10}, "buffer_memory = 10 must be a whole number of at least "),
        (Producer, {"buffer_memory": 10_000}, "batch_size = 16384 is greater than buffer_memory = 10000"),
        (Producer, {"max_request_size": 1}, "max_request_size = 1 must be"),
        (Consumer, {"default_api_timeout_ms": 0}, "default_api_timeout_ms = 0 must be a whole number of at least 1"),
        (Admin, {"default_api_timeout_ms": 0}, "default_api_timeout_ms = 0 must be a whole number of at least 1"),
        (Consumer, {"partition_assignment_strategy": 5}, "partition_assignment_strategy = 5 must be a list"),
        (Consumer, {"partition_assignment_strategy": "range"}, "write ['range']"),
        (Consumer, {"auto_offset_reset": "smallest"}, "auto_offset_reset = 'smallest' is called 'earliest' here."),
        (Consumer, {"receive_message_max_bytes": 1024}, "fetch_max_bytes = 52428800 is greater than receive_mess"),
    ],
)  # fmt: skip
def test_a_value_that_can_never_work(client: Callable[..., Any], settings: dict[str, Any], says: str) -> None:
    """By the constructor, never by the first call."""
    message = refused(client, **settings)
    assert says in message and message.endswith(".")


@pytest.mark.parametrize("client", CONFIGS)
def test_settings_are_given_by_name(client: Callable[..., Any]) -> None:
    """One that a client of another library takes by place is told what to write."""
    given: list[object] = [{"bootstrap.servers": SERVERS}]
    given += [] if client is Consumer else [SERVERS]
    for one in given:
        with pytest.raises(TypeError, match=rf"{client.__name__}.*by name: .*bootstrap_servers="):
            client(one)
