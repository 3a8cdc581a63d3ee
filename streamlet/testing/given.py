"""Rows that a test gives: what fits a component's fields, and the spout that emits them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from streamlet.base.errors import BadInput, StreamletError, WrongArgument
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import FailReason, Spout, TriesInTests
from streamlet.components.tuples import Tuple
from streamlet.model.spec import BOLT, SPOUT
from streamlet.model.stream import DEFAULT_STREAM
from streamlet.model.topology import ComponentDef, TopologySpec


class GivenRow:
    """One row of a given list. It is its own message id: equal rows are different messages."""

    __slots__ = ("place", "stream", "values")

    def __init__(self, values: list[Any], stream: str = DEFAULT_STREAM) -> None:
        self.values = values
        self.stream = stream
        self.place = 0
        """Which of its list it is, from 0. Known once it was emitted."""

    def __repr__(self) -> str:
        return repr(self.values)


class GivenRows(deque[GivenRow]):
    """The rows of a list that no spout has taken yet."""

    taken = 0

    def take(self) -> GivenRow:
        """Take the next row, and give it its place."""
        row = self.popleft()
        row.place, self.taken = self.taken, self.taken + 1
        return row


Limit = int | Literal["own"] | None
"""Retries that a test sets for its lists; None: without end. "own": as each spout has it."""


class GivenSpout(ReliableSpout):
    """Emits the rows of a list that all its tasks share.

    It gives them up as the spout does that it stands for.
    """

    max_fails: ClassVar[int | None] = 3

    def __init__(self, rows: GivenRows, tries: TriesInTests, keeps_dead_letters: bool) -> None:
        self._rows = rows
        self._tries = tries
        self._poison: StreamletError | None = None
        self._letters = 0
        vars(self).update(max_fails=tries.max_fails, replay_backoff=tries.backoff)

    def next_tuple(self) -> None:
        self.on_timer()
        if self._rows:
            message = self._rows.take()
            stream = None if message.stream == DEFAULT_STREAM else message.stream
            self.emit(message.values, tup_id=message, stream=stream)

    def on_timer(self) -> None:
        """Raise what ends the run: as in a KafkaSpout, in no ``fail``."""
        if self._poison is not None:
            raise self._poison

    def given_up(self, tup_id: Hashable, values: Sequence[Any], fails: int) -> None:
        self._letters += self.makes_letter
        if self._tries.stops is None or self.makes_letter:
            super().given_up(tup_id, values, fails)
        else:
            self._poison = self._poison or self._tries.stops(cast(GivenRow, tup_id).place, fails, self.fail_cause)

    @property
    def makes_letter(self) -> bool:
        """Whether the row that is given up now is a dead letter."""
        return self._tries.keeps_letters or self.fail_reason is FailReason.DEAD_LETTER

    def kept_count(self) -> int:
        return self._letters

    def caught_up(self) -> bool:
        return not self._rows and not self.has_unfinished()

    @classmethod
    def takes_dead_letters(cls, kwargs: Mapping[str, Any]) -> bool:
        return bool(kwargs["keeps_dead_letters"])


def given_kwargs(spout: ComponentDef, rows: GivenRows, max_fails: Limit) -> dict[str, Any]:
    """Return the arguments of a ``GivenSpout`` that stands for a spout."""
    # A list stands for a spout, and keeps dead letters where that one does. Elsewhere the bolt is refused, as in a run.
    known = issubclass(spout.cls, Spout)
    keeps = known and spout.cls.takes_dead_letters(spout.kwargs)
    tries = (known and spout.cls.tries_in_tests(spout.kwargs)) or TriesInTests(3, ReliableSpout.replay_backoff)
    if not isinstance(max_fails, str):
        tries = tries._replace(max_fails=max_fails)
    return {"rows": rows, "tries": tries, "keeps_dead_letters": keeps}


def check_limit(max_fails: object) -> None:
    """Refuse what cannot be a number of retries. Raises WrongArgument."""
    number = isinstance(max_fails, int) and not isinstance(max_fails, bool) and max_fails >= 0
    if max_fails not in (None, "own") and not number:
        raise WrongArgument(
            f"max_fails= is {max_fails!r}: give how often a row that failed is sent again, a whole number of at least "
            '0, None for no limit, or leave it out ("own") for what each spout itself does.'
        )


def given_rows(topology: TopologySpec, given: object) -> dict[str, list[GivenRow]]:
    """Return the rows of each spout that is given as a list. Raises BadInput."""
    if given is not None and not isinstance(given, Mapping):
        raise WrongArgument(f'given= is {given!r}: give the rows of each spout, {{"lines": ["to be", "or not"]}}.')
    spouts = {component.name: component for component in topology.components if component.kind == SPOUT}
    lists: dict[str, list[GivenRow]] = {}
    bolts = {component.name for component in topology.components if component.kind == BOLT}
    for name, rows in (given or {}).items():
        if name in bolts:
            raise BadInput(
                f"{name} is a bolt of {topology.name}, and lists stand for spouts: {', '.join(spouts) or 'none'}. What "
                f"a bolt emits is in emitted({name!r}), and what a KafkaBolt would write in written({name!r})."
            )
        if name not in spouts:
            raise BadInput(f"{topology.name} has no spout {name!r}. It has: {', '.join(spouts) or 'none'}.")
        if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
            raise WrongArgument(f"The rows of {name!r} are {rows!r}: give a list of rows, [{rows!r}].")
        lists[name] = [given_row(spouts[name], row, None) for row in rows]
    return lists


def given_row(spout: ComponentDef, row: Any, stream: str | None) -> GivenRow:
    """Return a row with its stream. Raises BadInput for one that the spout does not declare."""
    name = stream or (row.stream if isinstance(row, Tuple) else DEFAULT_STREAM)
    if name != DEFAULT_STREAM:  # what the default stream lacks, emit says itself
        check_stream(spout, name)
    fields = next((declared.fields for declared in spout.streams() if declared.name == name), None)
    return GivenRow(row_values(row, spout.name, name, fields), name)


def row_values(given: Any, component: str, stream: str, fields: Sequence[str] | None) -> list[Any]:
    """Return the values of a row. Raises BadInput for one that does not fit the fields.

    ``fields`` None: they are not known.
    """
    is_list = isinstance(given, (list, tuple, Tuple))
    values = [*given.values] if isinstance(given, Tuple) else [*given] if is_list else [given]
    if fields is None or len(values) == len(fields):
        return values
    many, remedy = counted(len(values), "value", verb=False), "Give a list with a value for each, in this order"
    has = f"has {many}"
    if isinstance(given, Mapping):
        has = f"is a dict, which is {many}"
        remedy += f": [{', '.join(f'row[{name!r}]' for name in fields)}]"
    elif not is_list:
        has = f"is {many}"
    shown = values if isinstance(given, Tuple) else given
    raise BadInput(
        f"The row {shown!r:.200} {has}, and {component!r} emits {len(fields)} on its stream {stream!r}: "
        f"{', '.join(fields)}. {remedy}."
    )


def counted(count: int, what: str, of: str = "", verb: bool = True) -> str:
    """Return "1 tuple is" or "2 tuples are"."""
    said = f"{count} {what}{'' if count == 1 else 's'}{of}"
    return f"{said} {'is' if count == 1 else 'are'}" if verb else said


def check_stream(component: ComponentDef, stream: object) -> None:
    """Raise BadInput for a stream that a component does not declare."""
    names = [declared.name for declared in component.streams()]
    if stream not in names:
        listed = ", ".join(map(repr, names)) or "none"
        raise BadInput(f"{component.name} declares no stream {stream!r}. It declares: {listed}.")
