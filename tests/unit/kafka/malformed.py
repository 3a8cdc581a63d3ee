"""Bytes nobody should send, through everything of the Kafka tower (and its bridge) that reads bytes.

Every decoder begins with frames that real parts sent: ``golden/answers.json`` (brokers 3.9 and 4.x, members of other
clients, SCRAM, ZooKeeper), ``golden/messages.json`` (every message in every version, as another client writes it) and
the record batches of Java and librdkafka. Half of the frames are such a one with one *field* changed, a quarter have
one to three bytes changed, a quarter are random. What may come of a frame: a value, or an error of ours that says what
is wrong. Time and memory are held against a bound for every single frame.
"""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from streamlet.base.errors import StreamletError
from streamlet.kafka.protocol.schema import Reader, write_uvarint

SECONDS_A_FRAME = 2.0
"""Of CPU; generous, for what is meant is a hang."""
MEMORY_FACTOR = 8
MEMORY_CONSTANT = 128 * 1024


class Span(NamedTuple):
    """One field of a frame: where it stands, and ``fixed``, ``varint`` or ``bytes``."""

    start: int
    stop: int
    kind: str


@dataclass
class Decoder:
    """One way in. ``decode`` gives nothing and raises only what a user may see; ``fields`` says where a recorded
    frame's fields are; ``share`` is its part of all frames, ``room`` the memory it may use beside the frame.
    """

    name: str
    recorded: Sequence[bytes]
    decode: Callable[[bytes, random.Random], None]
    fields: Callable[[bytes], list[Span]]
    share: float
    finish: Callable[[bytes], bytes] = lambda data: data
    """Makes checksums right again, so that a changed field is met behind them."""
    room: int = MEMORY_CONSTANT
    spans: dict[bytes, list[Span]] = field(default_factory=dict)

    def spans_of(self, frame: bytes) -> list[Span]:
        """The fields of a recorded frame, looked for once."""
        if frame not in self.spans:
            self.spans[frame] = self.fields(frame)
        return self.spans[frame]


class SpanReader(Reader):
    """A reader that notes each field it reads."""

    __slots__ = ("spans",)

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.spans: list[Span] = []

    def take(self, size: int) -> memoryview:
        start = self.pos
        part = super().take(size)
        self.spans.append(Span(start, self.pos, "bytes"))
        return part

    def fixed(self, layout: Struct) -> int:
        start = self.pos
        value = super().fixed(layout)
        self.spans.append(Span(start, self.pos, "fixed"))
        return value

    def uvarint(self) -> int:
        start = self.pos
        value = super().uvarint()
        self.spans.append(Span(start, self.pos, "varint"))
        return value


# -- what becomes of a frame

