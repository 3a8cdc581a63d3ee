"""Records as they are appended: one form by three ways, and the header of their batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.records.appending import (
    HEADER_SIZE,
    TABLE_SIZE,
    VARINT,
    encode_plain,
    encode_record,
    seal_batch,
    shifted_record,
    timestamp_delta_of,
    upper_bound,
)
from streamlet.kafka.records.compression import Compression, compress
from streamlet.kafka.records.record_batch import ReadOptions, parse_header, read_batches
from streamlet.kafka.records.varint import varint

OPTIONS = ReadOptions("lines", 0)

fields = st.none() | st.binary(max_size=80) | st.integers(60, 9000).map(lambda size: b"x" * size)
deltas = st.integers(-5, 9000) | st.integers(-(1 << 62), 1 << 62)


@given(key=fields, value=fields, timestamp=deltas, offset=st.integers(0, 9000))
def test_the_fast_way_writes_the_same_bytes_as_the_general_one(
    key: bytes | None, value: bytes | None, timestamp: int, offset: int
) -> None:
    """Also at the edges of its table of small numbers, where it hands over."""
    assert encode_plain(key, value, timestamp, offset) == encode_record(key, value, (), timestamp, offset)


@pytest.mark.parametrize("size", [0, 1, TABLE_SIZE - 21, TABLE_SIZE - 20, TABLE_SIZE - 19, TABLE_SIZE, 1 << 20])
@pytest.mark.parametrize("key", [None, b"", b"k" * 70])
def test_the_fast_way_hands_over_before_its_table_ends(size: int, key: bytes | None) -> None:
    assert encode_plain(key, b"v" * size, 8191, 8191) == encode_record(key, b"v" * size, (), 8191, 8191)


def test_the_table_has_the_varint_of_each_small_number() -> None:
    assert tuple(varint(value) for value in range(TABLE_SIZE)) == VARINT


@given(
    key=fields,
    value=fields,
    headers=st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=200)), max_size=5).map(tuple),
    timestamp=deltas,
    offset=st.integers(0, (1 << 31) - 1),
)
def test_no_record_is_larger_than_its_bound(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], timestamp: int, offset: int
) -> None:
    """The bound is asked before a record is encoded: what fits by it must fit."""
    assert len(encode_record(key, value, headers, timestamp, offset)) <= upper_bound(key, value, headers)


@given(timestamp=st.integers(-1000, 100_000), shift=st.integers(-1000, 100_000), offset=st.integers(0, 100_000))
def test_a_record_that_moves_to_another_batch_keeps_all_but_time_and_place(
    timestamp: int, shift: int, offset: int
) -> None:
    record = encode_record(b"k", b"v" * 70, (("h", None), ("i", b"x")), timestamp, 3)
    moved = shifted_record(record, shift, offset)
    assert moved == encode_record(b"k", b"v" * 70, (("h", None), ("i", b"x")), timestamp + shift, offset)
    assert timestamp_delta_of(moved) == timestamp + shift


@pytest.mark.parametrize("codec", list(Compression))
def test_a_sealed_batch_is_read_as_what_was_appended(codec: Compression) -> None:
    rows = [(None, b"a", 0), (b"k", None, 5), (b"", b"", 7)]
    body = b"".join(encode_record(key, value, (), delta, at) for at, (key, value, delta) in enumerate(rows))
    raw = seal_batch(compress(codec, body), 3, 1_000, 1_007, codec, (77, 4, 12), transactional=True)
    header = parse_header(raw, 0)
    assert header.is_transactional and not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 4, 12)
    assert (header.record_count, header.last_offset_delta, header.codec) == (3, 2, codec)
    (batch,) = read_batches(raw, OPTIONS)
    assert list(zip(batch.keys, batch.values, batch.timestamps(), strict=True)) == [
        (key, value, 1_000 + delta) for key, value, delta in rows
    ]
    assert len(raw) == HEADER_SIZE + len(compress(codec, body))


def test_a_batch_without_a_producer_says_so() -> None:
    header = parse_header(seal_batch(encode_record(None, b"v", (), 0, 0), 1, 5, 5, Compression.NONE), 0)
    assert not header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_a_time_that_no_record_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        encode_record(None, b"v", (), 1 << 63, 0)
