"""Slow bolts with every default: what waits longer than the time-out of 30 s is done once, and the run goes on.

    python -m tests.soak.long_slow_bolts [--seconds 180] [--records 300000]

Bolts of 30 ms, 1 s and 10 s a record, one that becomes slow, and a pool with one slow task, each in one worker and in
two, all at once: they sleep. Each run is ended by time. Ends with 1 when a record is done twice or left out, when one
times out or is given up, when nothing was acked in a quarter of the time, when the stored offset is past a record that
is not done, or behind one after a drain that came to its end, or when a run does not end with 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from streamlet.devcluster import DevCluster

FILE = Path(__file__).with_name("slow_bolts_topology.py")
TOPIC = "records"


class Case(NamedTuple):
    """A kind of slow bolt, and the seconds of its slowest record."""

    kind: str
    slowest_s: float
    topology: str = "SlowBolts"


CASES = (
    Case("0.03", 0.03),
    Case("1", 1.0),
    Case("10", 10.0),
    Case("becomes", 0.2),
    Case("unequal", 0.3, "UnequalTasks"),
)


class Found(NamedTuple):
    """A run, as its own result, its files and ZooKeeper tell it."""

    done: int
    acked: list[int]
    stored: int
    window: int
    wrong: list[str]


def run(cluster: DevCluster, case: Case, workers: int, seconds: float) -> Found:
    """Run one case to its end; look it up from outside."""
    name = f"{case.kind}-{workers}"
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "streamlet", "run", f"{FILE}:{case.topology}", "--json", "-t", str(seconds)]
        command += ["--workers", str(workers), "--drain-timeout", str(60 + 3 * case.slowest_s)]
        for setting in (
            f"slow.kind={case.kind}",
            f"slow.out={out}",
            f"records.id={name}",
            f"records.hosts=zk://{cluster.zookeeper}",
        ):
            command += ["-c", setting]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        numbers = [int(line) for path in Path(out).glob("done.*") for line in path.read_text().split()]
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    spouts = [row for line in lines for row in line.get("components", ()) if row["name"] == TOPIC and "acked" in row]
    wrong = [] if ended.returncode == 0 else [f"ended with {ended.returncode}: {lines[-1]}"]
    if not spouts:
        return Found(len(numbers), [], 0, 0, wrong)
    found = judge(numbers, spouts, stored_offset(cluster, name), lines[-1]["drained"])
    return found._replace(wrong=wrong + found.wrong)


def judge(numbers: list[int], spouts: list[dict[str, Any]], stored: int, drained: bool) -> Found:
    """Compare what was done with what was acked and stored."""
    wrong = []
    last = spouts[-1]
    quarters = [spouts[len(spouts) * quarter // 4]["acked"] for quarter in range(4)] + [last["acked"]]
    if len(set(numbers)) != len(numbers):
        wrong.append(f"{len(numbers) - len(set(numbers))} records were done twice")
    if set(numbers) != set(range(len(set(numbers)))):
        wrong.append("records were left out")
    if last["timed_out"] or last["failed"] or last["given_up"]:
        wrong.append(f"{last['timed_out']} timed out, {last['failed']} failed, {last['given_up']} given up")
    # The first quarter of a bolt of 10 s may be its start; from there on something is acked all the time.
    if any(after <= before for before, after in pairwise(quarters[1:])):
        wrong.append(f"acked by quarters: {quarters}")
    # A drain that is cut short may end between a record's last step and the news of it: that one is read again.
    if stored > len(set(numbers)) or (drained and stored < len(set(numbers))):
        wrong.append(f"{len(set(numbers))} done, but the stored offset is {stored}")
    return Found(len(numbers), quarters[1:], stored, last["window"], wrong)


def stored_offset(cluster: DevCluster, name: str) -> int:
    """Return the next offset that would be read, from ZooKeeper; -1 where none is stored."""
    client = KazooClient(cluster.zookeeper)
    client.start(10)
    try:
        return int(json.loads(client.get(f"/slow/{name}/partition_0")[0])["offset"])
    except NoNodeError:
        return -1
    finally:
        client.stop()
        client.close()


def main() -> int:
    """Run every case at once and print a line each."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.long_slow_bolts", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--records", type=int, default=300_000)
    asked = parser.parse_args()
    every = [(case, workers) for case in CASES for workers in (1, 2)]
    with DevCluster("3.9") as cluster, ThreadPoolExecutor(len(every)) as pool:
        cluster.create_topic(TOPIC, 1)
        cluster.produce(TOPIC, map(str, range(asked.records)))
        runs = [(case, workers, pool.submit(run, cluster, case, workers, asked.seconds)) for case, workers in every]
        bad = 0
        print(f"{'bolt':>8} workers     done   window   acked by quarters of the time")
        for case, workers, future in runs:
            found = future.result()
            bad += bool(found.wrong)
            told = "; ".join(found.wrong) or "each once, all stored"
            print(f"{case.kind:>8} {workers:7} {found.done:8} {found.window:8}   {found.acked}  {told}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
