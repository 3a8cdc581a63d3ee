"""The header of a schema registry's serializers."""

from __future__ import annotations

import pytest

from streamlet.spouts.kafka.errors import UnreadableData
from streamlet.spouts.kafka.schemes.wire_header import skip_message_indexes, split_header


def test_the_id_and_the_bytes_after_it_are_told_apart() -> None:
    assert split_header(b"\0\0\0\x01\x02abc") == (258, b"abc")
    assert split_header(memoryview(b"\0\0\0\0\x02")) == (2, b"")


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\x01\0\0\0\x02abc", b"{}"])
def test_bytes_without_the_header_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableData, match="does not begin with a schema registry's header"):
        split_header(data)


def test_message_indexes_are_skipped() -> None:
    assert skip_message_indexes(b"\x00rest") == b"rest"
    assert skip_message_indexes(b"\x04\x02\x80\x01rest") == b"rest"
    for broken in (b"", b"\x04\x02", b"\x80", b"\x01rest", b"\xfe\xff\x01rest"):
        with pytest.raises(UnreadableData, match="message indexes"):
            skip_message_indexes(broken)
