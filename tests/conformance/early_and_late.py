"""Emits at moments at which nothing is asked for: in ``initialize``, in ticks before all workers stand, in ``fail``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Spout, Topology, TopologyContext, Tuple
from tests.conformance.untracked_ways import Slow

SHARE = 5_000
"""Of 20 000: emitted by the spout in ``initialize`` tracked and untracked, by a bolt there, and by a bolt's ticks."""

HELD = 20_000
"""Messages that fail while the run drains, and that the spout emits again in ``fail``."""


class Early(Spout):
    """Has caught up when its tuples are acked and the bolt has ticked as often as it emits in ticks."""

    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.acked, self.ticked = 0, Path(conf["accounts.folder"], "ticked")
        for n in range(SHARE):
            self.emit([n])
            self.emit([SHARE + n], tup_id=n)

    def next_tuple(self) -> None: ...

    def ack(self, tup_id: Any) -> None:
        self.acked += 1

    def caught_up(self) -> bool:
        return self.acked == SHARE and self.ticked.exists()


class Eager(Bolt):
    outputs = ["n"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.ticks, self.ticked = 0, Path(conf["accounts.folder"], "ticked")
        for n in range(SHARE):
            self.emit([2 * SHARE + n])

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)

    def process_tick(self, tup: Tuple) -> None:
        if self.ticks < 10:  # on workers of their own: all before the others stand
            for n in range(SHARE // 10):
                self.emit([3 * SHARE + self.ticks * SHARE // 10 + n])
        self.ticks += 1
        if self.ticks == 10:
            self.ticked.touch()


class LateWriter(Slow):
    """Stands last: the others have ticked for a second when tuples may flow."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        time.sleep(1.0)


class Beginnings(Topology):
    config = {"accounts.folder": "", "accounts.sleep_s": 0.0, "topology.tick.tuple.freq.secs": 0.02}
    early = Early.spec()
    eager = Eager.spec(inputs=[early])
    writer = LateWriter.spec(inputs=[eager])


class Again(Spout):
    """Emits a failed message once more in ``fail``."""

    outputs = ["n", "again"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        if self.n < HELD:
            self.emit([self.n, False], tup_id=self.n)
            self.n += 1

    def fail(self, tup_id: Any) -> None:
        self.emit([tup_id, True], tup_id=tup_id)


class FailsInTheDrain(Bolt):
    """Keeps what comes first until the drain has begun, then fails it; takes what comes again."""

    auto_ack = False

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.folder, self.kept = Path(conf["accounts.folder"]), list[Tuple]()
        self.file = os.open(self.folder / "seen.0", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, tup: Tuple) -> None:
        if tup.values[1]:
            os.write(self.file, b"%d\n" % tup.values[0])
            self.ack(tup)
            return
        self.kept.append(tup)
        if len(self.kept) == HELD:
            (self.folder / "all held").touch()

    def process_tick(self, tup: Tuple) -> None:
        if (self.folder / "draining").exists():
            for kept in self.kept:
                self.fail(kept)
            self.kept.clear()

    def cleanup(self) -> None:
        os.close(self.file)


class Endings(Topology):
    # Its bolt fails as many tuples in a row as would end a run.
    config = {
        "accounts.folder": "",
        "topology.tick.tuple.freq.secs": 0.02,
        "topology.max.spout.pending": HELD,
        "streamlet.first.failures.max": 0,
    }
    again = Again.spec()
    fails = FailsInTheDrain.spec(inputs=[again])
