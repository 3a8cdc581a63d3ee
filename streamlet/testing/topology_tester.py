"""A whole topology: a worker with all tasks.

Spouts that read lists stand for the real ones, and bolts that keep records for those that write outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamlet.backends.contract import ComponentStatus
from streamlet.base.clock import ManualClock
from streamlet.base.errors import BadInput
from streamlet.components.batch import Batch
from streamlet.components.bolt import Bolt, KeptInTests
from streamlet.components.component import BoltPort
from streamlet.model.delivery import AT_LEAST_ONCE, DELIVERY
from streamlet.model.plan import make_plan
from streamlet.model.spec import BOLT, SPOUT
from streamlet.model.stream import DEFAULT_STREAM
from streamlet.model.topology import ComponentDef, TopologyMeta
from streamlet.running import FROM_PYTHON, check_topology, make_request, settings_given
from streamlet.runtime.links.links import NoLinks
from streamlet.runtime.tasks.task_stats import component_rows
from streamlet.testing.given import (
    GivenRows,
    GivenSpout,
    Limit,
    check_limit,
    counted,
    given_kwargs,
    given_row,
    given_rows,
)
from streamlet.testing.tester import KeptLetter, Tester


class TopologyTester(Tester):
    """A whole topology, with lists in place of some spouts.

    ``given`` names them. A row is a list of values, or a bare value for one field. Rows that fail are replayed after a
    back-off on the tester's clock, and given up, as the spout itself would do it: a KafkaSpout by its ``retry_limit``
    and ``on_poison``, a ReliableSpout by its ``max_fails``. Any other number for all lists: ``max_fails``.
    ``settings`` are those of ``streamlet.run``. Nothing flows before the first ``run``, ``give`` or ``advance``.

    It writes nothing to Kafka: a KafkaBolt, a DataFrameSink and any other bolt with ``kept_in_tests`` is not built; its
    records are ``written``, and its tuples acked. With ``topology.delivery: exactly-once`` it runs at least once, for
    nothing is committed.
    """

    def __init__(
        self,
        topology: TopologyMeta,
        given: Mapping[str, Iterable[Any]] | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        max_fails: Limit = "own",
        seed: int = 0,
        clock: ManualClock | None = None,
        raise_errors: bool = True,
    ) -> None:
        check_topology(topology, "TopologyTester")
        check_limit(max_fails)
        wanted = settings_given(settings)
        spec = topology.__topology__
        self._lists = {name: GivenRows(rows) for name, rows in given_rows(spec, given).items()}
        components = tuple(
            replace(component, cls=GivenSpout, kwargs=given_kwargs(component, self._lists[component.name], max_fails))
            if component.name in self._lists
            else component
            for component in spec.components
        )
        if any(getattr(component.cls, "commits_epochs", False) for component in components):
            wanted.append((DELIVERY, AT_LEAST_ONCE, FROM_PYTHON))
        request = make_request(replace(spec, components=components), wanted, backend="inline", writes=False)
        # Replaced after the check: what it says of the bolts is said of those that the user wrote.
        own = [_keeping(component, request.overrides.get(component.name, {})) for component in components]
        self._written = {bolt.name: bolt.kwargs["records"] for bolt in own if bolt.cls is _Keeper}
        overrides = {name: given for name, given in request.overrides.items() if name not in self._written}
        plan = make_plan(replace(request.topology, components=tuple(own)), 1)
        super().__init__(plan, request.conf, NoLinks(), seed, clock, raise_errors, overrides)

    @property
    def open_trees(self) -> int:
        """How many messages of spouts are neither acked nor failed."""
        return self._loop.ledgers.pending()

    def give(self, spout: str, *rows: Any, stream: str | None = None) -> None:
        """Add rows to a spout that is a list, and run. Raises as ``run``.

        ``stream`` None: the default one, or that of a row that is a ``Tuple``.
        """
        self._check_open()
        if spout not in self._lists:
            raise BadInput(f"The spout {spout!r} was not given as a list: TopologyTester(..., {{{spout!r}: []}}).")
        self._lists[spout].extend([given_row(self._definition(spout), row, stream) for row in rows])
        self.run()

    def written(self, bolt: str) -> list[Any]:
        """Return what a bolt would have written, in order: nothing was.

        Of a KafkaBolt the records, each with ``topic``, ``key``, ``value`` (bytes), ``headers``, ``partition`` and
        ``timestamp_ms``; of a DataFrameSink the rows, as dicts.
        """
        self._definition(bolt)
        if bolt not in self._written:
            those = ", ".join(map(repr, self._written)) or "none"
            raise BadInput(
                f"{bolt} writes nothing that a test keeps: a KafkaBolt or a DataFrameSink does, and a class with "
                f"kept_in_tests. Those that do: {those}. What it emits is in emitted({bolt!r})."
            )
        return [*self._written[bolt]]

    def _rows_left(self) -> int:
        return sum(map(len, self._lists.values()))

    def _still_open(self) -> tuple[str, str]:
        count = self.open_trees
        return (counted(count, "message", " of a spout" if count == 1 else " of spouts") if count else "", "")

    def emitted(self, component: str, stream: str = DEFAULT_STREAM) -> list[list[Any]]:
        """Return the values a component emitted on one stream, replays included."""
        self._definition(component)
        return self._emitted(component, stream)

    def acked(self, spout: str) -> list[Any]:
        """Return acked rows of a given list, else message ids."""
        return self._of_spout(spout, self._acked)

    def failed(self, spout: str) -> list[Any]:
        """Return failed rows of a given list, or message ids; one entry a failure."""
        return self._of_spout(spout, self._failed)

    def fail_reasons(self, spout: str) -> list[str]:
        """Return why each of ``failed`` did, in the same order; empty: nothing was said."""
        return self._of_spout(spout, self._fail_reasons)

    def given_up(self, spout: str) -> list[list[Any]]:
        """Return the rows that will not be sent again."""
        return self._of_spout(spout, self._given_up)

    def dead_letters(self, spout: str) -> list[KeptLetter]:
        """Return values and reason of each dead letter, with its ``tries``.

        Rows that a bolt sent there, and with ``on_poison="dead-letter"`` those whose tries are used up. ``given_up``
        has them, too.
        """
        return self._of_spout(spout, self._dead_letters)

    def instances(self, component: str) -> list[Any]:
        """Return the component's objects, in the order of their task index."""
        self._definition(component)
        return [live.component for live in self._live(component)]

    def status(self, component: str) -> ComponentStatus:
        """Return a component's counters and metrics over all its tasks."""
        self._definition(component)
        self._loop.ledgers.note_open()
        pairs = [(live.plan.component, live.task.stats.snapshot()) for live in self._loop.tasks.values()]
        rows = {row["name"]: row for row in component_rows(self._loop.plan.topology, pairs)}
        return ComponentStatus(**rows[component])

    def _of_spout(self, spout: str, lists: Mapping[str, list[Any]]) -> list[Any]:
        if self._definition(spout).kind != SPOUT:
            raise BadInput(f"{spout} is a bolt: messages are acked, failed and given up at spouts.")
        return [*lists.get(spout, [])]

    def _definition(self, name: str) -> ComponentDef:
        topology = self._loop.plan.topology
        try:
            return topology.component(name)
        except KeyError:
            names = ", ".join(component.name for component in topology.components)
            raise BadInput(f"{topology.name} has no component {name!r}. It has: {names}.") from None


class _Keeper(Bolt):
    """Stands for a bolt that writes outside: keeps what that would write, and acks."""

    named_values = True  # the functions of a KafkaBolt may read fields by their names

    def __init__(self, make: KeptInTests, records: list[Any]) -> None:
        self._make = make
        self._records = records

    def bind(self, port: BoltPort) -> None:
        super().bind(port)
        self._complain = port.complain
        self._fail_told = port.fail_told

    def process_batch(self, batch: Batch) -> None:
        records, failed = self._make(batch)
        self._records += records
        for at, error in failed.items():
            self._fail_told(batch.tuples[at], error)
            self._complain(error, batch.tuples[at])


def _keeping(bolt: ComponentDef, overrides: Mapping[str, Any]) -> ComponentDef:
    """Return a bolt as it stands in a test: what writes outside is replaced."""
    if bolt.kind != BOLT:
        return bolt
    kwargs = bolt.cls.with_overrides(bolt.kwargs, overrides)
    make = bolt.cls.kept_in_tests(kwargs, bolt.name)
    return bolt if make is None else replace(bolt, cls=_Keeper, kwargs={"make": make, "records": []})
