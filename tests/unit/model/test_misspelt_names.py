"""Names that a hook was meant by are warned of; a class's own names are not."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import Batch, BatchingBolt, Bolt, ReliableSpout, Topology, Tuple
from streamlet.model.misspelt_names import misspelt
from streamlet.model.validate import warnings_of


class Typos(Bolt):
    auto_akc = False
    output = ["word"]

    def initialise(self, conf: Any, context: Any) -> None: ...

    def process(self, tup: Tuple) -> None: ...

    def proces_tick(self, tup: Tuple) -> None: ...

    def clean_up(self) -> None: ...


class SpoutTypos(ReliableSpout):
    outputs = ["word"]
    max_fail = 3

    def next_tuple(self) -> None: ...

    def de_activate(self) -> None: ...


class Own(Bolt):
    """Names that are alike, and used."""

    outputs = ["word"]
    processed = 0
    batches_size = 10

    def process(self, tup: Tuple) -> None:
        self.processed += 1
        self.process_bath([tup] * self.batches_size)

    def process_bath(self, tuples: list[Tuple]) -> None: ...

    def _initialise(self) -> None: ...


class ByBatch(Bolt):
    def process_batch(self, batch: Batch) -> None: ...


class Grouped(BatchingBolt):
    def process_batch(self, key: Any, tups: list[Tuple]) -> None: ...


class Derived(Typos):
    """A class of the user's between ours and theirs is looked at, too."""


@pytest.mark.parametrize(
    ("cls", "pairs"),
    [
        (
            Typos,
            [
                ("auto_akc", "auto_ack"),
                ("output", "outputs"),
                ("initialise", "initialize"),
                ("proces_tick", "process_tick"),
                ("clean_up", "cleanup"),
            ],
        ),
        (SpoutTypos, [("max_fail", "max_fails"), ("de_activate", "deactivate")]),
        (Own, []),
        (ByBatch, []),
        (Grouped, []),
    ],
)
def test_a_name_that_is_nearly_a_hooks_and_used_by_nothing_is_warned_of(
    cls: type, pairs: list[tuple[str, str]]
) -> None:
    place = f"{__name__}.{cls.__qualname__}"
    assert [*misspelt(cls)] == [
        f"{place} has {name}, which nothing uses: did you mean {meant!r}?" for name, meant in pairs
    ]
    assert [*misspelt(Derived)] == [*misspelt(Typos)]


def test_the_warnings_of_a_topology_hold_each_class_once() -> None:
    class Made(Topology):
        words = SpoutTypos.spec()
        first = Typos.spec(inputs=[words])
        second = Typos.spec(inputs=[words])

    assert len(warnings_of(Made.__topology__)) == 7
