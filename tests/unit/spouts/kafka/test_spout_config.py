"""Settings: defaults, derived choices, and one paragraph for each that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka.hosts import KafkaHosts, StaticHosts, ZkHosts
from streamlet.spouts.kafka.scheme import RawScheme
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, ZkOffsets, override_names

ZK = ZkHosts("127.0.0.1:2181")
KAFKA = KafkaHosts("k1:9092,k2")


def config(**changes: Any) -> SpoutConfig:
    return SpoutConfig(**{"hosts": ZK, "topic": "lines", "zk_root": "/streamlet", "id": "demo", **changes})


def test_storm_kafkas_own_four_are_enough() -> None:
    made = SpoutConfig(ZK, "lines", "/streamlet", "demo")
    assert made.offsets() == ZkOffsets("127.0.0.1:2181")
    assert made.state_update_interval_ms == 2000
    assert made.fail_on_data_loss
    assert made.fetch_min_bytes == 1
    assert hash(made) is not None


def test_the_offset_store_follows_the_hosts() -> None:
    assert config(hosts=KAFKA, zk_root="").offsets() == GroupOffsets("demo")
    assert config(hosts=KAFKA, offset_store=GroupOffsets("team")).offsets() == GroupOffsets("team")
    assert config(hosts=KAFKA, offset_store=ZkOffsets("z:1")).offsets() == ZkOffsets("z:1")
    with pytest.raises(SettingError, match="StaticHosts does not say where offsets are kept"):
        config(hosts=StaticHosts({0: "k1"}))


def test_hosts_are_parsed() -> None:
    assert KAFKA.bootstrap_servers == ("k1:9092", "k2:9092")
    assert str(StaticHosts({1: "k1"}).brokers[1]) == "k1:9092"
    for wrong in (
        lambda: KafkaHosts(""),
        lambda: ZkHosts(" "),
        lambda: StaticHosts({}),
        lambda: StaticHosts({-1: "k"}),
    ):
        with pytest.raises(SettingError):
            wrong()


def test_start_offset_in_its_three_shapes() -> None:
    assert config(start_offset="latest").start_policy().where == "latest"
    assert config(start_offset=1000).start_timestamp_ms() == 1000
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert config(start_offset=noon).start_timestamp_ms() == 1_767_268_800_000
    assert config().start_timestamp_ms() is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hosts": "127.0.0.1"}, "hosts is '127.0.0.1'"),
        ({"topic": ""}, "name of the Kafka topic"),
        ({"id": ""}, "needs one of its own"),
        ({"id": "a/b"}, "word without slashes"),
        ({"zk_root": ""}, "zk_root is ''"),
        ({"zk_root": "/a//b"}, "zk_root is '/a//b'"),
        ({"zk_root": "/a/../b"}, "such as"),
        ({"fetch_min_bytes": 0}, "fetch_min_bytes cannot be 0: it is a whole number of at least 1"),
        ({"buffer_size_bytes": 1 << 31}, "it is a whole number of at most 2147483647"),
        ({"start_offset": 99999999999999999999}, "start_offset cannot be 99999999999999999999"),
        ({"fetch_size_bytes": True}, "fetch_size_bytes cannot be True"),
        ({"fetch_size_bytes": "1"}, "fetch_size_bytes cannot be '1'"),
        ({"buffer_size_bytes": 10}, "cannot hold one fetch"),
        ({"fetch_max_wait_ms": 10_000}, "would look like a dead broker"),
        ({"retry_delay_multiplier": 0.5}, "would shrink"),
        ({"retry_delay_max_ms": 1}, "retry_initial_delay_ms is more"),
        ({"on_poison": "ignore"}, '"stop" or "skip"'),
        ({"fail_on_data_loss": "no"}, "True or False"),
        ({"start_offset": "newest"}, "start_offset cannot be 'newest'"),
        ({"start_offset": datetime(2026, 1, 1)}, "with a time zone"),
        ({"scheme": 3}, "A scheme is an object"),
        ({"hosts": KAFKA, "offset_store": ZkOffsets()}, "but in which"),
    ],
)
def test_what_is_wrong_is_said_in_a_paragraph(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError) as refused:
        config(**changes)
    assert text in refused.value.message
    assert refused.value.exit_status == 2


def test_settings_can_be_given_as_text() -> None:
    made = config().with_text(
        {"fetch_size_bytes": "65536", "fail_on_data_loss": "false", "start_offset": "latest", "id": "x"}
    )
    assert (made.fetch_size_bytes, made.fail_on_data_loss, made.start_offset, made.id) == (
        65536,
        False,
        "latest",
        "x",
    )
    assert config().with_text({"start_offset": "1700000000000"}).start_offset == 1_700_000_000_000
    assert config().with_text({"start_offset": "2026-01-01T00:00:00+00:00"}).start_timestamp_ms() is not None
    with pytest.raises(SettingError, match="a whole number of at least 1"):
        config().with_text({"fetch_size_bytes": "many"})
    assert "topic" in override_names()
    assert "hosts" in override_names() and "scheme" not in override_names()


def test_a_scheme_may_be_given_as_a_class() -> None:
    assert isinstance(config(scheme=RawScheme).scheme, RawScheme)


def test_k9_2_a_spout_reads_one_topic() -> None:
    """A topology may have several spouts; several topics in one would need several of everything."""
    with pytest.raises(SettingError, match="name of the Kafka topic"):
        config(topic=["a", "b"])
