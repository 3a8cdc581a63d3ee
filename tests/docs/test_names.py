"""The page that maps names of other descriptions to ours: it has all of theirs, and ours are there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re

import pytest

from streamlet.kafka import ConsumerConfig, ProducerConfig
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from tests.docs.pages import ROOT, blocks
from tests.docs.test_mechanisms import found
from tests.docs.test_reference import rows

PAGE = (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in PAGE.split("\n## ")[1:]}
SETTINGS = {
    row.name
    for config in (ProducerConfig, ConsumerConfig, SpoutConfig, KafkaHosts)
    for row in dataclasses.fields(config)
}

THEIRS = {
    "The producer of Kafka 0.8": (
        *("Producer", "ProducerConfig", "KeyedMessage", "partKey", "producer.type", "sync", "async", "BlockingQueue"),
        *("ProducerSendThread", "EventHandler", "DefaultEventHandler", "handle", "serialize", "Encoder"),
        *("dispatchSerializedData", "partitionAndCollate", "dataPerBroker", "SyncProducer", "SyncProducer.send"),
        *("ProducerPool", "updateProducer", "BrokerPartitionInfo", "updateInfo", "ClientUtils.fetchTopicMetadata"),
        *("sendPartitionPerTopicCache", "Partitioner", "FailedToSendMessageException", "failedSendRate"),
        *("metadata.broker.list", "topic.metadata.refresh.interval.ms", "retry.backoff.ms"),
        *("message.send.max.retries", "key.hashCode % numPartitions", "send"),
    ),
    "Batches that expire, in Java's producer": (
        *("Sender", "runOnce", "sendProducerData", "RecordAccumulator", "Deque", "ProducerBatch", "createdMs"),
        *("InFlightBatches", "getExpiredInflightBatches", "expiredBatches", "hasReachedDeliveryTimeout"),
        *("deliveryTimeoutMs", "maybeUpdateNextBatchExpiryTime", "nextBatchExpiryTimeMs", "abortRecordAppends"),
        *("failBatch", "done", "isDone", "FinalState", "SUCCEEDED", "FAILED", "ABORTED", "IllegalStateException"),
        *("completeFutureAndFireCallbacks", "Thunk", "onCompletion", "produceFuture", "ProduceRequestResult"),
        *("maybeRemoveAndDeallocateBatch", "handleFailedBatch", "markSequenceUnresolved", "inRetry"),
        *("sensors.recordErrors", "TimeoutException"),
    ),
    "Java's consumer": (
        *(
            "KafkaConsumer",
            "subscribe",
            "assign",
            "poll",
            "pollOnce",
            "SubscriptionState",
            "subscription",
            "assignment",
        ),
        *("TopicPartitionState", "Fetcher", "sendFetches", "completedFetches", "PartitionAssignor"),
        *("ConsumerCoordinator", "ConsumerNetworkClient", "unsent", "ClientRequest", "RequestFuture", "addListener"),
        *("compose", "chain", "RequestFutureListener", "onSuccess", "RequestCompletionHandler", "onComplete"),
        *("RequestFutureCompletionHandler", "fireCompletion", "pendingCompletion", "ConcurrentLinkedQueue"),
        *("ZKRebalanceListener", "_consumer_offsets"),
    ),
    "storm-kafka's spout": (
        *("KafkaSpout", "IRichSpout", "open", "nextTuple", "ack", "fail", "SpoutConfig", "KafkaConfig", "StaticHosts"),
        *("ZkHosts", "Broker", "Partition", "host", "partition", "GlobalPartitionInformation", "partitionMap"),
        *("getOrderedPartitions", "BrokerReader", "getCurrentBrokers", "StaticBrokerReader", "ZkBrokerReader"),
        *("KafkaUtils.makeBrokerReader", "PartitionCoordinator", "getMyManagedPartitions", "getManager", "refresh"),
        *("ZkCoordinator", "_refreshFreqMs", "StaticCoordinator", "DynamicPartitionConnections", "getConnection"),
        *("unregister", "register(Partition)", "register(Broker, int)", "SimpleConsumer", "logPartitionMapping"),
        *("KafkaUtils.calculatePartitionsForTask", "getComponentTasks", "getThisTaskIndex", "_uuid"),
        *("TransactionalState", "PartitionManager", "next", "PartitionManager.ack", "PartitionManager.fail"),
        *("PartitionManager.commit", "lastCompletedOffset", "EmitState", "NO_EMITTED", "EMITTED_MORE_LEFT"),
        *("EMITTED_END", "FailedFetchException", "stateUpdateIntervalMs"),
    ),
    "Java's metadata and network client": (
        *("Metadata", "version", "needUpdate", "refreshBackoffMs", "metadataExpireMs", "lastRefreshMs"),
        *("lastSuccessfulRefreshMs", "listeners", "ClusterResourceListeners", "topics", "TOPIC_EXPIRY_MS"),
        *("topicExpiryEnabled", "needMetadataForAllTopics", "fetch", "update", "failedUpdate", "timeToNextUpdate"),
        *("requestUpdate", "Cluster", "isBootstrapConfigured", "nodes", "unauthorizedTopics", "internalTopics"),
        *("partitionsByTopicPartition", "partitionsByTopic", "availablePartitionsByTopic", "partitionsByNode"),
        *("nodesById", "clusterResource", "PartitionInfo", "leader", "replicas", "inSyncReplicas", "waitOnMetadata"),
        *("ClusterAndWaitTime", "awaitUpdate", "sender.wakeup", "TopicAuthorizationException", "NetworkClient"),
        *("NetworkClient.poll", "maybeUpdate", "metadataFetchInProgress", "leastLoadedNode", "canSendRequest"),
        *("canConnect", "isAnyNodeConnecting", "initiateConnect", "initConnect", "sendInternalMetadataRequest"),
        *("doSend", "handleCompletedMetadataResponse", "handleAbortedSends", "handleCompletedSends"),
        *("handleCompletedReceives", "handleDisconnections", "handleConnections"),
        *("handleInitiateApiVersionRequests", "handleTimedOutRequests"),
    ),
}
"""The names that the five descriptions use, by the section that answers them."""


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def is_there(name: str) -> bool:
    """Whether a dotted name below ``streamlet`` is a module, or is in one: also as an attribute that is set later."""
    with contextlib.suppress(AssertionError, AttributeError):
        found(f"streamlet.{name}")
        return True
    owner, _, attribute = name.rpartition(".")
    with contextlib.suppress(AssertionError, AttributeError, ValueError):
        cls = found(f"streamlet.{owner}")
        set_later = rf"^ +(self\.)?{attribute}\b.*[:=]"
        return inspect.isclass(cls) and bool(re.search(set_later, inspect.getsource(cls), re.MULTILINE))
    return False


@pytest.mark.parametrize("title", THEIRS)
def test_each_of_their_names_is_on_the_page(title: str) -> None:
    there = [name for cells in rows(SECTIONS[title]) for name in quoted(cells[0])]
    assert sorted(set(there)) == sorted(there), "a name is answered twice"
    assert sorted(THEIRS[title]) == sorted(there)


@pytest.mark.parametrize("title", THEIRS)
def test_each_of_our_names_is_in_the_code(title: str) -> None:
    """A name with a dot below ``streamlet``; one without is a setting of a client or of the spout."""
    table = rows(SECTIONS[title])
    assert len(table) > 15
    for cells in table:
        assert len(cells) == 3 and quoted(cells[1]), f"say what took the place of {cells[0]}"
        for name in quoted(cells[1]):
            assert is_there(name) if "." in name else name in SETTINGS, f"{title}: there is no {name}"


DRAWN_IN = ("producer", "expired-batches", "consumer", "kafka-spout", "metadata")
WORD = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")


@functools.cache
def known_words() -> set[str]:
    """Classes of ours, what requests are called, and the states of a group, which are the coordinator's."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "streamlet").rglob("*.py"))]
    classes = {
        word for text in texts for word in re.findall(r"^(?:class )?([A-Z]\w+)\b(?=[(:]| =)", text, re.MULTILINE)
    }
    requests = {"".join(part.capitalize() for part in key.name.split("_")) for key in ApiKey}
    return classes | requests | {"PreparingRebalance", "CompletingRebalance", "ZooKeeper"}


@pytest.mark.parametrize("guide", DRAWN_IN)
def test_each_name_in_a_drawing_is_in_the_code(guide: str) -> None:
    page = ROOT / "docs" / "guide" / f"{guide}.md"
    drawings = [block.text for block in blocks(page) if block.language in ("", "text")]
    assert drawings
    words = {word for text in drawings for word in WORD.findall(text)}
    assert sorted(words - known_words()) == []


def test_a_name_that_is_nowhere_in_the_code_is_found() -> None:
    sender = "kafka.producer.sender.Sender"
    assert is_there(f"{sender}.run_once") and is_there(f"{sender}.changed") and is_there("kafka.future")
    assert is_there("kafka.producer.batch_ledger.BatchLedger.on_wire")
    assert not any(
        map(is_there, (f"{sender}.runOnce", "kafka.producer.Sender.changed", "kafka.nothing", "nothing.at_all"))
    )


def test_the_page_is_linked_from_each_guide_that_it_speaks_of() -> None:
    for guide in ("producer", "expired-batches", "consumer", "kafka-spout", "metadata", "migrating-from-storm-kafka"):
        text = (ROOT / "docs" / "guide" / f"{guide}.md").read_text(encoding="utf-8")
        assert "(../reference/names.md" in text, guide
