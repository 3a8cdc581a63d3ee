"""What is said of a client that makes no progress, and when waiting is no use."""

from __future__ import annotations

import pytest

from streamlet.base.backoff import Backoff
from streamlet.kafka.broker_errors import InvalidTopic
from streamlet.kafka.client.diagnosis import (
    bootstrap_failed,
    connections,
    hopeless,
    metadata_timeout,
    no_metadata,
)
from streamlet.kafka.errors import (
    AuthenticationFailed,
    BootstrapFailed,
    ClientTimeout,
    Disconnected,
    ForeignProtocol,
    HungUp,
    KafkaError,
    UnsupportedVersion,
)
from streamlet.kafka.metadata.cluster import Broker, Cluster, PartitionInfo, TopicInfo
from streamlet.kafka.net.connection_states import ConnectionState, ConnectionStates

ONE, TWO = Broker(1, "a", 9092), Broker(2, "b", 9093)
FOREIGN, REFUSED, GONE = (
    ForeignProtocol("it speaks HTTP."),
    AuthenticationFailed("no such user."),
    Disconnected("gone."),
)


def states(*errors: KafkaError | None) -> ConnectionStates:
    """Connections of the two brokers, with the last error of each."""
    found = ConnectionStates(Backoff(0.1, 1.0), Backoff(1.0, 1.0), lambda: 0.5)
    for broker, error in zip((ONE, TWO), errors, strict=False):
        found.get(broker.address).last_error = error
    return found


@pytest.mark.parametrize("error", [FOREIGN, REFUSED, HungUp("h"), UnsupportedVersion("v")])
def test_waiting_is_no_use_where_every_broker_failed_for_good(error: KafkaError) -> None:
    assert hopeless([ONE, TWO], states(error, FOREIGN), started=False) is error


def test_a_broker_that_is_only_down_may_come_up() -> None:
    """The other one speaks another protocol: that may be a wrong address of several."""
    assert hopeless([ONE, TWO], states(FOREIGN, GONE), started=False) is None
    assert hopeless([ONE, TWO], states(GONE, GONE), started=False) is None


def test_a_broker_that_was_not_tried_yet_may_be_the_right_one() -> None:
    assert hopeless([ONE, TWO], states(REFUSED, None), started=False) is None


@pytest.mark.parametrize("errors", [(REFUSED, GONE), (GONE, REFUSED)])
def test_a_refused_user_is_refused_though_another_broker_is_down(errors: tuple[KafkaError, ...]) -> None:
    assert hopeless([ONE, TWO], states(*errors), started=False) is REFUSED
    assert hopeless([ONE, TWO], states(*errors), started=True) is REFUSED


def test_a_connection_that_is_being_made_again_is_waited_for() -> None:
    """After a refusal, too: the password may have been corrected meanwhile."""
    found = states(REFUSED, GONE)
    found.get(ONE.address).state = ConnectionState.CONNECTING
    assert hopeless([ONE, TWO], found, started=True) is None


def test_once_there_was_metadata_a_foreign_protocol_is_a_broker_that_is_down() -> None:
    """Its port went to another program; the cluster is expected back."""
    assert hopeless([ONE, TWO], states(FOREIGN, FOREIGN), started=True) is None
    assert hopeless([ONE, TWO], states(REFUSED, REFUSED), started=True) is REFUSED


def test_each_bootstrap_address_stands_with_its_cause() -> None:
    error = bootstrap_failed([ONE, TWO], states(FOREIGN, None), 2.5)
    assert isinstance(error, BootstrapFailed)
    assert error.causes == {str(ONE): "it speaks HTTP", str(TWO): "it has not answered"}
    assert "within 2.5 s" in error.message and f"{ONE}: it speaks HTTP; {TWO}: it has not" in error.message


def test_each_connection_is_named_with_its_state_and_last_error() -> None:
    assert connections(states()) == "No connection has been begun."
    found = states(GONE)
    found.get(TWO.address).state = ConnectionState.READY
    text = connections(found)
    assert f"{ONE.address} is {ConnectionState.DISCONNECTED.value} (gone)" in text
    assert f"{TWO.address} is {ConnectionState.READY.value}." in text


def test_a_partition_beyond_the_last_is_told_from_a_topic_that_is_not_there() -> None:
    cluster = Cluster.of([ONE], [TopicInfo("t", partitions={0: PartitionInfo("t", 0)})])
    beyond = metadata_timeout(cluster, "t", 3, 1.0, "")
    assert isinstance(beyond, ClientTimeout)
    assert beyond.message.startswith("Partition 3 of topic 't' is not there after 1 s: the topic has 1 partition, numb")
    absent = metadata_timeout(cluster, "u", None, 1.0, "Connections: none.", "Nothing was sent.")
    assert absent.message.startswith("Topic 'u' is not in the metadata after 1 s: no broker has answered for it.")
    assert absent.message.endswith("Nothing was sent.")


def test_a_topics_own_error_is_the_one_that_is_raised() -> None:
    cluster = Cluster.of([ONE], [TopicInfo("no such", error=InvalidTopic)])
    error = metadata_timeout(cluster, "no such", None, 1.0, "")
    assert isinstance(error, InvalidTopic) and "Topic 'no such' cannot be used after a wait of 1 s" in error.message


def test_addresses_are_doubted_only_where_no_broker_is_known() -> None:
    assert "Check bootstrap_servers" in no_metadata(Cluster(), "r")
    assert "Check bootstrap_servers" not in no_metadata(Cluster.of([ONE]), "r")
