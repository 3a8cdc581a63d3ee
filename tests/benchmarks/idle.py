"""What a consumer costs that has nothing to read: CPU beside its peers', and its requests, counted on the wire.

    pip install aiokafka kafka-python confluent-kafka
    python -m tests.benchmarks.idle [--seconds 60] [--rounds 3]

The broker advertises the port of a proxy that counts requests by API. A consumer is a member of a group, has a topic
with one quiet partition, and does nothing but poll for half a second each time. What waking up costs is the machine's
(some take 20 us for it, some a millisecond): so the rounds also run ``nothing``, which wakes as often and does no more.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import statistics
import subprocess
import sys
import threading
from collections import Counter

from streamlet.devcluster.dev_cluster import DevCluster
from streamlet.devcluster.machine import free_ports
from streamlet.kafka.protocol.schema import ApiKey
from tests.benchmarks.rivals.idle_clients import TOPIC

OURS, FLOOR = "streamlet", "nothing"
PEERS = {"kafka-python": "kafka", "aiokafka": "aiokafka", "confluent-kafka": "confluent_kafka"}
"""Of each client, what it is imported as."""


class CountingProxy:
    """Passes bytes on, and counts the requests by API. Its loop runs in a thread of its own."""

    def __init__(self, port: int, target: int) -> None:
        self.counts: Counter[str] = Counter()
        self._port, self._target = port, target
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        self._up.wait(10)

    def _run(self) -> None:
        self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", self._port))
        self._up.set()
        self._loop.run_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, downstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._requests(reader, downstream), self._answers(upstream, writer))

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                self.counts[self._name(int.from_bytes(frame[:2], "big"))] += 1
                writer.write(size + frame)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    @staticmethod
    def _name(key: int) -> str:
        return ApiKey(key).name if key in ApiKey.__members__.values() else f"API {key}, between brokers"

    @staticmethod
    async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


def run(client: str, servers: str, seconds: float, proxy: CountingProxy) -> tuple[float, Counter[str]]:
    """CPU of a core, as a fraction, and the requests that went by meanwhile."""
    command = [sys.executable, "-m", "tests.benchmarks.rivals.idle_clients", client, servers, str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        before = proxy.counts.copy()
        cpu = float(process.stdout.readline())
        counts = proxy.counts - before
        process.communicate("\n")
    return cpu / seconds, counts


def main() -> None:
    """Run the rounds, print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.idle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    peers = [name for name, module in PEERS.items() if importlib.util.find_spec(module)]
    cpu: dict[str, list[float]] = {name: [] for name in (OURS, FLOOR, *peers)}
    # Whoever asks the broker for metadata is sent to the proxy: clients, and the controller in the same process.
    proxy_port, zookeeper_port, broker_port = free_ports(3)
    proxy = CountingProxy(proxy_port, broker_port)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy_port}"}
    ports = (zookeeper_port, broker_port)
    with DevCluster(kafka="3.9", figures=True, broker_settings=advertised, preferred_ports=ports) as cluster:
        assert cluster.bootstrap_servers.endswith(f":{broker_port}")
        cluster.create_topic(TOPIC, 1)
        for turn in range(1, args.rounds + 1):
            for name, found in cpu.items():
                part, counts = run(name, f"127.0.0.1:{proxy_port}", args.seconds, proxy)
                found.append(part)
                print(f"round {turn}: {name} {part:.2%}", flush=True)
                if name == OURS:
                    for api, count in counts.most_common():
                        print(f"  {api:20} {count:6} ({count / args.seconds:.2f} a second)")
    ours, floor = statistics.median(cpu[OURS]), statistics.median(cpu[FLOOR])
    print(f"{args.seconds:.0f} s idle, median of {args.rounds}, of a core (wanted at most 0.3 %):")
    for name, found in cpu.items():
        print(f"  {name:16} {statistics.median(found):.2%}  ({', '.join(f'{part:.2%}' for part in found)})")
    print(f"  of ours, waking up takes {floor / ours:.0%} on this machine")


if __name__ == "__main__":
    main()
