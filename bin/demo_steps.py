"""What ``bin/demo`` shows, step by step. Every number it prints as truth comes from Kafka's own tools or from kazoo."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kazoo.client import KazooClient

from streamlet.base.errors import StreamletError
from streamlet.devcluster.dev_cluster import DevCluster

TOPIC = "lines"
PARTITIONS = 2
WORD_COUNT = Path(__file__).parent.parent / "topologies" / "word_count.py"


def say(text: str) -> None:
    """Print a step at once: a pipe must not hold it back."""
    print(text, flush=True)


def lines(count: int) -> Iterator[str]:
    """Six random words a line, out of 5 000."""
    rng = random.Random(2014)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(5000)]
    for _ in range(count):
        yield " ".join(rng.choices(words, k=6))


def consumed(cluster: DevCluster, count: int) -> Counter[str]:
    """Count the words that Kafka's own console consumer reads: the truth."""
    truth: Counter[str] = Counter()
    for line in cluster.console_consume(TOPIC, max_messages=count):
        truth.update(line.split())
    return truth


def run(backend: str, cluster: DevCluster, out: Path) -> float:
    """``streamlet run`` to the end of the topic; seconds. Raises CalledProcessError."""
    command = [sys.executable, "-m", "streamlet", "run", str(WORD_COUNT), "--backend", backend, "--until-caught-up"]
    command += ["--workers", "2", "-c", f"lines.hosts=zk://{cluster.zookeeper}", "-c", f"lines.id=demo-{backend}"]
    command += ["-c", f"word_count.out={out}"]
    started = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - started


def counted(out: Path) -> Counter[str]:
    """Return the counts as the topology wrote them."""
    total: Counter[str] = Counter()
    for path in sorted(out.glob("counts.*.json")):
        total.update(json.loads(path.read_text()))
    return total


def committed(cluster: DevCluster, backend: str) -> dict[int, int]:
    """Return the offsets in ZooKeeper, read by kazoo alone."""
    client = KazooClient(cluster.zookeeper)
    client.start(timeout=10)
    try:
        root = f"/streamlet/demo-{backend}"
        nodes = client.get_children(root)
        found = (json.loads(client.get(f"{root}/{node}")[0]) for node in nodes if node.startswith("partition_"))
        return {entry["partition"]: entry["offset"] for entry in found}
    finally:
        client.stop()
        client.close()


def demo(backends: list[str], count: int) -> bool:
    """Run the steps; return whether all agreed."""
    agreed = True
    with tempfile.TemporaryDirectory(prefix="streamlet-demo-") as folder:
        say("Starting ZooKeeper and Kafka 3.9 on loopback ...")
        with DevCluster(kafka="3.9", progress=say) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
            cluster.produce(TOPIC, lines(count))
            truth = consumed(cluster, count)
            say(f"{count:,} lines are in topic {TOPIC!r}; Kafka's console consumer counts {truth.total():,} words.")
            ends = cluster.log_end_offsets(TOPIC)
            for backend in backends:
                say(f"\nCounting them with streamlet on {backend} ...")
                seconds = run(backend, cluster, Path(folder, backend))
                ours, offsets = counted(Path(folder, backend)), committed(cluster, backend)
                same, caught_up = ours == truth, offsets == ends
                agreed = agreed and same and caught_up
                say(f"  counts {'equal' if same else 'DIFFER FROM'} the console consumer's: {ours.total():,} words")
                say(f"  offsets in ZooKeeper {'equal' if caught_up else 'DIFFER FROM'} the log end: {offsets}")
                say(f"  {seconds:.1f} s from command to prompt")
    say("\nZooKeeper and Kafka are stopped, and their files are gone.")
    return agreed


def main() -> int:
    """Parse, run, and answer with the exit status."""
    parser = argparse.ArgumentParser(description="Count words from a real Kafka, and prove the counts.")
    parser.add_argument("--backend", choices=["processes", "spark"], help="only this one (default: both)")
    parser.add_argument("--lines", type=int, default=200_000)
    options = parser.parse_args()
    try:
        agreed = demo([options.backend] if options.backend else ["processes", "spark"], options.lines)
    except StreamletError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    except KeyboardInterrupt:
        return 130
    say("All counts agree." if agreed else "Something differs: see above.")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
