"""Varints as KIP-98 writes them: every 64-bit value, and no more bytes than are believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.records.varint import read_raw_varint, read_varint, varint


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_varint_is_read_back(value: int) -> None:
    """Every signed 64-bit value."""
    raw = varint(value)
    assert read_varint(raw, 0) == (value, len(raw))


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_small_numbers_of_either_sign_are_short(value: int, raw: str) -> None:
    """The bytes of Java's ByteUtils.writeVarlong."""
    assert varint(value).hex() == raw


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_a_value_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        varint(value)


def test_reading_begins_and_ends_where_the_number_does() -> None:
    data = b"\xff" + varint(300) + b"\x7f"
    assert read_varint(data, 1) == (300, 3)
    assert read_raw_varint(data, 1) == (600, 3)


@pytest.mark.parametrize("size", [10, 11, 1000])
def test_a_number_without_an_end_is_given_up_after_64_bits(size: int) -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        read_raw_varint(b"\xff" * size, 0)


def test_ten_bytes_that_mean_more_than_64_bits_are_refused() -> None:
    assert read_raw_varint(b"\xff" * 9 + b"\x01", 0) == ((1 << 64) - 1, 10)
    with pytest.raises(ValueError, match="more than 64 bits"):
        read_raw_varint(b"\xff" * 9 + b"\x02", 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff"])
def test_a_number_that_is_cut_is_an_index_error(data: bytes) -> None:
    """Callers tell it from damage by the class: more bytes may come."""
    with pytest.raises(IndexError):
        read_varint(data, 0)