_VARINTS = [0, 1, 2, 3, 127, 128, 1 << 14, 1 << 21, (1 << 28) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
_LONG_VARINTS = [b"\x80" * 4 + b"\x01", b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\xff" * 4 + b"\x7f"]


def one_field_changed(rng: random.Random, frame: bytes, spans: list[Span]) -> bytes:
    """The frame with one field replaced by another value of its kind, mostly one at an edge."""
    start, stop, kind = rng.choice(spans)
    return frame[:start] + other_value(rng, frame[start:stop], kind) + frame[stop:]


def other_value(rng: random.Random, raw: bytes, kind: str) -> bytes:
    """Instead of ``raw``."""
    if kind == "fixed":
        bits = 8 * len(raw)
        value = int.from_bytes(raw, "big", signed=True)
        edges = [0, 1, -1, -2, (1 << bits - 1) - 1, -(1 << bits - 1), value + 1, value - 1, value ^ 1 << bits - 2]
        edges.append(rng.getrandbits(bits))
        return (rng.choice(edges) & (1 << bits) - 1).to_bytes(len(raw), "big")
    if kind == "varint":
        if rng.random() < 0.2:
            return rng.choice(_LONG_VARINTS)
        out = bytearray()
        write_uvarint(out, rng.choice([*_VARINTS, rng.getrandbits(16)]))
        return bytes(out)
    choice = rng.random()
    if choice < 0.3 and raw:
        at = rng.randrange(len(raw))
        return raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]
    if choice < 0.5:
        return raw[: rng.randrange(len(raw) + 1)]
    if choice < 0.7:
        return rng.randbytes(len(raw))
    if choice < 0.85:
        return b"\xff" * len(raw)
    return raw + rng.randbytes(rng.randrange(1, 9))


def bytes_changed(rng: random.Random, raw: bytes) -> bytes:
    """One to three edits anywhere: a byte, a length of 2 GiB or -2, the end cut off, bytes put between."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        choice = rng.random()
        if choice < 0.4 and data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        elif choice < 0.6 and len(data) >= 4:
            at = rng.randrange(len(data) - 3)
            data[at : at + 4] = rng.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x01"])
        elif choice < 0.8:
            del data[rng.randrange(len(data) + 1) :]
        else:
            at = rng.randrange(len(data) + 1)
            data[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(data)


def make_frame(decoder: Decoder, rng: random.Random) -> bytes:
    """The next bytes for a decoder."""
    turn = rng.random()
    recorded = rng.choice(decoder.recorded)
    if turn < 0.5:
        return decoder.finish(one_field_changed(rng, recorded, decoder.spans_of(recorded)))
    if turn < 0.75:
        changed = bytes_changed(rng, recorded)
        return decoder.finish(changed) if rng.random() < 0.5 else changed
    return rng.randbytes(rng.randrange(200))


class Fault(AssertionError):
    """A frame that did what none may; tells it in hex, and the seed."""


def feed(decoder: Decoder, frame: bytes, rng: random.Random) -> bool:
    """Decode one frame within its bounds; True when it gave a value. Needs tracemalloc running. Raises Fault."""
    tracemalloc.reset_peak()
    before, started = tracemalloc.get_traced_memory()[0], time.thread_time()
    gave_value = True
    try:
        decoder.decode(frame, rng)
    except StreamletError as err:
        gave_value = False
        said = err.message
        if len(said) < 10 or "Reading an answer raised" in said:
            raise Fault(f"{decoder.name}: {frame.hex()}: an error that says {said!r}") from err
    except Exception as err:
        raise Fault(f"{decoder.name}: {frame.hex()}: {type(err).__name__}: {err}") from err
    seconds = time.thread_time() - started
    used = tracemalloc.get_traced_memory()[1] - before
    if seconds > SECONDS_A_FRAME:
        raise Fault(f"{decoder.name}: {frame.hex()}: {seconds:.1f} s")
    if used > MEMORY_FACTOR * len(frame) + decoder.room:
        raise Fault(f"{decoder.name}: {frame.hex()}: {used} bytes of memory for a frame of {len(frame)}")
    return gave_value


@dataclass
class Tally:
    """What a run saw: frames, and how many of them gave a value, by decoder."""

    frames: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    digest: int = 0
    """CRC-32 of all frames: the same for the same seed."""

    @property
    def total(self) -> int:
        """Of all decoders."""
        return sum(self.frames.values())


def run(decoders: Sequence[Decoder], frames: int, seed: int) -> Tally:
    """``frames`` in all, shared out by the decoders' shares. Raises Fault."""
    rng = random.Random(seed)
    tally = Tally()
    whole = sum(decoder.share for decoder in decoders)
    tracemalloc.start()
    try:
        for decoder in decoders:
            count = max(1, round(frames * decoder.share / whole))
            for frame in decoder.recorded:  # first touch: whatever is compiled or cached is not the frame's memory
                with contextlib.suppress(StreamletError):
                    decoder.decode(frame, rng)
                decoder.spans_of(frame)
            found = 0
            for _ in range(count):
                frame = make_frame(decoder, rng)
                tally.digest = zlib.crc32(frame, tally.digest)
                found += feed(decoder, frame, rng)
            tally.frames[decoder.name], tally.values[decoder.name] = count, found
    finally:
        tracemalloc.stop()
    return tally


def claims_of_2_gib(decoder: Decoder) -> int:
    """Every field of every recorded frame, one after the other, claims 2 GiB; gives how many there were."""
    rng, count = random.Random(0), 0
    huge = {"varint": b"\xff\xff\xff\xff\x07", "bytes": b"\xff\xff\xff\xff\x0f"}
    for frame in decoder.recorded:
        for start, stop, kind in decoder.spans_of(frame):
            size = stop - start
            claim = (1 << 8 * size - 1) - 1 if kind == "fixed" else 0
            new = claim.to_bytes(size, "big") if kind == "fixed" else huge[kind]
            feed(decoder, decoder.finish(frame[:start] + new + frame[stop:]), rng)
            count += 1
    return count
