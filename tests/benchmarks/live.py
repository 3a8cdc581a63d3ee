"""Live load at steady rates: from a record's append to the broker's log until it is done.

    python -m tests.benchmarks.live [--rates 1000 20000 40000] [--linger 0 5] [--seconds 15] [--rounds 1]
                                    [--systems "1 worker" "2 workers" loop] [--climb]

A producer of librdkafka writes lines at each rate; the broker stamps each on its append (LogAppendTime, milliseconds).
Every system notes when a line was done: streamlet when its tree was acked, Storm too, the others when its last word was
counted. Systems run one after the other, round by round. A figure is shown only if every line was done, once at least.

Prints p50, p99, p99.9 and the worst, of the lines after the first two seconds; *kept up* where none was older than a
second; CPU microseconds a line of the system (all its processes) and of the broker, while the producer wrote.
``--climb`` raises the rate by a tenth from the last one given, until it is not kept up, and prints the highest.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from streamlet.devcluster.dev_cluster import DevCluster
from tests.benchmarks.word_count import generate

HERE = Path(__file__).resolve().parent
WARM_UP_S = 2.0
TICK_S = 0.002
"""Seconds between two moments at which the producer writes what is due."""
KEPT_UP_MS = 1000.0
"""Milliseconds that the oldest open line may be old while a system keeps up."""
CLIMB = 1.1
CLOCK_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figures:
    """What one run of one system gave: milliseconds, and CPU microseconds a line."""

    p50: float
    p99: float
    p999: float
    worst: float
    own_us: float
    broker_us: float

    @property
    def kept_up(self) -> bool:
        """Whether no line was older than a second."""
        return self.worst <= KEPT_UP_MS


@dataclass(frozen=True)
class Load:
    """Lines a second, for so many seconds, with the producer's linger in ms."""

    rate: int
    linger_ms: float
    seconds: float


