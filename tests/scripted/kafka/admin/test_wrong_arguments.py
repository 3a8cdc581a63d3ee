"""What an administrator's call cannot take is refused at once, in one paragraph, and no broker is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import Admin, ConfigResource, NewPartitions, NewTopic, OffsetAndMetadata, TopicPartition
from tests.scripted.fake_broker import FakeBroker

TP = TopicPartition("t", 0)
LINES = ConfigResource.topic("lines")
HUGE = 1 << 63

NO_NAMES: list[Any] = [5, None, "", [5], [""], [["t"]]]
NO_GROUPS: list[Any] = [5, None, "", ["g"]]
NO_PARTITIONS: list[Any] = [5, TP, "t", ["t"], [("t", "0")]]
NO_MAPPINGS: list[Any] = [5, None, "t", [TP]]

WRONG: dict[str, tuple[Callable[[Admin, Any], object], list[Any], str]] = {
    "delete_topics": (lambda a, given: a.delete_topics(given), NO_NAMES, "is not a (list|name)"),
    "describe_topics": (lambda a, given: a.describe_topics(given), NO_NAMES, "is not a (list|name)"),
    "describe_groups": (lambda a, given: a.describe_groups(given), NO_NAMES, "is not a (list|name)"),
    "delete_groups": (lambda a, given: a.delete_groups(given), NO_NAMES, "is not a (list|name)"),
    "create_topics": (lambda a, given: a.create_topics(given), ["t", ["t"], 5, None], "write .NewTopic('lines', num"),
    "create_topics twice": (
        lambda a, given: a.create_topics(given),
        [[NewTopic("t"), NewTopic("t", 5)]],
        "'t' is to be made twi",
    ),
    "create_partitions": (
        lambda a, given: a.create_partitions(given),
        NO_MAPPINGS,
        "not a mapping: write {'lines': 6, ",
    ),
    "create_partitions of": (lambda a, given: a.create_partitions(given), [{5: 3}, {"": 3}], "is not a name"),
    "create_partitions to": (
        lambda a, n: a.create_partitions({"t": n}),
        ["3", 0, True, None],
        "total = .* must be a whole",
    ),
    "describe_configs": (
        lambda a, given: a.describe_configs(given),
        ["t", ["t"], 5, None],
        "ConfigResource.topic('lines')",
    ),
    "describe_configs of": (lambda a, n: a.describe_configs(ConfigResource.topic(n)), [5, ""], "not a name of a topic"),
    "describe_configs in": (lambda a, n: a.describe_configs(ConfigResource.broker(n)), ["x", -1], "is not a broker"),
    "describe_configs names": (lambda a, names: a.describe_configs(LINES, names), [5, [5], ""], "is not a (list|name)"),
    "alter_configs": (lambda a, given: a.alter_configs(given), NO_MAPPINGS, "not a mapping: write {ConfigResource"),
    "alter_configs of": (lambda a, given: a.alter_configs({given: {"a": "b"}}), ["t"], "is not a ConfigResource"),
    "alter_configs to": (
        lambda a, given: a.alter_configs({LINES: given}),
        [5, None],
        "of topic 'lines': .*not a mapping",
    ),
    "list_offsets": (lambda a, given: a.list_offsets(given), NO_MAPPINGS, "not a mapping: write {TopicPartition"),
    "list_offsets of": (lambda a, tp: a.list_offsets({tp: "latest"}), ["t", ("t", "0")], "is not a partition"),
    "list_offsets at": (
        lambda a, spec: a.list_offsets({TP: spec}),
        ["end", None, -1, HUGE],
        "is not a place in a partition",
    ),
    "delete_records": (lambda a, given: a.delete_records(given), NO_MAPPINGS, "not a mapping: write {TopicPartition"),
    "delete_records of": (lambda a, tp: a.delete_records({tp: 5}), ["t", ("t", "0")], "is not a partition"),
    "delete_records below": (
        lambda a, n: a.delete_records({TP: n}),
        ["5", -1, None, HUGE],
        't-0: .* is not an offset.*"latest" for',
    ),
    "list_group_offsets": (lambda a, group: a.list_group_offsets(group), NO_GROUPS, "not a name of a group"),
    "list_group_offsets of": (
        lambda a, given: a.list_group_offsets("g", given),
        NO_PARTITIONS,
        "not a (list of )?partition",
    ),
    "alter_group_offsets": (lambda a, group: a.alter_group_offsets(group, {TP: 1}), NO_GROUPS, "not a name of a group"),
    "alter_group_offsets of": (lambda a, given: a.alter_group_offsets("g", given), NO_MAPPINGS, "not a mapping"),
    "alter_group_offsets to": (
        lambda a, n: a.alter_group_offsets("g", {TP: n}),
        ["5", -1, None, HUGE],
        "t-0: .* is not an offset: write a whole number from 0, or .earliest",
    ),
    "alter_group_offsets to an offset": (
        lambda a, n: a.alter_group_offsets("g", {TP: OffsetAndMetadata(n)}),
        ["x", -1],
        "is not an offset to store for",
    ),
    "delete_group_offsets": (lambda a, group: a.delete_group_offsets(group, [TP]), NO_GROUPS, "not a name of a group"),
    "delete_group_offsets of": (
        lambda a, given: a.delete_group_offsets("g", given),
        [*NO_PARTITIONS, None],
        "not a (list of )?partition",
    ),
    "timeout": (
        lambda a, timeout: a.list_topics(timeout=timeout),
        ["1", -1, True],
        "timeout = .* must be a number of seconds",
    ),
}
"""Call -> how it is made of one wrong argument, such arguments, and what is said of each (without brackets)."""


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 1}) as one:
        yield one


@pytest.mark.parametrize("name", WRONG)
def test_what_a_call_cannot_take_is_refused(broker: FakeBroker, name: str) -> None:
    call, given, said = WRONG[name]
    for wrong in given:
        with Admin(bootstrap_servers=broker.address) as admin, pytest.raises(BadInput) as caught:
            call(admin, wrong)
        assert re.search(said.replace("('", r"\('").replace("')", r"'\)"), caught.value.message), caught.value.message
        assert caught.value.message.endswith(".") and "\n" not in caught.value.message
    assert broker.connections == 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NewTopic("t", configs=None), "NewTopic 't': settings: None is not a mapping: write {'retention.ms'"),
        (lambda: NewTopic("t", configs=[]), "NewTopic 't': settings: [] is not a mapping"),
        (lambda: NewTopic("t", "3"), "NewTopic 't': num_partitions = '3' must be"),
        (lambda: NewTopic("t", assignment=[[1]]), "NewTopic 't': assignment: [[1]] is not a mapping"),
        (lambda: NewTopic("t", assignment={0: 1}), "NewTopic 't': assignment: 1 is not a list of broker ids"),
        (lambda: NewTopic("t", assignment={0: ["1"]}), "NewTopic 't': ['1'] in the assignment are not broker ids"),
        (lambda: NewTopic("t", assignment={0: []}), "NewTopic 't': [] in the assignment are not broker ids"),
        (lambda: NewTopic("t", assignment={0: [1], "a": [1]}), "of the partitions [0, 'a']"),
        (lambda: NewPartitions(3, 5), "NewPartitions: assignment: 5 is not a list"),
        (lambda: NewPartitions(3, [1]), "NewPartitions: assignment: 1 is not a list of broker ids"),
    ],
)  # fmt: skip
def test_what_can_be_no_topic(make: Callable[[], object], said: str) -> None:
    """Where it is made, before a call."""
    with pytest.raises(BadInput, match=re.escape(said)):
        make()
