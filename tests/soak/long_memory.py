"""Memory while a bolt sleeps for a minute and is slow from then on: a worker stays within 64 MiB of its first minute.

    python -m tests.soak.long_memory [--records 2000000] [--pending 20000] [--sleep 60] [--each-us 100]

Lines of 1 KiB go from the spout's worker to the slow bolt's and back, so that the link between them is full.
Ends with 1 when a worker grew by more, when one did not outlive its first minute and so has nothing to be compared,
when the run does not end, or when a line is missing. Arguments that give a shorter run than that are refused.
"""

from __future__ import annotations

import argparse
import functools
import operator
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from streamlet.devcluster import DevCluster
from tests.faults.rig import Run

RECORD_BYTES = 1024
ALLOWED_MIB = 64
FIRST_S = 60.0
COMPARED_S = 10.0


def produce(cluster: DevCluster, topic: str, records: int) -> None:
    """Numbered lines of 1 KiB."""
    cluster.create_topic(topic, partitions=2)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 20,
            "enable.idempotence": True,
            "batch.size": 1 << 20,
            "queue.buffering.max.kbytes": 1 << 18,
        }
    )
    filler = b"x" * (RECORD_BYTES - 8)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, number.to_bytes(8, "big") + filler, partition=number % 2)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


def rss_mib(pid: int) -> float | None:
    """Resident memory of a process; None when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), None)


def workers(run: Run) -> list[int]:
    """The worker processes of a run."""
    found = []
    for pid in run.alive():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"streamlet.runtime.worker.worker" in command:
            found.append(pid)
    return found


def watch(run: Run, patience_s: float) -> dict[int, tuple[float, float]]:
    """Until the run ends: for each worker its highest RSS in its first minute, and after (MiB)."""
    peaks: dict[int, tuple[float, float]] = {}
    born: dict[int, float] = {}
    told = deadline = time.monotonic()
    deadline += patience_s
    while not run.process.ended:
        now = time.monotonic()
        assert now < deadline, f"the run did not end within {patience_s:.0f} s: {run.tail()}"
        for pid in workers(run):
            mib = rss_mib(pid)
            if mib is None:
                continue
            first, later = peaks.get(pid, (0.0, 0.0))
            young = now - born.setdefault(pid, now) <= FIRST_S
            peaks[pid] = (max(first, mib), later) if young else (first, max(later, mib))
        if now - told >= 30:
            told = now
            (status,) = run.events("status")[-1:]
            done = {row["name"]: row["acked"] for row in status["components"]}
            print(f"{now - deadline + patience_s:5.0f} s  acked {done}  pending {status['pending']}  RSS {peaks}")
        time.sleep(0.5)
    return peaks


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.long_memory", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pending", type=int, default=20_000, help="topology.max.spout.pending")
    parser.add_argument("--sleep", type=float, default=60.0, help="seconds at the first tuple of the slow bolt")
    parser.add_argument("--each-us", type=float, default=100.0, help="microseconds at each further tuple")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds the run may take")
    asked = parser.parse_args()
    least = asked.sleep + asked.records * asked.each_us / 1e6
    if least < FIRST_S + COMPARED_S:
        parser.error(
            f"these arguments promise a run of {least:.0f} s: the first {FIRST_S:.0f} s are what the rest is compared "
            f"with, and that should be {COMPARED_S:.0f} s at least. Give more --records, or a longer --sleep."
        )
    topic = "memory"
    with DevCluster("3.9", figures=True) as cluster, tempfile.TemporaryDirectory() as folder:
        produce(cluster, topic, asked.records)
        values = {"zookeeper": cluster.zookeeper, "topic": topic, "folder": folder}
        values |= {"records": asked.records, "sleep_s": asked.sleep, "each_s": asked.each_us / 1e6}
        file = Path(folder, "memory.py")
        text = Path(__file__).with_name("memory_topology.py").read_text()
        file.write_text(text.replace("SETTINGS: dict[str, Any] = {}", f"SETTINGS: dict[str, Any] = {values!r}"))
        run = Run(file, Path(folder), {"topology.max.spout.pending": asked.pending}, "processes", 2)
        try:
            peaks = watch(run, asked.patience)
            result = run.finish()
        finally:
            run.close()
        bitmaps = [int.from_bytes(path.read_bytes(), "big") for path in Path(folder).glob("seen-*")]
        seen = functools.reduce(operator.or_, bitmaps, 0).bit_count()
    (lines,) = (row for row in result["components"] if row["name"] == "lines")
    print(f"{result['elapsed_s']:.0f} s, emitted {lines['emitted']}, failed {lines['failed']}, seen {seen}")
    faults = faults_in(peaks)
    if seen != asked.records:
        faults.append(f"{asked.records - seen} lines are missing")
    print("\n".join(faults) or "no fault")
    return 1 if faults else 0


def faults_in(peaks: dict[int, tuple[float, float]]) -> list[str]:
    """What is wrong with the peaks that ``watch`` saw; prints them."""
    faults = [] if peaks else ["no worker was seen"]
    for pid, (first, later) in peaks.items():
        print(f"worker {pid}: {first:.0f} MiB in its first minute, then at most {later:.0f} MiB")
        if not later:
            faults.append(f"worker {pid} did not outlive its first minute: nothing was compared")
        elif later > first + ALLOWED_MIB:
            faults.append(f"worker {pid} grew by {later - first:.0f} MiB, {ALLOWED_MIB} are allowed")
    return faults


if __name__ == "__main__":
    sys.exit(main())
