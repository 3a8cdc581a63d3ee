"""Bolts that catch their errors on threads of their own, or in process, and call fail with them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from streamlet import Bolt, ReliableSpout, Topology, TopologyContext, Tuple


class Thousands(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    n = 0

    def next_tuple(self) -> None:
        if self.n < 2000:
            self.n += 1
            self.emit([self.n], tup_id=self.n)

    def caught_up(self) -> bool:
        return self.n == 2000 and not self.has_unfinished()


class Catches(Bolt):
    auto_ack = False
    every = 10

    def process(self, tup: Tuple) -> None:
        try:
            if tup.values[0] % self.every == 0:
                undefined_name(tup)  # type: ignore[name-defined]  # noqa: F821 - the typing error of the test
            self.ack(tup)
        except Exception as error:
            self.fail(tup, error)


class CatchesThere(Catches):
    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.pool = ThreadPoolExecutor(4)

    def process(self, tup: Tuple) -> None:
        self.pool.submit(super().process, tup)


class AllCaughtThere(CatchesThere):
    every = 1


class AllCaughtLate(AllCaughtThere):
    """Fails nothing before its last tuple has come."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().initialize(conf, context)
        self.given: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.given.append(tup)
        if len(self.given) == 2000:
            self.pool.submit(lambda: [Catches.process(self, each) for each in self.given])


class Caught(Topology):
    numbers = Thousands.spec()
    price = Catches.spec(inputs=[numbers])


class CaughtThere(Topology):
    numbers = Thousands.spec()
    price = CatchesThere.spec(inputs=[numbers])


class AllThere(Topology):
    numbers = Thousands.spec()
    price = AllCaughtThere.spec(inputs=[numbers])


class AllLate(Topology):
    numbers = Thousands.spec()
    price = AllCaughtLate.spec(inputs=[numbers])
