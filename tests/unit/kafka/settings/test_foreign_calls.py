"""Names that users of other clients type are answered with ours."""

from __future__ import annotations

import importlib

import pytest

import streamlet.kafka
from streamlet.base.errors import WrongArgument
from streamlet.kafka import Admin, Consumer, NewTopic, Producer
from streamlet.kafka.settings.foreign_names import GUIDE
from tests.docs.pages import ROOT

SERVERS = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("theirs", "ours"), [("KafkaProducer", "Producer"), ("KafkaConsumer", "Consumer"), ("KafkaAdminClient", "Admin")]
)
def test_importing_another_clients_class_names_ours_and_the_page(theirs: str, ours: str) -> None:
    with pytest.raises(
        ImportError, match=rf"no {theirs}: its {ours} takes the same settings; `streamlet docs {GUIDE}`"
    ):
        exec(f"from streamlet.kafka import {theirs}")
    assert hasattr(streamlet.kafka, ours) and (ROOT / "docs" / "guide" / f"{GUIDE}.md").is_file()


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
        (Admin, "bootstrap_connected", "list_topics"),
        (Consumer, "highwater", "end_offsets"),
        (Consumer, "bootstrap_connected", "topics"),
        (Producer, "bootstrap_connected", "partitions_for"),
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


@pytest.mark.parametrize("theirs", ["create_acls", "describe_acls", "delete_acls"])
def test_a_call_for_acls_names_kafkas_tool(theirs: str) -> None:
    said = rf"no attribute '{theirs}': .*kafka-acls\.sh.*`streamlet docs {GUIDE}`"
    with Admin(bootstrap_servers=SERVERS) as made, pytest.raises(AttributeError, match=said):
        getattr(made, theirs)


@pytest.mark.parametrize(("theirs", "ours"), [("topic_configs", "configs"), ("replica_assignments", "assignment")])
def test_another_clients_argument_of_a_new_topic_names_ours(theirs: str, ours: str) -> None:
    with pytest.raises(WrongArgument, match=f"NewTopic: {theirs} is called {ours} here"):
        NewTopic("t", **{theirs: {}})  # type: ignore[arg-type]
    assert NewTopic("t", **{ours: {"a": "1"} if ours == "configs" else {0: [1]}}).name == "t"  # type: ignore[arg-type]
