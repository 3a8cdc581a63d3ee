"""Record batches: round trips, cuts, damage, what read_committed hides, and bounds on what is unpacked."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlet.kafka.errors import CorruptRecord, DecompressedTooLarge, UnsupportedRecordFormat
from streamlet.kafka.records.compression import Compression
from streamlet.kafka.records.record_batch import HEADER, ReadOptions, TimestampType, read_batches
from tests.whole_batches import BatchFields, NewRecord, encode_batch

OPTIONS = ReadOptions("lines", 3)

_sizes = st.one_of(st.binary(max_size=20), st.integers(60, 300).map(lambda n: b"v" * n), st.just(b"w" * 20_000))
_records = st.builds(
    NewRecord,
    value=st.none() | _sizes,
    key=st.none() | st.binary(max_size=10) | st.integers(60, 9000).map(lambda n: b"k" * n),
    timestamp=st.integers(0, 1 << 45),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
)


@given(
    records=st.lists(_records, max_size=12),
    codec=st.sampled_from(Compression),
    base=st.integers(0, 1 << 40),
    holes=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_records_are_read_back_with_nulls_and_holes(
    records: list[NewRecord], codec: Compression, base: int, holes: bool
) -> None:
    """Offsets, timestamps, keys, values and headers come back, with nulls, and with holes that compaction left."""
    if holes:
        records = [
            NewRecord(row.value, row.key, row.timestamp, row.headers, offset_delta=3 * index + 2)
            for index, row in enumerate(records)
        ]
    fields = BatchFields(
        base, codec, partition_leader_epoch=7, last_offset_delta=3 * len(records) + 9 if holes else None
    )
    (batch,) = read_batches(encode_batch(records, fields), OPTIONS)
    assert list(batch.values) == [row.value for row in records]
    assert list(batch.keys) == [row.key for row in records]
    assert batch.timestamps() == [row.timestamp for row in records]
    assert [batch.headers(index) for index in range(len(batch))] == [row.headers for row in records]
    step = 3 if holes else 1
    assert list(batch.offsets()) == [base + (2 if holes else 0) + step * index for index in range(len(records))]
    assert batch.next_offset == base + (3 * len(records) + 10 if holes else max(len(records), 1))
    assert batch.leader_epoch == 7 and batch.timestamp_type is TimestampType.CREATE_TIME


def test_log_append_time_is_the_time_of_all() -> None:
    """The broker's one timestamp stands for every record's own."""
    raw = encode_batch([NewRecord(b"a", timestamp=5), NewRecord(b"b", timestamp=9)], BatchFields(log_append_time=77))
    (batch,) = read_batches(raw, OPTIONS)
    assert batch.timestamps() == [77, 77] and batch.timestamp_type is TimestampType.LOG_APPEND_TIME


@given(cut=st.integers(0, 2000), codec=st.sampled_from(Compression))
@settings(max_examples=80, deadline=None)
def test_a_cut_last_batch_is_left_for_the_next_fetch(cut: int, codec: Compression) -> None:
    """Whole batches come, the rest is silent."""
    parts = [encode_batch([NewRecord(b"x" * 50)] * 5, BatchFields(5 * n, codec)) for n in range(4)]
    raw = b"".join(parts)[:cut]
    whole = sum(1 for n in range(1, 5) if sum(map(len, parts[:n])) <= len(raw))
    assert [batch.base_offset for batch in read_batches(raw, OPTIONS)] == [5 * n for n in range(whole)]


def test_records_before_the_position_are_hidden() -> None:
    """A broker answers with whole batches, from an earlier start; what lies before the position was read before."""
    raw = encode_batch([NewRecord(b"%d" % n, headers=(("h", b"%d" % n),)) for n in range(10)], BatchFields(100))
    raw += encode_batch([NewRecord(b"%d" % n) for n in range(10, 12)], BatchFields(110))
    first, second = read_batches(raw, ReadOptions("t", 0, position=107))
    assert list(first.values) == [b"7", b"8", b"9"] and list(first.offsets()) == [107, 108, 109]
    assert [first.headers(n) for n in range(3)] == [(("h", b"%d" % n),) for n in (7, 8, 9)]
    assert list(second.values) == [b"10", b"11"]
    first, second = read_batches(raw, ReadOptions("t", 0, position=110))
    assert len(first) == 0 and first.next_offset == 110 and len(second) == 2


def test_an_empty_batch_says_where_to_read_on() -> None:
    """Compaction may keep a batch without records, for its producer's sequence: the position must pass it."""
    (batch,) = read_batches(encode_batch([], BatchFields(40, last_offset_delta=9)), OPTIONS)
    assert len(batch) == 0 and batch.next_offset == 50


