"""The pages about the client name what is there: the calls of Admin, and what stays for users of kafka-python."""

from __future__ import annotations

import dataclasses
import inspect
import re
from types import ModuleType

import pytest

from streamlet.base import errors as base_errors
from streamlet.base.errors import SettingError, WrongArgument
from streamlet.kafka import (
    Admin,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    KafkaError,
    NewTopic,
    Producer,
    ProducerConfig,
    broker_errors,
)
from streamlet.kafka import errors as kafka_errors
from streamlet.kafka.admin import AdminConfig
from streamlet.kafka.broker_errors import InvalidTopic, TopicAuthorizationFailed
from streamlet.kafka.consumer import errors as consumer_errors
from streamlet.kafka.consumer import membership
from streamlet.kafka.settings.foreign_names import PAGE
from tests.docs.pages import ROOT
from tests.docs.test_reference import rows


def sections(page: str) -> dict[str, str]:
    """The text below each heading of the second rank."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in text.split("\n## ")[1:]}


def public(cls: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")}


def test_every_call_of_an_administrator_is_in_its_table() -> None:
    """With the arguments it has."""
    written = {}
    for cells in rows(sections("reference/admin.md")["The calls"]):
        call = re.match(r"`(\w+)\((.*)\)`$", cells[0])
        assert call, cells
        written[call[1]] = call[2]
    assert set(written) == public(Admin) - {"close"}
    for name, arguments in written.items():
        known = inspect.signature(getattr(Admin, name)).parameters
        assert set(re.findall(r"(\w+)=", arguments)) <= set(known), name


@pytest.mark.parametrize(("title", "cls"), [("Producer", Producer), ("Consumer", Consumer), ("Admin", Admin)])
def test_what_is_the_same_for_users_of_kafka_python_is_there(title: str, cls: type) -> None:
    """Every method that a row calls the same."""
    found = 0
    for there, here in rows(sections("guide/migrating-from-kafka-python.md")[title]):
        if here.startswith("the same") and not there.startswith(("`future", "`RecordMetadata", "`ConsumerRebalance")):
            names = re.findall(r"`(\w+)[`(]", there)
            assert names and set(names) <= public(cls), there
            found += len(names)
    assert found > 4


def test_the_pages_give_new_topic_its_arguments() -> None:
    """As both pages write them."""
    assert list(inspect.signature(NewTopic).parameters) == [
        "name",
        "num_partitions",
        "replication_factor",
        "assignment",
        "configs",
    ]


@pytest.mark.parametrize(
    ("title", "config"),
    [
        ("Of every client", ClientConfig),
        ("Of the Producer", ProducerConfig),
        ("Of the Consumer", ConsumerConfig),
        ("Of the Admin", AdminConfig),
    ],
)
def test_every_setting_is_on_the_page_with_its_default(title: str, config: type[ClientConfig]) -> None:
    """Each in the table of the client that has it."""

    def shown(field: dataclasses.Field[object]) -> str:
        if field.default is dataclasses.MISSING:
            return "required"
        if isinstance(field.default, tuple):
            return f"`{[kind.name for kind in field.default]}`"
        return f"`{field.default!r}`"

    everyones = {field.name for field in dataclasses.fields(ClientConfig)} if config is not ClientConfig else set()
    there = {f"`{f.name}`": shown(f) for f in dataclasses.fields(config) if f.name not in everyones}
    written = {cells[0]: cells[1] for cells in rows(sections("reference/client-settings.md")[title])}
    assert written == there


def test_the_page_of_the_settings_is_the_one_that_messages_name() -> None:
    assert (ROOT / "docs" / "reference" / f"{PAGE}.md").is_file()


def errors_in(module: ModuleType) -> dict[str, type[KafkaError]]:
    """The errors that a module defines."""
    found = inspect.getmembers(module, lambda one: inspect.isclass(one) and issubclass(one, KafkaError))
    return {name: cls for name, cls in found if cls.__module__ == module.__name__}


@pytest.mark.parametrize(("title", "module"), [("Of the consumer", consumer_errors), ("Of the client", kafka_errors)])
def test_the_page_of_errors_has_each_with_whether_to_try_again(title: str, module: ModuleType) -> None:
    table = rows(sections("reference/consumer-errors.md")[title])
    written = {cells[0].strip("`"): cells[2] for cells in table}
    there = errors_in(module)
    assert len(table) == len(written) and set(written) == set(there)
    assert {name for name, again in written.items() if again == "yes"} == {
        name for name, cls in there.items() if cls.retriable
    }
    assert all(len(cells) == 4 and all(cells) for cells in table)


def test_the_page_of_errors_names_brokers_errors_that_no_time_mends() -> None:
    """Among them each that ends a membership."""
    table = rows(sections("reference/consumer-errors.md")["Of the brokers"])
    named = {getattr(broker_errors, cells[0].strip("`")) for cells in table}
    assert len(named) == len(table) and not any(error.retriable for error in named)
    assert {InvalidTopic, TopicAuthorizationFailed, *membership._FATAL} <= named


def test_the_page_of_errors_names_those_of_arguments() -> None:
    table = rows(sections("reference/consumer-errors.md")["Wrong arguments"])
    assert [getattr(base_errors, cells[0].strip("`")) for cells in table] == [SettingError, WrongArgument]


def test_attributes_of_errors_are_on_their_page() -> None:
    """What an `except` may use, as `partitions` of NoOffsetForPartition."""
    table = rows(sections("reference/consumer-errors.md")["Of the consumer"])
    for cells in table:
        cls = errors_in(consumer_errors)[cells[0].strip("`")]
        own = {name for name in inspect.signature(cls).parameters if name not in ("message", "args", "kwargs")}
        assert all(f"`{name}`" in cells[1] for name in own), cells[0]
