"""What a consumer costs that has nothing to read: CPU, and every request it sends, counted on the wire.

    python -m tests.benchmarks.idle [--seconds 60]

The broker advertises the port of a proxy that counts requests by API. The consumer is a member of a group, has a topic
with one quiet partition, and does nothing but poll. Its first ten seconds (metadata, joining) are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
from collections import Counter

from streamlet.kafka.protocol.api import ApiKey
from streamlet.testing.cluster import DevCluster
from streamlet.testing.ports import free_ports

WARM_UP_S = 10.0

CONSUMER = """
import sys, time
from streamlet.kafka import Consumer
servers, warm_up, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
def poll(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not consumer.poll(timeout_ms=500)
with Consumer("quiet", bootstrap_servers=servers, group_id="idle", auto_offset_reset="earliest") as consumer:
    poll(warm_up)
    print("begin", flush=True)
    before = time.process_time()
    poll(seconds)
    print(time.process_time() - before, flush=True)
    sys.stdin.readline()
"""


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


def main() -> None:
    """Run it, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.idle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    # Whoever asks the broker for metadata is sent to the proxy: clients, and the controller in the same process.
    proxy_port, zookeeper_port, broker_port = free_ports(3)
    proxy = CountingProxy(proxy_port, broker_port)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy_port}"}
    ports = (zookeeper_port, broker_port)
    with DevCluster(kafka="3.9", figures=True, broker_settings=advertised, preferred_ports=ports) as cluster:
        assert cluster.bootstrap_servers.endswith(f":{broker_port}")
        cluster.create_topic("quiet", 1)
        command = [sys.executable, "-c", CONSUMER, f"127.0.0.1:{proxy_port}", str(WARM_UP_S), str(seconds)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "begin\n"
            before = proxy.counts.copy()
            cpu = float(consumer.stdout.readline())
            counts = proxy.counts - before
            consumer.communicate("\n")
    print(f"{seconds:.0f} s idle: {cpu:.3f} s of CPU, {cpu / seconds:.2%} of a core (wanted below 0.5 %)")
    for name, count in counts.most_common():
        print(f"  {name:20} {count:6} ({count / seconds:.2f} a second)")


if __name__ == "__main__":
    main()