def produce(servers: str, topic: str, load: Load) -> int:
    """Write lines at a steady rate; return how many."""
    settings = {"bootstrap.servers": servers, "linger.ms": load.linger_ms, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(settings)
    lines = cycle([line.encode() for line in generate(10_000)])
    started, sent = time.monotonic(), 0
    while (passed := time.monotonic() - started) < load.seconds:
        for _ in range(int(passed * load.rate) - sent):
            producer.produce(topic, next(lines), partition=0)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    if producer.flush(30):
        raise SystemExit("the producer could not deliver everything: no figure")
    return sent


def appended(servers: str, topic: str, count: int) -> list[int]:
    """Return the broker's stamp of each offset, ms."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "stamps", "fetch.queue.backoff.ms": 1})
    consumer.assign([TopicPartition(topic, 0, 0)])
    stamps: list[int] = []
    while len(stamps) < count:
        stamps += [message.timestamp()[1] for message in consumer.consume(10_000, 1.0)]
    consumer.close()
    return stamps


def cpu_s(root: int) -> float:
    """Return the CPU seconds of a process, its children that live, and those that ended."""
    total, todo = 0.0, [root]
    while todo:
        pid = todo.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) * CLOCK_TICK_S
    return total


class Rig:
    """The broker, and how each system is started."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.topics = 0

    def streamlet(self, topic: str, out: str, seconds: float, *more: str) -> subprocess.Popen[bytes]:
        """Start ``streamlet run``, to end by itself after so many seconds."""
        command = [sys.executable, "-m", "streamlet", "run", str(HERE / "topology_latency.py"), "--json"]
        command += ["-t", str(int(seconds)), "-c", f"benchmark.out={out}", "-c", f"lines.id={topic}"]
        command += ["-c", f"lines.hosts=kafka://{self.servers}", "-c", f"lines.topic={topic}", *more]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def rival(self, topic: str, out: str, seconds: float, *command: str) -> subprocess.Popen[bytes]:
        """Start a rival's live word count, to end by itself after so many seconds."""
        env = {**os.environ, "BENCHMARK_BOOTSTRAP": self.servers, "BENCHMARK_TOPIC": topic, "BENCHMARK_OUT": out}
        env["BENCHMARK_SECONDS"] = str(seconds)
        return subprocess.Popen([sys.executable, *command], env=env, stdout=subprocess.DEVNULL)

    def measure(
        self,
        start: Callable[[str, str, float], subprocess.Popen[bytes]],
        load: Load,
        lead_s: float,
        warm_up_s: float = WARM_UP_S,
    ) -> Figures:
        """Run one system under one load; lines of the first ``warm_up_s`` do not count.

        Raises SystemExit where a line was not done.
        """
        self.topics += 1
        topic = f"live-{self.topics}"
        self.cluster.create_topic(topic, 1, configs={"message.timestamp.type": "LogAppendTime"})
        jvm = self.cluster.members[-1].jvm
        assert jvm is not None
        broker = jvm.pid
        with tempfile.TemporaryDirectory() as out:
            run = start(topic, out, load.seconds + lead_s + 4)
            time.sleep(lead_s)  # it is there before the first record is; a late one would only be slow at first
            own, of_broker = cpu_s(run.pid), cpu_s(broker)
            sent = produce(self.servers, topic, load)
            own, of_broker = cpu_s(run.pid) - own, cpu_s(broker) - of_broker
            if run.wait(timeout=90) not in (0, -signal.SIGKILL):  # Bytewax's live flow ends itself so
                raise SystemExit("the run failed: no figure")
            times = array("d")
            for path in sorted(Path(out).glob("*.bin")):
                times.frombytes(path.read_bytes())
        done: dict[int, float] = {}
        for offset, at in zip(times[::2], times[1::2], strict=True):
            done[int(offset)] = max(at, done.get(int(offset), 0.0))
        stamps = appended(self.servers, topic, sent)
        warm = stamps[0] + warm_up_s * 1000
        missing = sent - len(done)
        waits = sorted(done[offset] * 1000 - at for offset, at in enumerate(stamps) if at >= warm and offset in done)
        waits += [float("inf")] * missing
        return Figures(
            *(waits[int(len(waits) * share)] for share in (0.5, 0.99, 0.999)),
            waits[-1],
            own / sent * 1e6,
            of_broker / sent * 1e6,
        )


def main() -> None:
    """Run every system at every rate; print a line each."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rates", type=int, nargs="+", default=[1000, 20_000, 40_000])
    parser.add_argument("--linger", type=float, nargs="+", default=[0.0, 5.0])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--systems", nargs="+", default=["default", "1 worker", "2 workers", "loop"])
    parser.add_argument("--climb", action="store_true")
    parser.add_argument("--setting", "-c", action="append", default=[], help="of streamlet, KEY=VALUE")
    options = parser.parse_args()
    settings = [word for setting in options.setting for word in ("-c", setting)]
    with DevCluster(kafka="4", figures=True) as cluster:
        rig = Rig(cluster)
        loop, bytewax, storm = (
            str(HERE / "rivals" / name) for name in ("live_loop.py", "live_bytewax.py", "storm_word_count.py")
        )
        systems: dict[str, tuple[float, Callable[[str, str, float], subprocess.Popen[bytes]]]] = {
            "default": (2.5, lambda *run: rig.streamlet(*run, *settings)),
            "1 worker": (2.5, lambda *run: rig.streamlet(*run, "--workers", "1", *settings)),
            "2 workers": (2.5, lambda *run: rig.streamlet(*run, "--workers", "2", *settings)),
            "loop": (2.5, lambda *run: rig.rival(*run, loop)),
            "bytewax": (2.5, lambda *run: rig.rival(*run, "-m", "bytewax.run", f"{bytewax}:flow")),
            "storm": (12.0, lambda *run: rig.rival(*run, storm, "live")),
        }
        for linger in options.linger:
            for rate in options.rates:
                found: dict[str, list[Figures]] = {name: [] for name in options.systems}
                for _ in range(options.rounds):
                    for name in options.systems:
                        lead_s, start = systems[name]
                        found[name].append(rig.measure(start, Load(rate, linger, options.seconds), lead_s))
                        report(name, Load(rate, linger, options.seconds), found[name][-1:])
                if options.rounds > 1:
                    for name, figures in found.items():
                        report(f"{name}, median", Load(rate, linger, options.seconds), figures)
            if options.climb:
                for name in options.systems:
                    climb(rig, name, *systems[name], Load(options.rates[-1], linger, options.seconds))


def climb(
    rig: Rig, name: str, lead_s: float, start: Callable[[str, str, float], subprocess.Popen[bytes]], load: Load
) -> None:
    """Raise the rate until it is not kept up, twice; print the highest."""
    rate, highest = load.rate, 0
    while True:
        tried = Load(rate, load.linger_ms, load.seconds)
        for _ in range(2):
            figures = rig.measure(start, tried, lead_s)
            report(name, tried, [figures])
            if figures.kept_up:
                break
        else:
            break
        highest, rate = rate, int(rate * CLIMB)
    print(f"{name}, linger {load.linger_ms:g} ms: keeps up with {highest:,} lines/s", flush=True)


def report(name: str, load: Load, found: list[Figures]) -> None:
    """Print one line."""
    p50, p99, p999, worst, own, broker = (
        statistics.median(getattr(one, key) for one in found)
        for key in ("p50", "p99", "p999", "worst", "own_us", "broker_us")
    )
    kept = "kept up" if worst <= KEPT_UP_MS else "BEHIND"
    print(
        f"{load.rate:7,}/s linger {load.linger_ms:g}  {name:18} p50 {p50:7.1f}  p99 {p99:7.1f}  p99.9 {p999:7.1f}  "
        f"worst {worst:8.1f} ms  {kept:7}  CPU us a line {own:6.1f}, broker {broker:6.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
