"""What KafkaBolt.spec refuses, what a command line may change, what ``check`` finds in a topology."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Bolt, SettingError, Spout, Topology
from streamlet.bolts.kafka import KafkaBolt, KafkaBoltConfig
from streamlet.model.spec import ComponentSpec
from streamlet.model.validate import validate

HOSTS = "kafka://k1:9092,k2:9092"


def spec(**more: Any) -> ComponentSpec:
    return KafkaBolt.spec(**{"inputs": [], "hosts": HOSTS, "topic": "t", **more})


def config(**more: Any) -> KafkaBoltConfig:
    found: KafkaBoltConfig = spec(**more).kwargs["bolt_config"]
    return found


class Words(Spout):
    outputs = ["word", "count"]

    def next_tuple(self) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hosts": None}, "hosts is None. It is the brokers to write to"),
        ({"hosts": "zk://zk1:2181"}, "'zk://zk1:2181' is not a broker address"),
        ({"topic": None}, "neither topic nor topic_field is given"),
        ({"topic_field": "where"}, "both topic and topic_field are given"),
        ({"topic": 7}, "topic is 7; it is the name of a topic, or a function"),
        ({"topic": "a topic!"}, "topic = 'a topic!'.*Give a str of 1 to 249 letters"),
        (
            {"topic": None, "topic_field": max},
            "it is the name of a field; a function goes into `topic`",
        ),
        ({"key": 7}, "key is 7; it is the name of a field, or a function of the tuple"),
        ({"headers": {"a": 7}}, "headers is {'a': 7}; it is a dict such as"),
        ({"value_serializer": "avro"}, "value_serializer cannot be 'avro'"),
        ({"bootstrap_servers": "k:1"}, "bootstrap_servers cannot be set: the bolt's brokers are its hosts"),
        ({"linger": 5}, "KafkaBolt: .*linger.*linger_ms"),
        ({"acks": 2}, "acks = 2 is not possible"),
        ({"outputs": ["x"]}, "this bolt emits nothing"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_where_the_topology_is_written(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        spec(**wrong)


def test_hosts_are_text_with_or_without_its_kind_or_an_object_that_lists_them() -> None:
    class Hosts:
        bootstrap_servers = ("k1:9092", "k2:9092")

    assert config().servers == ("k1:9092,k2:9092",)
    assert config(hosts="k1:9092").servers == ("k1:9092",)
    assert config(hosts=Hosts()).servers == ("k1:9092", "k2:9092")


def test_a_command_line_changes_own_and_producers_settings() -> None:
    changed = KafkaBolt.with_overrides(
        {"bolt_config": config(key="word", linger_ms=3)},
        {"hosts": "kafka://k9:1", "topic": "u", "linger_ms": "5", "enable_idempotence": "false", "acks": "1"},
    )["bolt_config"]
    assert (changed.servers, changed.topic, changed.key) == (("k9:1",), "u", "word")
    producer = changed.producer_config()
    assert (producer.linger_ms, producer.enable_idempotence, producer.acks_number) == (5, False, 1)
    assert KafkaBolt.with_overrides({"bolt_config": config()}, {"topic_field": "where"})["bolt_config"].topic is None
    codec = KafkaBolt.with_overrides({"bolt_config": config()}, {"compression_type": "none"})["bolt_config"]
    assert codec.producer_config().compression_type == "none"


def test_all_that_is_wrong_is_said_at_once_a_line_each() -> None:
    """What the bolt refuses, and what its producer does; nothing twice, nothing that the rest makes right."""
    wrong = {"key": 7, "acks": 2, "linger_ms": -1, "retry_backoff_ms": 5000, "retry_backoff_max_ms": "x"}
    with pytest.raises(SettingError) as caught:
        KafkaBolt.spec(
            inputs=["x"], topic="no such/name", hosts=7, bootstrap_servers="k:1", value_serializer="avro", **wrong
        )
    lines = caught.value.message.split("\n")
    assert all(line.startswith("KafkaBolt: ") for line in lines)
    begins = [line.removeprefix("KafkaBolt: ").split()[0] for line in lines]
    assert sorted(begins) == sorted(
        ["topic", "key", "value_serializer", "bootstrap_servers", "hosts", "acks", "linger_ms", "retry_backoff_max_ms"]
    ), lines


def test_a_contradiction_of_two_settings_is_one_problem() -> None:
    with pytest.raises(SettingError) as caught:
        KafkaBolt.spec(
            inputs=["x"], topic="t", hosts="kafka://k:1", retry_backoff_ms=9, retry_backoff_max_ms=5, batch_size=-1
        )
    assert len(caught.value.message.split("\n")) == 2


def test_no_password_and_no_code_is_taken_from_a_command_line() -> None:
    assert {"ssl_password", "sasl_plain_password", "partitioner", "headers"}.isdisjoint(KafkaBolt.override_keys())
    with pytest.raises(SettingError, match=r"linger_ms = '5x' must be a whole number"):
        config().with_text({"linger_ms": "5x"})


def test_each_setting_of_the_bolt_can_be_set_for_a_run_or_in_the_topology_alone() -> None:
    """And a value of a wrong kind is refused in words, whichever it is."""
    assert {"headers", "partitioner", "ssl_password", "ssl_context"} <= KafkaBolt.topology_keys()
    assert not KafkaBolt.override_keys() & KafkaBolt.topology_keys()
    for name in KafkaBolt.override_keys():
        with pytest.raises(SettingError, match=name):
            config().with_text({name: {"x": 1}})


def problems(overrides: dict[str, Any] | None = None, **more: Any) -> list[str]:
    class Counts(Topology):
        words = Words.spec()
        out = KafkaBolt.spec(inputs=[words], hosts=HOSTS, topic="t", **more)

    return [str(problem) for problem in validate(Counts.__topology__, {"out": overrides or {}}, imported=False)]


def test_check_names_a_transactional_id_without_exactly_once() -> None:
    said = "out: transactional_id is given, and topology.delivery is not exactly-once: records belong to no transaction"
    for found in (problems(value="count", transactional_id="a"), problems({"transactional_id": "a"}, value="count")):
        assert len(found) == 1 and found[0].startswith(said), found
    assert problems({"transactional_id": "none"}, value="count", transactional_id="a") == []


def test_check_names_fields_that_a_stream_does_not_have() -> None:
    assert problems(key="word", value="count") == []
    assert problems(key="wrd", value="count", headers={"a": "b"}) == [
        "out: key is the field 'wrd', and words has no such field. It has: 'word', 'count'. Name one of its fields, or "
        "give key a function of the tuple.",
        "out: the header 'a' is the field 'b', and words has no such field. It has: 'word', 'count'. Name one of its "
        "fields, or give the header 'a' a function of the tuple.",
    ]
    assert problems(key="word") == [
        "out: value is not given, and words has 2 fields: 'word', 'count'. Say which one is the record's value, as in "
        'value="count", or give a function of the tuple.'
    ]


def test_check_looks_at_the_fields_that_a_command_line_names() -> None:
    assert problems({"key": "count"}, value="word") == []
    (said,) = problems({"key": "wrd"}, value="word")
    assert said.startswith("out: key is the field 'wrd', and words has no such field.")
    (said,) = problems({"linger": "5"}, key="word", value="word")
    assert said.startswith("out: It has no setting 'linger' that a run could change. Did you mean 'linger_ms'?")


def test_a_bolt_of_the_users_is_asked_for_nothing() -> None:
    class Plain(Bolt):
        def process(self, tup: Any) -> None: ...

    class Counts(Topology):
        words = Words.spec()
        out = Plain.spec(inputs=[words])

    assert validate(Counts.__topology__, imported=False) == []
