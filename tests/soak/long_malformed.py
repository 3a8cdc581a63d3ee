"""A million malformed frames through every decoder: a value or a named error, never anything else.

    python -m tests.soak.long_malformed [--frames 1000000] [--seed N]

Half are random bytes or random edits, half recorded valid frames with one field changed. Prints the seed, which gives
the same frames again (their CRC is printed, too), the frames a decoder saw, and the peak memory of the process. Ends
with 1 if that is above 128 MiB.
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import sys
import time
from collections.abc import Callable

from streamlet.runtime.links import handshake
from streamlet.runtime.links.handshake import HELLO_BYTES, Hello, Refused
from streamlet.runtime.links.wire import BadFrame, FrameReader, FrameWriter, unpack
from tests.unit.kafka.malformed import bytes_changed, run
from tests.unit.kafka.malformed_decoders import everything
from tests.unit.runtime.links.test_wire import decodes_or_is_refused, mutated

KEY = b"k" * 32
ALLOWED_MIB = 128
"""Of resident memory at the peak, the interpreter and the recorded frames included: twice of what it takes."""


def kafka_tower(count: int, rng: random.Random) -> int:
    """Every decoder of the Kafka tower and its bridge (``tests/unit/kafka/malformed_decoders.py``)."""
    tally = run(everything(), count, rng.randrange(2**32))
    for name, seen in tally.frames.items():
        print(f"  {name}: {seen:,} frames, {tally.values[name]:,} gave a value")
    print(f"  CRC-32 of these frames: {tally.digest:08x}")
    return tally.total


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
                handshake.decode_hello(bytes_changed(rng, hello)[:HELLO_BYTES].ljust(HELLO_BYTES, b"\0"))
        except (BadFrame, Refused):
            pass
    return count


PARTS: dict[str, Callable[[int, random.Random], int]] = {
    "Kafka": kafka_tower,
    "worker frames": worker_frames,
    "control messages": control_messages,
}


def main() -> int:
    """Run all parts."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.long_malformed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    logging.disable(logging.CRITICAL)
    rng = random.Random(options.seed)
    total = 0
    for name, part in PARTS.items():
        started = time.monotonic()
        # The Kafka tower has by far the most decoders.
        seen = part(options.frames * 8 // 10 if part is kafka_tower else options.frames // 10, rng)
        total += seen
        print(f"{name}: {seen:,} frames in {time.monotonic() - started:.0f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{total:,} frames, no crash, no hang; peak memory {peak} MiB, {ALLOWED_MIB} are allowed")
    return 1 if peak > ALLOWED_MIB else 0


if __name__ == "__main__":
    sys.exit(main())
