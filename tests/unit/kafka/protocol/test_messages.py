"""Every message in every version: round trips, foreign bytes, and the same bytes as other clients write."""

from __future__ import annotations

import dataclasses
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.protocol.messages.api_versions_and_sasl import ApiVersionsRequest, decode_api_versions
from streamlet.kafka.protocol.schema import (
    BYTES,
    RECORDS,
    ApiKey,
    Array,
    Kind,
    Reader,
    Request,
    Struct,
    codec_of,
    decode_response,
)
from tests.kafka_requests import REQUESTS
from tests.unit.kafka.malformed import bytes_changed
from tests.unit.kafka.protocol.every_request import decoded_to_its_last_byte
from tests.unit.kafka.protocol.strategies import messages

SHAPES = [
    (cls, version, version >= kind.flexible_since)
    for kind in REQUESTS.values()
    for version in kind.versions
    for cls in (kind, kind.response_type)
]
NAMES = [f"{cls.__name__}-v{version}" for cls, version, _ in SHAPES]


@pytest.mark.parametrize(("cls", "version", "flexible"), SHAPES, ids=NAMES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read_back_to_the_last_byte(
    cls: type, version: int, flexible: bool, data: st.DataObject
) -> None:
    """What is written is read back equal, to the last byte."""
    value = data.draw(messages(cls, version, flexible))
    out = bytearray()
    codec = codec_of(cls, version, flexible)
    codec.encode(value, out)
    assert len(out) >= codec.least
    reader = Reader(bytes(out))
    assert codec.decode(reader) == value
    assert reader.remaining == 0


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=[key.name for key in REQUESTS])
@given(data=st.data(), seed=st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)  # the many frames: tests/unit/kafka/test_malformed.py
def test_malformed_answers_give_a_value_or_a_named_error(
    kind: type[Request[Any]], data: st.DataObject, seed: int
) -> None:
    """Random and mutated frames: MalformedFrame or a value, nothing else ever."""
    rng = random.Random(seed)
    version = rng.choice(kind.versions)
    flexible = version >= kind.flexible_since
    out = bytearray(b"\x00\x00\x00\x01")
    if flexible and kind.api_key is not ApiKey.API_VERSIONS:
        out.append(0)
    codec_of(kind.response_type, version, flexible).encode(
        data.draw(messages(kind.response_type, version, flexible)), out
    )
    frames = [bytes_changed(rng, bytes(out)) for _ in range(20)] + [rng.randbytes(rng.randint(0, 60)) for _ in range(5)]
    request = data.draw(messages(kind, version, flexible))
    for frame in frames:
        try:
            if isinstance(request, ApiVersionsRequest):
                decode_api_versions(request, version, frame)
            else:
                decode_response(request, version, frame)
        except MalformedFrame as err:
            assert "API_VERSIONS" in err.message or kind.api_key.name in err.message


@pytest.mark.parametrize(("cls", "version", "flexible"), SHAPES, ids=NAMES)
def test_a_length_of_2_gib_allocates_nothing(cls: type, version: int, flexible: bool) -> None:
    """Every length that claims more than the frame holds is refused before it is believed."""
    claims = [b"\x7f\xff\xff\xff", b"\x7f\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"]
    decode = codec_of(cls, version, flexible).decode
    tracemalloc.start()
    try:
        for claim in claims:
            for at in range(40):
                frame = b"\x01" * at + claim + b"\x01" * 8
                try:
                    decode(Reader(frame))
                except MalformedFrame:
                    continue
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_api_versions_error_is_read_before_the_rest() -> None:
    """After a 35 nothing but the code counts, whatever follows it (some brokers encode the rest wrongly)."""
    for rest in (b"", b"\x00\x00\x00\x01\x00\x12\x00\x00\x00\x03", b"\x01\xff\xff\xff\xff"):
        answer = decode_api_versions(ApiVersionsRequest(), 3, b"\x00\x00\x00\x01\x00\x23" + rest)
        assert answer.error_code == 35


def _from_plain(cls: type, plain: dict[str, Any]) -> Any:
    """A message from the JSON form in ``golden/messages.json``."""

    def value(kind: Kind, raw: Any) -> Any:
        if isinstance(kind, Array) and raw is not None:
            return tuple(value(kind._item, row) for row in raw)
        if isinstance(kind, Struct) and raw is not None:
            return _from_plain(kind._cls, raw)
        return bytes.fromhex(raw) if kind in (BYTES, RECORDS) and raw is not None else raw

    rows = {spec.name: spec.metadata["wire"].kind for spec in dataclasses.fields(cls)}
    return cls(**{name: value(rows[name], raw) for name, raw in plain.items()})


FOLDER = Path(__file__).with_name("golden")
GOLDEN = json.loads((FOLDER / "messages.json").read_text("utf-8"))
ANSWERS = json.loads((FOLDER / "answers.json").read_text("utf-8"))["answers"]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['message']}-v{row['version']}")
def test_the_bytes_are_those_of_another_client(row: dict[str, Any]) -> None:
    """Both ways, for values that kafka-python's codecs or Java's wrote (``golden/make.py``, ``make_by_java.py``)."""
    kind = REQUESTS[ApiKey[row["api"]]]
    cls = kind if row["message"] == kind.__name__ else kind.response_type
    codec = codec_of(cls, row["version"], row["version"] >= kind.flexible_since)
    message = _from_plain(cls, row["values"])
    out = bytearray()
    codec.encode(message, out)
    assert out.hex() == row["body"]
    assert codec.decode(Reader(bytes(out))) == message


def test_every_message_and_version_has_golden_bytes() -> None:
    """A message added without a second opinion is noticed."""
    seen = {(row["message"], row["version"]) for row in GOLDEN}
    assert seen == {(cls.__name__, version) for cls, version, _ in SHAPES}


@pytest.mark.parametrize("broker", ["3.9", "4"])
def test_what_brokers_answered_is_read_to_its_last_byte_and_written_the_same(broker: str) -> None:
    """The recorded answers of 3.9 and 4.x (``golden/make_answers.py``), each of our messages among them.

    Written again they are the same bytes, but for tagged fields that we do not know.
    """
    rows = [row for row in ANSWERS if row["broker"] == broker]
    for row in rows:
        kind, version, frame = REQUESTS[ApiKey[row["api"]]], row["version"], bytes.fromhex(row["frame"])
        answer = decoded_to_its_last_byte(kind, version, frame)
        again = bytearray()
        codec_of(kind.response_type, version, version >= kind.flexible_since).encode(answer, again)
        assert frame.endswith(again) or row["api"] == "API_VERSIONS", row
    assert {row["api"] for row in rows} == {key.name for key in REQUESTS}
