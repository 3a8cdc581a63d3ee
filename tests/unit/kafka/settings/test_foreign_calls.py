"""Names that users of other clients type are answered with ours."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import streamlet.kafka
from streamlet.base.errors import WrongArgument
from streamlet.kafka import Admin, Consumer, NewTopic, Producer, errors
from streamlet.kafka.settings.foreign_names import _OTHERS, GUIDE
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S

SERVERS = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("theirs", "ours"), [("KafkaProducer", "Producer"), ("KafkaConsumer", "Consumer"), ("KafkaAdminClient", "Admin")]
)
def test_importing_another_clients_class_names_ours_and_the_page(theirs: str, ours: str) -> None:
    said = rf"^streamlet\.kafka has no {theirs}: streamlet\.kafka\.{ours} takes the same settings; .*{GUIDE}`"
    with pytest.raises(ImportError, match=said):
        exec(f"from streamlet.kafka import {theirs}")
    assert hasattr(streamlet.kafka, ours) and (ROOT / "docs" / "guide" / f"{GUIDE}.md").is_file()


@pytest.mark.parametrize("module", ["producer", "consumer", "admin"])
def test_another_clients_class_is_answered_in_each_package(module: str) -> None:
    said = rf"^streamlet\.kafka\.{module} has no KafkaProducer: streamlet\.kafka\.Producer .*`streamlet docs {GUIDE}`"
    with pytest.raises(ImportError, match=said):
        exec(f"from streamlet.kafka.{module} import KafkaProducer")
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec(f"from streamlet.kafka.{module} import Nothing")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("NoBrokersAvailable", "streamlet.kafka.errors.BootstrapFailed"),
        ("KafkaTimeoutError", "streamlet.kafka.errors.ClientTimeout"),
        ("KafkaConnectionError", "streamlet.kafka.errors.Disconnected"),
        ("AuthenticationFailedError", "streamlet.kafka.errors.AuthenticationFailed"),
        ("UnsupportedVersionError", "streamlet.kafka.errors.UnsupportedVersion"),
        ("MessageSizeTooLargeError", "streamlet.kafka.producer.errors.RecordTooLarge"),
        ("CommitFailedError", "streamlet.kafka.consumer.errors.CommitFailed"),
        ("TopicAlreadyExistsError", "streamlet.kafka.broker_errors.TopicAlreadyExists"),
        ("UnknownTopicOrPartitionError", "streamlet.kafka.broker_errors.UnknownTopicOrPartition"),
        ("NotLeaderForPartitionError", "streamlet.kafka.broker_errors.NotLeaderOrFollower"),
        ("GroupCoordinatorNotAvailableError", "streamlet.kafka.broker_errors.CoordinatorNotAvailable"),
        ("KafkaStorageError", "streamlet.kafka.broker_errors.KafkaStorageError"),
        ("UnsupportedCodecError", "streamlet.kafka.errors.CorruptRecord"),
        ("UnrecognizedBrokerVersion", "streamlet.kafka.errors.UnsupportedVersion"),
    ],
)
def test_importing_another_clients_error_names_ours(theirs: str, ours: str) -> None:
    said = rf"^streamlet\.kafka\.errors has no {theirs}: it is called {re.escape(ours)} here; `streamlet docs {GUIDE}`"
    with pytest.raises(ImportError, match=said):
        exec(f"from streamlet.kafka.errors import {theirs}")
    module, _, name = ours.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), name), streamlet.kafka.KafkaError)


@pytest.mark.parametrize(
    ("theirs", "instead"),
    [
        ("ConsumerTimeout", "consumer_timeout_ms"),
        ("StaleMetadata", "stale_metadata"),
        ("TooManyInFlightRequests", "waits for its turn"),
        ("RetriableError", "retriable"),
        ("AuthorizationError", "TopicAuthorizationFailed"),
    ],
)
def test_an_error_without_a_counterpart_is_answered_with_what_there_is(theirs: str, instead: str) -> None:
    with pytest.raises(ImportError, match=rf"has no {theirs}: .*{instead}.*`streamlet docs {GUIDE}`"):
        exec(f"from streamlet.kafka.errors import {theirs}")


def test_every_broker_error_of_kafka_python_is_answered() -> None:
    """It names the codes as Java's protocol did over the years: with the constant's words, or an older name."""
    table = ROOT / "tests" / "unit" / "kafka" / "golden" / "errors.txt"
    constants = [line.split()[1] for line in table.read_text().splitlines()]
    older = [
        "InvalidTxnState",
        "InvalidConfiguration",
        "NotCoordinatorForGroup",
        "GroupLoadInProgress",
        "RequestTimedOut",
    ]
    titles = [name.title().replace("_", "") for name in constants if name not in ("NONE", "INVALID_TOPIC_EXCEPTION")]
    for name in [*titles, *older]:
        theirs = name if name.endswith("Error") else f"{name}Error"
        with pytest.raises(ImportError, match=f"no {theirs}: "):
            exec(f"from streamlet.kafka.errors import {theirs}")


def test_a_broker_error_is_answered_though_nothing_else_was_imported_before() -> None:
    """The import of an error is the first line of most programs: by then no other module has made the classes known."""
    program = "from streamlet.kafka.errors import TopicAlreadyExistsError"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "it is called streamlet.kafka.broker_errors.TopicAlreadyExists here" in done.stderr


def test_each_error_that_is_named_is_there() -> None:
    for theirs, ours in errors._FOREIGN.items():
        module, _, name = ours.rpartition(".")
        assert hasattr(importlib.import_module(module), name), theirs


def test_each_name_beside_the_clients_that_is_named_is_there() -> None:
    named = [re.search(r"it is called (\S+)\.(\w+) here", ours) for ours in _OTHERS.values()]
    found = [one for one in named if one]
    assert len(found) > 5
    assert [one[0] for one in found if not hasattr(importlib.import_module(one[1]), one[2])] == []


def test_an_unknown_name_of_the_errors_is_an_ordinary_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from streamlet.kafka.errors import Nothing")
    with pytest.raises(ImportError, match="cannot import name 'NothingError'"):
        exec("from streamlet.kafka.errors import NothingError")


def test_an_unknown_name_of_the_package_is_an_ordinary_error() -> None:
    assert not hasattr(importlib.import_module("streamlet.kafka"), "Nothing")
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from streamlet.kafka import Nothing")


@pytest.mark.parametrize(
    ("client", "theirs", "ours"),
    [
        (Admin, "describe_consumer_groups", "describe_groups"),
        (Admin, "list_consumer_groups", "list_groups"),
        (Admin, "list_consumer_group_offsets", "list_group_offsets"),
        (Admin, "delete_consumer_groups", "delete_groups"),
        (Admin, "reset_group_offsets", "alter_group_offsets"),
        (Admin, "topics", "list_topics"),
        (Admin, "incremental_alter_configs", "alter_configs"),
        (Consumer, "enforce_rebalance", "subscribe"),
        (Admin, "bootstrap_connected", "list_topics"),
        (Consumer, "bootstrap_connected", "topics"),
        (Producer, "bootstrap_connected", "partitions_for"),
        (Producer, "produce", "send"),
        (Consumer, "consume", "poll"),
        (Consumer, "get_watermark_offsets", "end_offsets"),
    ],
)
def test_another_clients_method_names_ours(client: type[Admin | Consumer | Producer], theirs: str, ours: str) -> None:
    start = f"'{client.__name__}' object has no attribute"
    with client(bootstrap_servers=SERVERS) as made:
        with pytest.raises(AttributeError, match=rf"^{start} '{theirs}': .*\b{ours}\b"):
            getattr(made, theirs)
        assert callable(getattr(made, ours))
        with pytest.raises(AttributeError, match=f"^{start} 'nothing'$"):
            _ = made.nothing  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("theirs", "tool"),
    [
        ("alter_replica_log_dirs", "kafka-reassign-partitions.sh"),
        ("describe_client_quotas", "kafka-configs.sh"),
    ],
)
def test_a_call_of_an_administrator_that_is_not_there_names_kafkas_tool(theirs: str, tool: str) -> None:
    said = rf"no attribute '{theirs}': .*{re.escape(tool)}.*`streamlet docs {GUIDE}`"
    with Admin(bootstrap_servers=SERVERS) as made, pytest.raises(AttributeError, match=said):
        getattr(made, theirs)


@pytest.mark.parametrize(("theirs", "ours"), [("topic_configs", "configs"), ("replica_assignments", "assignment")])
def test_another_clients_argument_of_a_new_topic_names_ours(theirs: str, ours: str) -> None:
    with pytest.raises(WrongArgument, match=f"NewTopic: {theirs} is called {ours} here"):
        NewTopic("t", **{theirs: {}})  # type: ignore[arg-type]
    assert NewTopic("t", **{ours: {"a": "1"} if ours == "configs" else {0: [1]}}).name == "t"  # type: ignore[arg-type]


def timed_calls() -> Iterator[Any]:
    for cls in (Admin, Consumer, Producer):
        for name, method in vars(cls).items():
            public = inspect.isfunction(method) and not name.startswith("_")
            if public and "timeout" in inspect.signature(method).parameters:
                yield pytest.param(cls, name, id=f"{cls.__name__}.{name}")


@pytest.mark.parametrize(("client", "name"), [*timed_calls()])
def test_a_time_out_in_milliseconds_is_answered_with_seconds(client: Any, name: str) -> None:
    with client(bootstrap_servers=SERVERS) as made:
        with pytest.raises(WrongArgument, match=rf"{client.__name__}\.{name}: timeout_ms .* timeout=1\.5"):
            getattr(made, name)(timeout_ms=1500)
        with pytest.raises(TypeError, match="nothing"):
            getattr(made, name)(nothing=1)


def test_every_client_has_calls_with_a_time_out() -> None:
    names = [each.id for each in timed_calls()]
    assert {"Admin.create_topics", "Consumer.commit", "Consumer.close", "Producer.flush", "Producer.close"} <= {*names}


def test_kafka_pythons_structs_are_where_they_were_or_name_ours() -> None:
    scope: dict[str, Any] = {}
    exec("from streamlet.kafka.structs import TopicPartition, OffsetAndMetadata, OffsetAndTimestamp", scope)
    assert scope["TopicPartition"] is streamlet.kafka.TopicPartition
    with pytest.raises(ImportError, match=rf"no BrokerMetadata: .*Broker.*`streamlet docs {GUIDE}`"):
        exec("from streamlet.kafka.structs import BrokerMetadata")
