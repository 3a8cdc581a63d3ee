"""A million malformed frames through every decoder: a value or a named error, never anything else.

    python -m tests.long_malformed [--frames 1000000] [--seed N]

Half are random bytes or random edits, half recorded valid frames with one field changed. Prints the seed, the frames
a decoder saw, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages import REQUESTS
from streamlet.kafka.records.compression import Compression
from streamlet.kafka.records.reading import ReadOptions, read_batches
from streamlet.kafka.records.writing import BatchFields, NewRecord, encode_batch
from streamlet.runtime import handshake
from streamlet.runtime.handshake import HELLO_BYTES, Hello, Refused
from streamlet.runtime.wire import BadFrame, FrameReader, FrameWriter, unpack
from tests.kafka.protocol import test_messages
from tests.runtime.test_wire import decodes_or_is_refused, mutated

FRAMES_AN_EXAMPLE = 25
KEY = b"k" * 32


def kafka_answers(count: int, rng: random.Random) -> int:
    """Every answer a broker may send, in every version we read."""
    examples = max(1, count // (FRAMES_AN_EXAMPLE * len(REQUESTS)))
    inner = test_messages.test_malformed_answers_give_a_value_or_a_named_error.hypothesis.inner_test  # type: ignore[attr-defined]
    for kind in REQUESTS.values():

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(data=st.data(), seed=st.integers(0, 1 << 32))
        def run(data: st.DataObject, seed: int) -> None:
            inner(kind=kind, data=data, seed=seed)  # noqa: B023

        run()
    return examples * FRAMES_AN_EXAMPLE * len(REQUESTS)


def record_batches(count: int, rng: random.Random) -> int:
    """Valid batches of every codec, edited, and random bytes."""
    records = [NewRecord(b"key", b"value %d" % n) for n in range(20)]
    valid = [encode_batch(records, BatchFields(compression=codec)) for codec in Compression]
    for number in range(count):
        data = (
            test_messages._mutate(rng, valid[number % len(valid)]) if number % 2 else rng.randbytes(rng.randrange(200))
        )
        try:
            for batch in read_batches(data, ReadOptions("t", 0, check_crcs=number % 3 == 0)):
                for index in range(len(batch.values)):
                    batch.headers(index)
        except (KafkaError, ValueError):
            pass
    return count


def worker_frames(count: int, rng: random.Random) -> int:
    """Frames of a worker that knows the secret, and of one that does not."""
    for number in range(count):
        payload = mutated(rng) if number % 2 else rng.randbytes(rng.randrange(200))
        decodes_or_is_refused(payload)
        if number % 8 == 0:
            frame = bytearray(FrameWriter(KEY).frame(payload))
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
            try:
                assert FrameReader(KEY, 1 << 20).feed(bytes(frame)) == []
            except BadFrame:
                pass
    return count


def control_messages(count: int, rng: random.Random) -> int:
    """msgpack of anything, and first words of strangers."""
    hello = handshake.encode_hello(Hello(1, b"r" * 16, 1, 1, 0), b"n" * 16)
    for number in range(count):
        try:
            if number % 2:
                unpack(rng.randbytes(rng.randrange(300)))
            else:
                handshake.decode_hello(test_messages._mutate(rng, hello)[:HELLO_BYTES].ljust(HELLO_BYTES, b"\0"))
        except (BadFrame, Refused):
            pass
    return count


PARTS: dict[str, Callable[[int, random.Random], int]] = {
    "Kafka answers": kafka_answers,
    "record batches": record_batches,
    "worker frames": worker_frames,
    "control messages": control_messages,
}


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.long_malformed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    total = 0
    for name, run in PARTS.items():
        started = time.monotonic()
        seen = run(options.frames // len(PARTS), rng)
        total += seen
        print(f"{name}: {seen:,} frames in {time.monotonic() - started:.0f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{total:,} frames, no crash, no hang; peak memory {peak} MiB")


if __name__ == "__main__":
    main()
