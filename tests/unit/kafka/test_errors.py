"""The table of error codes against Java's own (``golden/errors.txt``, printed by ``golden/Errors.java``)."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import streamlet.kafka
from streamlet.kafka import broker_errors
from streamlet.kafka.broker_errors import OffsetOutOfRange, UnknownServerError, error_class
from streamlet.kafka.consumer.errors import NoOffsetForPartition
from streamlet.kafka.errors import BootstrapFailed, BrokerError, KafkaError, copy_of
from streamlet.kafka.metadata.cluster import TopicPartition

JAVA = [line.split() for line in Path(__file__).with_name("golden").joinpath("errors.txt").read_text().splitlines()]
# Where a shorter or later name says more than Java's constant.
NAMES = {
    "REQUEST_TIMED_OUT": "BrokerRequestTimedOut",
    "INVALID_TOPIC_EXCEPTION": "InvalidTopic",
    "INVALID_TXN_STATE": "InvalidTransactionState",
    "POSITION_OUT_OF_RANGE": "SnapshotPositionOutOfRange",  # a consumer's own PositionOutOfRange is of a log
    "UNSUPPORTED_VERSION": "UnsupportedVersionByBroker",
}


@pytest.mark.parametrize(("code", "name", "retriable", "stale"), [row for row in JAVA if row[0] != "0"])
def test_an_error_is_what_it_is_in_java(code: str, name: str, retriable: str, stale: str) -> None:
    """Name, retriable (RetriableException) and stale_metadata (InvalidMetadataException)."""
    kind = error_class(int(code))
    assert kind is not None and kind.code == int(code)
    expected = NAMES.get(name, name.title().replace("_", ""))
    assert kind.__name__ == expected
    assert (kind.retriable, kind.stale_metadata) == (retriable == "true", stale == "true")


def test_no_error_and_an_unknown_one() -> None:
    """0 is None; a code newer than the table still has a class that names it."""
    assert error_class(0) is None
    kind = error_class(31_000)
    assert kind is not None and issubclass(kind, BrokerError) and kind is error_class(31_000)
    assert "31000" in str(kind("Asking"))


def test_codes_that_a_broker_makes_up_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class is kept; after some hundreds the rest are told as what the broker itself did not expect."""
    table = dict(broker_errors._TABLE)
    monkeypatch.setattr(broker_errors, "_TABLE", table)
    kinds = [error_class(code) for code in range(1000, 32_000)]
    assert len(table) <= broker_errors._MOST_CODES and None not in kinds
    assert kinds[-1] is UnknownServerError and error_class(1) is OffsetOutOfRange


def test_the_message_says_what_why_and_what_to_do() -> None:
    """In one paragraph."""
    text = str(OffsetOutOfRange("Fetching topic 't', partition 0, from offset 9", "Choose another offset."))
    assert text == (
        "Fetching topic 't', partition 0, from offset 9: the offset is not (or no longer) in the partition's log "
        "(Kafka error 1, OffsetOutOfRange). Choose another offset."
    )


def test_a_session_time_out_that_the_broker_refuses_names_the_settings() -> None:
    """Ours, and those that limit it."""
    text = str(broker_errors.InvalidSessionTimeout("Joining group 'g'"))
    for name in ("session_timeout_ms", "group.min.session.timeout.ms", "group.max.session.timeout.ms", "Joining group"):
        assert name in text


@pytest.mark.parametrize(
    "error",
    [
        KafkaError("a text"),
        OffsetOutOfRange("Fetching", "Seek."),
        BootstrapFailed("none answers", {"h:1": "refused"}),
        NoOffsetForPartition("no offset", (TopicPartition("t", 0),)),
    ],
)
def test_an_error_for_one_more_raise_is_the_same_in_all_but_its_traceback(error: KafkaError) -> None:
    try:
        raise error from OSError("the cause")
    except KafkaError:
        copy = copy_of(error)
    assert type(copy) is type(error) and copy is not error
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert copy.__traceback__ is None and copy.__cause__ is error.__cause__


def test_no_two_public_errors_share_a_name() -> None:
    """An ``except`` would catch one of the two, and look as if it caught both."""
    found: dict[str, set[type]] = {}
    for module in pkgutil.walk_packages(streamlet.kafka.__path__, "streamlet.kafka."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            if isinstance(kind, type) and issubclass(kind, BaseException) and not name.startswith("_"):
                found.setdefault(kind.__name__, set()).add(kind)
    assert len(found) > 100
    assert not {name: kinds for name, kinds in found.items() if len(kinds) > 1}
