"""From a Kafka record to the tuples made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, NamedTuple, Protocol

from streamlet.base.errors import SettingError
from streamlet.components.columns import Columns
from streamlet.components.tuples import NO_ROWS

Row = Sequence[Any]
"""The values of one tuple."""

Column = Sequence[bytes | memoryview | None]
"""Keys or values of many records; None is a null key or a tombstone."""

RowOfEach = list[Row | None] | Columns
"""One row, or None, for each of many records, in order."""


class Record(NamedTuple):
    """A record as a scheme sees it. ``timestamp`` is milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Scheme(Protocol):
    """The user's part: field names, and the tuples of one record. Runs on the worker's loop; must not block.

    None or an empty answer passes the record over: it counts as done. Raising makes it a poison record, which is
    reported with its topic, partition and offset; so does a row that is not a list of one value per field.

    A scheme may also have ``deserialize_columns(keys, values)``: one row, or None, for each record, in order. Whole
    batches then go through it in one pass; when it raises, the records are taken one by one through ``deserialize``,
    so that the bad one is named.
    """

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the fields, in order."""

    def deserialize(self, record: Record) -> Iterable[Row] | None:
        """Return one list of values for each tuple of the record."""


class RawScheme:
    """One field ``bytes``: the record's value as it is. A null value (tombstone) is passed over."""

    outputs = ("bytes",)

    def deserialize(self, record: Record) -> list[Row] | None:
        return None if record.value is None else [[bytes(record.value)]]

    def deserialize_columns(self, keys: Column, values: Column) -> RowOfEach:
        if None in values:
            return [None if value is None else [bytes(value)] for value in values]
        return Columns([[*map(_bytes, values)]])


class StringScheme:
    """The default: one field ``value``, the record's value as UTF-8 text. A tombstone is passed over."""

    outputs = ("value",)

    def deserialize(self, record: Record) -> list[Row] | None:
        return None if record.value is None else [[str(record.value, "utf-8")]]

    def deserialize_columns(self, keys: Column, values: Column) -> RowOfEach:
        try:  # this takes half the time of `str`
            return Columns([[*map(bytes.decode, values)]])  # type: ignore[arg-type]  # what is not bytes raises
        except TypeError:  # a tombstone, or a memoryview
            return [None if value is None else [str(value, "utf-8")] for value in values]


class KeyValueScheme:
    """Two fields ``key`` and ``value``, bytes or None each. Tombstones come too: here null says "deleted"."""

    outputs = ("key", "value")

    def deserialize(self, record: Record) -> list[Row] | None:
        return [[_bytes(record.key), _bytes(record.value)]]

    def deserialize_columns(self, keys: Column, values: Column) -> RowOfEach:
        return Columns([[*map(_bytes, keys)], [*map(_bytes, values)]])


class StringKeyValueScheme:
    """Two fields ``key`` and ``value``, UTF-8 text or None each; tombstones come too."""

    outputs = ("key", "value")

    def deserialize(self, record: Record) -> list[Row] | None:
        return [[_text(record.key), _text(record.value)]]

    def deserialize_columns(self, keys: Column, values: Column) -> RowOfEach:
        return Columns([[*map(_text, keys)], [*map(_text, values)]])


class FunctionScheme:
    """A plain function as a scheme; its field names stand in ``KafkaSpout.spec(outputs=[...])``."""

    def __init__(self, function: Callable[[Record], Iterable[Row] | None], outputs: Sequence[str]) -> None:
        self.outputs = tuple(outputs)
        self.deserialize = function


def columns_of(scheme: Scheme) -> Callable[[Column, Column], RowOfEach] | None:
    """Return the scheme's way with whole columns; None: take the records one by one."""
    # A class derived from a ready scheme with a `deserialize` of its own: the column method of its base class would
    # bypass that and emit the base's reading of a record. So the nearest class that defines one of the two decides.
    for cls in type(scheme).__mro__:
        if "deserialize_columns" in vars(cls):
            break
        if "deserialize" in vars(cls):
            return None
    return getattr(scheme, "deserialize_columns", None)


def misfit(scheme: Scheme, rows: Iterable[Any]) -> str | None:
    """Return a sentence about a row that does not fit; None: all fit."""
    width = len(scheme.outputs)
    for row in rows:
        if isinstance(row, NO_ROWS) or not isinstance(row, Sized) or len(row) != width or not _has_values(row):
            fields = ", ".join(scheme.outputs)
            return (
                f"{name_of(scheme)} gave {row!r:.120} as the values of a tuple, and declares {width} "
                f"field{'s' * (width != 1)}: {fields}. A tuple is a list with one value per field."
            )
    return None


def name_of(scheme: Scheme) -> str:
    """Return the user's name for a scheme: the function's, or the class's."""
    if isinstance(scheme, FunctionScheme):
        return str(getattr(scheme.deserialize, "__name__", None) or type(scheme.deserialize).__name__)
    return type(scheme).__name__


def _has_values(row: Any) -> bool:
    try:
        iter(row)
    except TypeError:
        return False
    return True


def made_of(scheme: Any) -> Any:
    """Return an object of a scheme's class; anything else unchanged. Raises SettingError."""
    # A user may give the class instead of an object: some ready schemes take no arguments.
    if not isinstance(scheme, type):
        return scheme
    try:
        return scheme()
    except TypeError as error:
        raise SettingError(
            f"The scheme is the class {scheme.__name__}, which cannot be made without arguments ({error}). Give an "
            f"object of it: scheme={scheme.__name__}(...)."
        ) from error


def as_scheme(scheme: Any, outputs: Any = None) -> Scheme:
    """Return a scheme for an object, a class or a plain function. Raises SettingError."""
    scheme = made_of(scheme)
    if hasattr(scheme, "deserialize"):
        if not getattr(scheme, "outputs", None):
            raise SettingError(
                f"The scheme {type(scheme).__name__} has no `outputs`: give it a class attribute with the names of "
                'the fields it makes, for example outputs = ["word"].'
            )
        return scheme  # type: ignore[no-any-return]  # checked by shape just above
    if callable(scheme):
        if not outputs:
            raise SettingError(
                f"The scheme {getattr(scheme, '__name__', scheme)!r} is a plain function, so its fields are unknown. "
                'Name them: KafkaSpout.spec(config=..., outputs=["word"]).'
            )
        return FunctionScheme(scheme, outputs)
    raise SettingError(
        f"The scheme is {scheme!r}. A scheme is an object with `outputs` and `deserialize(record)`, or a function "
        "from a record to a list of value lists."
    )


def _bytes(data: bytes | memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def _text(data: bytes | memoryview | None) -> str | None:
    return None if data is None else str(data, "utf-8")
