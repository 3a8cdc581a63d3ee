"""Exactly once from topic to topic, through three bolts, while everything is killed and stopped.

    python -m tests.soak.exactly_once [--records 1000000] [--faults 40] [--seed N] [--delivery at-least-once]

Faults in random order: kill -9 of a worker, a worker that stands still (for longer than a transaction may last, or
than it is waited for), kill -9 of the whole run, of its coordinator alone, of a broker, a broker that stands still. A
bolt fails now and then, and one record in 250 goes to the dead letters. In the end librdkafka reads the committed
records: exactly the function of the input, each once, or its letter, once. Ends with 1 if not, and says the seed. With
``--delivery at-least-once`` it must find some twice.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from streamlet.devcluster import DevCluster
from tests.marked_processes import Marked, streamlet
from tests.read_back import read_back

PARTITIONS = 4
QUIET_S = 120.0
"""Seconds without a new record in the copy after which a run counts as stuck."""

FILE = """
import os, random
from streamlet import Batch, Bolt, Grouping, Topology
from streamlet.bolts.kafka import KafkaBolt
from streamlet.spouts.kafka import KafkaHosts, KafkaSpout, SpoutConfig

def here(context):
    with open(f"pid.{context.worker}", "w") as file:
        file.write(str(os.getpid()))

def decoded(record):
    if int(record.value) % 500 == 7:
        raise ValueError("poison")
    return [[record.value.decode()]]

class Number(Bolt):
    outputs = ["number"]
    def initialize(self, conf, context):
        here(context)
    def process_batch(self, batch: Batch):
        self.emit_many([[int(line)] for line in batch.values()])
        for tup in batch.tuples:
            if int(tup.values[0]) % 500 == 13:
                self.dead_letter(tup, "poison")

class Ends(Bolt):
    outputs = ["number", "end"]
    def process(self, tup):
        self.emit([tup.values[0], "a"])
        if random.random() < 0.00005:
            raise ValueError("now and then")
        self.emit([tup.values[0], "b"])

class Line(Bolt):
    outputs = ["line"]
    def initialize(self, conf, context):
        here(context)
    def process(self, tup):
        self.emit([f"{tup.values[0]:07d} {tup.values[1]}"])

class Copied(Topology):
    config = {"topology.delivery": "DELIVERY", "streamlet.worker.restarts.max": 1000}
    lines = KafkaSpout.spec(config=SpoutConfig(
        KafkaHosts("SERVERS"), "lines", id="copy", retry_initial_delay_ms=20, start_timeout_ms=120000, scheme=decoded,
        on_poison="dead-letter", dead_letter_topic="dead"
    ), par=2, outputs=["line"])
    number = Number.spec(inputs=[lines], par=2)
    ends = Ends.spec(inputs={number: Grouping.fields("number")}, par=2)
    line = Line.spec(inputs=[ends], par=3)
    out = KafkaBolt.spec(inputs=[line], hosts="SERVERS", topic="copy", transaction_timeout_ms=10000)
