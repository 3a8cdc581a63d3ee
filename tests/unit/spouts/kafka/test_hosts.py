"""Hosts as a command line names them."""

from collections.abc import Callable

import pytest

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka import GroupOffsets, KafkaHosts, SpoutConfig, StaticHosts, ZkHosts, ZkOffsets
from streamlet.spouts.kafka.hosts import hosts_from_text

ZK = ZkHosts("zk:2181", "/chroot/brokers", 5.0)


def test_another_zookeeper_keeps_path_and_refresh() -> None:
    assert hosts_from_text("zk://a:1,b:2", ZK) == ZkHosts("a:1,b:2", "/chroot/brokers", 5.0)


def test_a_chroot_is_the_path_of_the_brokers() -> None:
    assert hosts_from_text("zk://a:1/other", ZK) == ZkHosts("a:1", "/other/brokers", 5.0)


def test_brokers_given_as_text_replace_a_zookeeper() -> None:
    assert hosts_from_text("kafka://a:1,b:2", ZK) == KafkaHosts("a:1,b:2")


def test_other_bootstrap_servers_keep_the_refresh() -> None:
    assert hosts_from_text("kafka://a:1", KafkaHosts("b:2", 7.0)) == KafkaHosts("a:1", 7.0)


def test_brokers_given_as_text_replace_static_hosts() -> None:
    assert hosts_from_text("kafka://a:1", StaticHosts({0: "b:2"})) == KafkaHosts("a:1")


@pytest.mark.parametrize(
    "text",
    ["a:1", "zk://", "kafka://", "http://a:1", "kafka://a:1/x", "kafka://a:x", "zk:a:1", "", "zk://a;b", "kafka://a;b"],
)
def test_text_that_names_no_hosts_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        hosts_from_text(text, ZK)


WRONG = "zk1:2181/streamlet,zk2:2181/streamlet"


@pytest.mark.parametrize(
    "said",
    [lambda: ZkHosts(WRONG), lambda: ZkOffsets(WRONG), lambda: hosts_from_text(f"zk://{WRONG}", ZK)],
    ids=["ZkHosts", "ZkOffsets", "text"],
)
def test_a_path_behind_each_zookeeper_is_refused_where_it_is_written(said: Callable[[], object]) -> None:
    """Before a connection, and on the command line too, where the path names the brokers'."""
    with pytest.raises(SettingError, match="Probably this is meant: zk1:2181,zk2:2181/streamlet"):
        said()


def test_the_offset_store_follows_hosts_given_as_text() -> None:
    """The offset store follows the hosts, unless the topology names one."""
    config = SpoutConfig(ZK, "lines", "/streamlet", "demo")
    assert config.with_text({"hosts": "zk://a:1"}).offsets() == ZkOffsets("a:1")
    moved = config.with_text({"hosts": "kafka://a:1", "topic": "other", "id": "second"})
    assert (moved.hosts, moved.topic, moved.offsets()) == (KafkaHosts("a:1"), "other", GroupOffsets("second"))
