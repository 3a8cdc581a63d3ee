"""A process between the run and what it talks to: ``python wires.py SOCKET``. It cuts, silences and slows connections.

A process of its own, so that it goes on while the coordinator is stopped or dead. On the Unix socket SOCKET it takes
one JSON object a line and answers each with one:

``{"do": "listen", "group": G, "at": A, "to": A}``: pass connections on; an address A is a path, or a port on 127.0.0.1.
``{"do": "cut", "group": G}``: end them, both ways at once. ``{"do": "silence", "group": G, "ways": "there" | "back" |
"both"}``: nothing passes until it is healed, and no end is told. ``{"do": "slow", "group": G, "bytes_s": N, "delay_s":
S}``. ``{"do": "heal"}``. ``{"do": "count", "group": G}``: open connections, and bytes passed so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass, field
from typing import Any

THERE, BACK = "there", "back"
_CHUNK = 1 << 16


@dataclass
class Group:
    """Connections that share their fate. ``open`` is false for a way that is silent."""

    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    passes: dict[str, asyncio.Event] = field(default_factory=lambda: {THERE: _set(), BACK: _set()})
    bytes_s: float = 0.0
    delay_s: float = 0.0
    passed: int = 0

    def heal(self) -> None:
        self.bytes_s = self.delay_s = 0.0
        for way in self.passes.values():
            way.set()


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class Wires:
    """All groups, and the orders about them."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.servers: list[asyncio.Server] = []

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked; what came of it."""
        if order["do"] == "heal":
            for group in self.groups.values():
                group.heal()
            return {}
        group = self.groups.setdefault(order["group"], Group())
        if order["do"] == "listen":
            await self._listen(group, order["at"], order["to"])
        elif order["do"] == "silence":
            for way in (THERE, BACK) if order["ways"] == "both" else (order["ways"],):
                group.passes[way].clear()
        elif order["do"] == "slow":
            group.bytes_s, group.delay_s = order["bytes_s"], order["delay_s"]
        pairs = len(group.writers) // 2
        if order["do"] == "cut":
            for writer in list(group.writers):
                writer.transport.abort()
        return {"open": pairs, "passed": group.passed}

    async def _listen(self, group: Group, at: str | int, to: str | int) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                far_reader, far_writer = await _dial(to)
            except OSError:
                writer.transport.abort()
                return
            group.writers |= {writer, far_writer}
            await asyncio.gather(
                self._pump(group, THERE, reader, far_writer, writer),
                self._pump(group, BACK, far_reader, writer, far_writer),
            )
            group.writers -= {writer, far_writer}

        if isinstance(at, str):
            self.servers.append(await asyncio.start_unix_server(connected, at))
        else:
            self.servers.append(await asyncio.start_server(connected, "127.0.0.1", at))

    async def _pump(
        self,
        group: Group,
        way: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes on until either end goes; then end both, as soon as this way is not silent."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if group.delay_s or group.bytes_s:
                    await asyncio.sleep(group.delay_s + (len(data) / group.bytes_s if group.bytes_s else 0))
                await group.passes[way].wait()
                group.passed += len(data)
                writer.write(data)
                await writer.drain()
        await group.passes[way].wait()
        writer.close()
        back.close()


async def _dial(to: str | int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(to, str):
        return await asyncio.open_unix_connection(to)
    return await asyncio.open_connection("127.0.0.1", to)


async def serve(path: str) -> None:
    """For ever; whoever started it ends it."""
    wires = Wires()

    async def controlled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                writer.write(json.dumps(await wires.obey(json.loads(line))).encode() + b"\n")
                await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(controlled, path) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