def _control(base: int, producer: int, commit: bool) -> bytes:
    key = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")
    fields = BatchFields(base, producer_id=producer, producer_epoch=0, transactional=True, control=True)
    return encode_batch([NewRecord(b"\x00\x00\x00\x00\x00\x00", key)], fields)


def _written(base: int, producer: int, *values: bytes, transactional: bool = True) -> bytes:
    fields = BatchFields(base, producer_id=producer, producer_epoch=0, transactional=transactional)
    return encode_batch([NewRecord(value) for value in values], fields)


def test_read_committed_hides_aborted_transactions_up_to_their_marker() -> None:
    """By producer id, from the transaction's first offset to its abort marker, and nothing else."""
    raw = b"".join(
        [
            _written(0, 1, b"a0", b"a1"),  # aborted
            _written(2, 2, b"b2"),  # committed, interleaved
            _written(3, 1, b"a3"),  # aborted
            _control(4, 1, commit=False),
            _written(5, 1, b"c5"),  # the same producer's next transaction, committed
            _control(6, 2, commit=True),
            _control(7, 1, commit=True),
            _written(8, 1, b"d8"),  # aborted again
            _written(9, -1, b"plain", transactional=False),
            _control(10, 1, commit=False),
        ]
    )
    aborted = [(1, 8), (1, 0)]
    batches = list(read_batches(raw, OPTIONS, aborted))
    assert [value for batch in batches for value in batch.values] == [b"b2", b"c5", b"plain"]
    assert [batch.next_offset for batch in batches] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    everything = read_batches(raw, ReadOptions("t", 0, read_committed=False), aborted)
    seen = [value for batch in everything for value in batch.values]
    assert seen == [b"a0", b"a1", b"b2", b"a3", b"c5", b"d8", b"plain"]


def test_a_transaction_that_began_before_the_fetch_is_hidden_too() -> None:
    """Its first offset lies before the bytes at hand."""
    raw = _written(50, 9, b"x") + _control(51, 9, commit=False) + _written(52, 9, b"y")
    batches = list(read_batches(raw, ReadOptions("t", 0, position=50), [(9, 10)]))
    assert [value for batch in batches for value in batch.values] == [b"y"]


# -- damage


def test_a_flipped_bit_is_found_and_named() -> None:
    """By checksum, with topic, partition and offset; without the check it may pass."""
    raw = bytearray(encode_batch([NewRecord(b"hello")], BatchFields(1234)))
    raw[-3] ^= 1
    with pytest.raises(CorruptRecord, match=r"'lines', partition 3, at offset 1234.*checksum"):
        list(read_batches(raw, OPTIONS))
    (batch,) = read_batches(raw, ReadOptions("lines", 3, check_crcs=False))
    assert batch.values != [b"hello"]


def test_batches_before_the_damaged_one_are_given() -> None:
    """Progress up to the damage."""
    raw = encode_batch([NewRecord(b"a")]) + encode_batch([NewRecord(b"b")], BatchFields(1))[:-1] + b"\xff"
    batches = read_batches(raw, OPTIONS)
    assert next(batches).values == [b"a"]
    with pytest.raises(CorruptRecord, match="offset 1 "):
        next(batches)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic: int) -> None:
    """Formats v0 and v1 put the magic at the same place."""
    raw = (77).to_bytes(8, "big") + (30).to_bytes(4, "big") + b"\x00" * 4 + bytes([magic]) + b"\x00" * 25
    with pytest.raises(UnsupportedRecordFormat, match=rf"'lines', partition 3, offset 77.*v{magic}"):
        list(read_batches(raw, OPTIONS))


