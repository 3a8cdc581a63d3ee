"""What errors of several items say, and as what they can be caught. Pure."""

from __future__ import annotations

from streamlet.kafka import KafkaError
from streamlet.kafka import broker_errors as e
from streamlet.kafka.admin import (
    AdminError,
    ConfigResource,
)
from streamlet.kafka.admin.errors import admin_error, item_error
from streamlet.kafka.errors import Disconnected


def test_errors_of_several_items_are_one_paragraph() -> None:
    """It counts, names each item, and has errors and results as data."""
    exists = item_error(36, "Creating topic 'a'")
    invalid = item_error(40, "Creating topic 'b'", "Unknown topic config name: x.")
    assert exists is not None and invalid is not None
    error = admin_error({"a": exists, "b": invalid}, {"c": 1})
    assert error.message.startswith("2 of 3 failed; the others succeeded. Creating topic 'a'")
    assert "Creating topic 'b'" in error.message and "\n" not in error.message
    assert (error.errors, error.results) == ({"a": exists, "b": invalid}, {"c": 1})
    assert type(error) is AdminError


def test_errors_of_one_kind_can_be_caught_by_it() -> None:
    """As kafka-python's users do; flags are the kind's, too."""
    exists = item_error(36, "Creating topic 'a'")
    assert exists is not None
    error = admin_error({"a": exists}, {})
    assert isinstance(error, e.TopicAlreadyExists) and isinstance(error, AdminError) and error.code == 36
    assert error.message == exists.message and type(error).__name__ == "TopicAlreadyExists"
    assert not error.retriable and admin_error({"a": Disconnected("gone")}, {}).retriable


def test_one_error_of_many_items_is_said_once() -> None:
    """A lost connection names the items that it concerns, the first ten of them."""
    lost = Disconnected("The connection broke.")
    message = admin_error({f"t{number}": lost for number in range(12)}, {}).message
    assert message.count("The connection broke.") == 1 and "t9, ...:" in message and "12 of 12" in message
    assert admin_error({"t": lost}, {}).message == "t: The connection broke."
    many = {f"t{number}": KafkaError(f"t{number} is odd.") for number in range(12)}
    assert "(2 more: see the error's attribute `errors`.)" in admin_error(many, {}).message


def test_an_item_that_begins_the_sentence_is_not_named_before_it() -> None:
    """ "broker 7: Broker 7 is ..." says it twice; another one is named."""
    gone = {ConfigResource.broker(7): KafkaError("Broker 7 is not in the cluster: there are 1, 2.")}
    assert admin_error(gone, {}).message == "Broker 7 is not in the cluster: there are 1, 2."
    lost = {ConfigResource.broker(7): KafkaError("Broker 77 is not in the cluster: there are 1, 2.")}
    assert admin_error(lost, {}).message.startswith("broker 7: Broker 77")
