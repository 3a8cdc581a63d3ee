"""Settings: defaults, derived choices, and one paragraph for each that is wrong."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.model.spec import ComponentSpec
from streamlet.model.stream import Stream
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.hosts import KafkaHosts, StaticHosts, ZkHosts
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.schemes.json_scheme import JsonScheme
from streamlet.spouts.kafka.schemes.scheme import RawScheme
from streamlet.spouts.kafka.spout import KafkaSpout
from streamlet.spouts.kafka.spout_config import GroupOffsets, SpoutConfig, StartPolicy, ZkOffsets, override_names

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


def test_start_offset_in_its_shapes() -> None:
    lines = Partition("lines", 0)
    assert config(start_offset="latest").start_policy(lines).where == "latest"
    assert config(start_offset=1_700_000_000_000).start_place(lines).timestamp_ms == 1_700_000_000_000
    assert config(start_offset=0).start_place(lines).timestamp_ms == 0
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert config(start_offset=noon).start_place(lines).timestamp_ms == 1_767_268_800_000
    assert config().start_place(lines).timestamp_ms is None
    named = config(start_offset={0: 7, ("lines", 1): noon, 2: "latest"})
    places = [named.start_place(Partition("lines", number)) for number in range(4)]
    assert list(map(str, places)) == ["offset 7", "timestamp 1767268800000", "latest", "earliest"]
    assert named.start_policy(lines) == StartPolicy("offset", offset=7)


def test_stop_offset_in_its_shapes() -> None:
    lines = Partition("lines", 0)
    assert config().stop_place(lines) is None
    assert str(config(stop_offset="latest").stop_place(lines)) == "latest"
    assert str(config(stop_offset=1_700_000_000_000).stop_place(lines)) == "timestamp 1700000000000"
    named = config(stop_offset={0: 7})
    assert [str(named.stop_place(Partition("lines", number))) for number in (0, 1)] == ["offset 7", "latest"]
    two = several(stop_offset={("a", 0): 7})
    assert [str(two.stop_place(Partition(topic, 0))) for topic in ("a", "b")] == ["offset 7", "latest"]
    assert str(config().with_text({"stop_offset": "latest"}).stop_place(lines)) == "latest"
    assert config().with_text({"stop_offset": "2026-01-01T00:00:00+00:00"}).stop_place(lines) is not None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stop_offset": "earliest"}, "stop_offset cannot be 'earliest'"),
        ({"stop_offset": "soon"}, "stop_offset cannot be 'soon'"),
        ({"stop_offset": datetime(2026, 1, 1)}, "a datetime with a time zone"),
        ({"stop_offset": {0: "earliest"}}, "of 0 it is 'earliest'"),
        ({"stop_offset": {0: -1}}, "of 0 it is -1"),
        ({"stop_offset": {-1: 1}}, "-1 names no partition"),
        ({"stop_offset": {"a": 1}}, "'a' names no partition"),
        ({"stop_offset": {("b", 0): 1}}, "('b', 0) is of a topic that the spout does not read"),
        ({"start_offset": {("lines", True): 1}}, "names no partition"),
        ({"start_offset": {0: datetime(2026, 1, 1)}}, "a datetime with a time zone"),
        ({"stop_offset": 5}, "stop_offset cannot be 5: a whole number is a time here"),
        ({"stop_offset": 0}, "by partition: {0: 0}"),
        ({"start_offset": 1000}, "by partition: {0: 1000}"),
        (
            {"start_offset": datetime(2026, 3, 1, tzinfo=UTC), "stop_offset": datetime(2026, 1, 1, tzinfo=UTC)},
            "start_offset is datetime.datetime(2026, 3, 1, 0, 0, tzinfo=datetime.timezone.utc), which is behind it",
        ),
        ({"start_offset": {0: 30}, "stop_offset": {0: 10}}, "start_offset is {0: 30}, which is behind it"),
        ({"start_offset": {0: 30, 1: 5}, "stop_offset": {0: 10, 1: 4}}, "nothing lies between"),
    ],
)
def test_places_that_are_none_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=re.escape(text)):
        config(**changes)


def test_bounds_that_cannot_be_compared_or_hold_records_are_taken() -> None:
    first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    both = [(first, last), ({0: 10}, {0: 30}), ({0: 30}, {1: 10}), ({0: 30}, first), ({0: first}, {0: 5})]
    idle = [(first, first), ({0: 0}, {0: 0}), ({0: 500, 1: 10}, {0: 500, 1: 20}), ({0: 30, 1: 1}, {0: 10, 1: 2})]
    for start, stop in both + idle:
        assert config(start_offset=start, stop_offset=stop).stop_offset == stop


def test_of_several_topics_a_place_names_its_topic() -> None:
    with pytest.raises(SettingError, match=r"0 names a partition without its topic"):
        several(stop_offset={0: 1})
    assert several(topics=(), topics_pattern="a.*", stop_offset={("ab", 0): 1}).stop_offset
    with pytest.raises(SettingError, match="does not read"):
        several(topics=(), topics_pattern="a.*", stop_offset={("b", 0): 1})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hosts": "127.0.0.1"}, "hosts is '127.0.0.1'"),
        ({"topic": ""}, "name of the Kafka topic"),
        (
            {"dead_letter_topic": "b!", "on_poison": "dead-letter"},
            "dead_letter_topic cannot be 'b!': no topic",
        ),
        ({"topic": "b!"}, "'b!' is a name that no topic of Kafka can have. A name has at most 249"),
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
        ({"on_poison": "ignore"}, '"stop", "skip" or "dead-letter"'),
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


def test_all_wrong_settings_of_a_spout_are_said_at_once_a_line_each() -> None:
    """Numbers are compared with one another only once each of them is a number that can be."""
    with pytest.raises(SettingError) as refused:
        config(retry_limit=-1, fetch_size_bytes="x", on_poison="x", fail_on_data_loss="x", start_offset="x")
    names = [line.split(": ")[1].split()[0] for line in refused.value.message.split("\n")]
    assert sorted(names) == ["fail_on_data_loss", "fetch_size_bytes", "on_poison", "retry_limit", "start_offset"]
    with pytest.raises(SettingError) as refused:
        config(buffer_size_bytes=1, fetch_max_wait_ms=10_000)
    assert len(refused.value.message.split("\n")) == 2


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
    assert (
        config().with_text({"start_offset": "2026-01-01T00:00:00+00:00"}).start_place(Partition("lines", 0)).where
        == "timestamp"
    )
    with pytest.raises(SettingError, match="a whole number of at least 1"):
        config().with_text({"fetch_size_bytes": "many"})
    assert "topic" in override_names()
    assert "hosts" in override_names() and "scheme" not in override_names()


@pytest.mark.parametrize("name", ["start_offset", "stop_offset"])
@pytest.mark.parametrize(
    ("of_one", "of_two"),
    [
        ('{"0": 20, "1": "latest"}', '{"a": {"0": 20, "1": "latest"}}'),  # with -c
        ({"0": 20, "1": "latest"}, {"a": {"0": 20, "1": "latest"}}),  # in a file of settings
        ({0: 20, 1: "latest"}, {("a", 0): 20, ("a", 1): "latest"}),  # from Python
    ],
)
def test_places_by_partition_can_be_given_for_a_run(name: str, of_one: Any, of_two: Any) -> None:
    assert getattr(config().with_text({name: of_one}), name) == {0: 20, 1: "latest"}
    assert getattr(several().with_text({name: of_two}), name) == {("a", 0): 20, ("a", 1): "latest"}
    times = config().with_text({name: {"0": "2026-01-01T00:00:00+00:00", "1": "20"}})
    assert getattr(times, name) == {0: datetime(2026, 1, 1, tzinfo=UTC), 1: 20}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{0: 20}", "stop_offset cannot be '{0: 20}': Expecting property name .* '{\"0\": 20}'"),
        ('{"0": 20, "0": 21}', "'0' is given twice"),
        ('{"0": "soon"}', "of 0 it is 'soon'"),
        ('{"0": 1.5}', "of 0 it is 1.5"),
        ('{"x": 20}', "'x' names no partition"),
        ('{"00": 20}', "'00' names no partition"),
        ('{"other": {"0": 20}}', r"\('other', 0\) is of a topic that the spout does not read"),
        ('{"lines": {"x": 20}}', r"\('lines', 'x'\) names no partition"),
        ('{"lines": {}}', "'lines' names no partition"),
        ('{"a": ' * 20_000, "stop_offset cannot be"),
    ],
)
def test_of_wrong_places_by_partition_key_and_value_are_named(given: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        config().with_text({"stop_offset": given})


def test_a_scheme_may_be_given_as_a_class() -> None:
    assert isinstance(config(scheme=RawScheme).scheme, RawScheme)


def test_k9_2_topic_takes_one_name_and_no_list() -> None:
    """Several have a setting of their own, ``topics``."""
    with pytest.raises(SettingError, match="name of the Kafka topic"):
        config(topic=["a", "b"])


# -- several topics --------------------------------------------------------------------------------------------------


def several(**changes: Any) -> SpoutConfig:
    return SpoutConfig(**{"hosts": KAFKA, "topics": ["a", "b"], "id": "demo", **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topics": []}, "Several are read with topics="),
        ({"topic": "a"}, "topic and topics are given"),
        ({"topics_pattern": "a.*"}, "topics and topics_pattern are given"),
        ({"topics": "a,b"}, "topics is 'a,b'; it is a list of names"),
        ({"topics": ["a", ""]}, "topics holds ''"),
        ({"topics": ["a", "a"]}, "topics holds a name twice"),
        ({"topics": (), "topics_pattern": "("}, "not a regular expression"),
        ({"hosts": StaticHosts({0: "k1"}), "offset_store": GroupOffsets()}, "it is for one topic"),
        ({"hosts": ZK, "zk_root": "/s", "topics": ["a", "owners"]}, "none can be named 'owners'"),
        ({"scheme": {"a": RawScheme()}}, "scheme, a dict for topic 'a', has none for topic 'b'"),
        ({"scheme": {"a": RawScheme(), "b": RawScheme(), "c": RawScheme()}}, "does not read topic 'c'"),
        ({"scheme": {"a": RawScheme(), "b": 7}}, "The scheme is 7"),
        ({"topics": (), "topics_pattern": "a.*", "scheme": {"a": RawScheme()}}, "gives each of `topics` its scheme"),
        ({"streams": {"c": "x"}}, "'c' is none of `topics`"),
        ({"streams": {"a": ""}}, "topic 'a' has no name of a stream"),
        ({"streams": ["a"]}, "it is a dict of topics and names of streams"),
        ({"on_poison": "dead-letter", "dead_letter_topic": "b"}, "the spout reads topics 'a', 'b'"),
        (
            {"topics": (), "topics_pattern": "a.*", "on_poison": "dead-letter", "dead_letter_topic": "a-dead"},
            "the spout reads the topics that match 'a.*'",
        ),
    ],
)
def test_what_does_not_fit_between_several_topics_is_refused_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=re.escape(text)):
        several(**changes)


def test_a_command_line_names_topics_in_the_place_of_the_files() -> None:
    assert several().with_text({"topics": "c, d"}).choice().names == ("c", "d")
    assert several().with_text({"topic": "c"}).choice() == ChosenTopics(("c",))
    assert several().with_text({"topics_pattern": "x.*"}).choice() == ChosenTopics((), "x.*", True)
    assert config().with_text({"topics": "c"}).choice() == ChosenTopics(("c",), several=True)
    assert several().with_text({"retry_limit": "3"}).topics == ("a", "b")


def fields(spec: ComponentSpec) -> dict[str, tuple[str, ...]]:
    return {stream.name: stream.fields for stream in spec.outputs}


def test_schemes_with_other_fields_need_streams_of_their_own() -> None:
    schemes = {"a": JsonScheme(["user"]), "b": JsonScheme(["amount", "user"])}
    with pytest.raises(SettingError, match="tuples of topic 'b' have the fields amount, user, those of topic 'a'"):
        KafkaSpout.spec(config=several(scheme=schemes))
    assert KafkaSpout.spec(config=several(scheme={**schemes, "b": JsonScheme(["user"])})).outputs == ["user"]
    spec = KafkaSpout.spec(config=several(scheme=schemes, streams={"b": "sums"}))
    assert fields(spec) == {"default": ("user",), "sums": ("amount", "user")}
    both = several(scheme=schemes, streams={"a": "users", "b": "sums"})
    assert fields(KafkaSpout.spec(config=both)) == {"users": ("user",), "sums": ("amount", "user")}


def test_functions_as_schemes_have_the_fields_that_spec_names_by_stream() -> None:
    def parse(record: Any) -> list[list[str]]:
        return [[record.topic]]

    spec = KafkaSpout.spec(config=several(scheme={"a": parse, "b": parse}), outputs=["topic"])
    assert spec.outputs == ["topic"]
    named = several(scheme={"a": parse, "b": parse}, streams={"b": "other"})
    spec = KafkaSpout.spec(config=named, outputs=[Stream(["topic"]), Stream(["name"], name="other")])
    assert fields(spec) == {"default": ("topic",), "other": ("name",)}
    assert {topic: one.outputs for topic, one in dict(named.schemes(spec.outputs)).items()} == {  # type: ignore[call-overload]
        "a": ("topic",),
        "b": ("name",),
    }


@pytest.mark.parametrize("topic", ["li nes", "a/b", "..", "x" * 250, "caf\u00e9"])
def test_a_name_that_no_topic_can_have_is_refused(topic: str) -> None:
    for names in ({"topic": topic}, {"topics": ["lines", topic]}):
        with pytest.raises(SettingError, match=r"a name that no topic of Kafka can have\. A name has at most 249"):
            SpoutConfig(hosts=KafkaHosts("127.0.0.1:9092"), id="x", **names)  # type: ignore[arg-type]