def _with_crc(raw: bytearray) -> bytes:
    import crc32c

    raw[17:21] = crc32c.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


@given(seed=st.integers(0, 1 << 40), codec=st.sampled_from(Compression))
@settings(max_examples=300, deadline=None)
def test_mutated_batches_give_a_value_or_a_named_error(seed: int, codec: Compression) -> None:
    """With the checksum made right again, so that the decoder itself is met."""
    rng = random.Random(seed)
    records = [
        NewRecord(rng.randbytes(rng.randrange(200)), rng.choice([None, b"key"]), n, (("h", None),) * rng.randrange(2))
        for n in range(rng.randrange(1, 20))
    ]
    options = ReadOptions("t", 0, decompressed_limit=1 << 20)
    for _ in range(10):
        raw = bytearray(encode_batch(records, BatchFields(rng.randrange(1000), codec)))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(21, len(raw))
            raw[at] = rng.choice([rng.randrange(256), 0xFF, 0x80, 0x01])
        if rng.random() < 0.3:
            del raw[rng.randrange(HEADER.size, len(raw) + 1) :]
            raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
        try:
            for batch in read_batches(_with_crc(raw), options):
                for index in range(len(batch)):
                    try:
                        batch.headers(index)
                    except ValueError:
                        continue
        except CorruptRecord as err:
            assert "'t', partition 0, at offset" in err.message


def test_random_bytes_are_never_more_than_corrupt() -> None:
    """Whatever lies in the buffer."""
    rng = random.Random(1)
    for _ in range(3000):
        raw = bytearray(rng.randbytes(rng.randrange(200)))
        if len(raw) > 17:
            raw[8:12] = (rng.randrange(40, 200)).to_bytes(4, "big")
            raw[16] = rng.choice([0, 1, 2, 2, 2, 3])
        try:
            list(read_batches(raw, ReadOptions("t", 0, check_crcs=False, decompressed_limit=1 << 16)))
        except (CorruptRecord, UnsupportedRecordFormat):
            continue


@pytest.mark.parametrize(("at", "byte"), [(-1, 0x0C), (-6, 0x05), (-9, 0x01), (-10, 0x40)])
def test_broken_headers_are_found_before_a_record_is_handed_out(at: int, byte: int) -> None:
    """A length too long or negative, a count too high: named with the batch, and no record of it is passed over."""
    raw = bytearray(encode_batch([NewRecord(b"a"), NewRecord(b"b", headers=(("h", None), ("name", b"")))]))
    raw[at] = byte
    with pytest.raises(CorruptRecord, match=r"'lines', partition 3, at offset 0 cannot be read"):
        list(read_batches(_with_crc(raw), OPTIONS))


def test_a_headers_name_that_is_not_text_costs_no_record() -> None:
    """librdkafka lets one be written, and Java reads it so."""
    raw = bytearray(encode_batch([NewRecord(b"b", headers=(("name", b"v"),))]))
    raw[-3] = 0xFF
    (batch,) = read_batches(_with_crc(raw), OPTIONS)
    assert batch.values == [b"b"] and batch.headers(0) == (("nam\ufffd", b"v"),)


def test_a_count_beyond_the_bytes_allocates_nothing() -> None:
    """The record count and the length are both held against what is there."""
    raw = bytearray(encode_batch([NewRecord(b"x")]))
    raw[57:61] = b"\x7f\xff\xff\xff"
    with pytest.raises(CorruptRecord, match="2147483647 records"):
        list(read_batches(_with_crc(raw), OPTIONS))
    raw[8:12] = b"\x7f\xff\xff\xff"
    assert list(read_batches(raw, OPTIONS)) == []


def test_a_bomb_names_its_batch_and_the_limit() -> None:
    """As an error of its own class; and where to read on, for no setting helps."""
    raw = encode_batch([NewRecord(bytes(1 << 20)), NewRecord(b"")], BatchFields(9, Compression.ZSTD))
    words = r"'lines', partition 3, at offset 9 .* more than 1000, .*no setting raises.*Read on .* at offset 11,"
    with pytest.raises(DecompressedTooLarge, match=words):
        list(read_batches(raw, ReadOptions("lines", 3, decompressed_limit=1000)))
