"""A relay that passes bytes on a while later, both ways: a distant broker on one machine. A process of its own.

    python -m tests.benchmarks.delaying_relay PORT TARGET

Begins without delay. Each line of standard input is a new delay, in milliseconds, for the bytes from then on.
"""

from __future__ import annotations

import asyncio
import sys


class Relay:
    """Passes bytes on between a port and its target. ``delay_s`` holds for each way."""

    def __init__(self, target: int) -> None:
        self.delay_s = 0.0
        self._target = target

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client with the target."""
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pass_on(reader, requests), self._pass_on(answers, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        writing = asyncio.ensure_future(self._write(late, writer))
        data = b"-"
        while data:
            try:
                data = await reader.read(1 << 18)
            except OSError:
                data = b""
            late.put_nowait((loop.time() + self.delay_s, data))
        await writing

    @staticmethod
    async def _write(late: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                due_s, data = await late.get()
                if due_s > loop.time():
                    await asyncio.sleep(due_s - loop.time())
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


async def main(port: int, target: int) -> None:
    """Relay until standard input ends."""
    relay = Relay(target)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with await asyncio.start_server(relay.accept, "127.0.0.1", port):
        print("ready", flush=True)
        async for line in commands:
            relay.delay_s = float(line) / 1000
            print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
