"""Settings: defaults, precedence, parsing, and a paragraph that names the nearest key."""

from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.model.settings import SETTINGS, longest_wait_s, resolve, unknown_key


def test_defaults_are_themselves_valid() -> None:
    """Each default passes its own parser: the table does not contradict itself."""
    assert {key: setting.parse(setting.default) for key, setting in SETTINGS.items()} == resolve({}, {})


def test_the_command_line_wins_over_the_topology() -> None:
    conf = resolve({"topology.max.spout.pending": 5}, {"topology.max.spout.pending": "7"})
    assert conf["topology.max.spout.pending"] == 7


def test_text_is_parsed_by_the_settings_type() -> None:
    conf = resolve(
        {}, {"topology.message.timeout.secs": "1.5", "streamlet.until.caught.up": "yes", "streamlet.seed": "none"}
    )
    assert (conf["topology.message.timeout.secs"], conf["streamlet.until.caught.up"], conf["streamlet.seed"]) == (
        1.5,
        True,
        None,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topology.max.spout.pending", "0"),
        ("topology.max.spout.pending", "many"),
        ("topology.max.spout.pending", None),
        ("topology.max.spout.pending", True),
        ("topology.message.timeout.secs", "-1"),
        ("topology.message.timeout.secs", "0"),
        ("topology.message.timeout.secs", "nan"),
        ("topology.message.timeout.secs", "inf"),
        ("topology.max.spout.pending", 2.5),
        ("streamlet.until.caught.up", "perhaps"),
        ("streamlet.shared", "model.bin"),
        ("streamlet.shared", {"../model": "model.bin"}),
        ("streamlet.shared", {"model": b"the model itself"}),
    ],
)
def test_a_value_that_a_setting_cannot_have(key: str, value: object) -> None:
    """The paragraph names the key, the value and what the key means."""
    with pytest.raises(SettingError) as raised:
        resolve({}, {key: value})
    assert key in raised.value.message and repr(value) in raised.value.message
    assert SETTINGS[key].meaning in raised.value.message


@pytest.mark.parametrize(
    "storms", ["topology.python.path", "topology.metrics.consumer.register", "topology.executor.receive.buffer.size"]
)
def test_a_setting_that_looks_like_none_gets_no_name_of_another(storms: str) -> None:
    """The family's name alone made it look like 'topology.version'."""
    assert "Did you mean" not in unknown_key(storms, "-c", SETTINGS)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("streamlet.tick.tuple.freq.secs", "topology.tick.tuple.freq.secs"),
        ("topology.drain.timeout.secs", "streamlet.drain.timeout.secs"),
        ("clikcs.topic", "clicks.topic"),
    ],
)
def test_a_setting_of_another_family_or_component_is_found_by_its_own_name(wrong: str, right: str) -> None:
    said = unknown_key(wrong, "-c", SETTINGS, {"lines": ["topic"], "clicks": ["topic"]})
    assert f"Did you mean {right!r}?" in said


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("topology.max.spout.pendin", "topology.max.spout.pending"),
        ("max.spout.pending", "topology.max.spout.pending"),
        ("topology.message.timeout", "topology.message.timeout.secs"),
        ("streamlet.drain.timeout", "streamlet.drain.timeout.secs"),
        ("my.limt", "my.limit"),
    ],
)
def test_an_unknown_key_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(SettingError, match=f"Did you mean '{right}'"):
        resolve({"my.limit": 5}, {wrong: "1"})


def test_a_key_of_sparks_own_is_told_where_it_goes() -> None:
    with pytest.raises(SettingError, match=r"It is Spark's own: give it to spark-submit \(--conf\)"):
        resolve({}, {"spark.driver.host": "10.0.0.1"})


def test_a_key_that_is_like_nothing() -> None:
    """It is told how to list all: they are many, and a file may have many such keys."""
    with pytest.raises(SettingError, match="check --settings") as raised:
        resolve({}, {"zzzzzzzz": "1"})
    assert len(raised.value.message) < 250


@pytest.mark.parametrize("value", ["abc", "", [], float("inf"), float("nan"), True, "1e3"])
def test_a_whole_number_is_asked_for_in_our_words(value: object) -> None:
    """Not in those of Python's `int`."""
    with pytest.raises(SettingError, match="a whole number of at least 1 is wanted") as raised:
        resolve({}, {"topology.max.spout.pending": value})
    assert "invalid literal" not in raised.value.message and "int()" not in raised.value.message


def test_a_users_own_key_keeps_the_type_it_has_in_the_topology() -> None:
    conf = resolve({"limit": 5, "share": 0.5, "on": False, "word": "a"}, {"limit": "7", "share": "1", "on": "true"})
    assert (conf["limit"], conf["share"], conf["on"], conf["word"]) == (7, 1.0, True, "a")
    with pytest.raises(SettingError, match="of type int"):
        resolve({"limit": 5}, {"limit": "seven"})
    own: dict[str, Any] = {"ports": [1], "pair": (1, 2), "map": {"a": 1}}
    conf = resolve(own, {"ports": "[3, 4]", "pair": "[3, 4]", "map": '{"b": 2}'})
    assert (conf["ports"], conf["pair"], conf["map"]) == ([3, 4], (3, 4), {"b": 2})
    for text in ("3", "[3", '{"a": 1}'):
        with pytest.raises(SettingError, match="of type list: write it as JSON"):
            resolve(own, {"ports": text})


def test_a_timeout_must_leave_room_for_heartbeats() -> None:
    """Or every worker would be replaced as silent, again and again."""
    with pytest.raises(SettingError, match="at least twice the heartbeat"):
        resolve({}, {"streamlet.worker.timeout.secs": 1.5})
    resolve({}, {"streamlet.worker.timeout.secs": 2})


def test_a_number_of_bytes_that_is_too_small_is_refused_in_plain_digits() -> None:
    with pytest.raises(SettingError, match="a whole number of at least 8388608 is wanted"):
        resolve({}, {"streamlet.worker.memory.bytes": "5"})


@pytest.mark.parametrize(
    ("target", "wait_s"),
    [(None, 10.0), (0.1, 0.1), (9.0, 9.0), (60.0, 10.0)],
    ids=["no target", "low", "lower", "high"],
)
def test_tuples_wait_for_the_target_or_a_share_of_the_timeout_whichever_is_less(
    target: float | None, wait_s: float
) -> None:
    conf = {"topology.message.timeout.secs": 40, "streamlet.queue.timeout.share": 0.25}
    assert longest_wait_s(resolve({}, {**conf, "streamlet.queue.target.secs": target})) == wait_s
