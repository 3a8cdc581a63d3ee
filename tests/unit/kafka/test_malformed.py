"""100 000 malformed frames through every decoder of the Kafka tower.

``python -m tests.soak.long_malformed`` sends more.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import resource
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from streamlet.kafka import broker_errors
from streamlet.kafka.protocol.schema import BOOL, INT8, STRING, UUID, Array, Kind, Reader, Struct, codec_of
from tests.kafka_requests import REQUESTS
from tests.seeds import seeds
from tests.unit.kafka.malformed import Decoder, claims_of_2_gib, feed, run
from tests.unit.kafka.malformed_answers import answer_frames
from tests.unit.kafka.malformed_decoders import everything

SMALLEST_ROWS_FACTOR = 32


def of_part(part: str) -> list[Decoder]:
    """The decoders of brokers' answers, of record batches, or all others."""
    batches = {"record batches", "codecs"}
    found = everything()
    if part == "batches":
        return [one for one in found if one.name in batches]
    answers = {f"{key.name} v{version}" for key, version in answer_frames()}
    return [one for one in found if one.name not in batches and (one.name in answers) is (part == "answers")]


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is wrong with a frame is logged here and there: not 100 000 times. Nor are made up error codes kept."""
    monkeypatch.setattr(broker_errors, "_TABLE", dict(broker_errors._TABLE))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", seeds("malformed"))
@pytest.mark.parametrize(("part", "frames"), [("answers", 60_000), ("batches", 25_000), ("others", 15_000)])
def test_malformed_frames_give_a_value_or_a_named_error(part: str, frames: int, seed: int) -> None:
    """Each within 2 s and eight times its own memory, beside a constant; what the libraries in C take is bounded too.

    Half of them are recorded frames with one field changed. The seed stands in the test's name.
    """
    decoders = of_part(part)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tally = run(decoders, frames, seed)
    assert tally.total >= frames - len(decoders)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    for name, values in tally.values.items():
        assert values or tally.frames[name] < 50 or name == "SCRAM", f"not one of {name} was readable: {tally}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", ["answers", "batches", "others"])
def test_every_recorded_field_may_claim_2_gib(part: str) -> None:
    """One after the other, in every recorded frame: refused, or a value, within the same bounds."""
    tracemalloc.start()
    try:
        assert sum(claims_of_2_gib(decoder) for decoder in of_part(part)) > 40
    finally:
        tracemalloc.stop()


def test_every_answer_in_every_version_has_recorded_frames() -> None:
    """What is added without one is noticed here; 3.9's and 4.x's own answers are among them."""
    frames = answer_frames()
    assert set(frames) == {(key, version) for key, kind in REQUESTS.items() for version in kind.versions}


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=[key.name for key in REQUESTS])
def test_answers_of_nothing_but_the_smallest_rows_are_bounded_too(kind: Any) -> None:
    """The worst a broker can do: rows of three to six bytes, each of which becomes a Python object."""
    for version in kind.versions:
        flexible = version >= kind.flexible_since
        for path in arrays_in(kind.response_type, version):
            raw = bytearray()
            codec = codec_of(kind.response_type, version, flexible)
            codec.encode(grown(kind.response_type, version, path, 3000), raw)
            codec.decode(Reader(raw))
            tracemalloc.start()
            codec.decode(Reader(raw))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < SMALLEST_ROWS_FACTOR * len(raw), (version, path)


def rows_of(cls: type, version: int) -> dict[str, Kind]:
    """The untagged fields of a message in a version."""
    wires = {spec.name: spec.metadata["wire"] for spec in dataclasses.fields(cls)}
    return {name: row.kind for name, row in wires.items() if row.since <= version <= row.until and row.tag is None}


def arrays_in(cls: type, version: int) -> Iterator[tuple[str, ...]]:
    """The ways to each array."""
    for name, kind in rows_of(cls, version).items():
        if isinstance(kind, Array):
            yield (name,)
            if isinstance(kind._item, Struct):
                yield from ((name, *path) for path in arrays_in(kind._item._cls, version))


def smallest(kind: Kind, version: int) -> Any:
    """A value that takes as few bytes as can be, numbers too large to be cached apart."""
    if isinstance(kind, Struct):
        return kind._cls(**{name: smallest(one, version) for name, one in rows_of(kind._cls, version).items()})
    if isinstance(kind, Array):
        return ()
    values = {BOOL: False, STRING: "", UUID: "AAAAAAAAAAAAAAAAAAAACg", INT8: 1}
    return values[kind] if kind in values else 1000 if "Fixed" in type(kind).__name__ else b""


def grown(cls: type, version: int, path: tuple[str, ...], count: int) -> Any:
    """The smallest message whose array at ``path`` has ``count`` of the smallest rows."""
    kind = rows_of(cls, version)[path[0]]
    assert isinstance(kind, Array)
    if len(path) == 1:
        rows = (smallest(kind._item, version),) * count
    else:
        assert isinstance(kind._item, Struct)
        rows = (grown(kind._item._cls, version, path[1:], count),)
    return dataclasses.replace(smallest(Struct(cls), version), **{path[0]: rows})


def test_a_frame_that_does_wrong_is_noticed() -> None:
    """The bounds themselves: another exception, memory, an error that says nothing."""

    def greedy(frame: bytes, _rng: random.Random) -> None:
        bytearray(len(frame) * 100 + (1 << 20))

    def clumsy(_frame: bytes, _rng: random.Random) -> None:
        raise KeyError("x")

    rng = random.Random(0)
    tracemalloc.start()
    try:
        for decode, words in ((greedy, "bytes of memory"), (clumsy, "KeyError")):
            with pytest.raises(AssertionError, match=words):
                feed(Decoder("d", [b"x"], decode, lambda frame: [], 1.0), b"abc", rng)
    finally:
        tracemalloc.stop()


def test_a_seed_gives_the_same_frames_again_and_another_seed_others() -> None:
    """What ``--seed`` promises: a fault that was found can be found again."""
    decoders = everything()
    first, again, other = (run(decoders, 500, seed) for seed in (5, 5, 6))
    assert first == again and first.digest != other.digest
