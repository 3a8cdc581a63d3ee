"""How a dataclass becomes bytes: lengths, versions, and values that do not fit."""

from __future__ import annotations

import pytest

from streamlet.kafka.errors import MalformedFrame, UnsupportedVersion
from streamlet.kafka.protocol.messages.api_versions_and_sasl import SaslAuthenticateRequest
from streamlet.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest
from streamlet.kafka.protocol.messages.metadata import MetadataRequest
from streamlet.kafka.protocol.schema import (
    Reader,
    VersionRange,
    choose_version,
    encode_request,
    response_correlation_id,
    uuid_bytes,
    uuid_text,
    write_uvarint,
)


def test_a_length_beyond_the_frame_is_refused_before_anything_is_taken() -> None:
    reader = Reader(b"abcd")
    assert bytes(reader.take(3)) == b"abc" and reader.remaining == 1
    with pytest.raises(MalformedFrame):
        reader.take(2)
    with pytest.raises(MalformedFrame):
        Reader(b"abcd").take(-1)


@pytest.mark.parametrize(("number", "raw"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_an_unsigned_varint_has_seven_bits_a_byte_the_lowest_first(number: int, raw: bytes) -> None:
    out = bytearray()
    write_uvarint(out, number)
    assert bytes(out) == raw


def test_a_topic_id_is_text_to_users_and_sixteen_bytes_on_the_wire() -> None:
    raw = bytes(range(16))
    text = uuid_text(raw)
    assert text is not None and uuid_bytes(text) == raw
    assert uuid_text(bytes(16)) is None and uuid_bytes(None) == bytes(16)


def test_an_answer_names_the_request_it_belongs_to() -> None:
    assert response_correlation_id(b"\x00\x00\x00\x07rest") == 7
    with pytest.raises(MalformedFrame):
        response_correlation_id(b"\x00\x00\x07")


def test_the_highest_common_version_is_chosen() -> None:
    """Ours are few; of those the broker offers, the highest."""
    request = MetadataRequest(topics=None)
    assert choose_version(request, {3: VersionRange(0, 13)}, "b") == 12
    assert choose_version(request, {3: VersionRange(0, 11)}, "b") == 7
    with pytest.raises(UnsupportedVersion, match="too new"):
        choose_version(request, {3: VersionRange(13, 14)}, "b")
    with pytest.raises(UnsupportedVersion, match="too old"):
        choose_version(request, {3: VersionRange(0, 6)}, "b")


def test_a_fetch_without_topic_ids_stays_below_version_13() -> None:
    """Topics can only be named up to version 12."""
    part = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1),)
    named = FetchTopic(topic="a", partitions=part)
    known = FetchTopic(topic="a", topic_id=uuid_text(b"x" * 16), partitions=part)
    offered = {1: VersionRange(4, 17)}
    assert choose_version(FetchRequest(max_wait_ms=1, min_bytes=1, topics=(named, known)), offered, "b") == 12
    assert choose_version(FetchRequest(max_wait_ms=1, min_bytes=1, topics=(known,)), offered, "b") == 13


def test_a_field_that_the_version_lacks_is_refused_not_dropped() -> None:
    """Sending a message without something it says would change its meaning in silence."""
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    with pytest.raises(ValueError, match=r"include_topic_authorized_operations.*version 7"):
        encode_request(request, 7, 1, "c")
    assert encode_request(request, 12, 1, "c")


def test_values_out_of_range_name_message_and_field() -> None:
    """Before anything is sent."""
    request = FetchRequest(max_wait_ms=1 << 40, min_bytes=1, topics=())
    with pytest.raises(ValueError, match=r"FetchRequest\.max_wait_ms"):
        encode_request(request, 10, 1, "c")


def test_messages_of_one_kind_and_values_are_equal_and_show_their_fields() -> None:
    one, same, other = (FindCoordinatorRequest(key=key, key_type=0) for key in ("a", "a", "b"))
    assert one == same and hash(one) == hash(same) and one != other and one != "a"
    assert repr(one).startswith("FindCoordinatorRequest(key='a', key_type=0")
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"secret"))