"""


def is_poison(number: int) -> bool:
    """Whether a number goes to the dead letters: undecodable, or sent there by a bolt."""
    return number % 500 in (7, 13)


class Soak:
    """A cluster, a run on three workers, and the faults that it lives through."""

    def __init__(self, cluster: DevCluster, folder: Path, records: int, delivery: str, chance: random.Random) -> None:
        self.cluster, self.folder, self.records, self.chance = cluster, folder, records, chance
        text = FILE.replace("SERVERS", cluster.bootstrap_servers).replace("DELIVERY", delivery)
        (folder / "copied.py").write_text(text)
        for topic in ("lines", "copy", "dead"):
            cluster.create_topic(topic, PARTITIONS, 3)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "enable.idempotence": True}
        )
        for number in range(records):
            while True:
                try:
                    producer.produce("lines", b"%d" % number, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0
        self.witness = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ends"})
        self.known = 0
        self.log = (folder / "log").open("w")
        self.run = self.start()

    def start(self) -> Marked:
        command = ["run", "copied.py", "--workers", "3", "--until-caught-up"]
        where = {"TMPDIR": str(self.folder)}
        return streamlet(command, where, cwd=self.folder, stdout=self.log, stderr=self.log)

    def written(self) -> int:
        """Records in the copy, about: aborted ones and markers are counted, too."""
        places = [TopicPartition("copy", number) for number in range(PARTITIONS)]
        with contextlib.suppress(KafkaException):  # a leader that has just gone: what was known counts
            self.known = sum(self.witness.get_watermark_offsets(place, 30)[1] for place in places)
        return self.known

    def until_written(self, count: int) -> None:
        """Wait for so many; start the run again where a fault has ended it."""
        last, moved = 0, time.monotonic()
        while (now := self.written()) < count and not self.over():
            if now != last:
                last, moved = now, time.monotonic()
            assert time.monotonic() - moved < QUIET_S, f"nothing written for {QUIET_S:g} s, at {now}"
            time.sleep(0.2)

    def over(self) -> bool:
        """Whether the run has caught up; one that a fault has ended is started again."""
        status = self.run.process.poll()
        if status in (None, 0):
            return status == 0
        self.run.end()
        self.run = self.start()
        return False

    def worker(self) -> int:
        """The process of some worker; 0: it is not known."""
        try:
            return int((self.folder / f"pid.{self.chance.randrange(3)}").read_text())
        except (OSError, ValueError):
            return 0

    def signal(self, pid: int, number: int) -> None:
        try:
            if pid:
                os.kill(pid, number)
        except ProcessLookupError:
            pass

    def fault(self) -> str:
        """Do something bad; return what."""
        broker = self.chance.randrange(3)
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                self.signal(self.worker(), signal.SIGKILL)
                return "a worker was killed"
            case 3 | 4:
                pid, seconds = self.worker(), self.chance.choice([2, 12, 25])
                self.signal(pid, signal.SIGSTOP)
                time.sleep(seconds)
                self.signal(pid, signal.SIGCONT)
                return f"a worker stood still for {seconds} s"
            case 5:
                os.kill(self.run.process.pid, signal.SIGKILL)
                if self.chance.random() < 0.5:
                    self.run.end()
                self.run.process.wait(60)
                return "the coordinator was killed"
            case 6:
                self.cluster.restart(broker, graceful=False)
                return f"broker {broker} was killed"
            case _:
                self.cluster.pause(broker)
                time.sleep(8)
                self.cluster.resume(broker)
                return f"broker {broker} stood still for 8 s"

    def play(self, faults: int) -> Counter[bytes | None]:
        """Do them all, wait for the end, and return the committed records of the copy and the dead letters."""
        for number in range(faults):
            self.until_written((number + 1) * 2 * self.records // (faults + 1))
            print(f"  {number + 1}: {self.fault()}, at {self.written()} records", flush=True)
        self.until_written(1 << 62)
        poison = sum(map(is_poison, range(self.records)))
        good = read_back(self.cluster, "copy", 2 * (self.records - poison), within_s=600)
        dead = read_back(self.cluster, "dead", poison, within_s=600)
        return Counter(row.value for row in good) + Counter(b"dead %b" % (row.value or b"") for row in dead)

    def close(self) -> None:
        self.run.end()
        self.log.close()
        self.witness.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.exactly_once", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--delivery", choices=("exactly-once", "at-least-once"), default="exactly-once")
    asked = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    print(f"{asked.delivery}, --seed {seed}", flush=True)
    began = time.monotonic()
    with DevCluster("4", brokers=3) as cluster, tempfile.TemporaryDirectory() as folder:
        soak = Soak(cluster, Path(folder), asked.records, asked.delivery, random.Random(seed))
        try:
            found = soak.play(asked.faults)
        except BaseException:
            print((Path(folder) / "log").read_text()[-20_000:], file=sys.stderr)
            raise
        finally:
            soak.close()
    numbers = range(asked.records)
    truth = Counter(b"%07d %b" % (number, end) for number in numbers if not is_poison(number) for end in (b"a", b"b"))
    truth += Counter(b"dead %d" % number for number in numbers if is_poison(number))
    missing, twice = (truth - found).total(), (found - truth).total()
    print(f"{found.total()} records, {missing} missing, {twice} too many, {time.monotonic() - began:.0f} s")
    wanted = twice > 0 if asked.delivery == "at-least-once" else twice == 0
    return 0 if wanted and not missing else 1


if __name__ == "__main__":
    sys.exit(main())
