"""What an administrator's calls take: wrong values are refused when they are made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamlet.base.errors import BadInput, WrongArgument
from streamlet.kafka.admin import (
    AlterConfig,
    ConfigOp,
    NewPartitions,
    NewTopic,
)
from streamlet.kafka.admin.model import ConfigResource


@pytest.mark.parametrize("kind", ["topic", "TOPIC", 2, None])
def test_a_resource_of_an_unknown_type_is_refused(kind: Any) -> None:
    """Taken for a broker's, the settings of a topic called 5 would be those of broker 5."""
    with pytest.raises(WrongArgument, match=r'ConfigResource\.topic\("lines"\)'):
        ConfigResource(kind, "5")


def test_a_resource_says_whose_settings_it_has() -> None:
    assert str(ConfigResource.topic("5")) == "topic '5'"
    assert [str(ConfigResource.broker(5)), str(ConfigResource.broker())] == ["broker 5", "all brokers"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": ""}, "not a name of a topic"),
        ({"name": 7}, "not a name of a topic"),
        ({"name": "t", "num_partitions": 0}, "num_partitions = 0"),
        ({"name": "t", "num_partitions": True}, "num_partitions = True"),
        ({"name": "t", "replication_factor": 1.5}, "replication_factor = 1.5"),
        ({"name": "t", "num_partitions": 2, "assignment": {0: [1]}}, "says already"),
        ({"name": "t", "assignment": {1: [1]}}, "without a gap"),
        ({"name": "t", "assignment": {}}, "without a gap"),
        ({"name": "t", "configs": {"retention.ms": 60000}}, "write '60000'"),
    ],
)
def test_a_new_topic_that_contradicts_itself_is_refused(arguments: dict[str, object], said: str) -> None:
    """Before anything is sent, by name."""
    with pytest.raises(BadInput, match=said):
        NewTopic(**arguments)  # type: ignore[arg-type]


def test_what_is_told_is_frozen() -> None:
    """All of the public data."""
    for value in (NewTopic("t"), NewPartitions(3), ConfigResource.topic("t"), AlterConfig(ConfigOp.SET, "1")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, "other")
