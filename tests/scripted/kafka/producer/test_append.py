"""The contract of ``send_many``: what it raises has the futures of those it took, which are the first of the list."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.kafka import Producer
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer.errors import (
    BufferExhausted,
    PartitionerFailed,
    PartitionOutOfRange,
    ProducerClosed,
    RecordTooLarge,
    SerializationFailed,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.patience import PATIENCE_S
from tests.scripted.kafka.producer.scripted import scripted

LARGE = b"x" * 30_000


class Refusing:
    """A partitioner that likes no key but these."""

    def partition(self, key: object, _count: int) -> int:
        if key == b"bad":
            raise ValueError("no such customer")
        return 0


def whole(values: list[Any], **rest: Any) -> Callable[[Producer], object]:
    return lambda producer: producer.send_many("t", values, **rest)


CASES: list[tuple[str, dict[str, Any], Callable[[Producer], object], type[Exception], int, str]] = [
    ("value", {}, whole([b"1", b"2", "three", b"4"]), SerializationFailed, 0, r"values\[2\].*0 of 4 records were"),
    ("key", {}, whole([b"1", b"2"], keys=[b"k", 5]), SerializationFailed, 0, r"keys\[1\].*0 of 2 records were taken"),
    (
        "serializer",
        {"value_serializer": str.encode},
        whole(["1", b"2"]),
        SerializationFailed,
        0,
        r"values\[1\].*0 of 2",
    ),
    ("headers", {}, whole([b"1"], headers=[5]), SerializationFailed, 0, "0 of 1 records were taken"),
    ("time", {}, whole([b"1", b"2"], timestamp_ms=-1), ValueError, 0, "0 of 2 records were taken"),
    ("count", {}, whole([b"1", b"2"], keys=[b"k"]), ValueError, 0, "2 values and 1 keys.*0 of 2 records were taken"),
    ("no list", {}, lambda producer: producer.send_many("t", b"abc"), TypeError, 0, "No record was taken"),
    ("partition", {}, whole([b"1", b"2"], partition=-1), ValueError, 0, "0 of 2 records were taken"),
    ("topic", {}, lambda producer: producer.send_many("", [b"1"]), KafkaError, 0, "0 of 1 records were taken"),
    ("metadata", {"max_block_ms": 200}, lambda p: p.send_many("no", [b"1", b"2"]), KafkaError, 0, "0 of 2 records"),
    ("nowhere", {"max_block_ms": 200}, whole([b"1"], partition=7), PartitionOutOfRange, 0, "0 of 1 records were taken"),
    (
        "large",
        {"max_request_size": 20_000},
        whole([b"1", b"2", LARGE, b"4"]),
        RecordTooLarge,
        2,
        r"from values\[2\] on",
    ),
    (
        "large, keys",
        {"max_request_size": 20_000},
        whole([b"1", b"2", LARGE, b"4"], keys=[b"a"] * 4),
        RecordTooLarge,
        2,
        r"2 of 4 records were taken.*from values\[2\] on",
    ),
    (
        "partitioner",
        {"partitioner": Refusing()},
        whole([b"1", b"2", b"3"], keys=[b"good", b"bad", b"good"]),
        PartitionerFailed,
        1,
        "1 of 3 records were taken",
    ),
]


@pytest.mark.parametrize(
    ("settings", "call", "kind", "taken", "said"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_every_error_says_how_many_were_taken_and_has_their_futures(
    settings: dict[str, Any], call: Callable[[Producer], object], kind: type[Exception], taken: int, said: str
) -> None:
    """And these, and no others, get into the log."""
    with scripted(**settings) as (_broker, log, producer):
        with pytest.raises(kind, match=f"(?s){said}") as caught:
            call(producer)
        futures = caught.value.taken  # type: ignore[attr-defined]
        assert len(futures) == taken
        assert "The record was not taken" not in str(caught.value)
        assert [future.get(10).offset for future in futures] == list(range(taken))
        producer.flush(10)
        assert log.values.get(("t", 0), []) == [b"1", b"2"][:taken]


def test_an_iterable_that_raises_is_told_of_its_own_error() -> None:
    """The error is the user's: it stays what it is."""

    def rows() -> Any:
        yield b"1"
        raise LookupError("the file ends here")

    with scripted() as (_broker, log, producer):
        with pytest.raises(LookupError, match=r"^'?the file ends here") as caught:
            producer.send_many("t", rows())
        assert caught.value.taken == []  # type: ignore[attr-defined]
        assert caught.value.__notes__ == ["send_many: no record was taken."]
        producer.flush(10)
        assert not log.values


@pytest.mark.parametrize("keys", [None, [b"a"] * 4], ids=["plain", "keys"])
def test_the_error_of_an_offer_is_that_of_its_record_and_says_nothing_of_a_list(keys: list[bytes] | None) -> None:
    with scripted(max_request_size=20_000) as (_broker, log, producer):
        futures, error = producer.offer("t", [b"1", b"2", LARGE, b"4"], keys)
        with pytest.raises(RecordTooLarge) as caught:
            producer.send("t", LARGE, None if keys is None else keys[2])
        assert type(error) is RecordTooLarge and str(error) == str(caught.value)
        assert [future.get(10).offset for future in futures] == [0, 1]
        assert producer.offer("t", [b"5"])[1] is None
        producer.flush(10)
        assert log.values[("t", 0)] == [b"1", b"2", b"5"]


def test_a_buffer_that_fills_up_half_way_says_what_was_taken() -> None:
    """Who goes on behind what was taken has every record in the log once."""
    with scripted(buffer_memory=40_000, batch_size=5000, max_block_ms=1500) as (broker, log, producer):
        producer.send("t", b"x").get(10)
        gate = threading.Event()

        def slow(request: Any) -> Any:
            gate.wait(20)
            return log.produce(request)

        broker.on(ApiKey.PRODUCE, slow)
        values = [b"%03d" % n + b"x" * 1000 for n in range(60)]
        with pytest.raises(BufferExhausted) as caught:
            producer.send_many("t", values)
        taken = caught.value.taken  # type: ignore[attr-defined]
        assert 0 < len(taken) < 60 and f"{len(taken)} of 60 records were taken" in caught.value.message
        gate.set()
        for future in taken:
            future.get(10)
        for at in range(len(taken), 60, 10):
            producer.send_many("t", values[at : at + 10])
            producer.flush(10)
        assert log.values[("t", 0)] == [b"x", *values]


def test_an_error_that_others_get_too_is_left_as_it_is() -> None:
    """A refusal is one object for all who wait: each caller gets a text of its own."""
    with scripted() as (_broker, _log, producer):
        stands = threading.Event()
        producer._sender.run_once = stands.set  # type: ignore[method-assign]
        producer._sender.wake()  # it may sleep until somebody sends
        assert stands.wait(PATIENCE_S)  # else the turn that its thread is in would take the refusal back
        producer._sender.refusal = shared = KafkaError("No broker lets us in.")
        for _ in range(2):
            with pytest.raises(KafkaError, match=r"^No broker lets us in\. 0 of 1 records were taken\.$") as caught:
                producer.send_many("elsewhere", [b"1"])
            assert caught.value is not shared and shared.__traceback__ is None
        assert shared.message == "No broker lets us in."
        producer._sender.forced = True


def test_a_producer_that_is_closed() -> None:
    with scripted() as (_broker, _log, producer):
        producer.close()
        with pytest.raises(ProducerClosed, match=r"The producer is closed\. 0 of 2 records were taken") as caught:
            producer.send_many("t", [b"1", b"2"])
        assert caught.value.taken == []  # type: ignore[attr-defined]
