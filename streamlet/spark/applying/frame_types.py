"""Types of streams, and the DataFrames between stages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql.functions import arrays_zip, col, explode, inline, lit, struct
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamlet.base.errors import BadInput
from streamlet.model.dataframe_plan import FREE, SINGLE, DataFramePlan, Stage, fields_of, stream_named
from streamlet.model.stream import StreamId
from streamlet.model.topology import TopologySpec
from streamlet.model.validate import listed, nearest
from streamlet.spark.applying.packed_rows import PackedRows
from streamlet.spark.applying.stage_columns import DEAD, DEAD_FIELDS, WHICH, RowsIn, RowsOut, column_names

_PLAIN = (
    *(BinaryType, BooleanType, ByteType, DoubleType, FloatType, IntegerType, LongType, NullType, ShortType),
    *(StringType, TimestampType),
)
_DEAD_TYPE = StructType([StructField(f"c{at}", StringType()) for at in range(len(DEAD_FIELDS))])


class Made(NamedTuple):
    """A frame, and what ``mapInArrow`` calls on it."""

    frame: Any
    by: Any


def named_types(topology: TopologySpec, leaving: Sequence[StreamId], schemas: Mapping[str, Any]) -> dict[StreamId, Any]:
    """Return the types of streams that leave a stage. Raises BadInput with every problem."""
    declared = {
        str(StreamId(one.name, stream.name)): stream.fields for one in topology.components for stream in one.streams()
    }
    given = {str(stream_named(name)): schema for name, schema in schemas.items() if isinstance(name, str)}
    problems = [
        f"schemas= names {name!r}, and no component gives a stream of that name. "
        + nearest(name, declared, f"There are: {listed(declared)}.")
        for name in given
        if name not in declared
    ]
    types: dict[StreamId, Any] = {}
    missing: list[str] = []
    for sid in leaving:
        fields = declared[str(sid)]
        if str(sid) not in given:
            columns = ", ".join(f"{field} TYPE" for field in fields)
            missing.append(f'"{sid}": "{columns}"')
            continue
        schema = _parsed(str(sid), given[str(sid)], problems)
        if schema is None:
            continue
        if sorted(schema.names) != sorted(fields):
            problems.append(
                f"schemas= says that {sid} has {', '.join(schema.names)}, and the bolt declares {', '.join(fields)}."
            )
            continue
        problems += types_problems(f"schemas= of {sid}", schema)
        # Rule: whatever leaves Python may be null, within arrays and structs, too. Spark believes "not null" without a
        # look, and a None would end the job with an error of Java's that names no bolt.
        types[sid] = _numbered([_nullable(schema[field].dataType) for field in fields])
    if missing:
        problems.append(
            "The types of these columns are not known, for a bolt declares names only. Put string, long, double, "
            f"boolean, binary, timestamp, ... in place of TYPE: schemas={{{', '.join(missing)}}}."
        )
    if problems:
        raise BadInput("\n".join(problems))
    return types


def _parsed(name: str, given: Any, problems: list[str]) -> Any:
    if isinstance(given, StructType):
        return given
    try:
        return StructType.fromDDL(given)
    except Exception as error:  # noqa: BLE001 - of Spark's parser, or of what was given
        told = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        problems.append(f'schemas= of {name} is {given!r:.100}: give columns as "word string, n long". ({told:.200})')
        return None


def given_columns(plan: DataFramePlan, frames: Mapping[str, Any]) -> dict[StreamId, tuple[Any, Any]]:
    """Return each source's fields as a DataFrame, and their types. Raises BadInput."""
    problems: list[str] = []
    found: dict[StreamId, tuple[Any, Any]] = {}
    for sid in plan.sources:
        frame, fields = frames[str(sid)], fields_of(plan.topology, sid)
        missing = [field for field in fields if field not in frame.columns]
        if missing:
            problems.append(
                f"The DataFrame for {sid} has no column {' and none '.join(map(repr, missing))}: it has "
                f"{', '.join(frame.columns) or 'none'}, and {sid} declares {', '.join(fields)}. Rename columns: "
                f'df.withColumnRenamed("...", "{missing[0]}").'
            )
            continue
        chosen = frame.select(*[col(_quoted(field)).alias(f"c{at}") for at, field in enumerate(fields)])
        named = StructType([frame.schema[field] for field in fields])
        problems += types_problems(f"The DataFrame for {sid}", named)
        found[sid] = chosen, _numbered([field.dataType for field in named])
    if problems:
        raise BadInput("\n".join(problems))
    return found


def _quoted(field: str) -> str:
    # Of a name alone Spark would read dots as the way into a struct.
    return "`" + field.replace("`", "``") + "`"


def types_problems(what: str, schema: Any) -> Iterator[str]:
    """Yield the columns whose type no tuple can hold."""
    for field in schema:
        wrong = _wrong_type(field.dataType)
        if wrong is not None:
            yield (
                f"{what} has the column {field.name!r} of type {wrong.simpleString()}, which no tuple can hold. "
                "Cast it: decimals to double or string, dates to string or timestamp, maps to a struct or JSON text."
            )


def _wrong_type(kind: DataType) -> Any:
    if isinstance(kind, ArrayType):
        return _wrong_type(kind.elementType)
    if isinstance(kind, StructType):
        return next((wrong for field in kind if (wrong := _wrong_type(field.dataType)) is not None), None)
    return None if isinstance(kind, _PLAIN) else kind


def _nullable(kind: DataType) -> DataType:
    """Return a type whose inner ones may all be null."""
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind])
    return kind


def _numbered(kinds: Sequence[Any]) -> Any:
    return StructType([StructField(f"c{at}", kind) for at, kind in enumerate(kinds)])


def read_frame(
    stage: Stage, frames: Mapping[StreamId, Any], types: Mapping[StreamId, Any], streaming: bool
) -> tuple[Any, RowsIn, list[Any]]:
    """Return a stage's inputs as one DataFrame, their layout, and key columns."""
    inputs = stage.inputs
    streams = tuple(one.stream for one in inputs)
    widths = tuple(len(one.fields) for one in inputs)
    single = stage.kind == SINGLE
    _check_keys(stage, types)
    if streaming:
        _check_stream_keys(stage, types)
    if len(inputs) == 1:
        frame, key = frames[streams[0]], [col(f"c{inputs[0].fields.index(field)}") for field in inputs[0].key]
        if not streaming or stage.kind == FREE:
            return frame, RowsIn(streams, widths), key
        named = [one.alias(f"k{n}") for n, one in enumerate([lit(0)] if single else key)]
        return frame.select(*named, *frame.columns), RowsIn(streams, widths, len(named)), _key_columns(len(named))
    count = 1 if single else len(inputs[0].key)
    parts = []
    for at, one in enumerate(inputs):
        places = [one.fields.index(field) for field in one.key]
        key = [lit(0).alias("k0")] if single else [col(f"c{place}").alias(f"k{n}") for n, place in enumerate(places)]
        row = struct(*[col(name) for name in column_names(len(one.fields))])
        values = [
            (row if other == at else lit(None).cast(types[sid])).alias(f"v{other}") for other, sid in enumerate(streams)
        ]
        parts.append(frames[one.stream].select(*key, lit(at).alias(WHICH), *values))
    whole = reduce(lambda one, other: one.unionAll(other), parts)
    return whole, RowsIn(streams, widths, count), _key_columns(count)


def _key_columns(count: int) -> list[Any]:
    return [col(f"k{n}") for n in range(count)]


def packed_frame(frame: Any, rows_in: RowsIn, stage: Stage, made: Mapping[StreamId, Made]) -> Any:
    """Return a stage's frame with the rows of a key in lists.

    What one function alone has ``made``, the same one packs.
    """
    alone = rows_in.keys + (len(rows_in.streams) > 1)
    fields = [
        field if at < alone else StructField(field.name, ArrayType(field.dataType))
        for at, field in enumerate(frame.schema)
    ]
    schema = StructType(fields)
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    first, *others = stage.inputs
    if others or not first.key or first.stream not in made:
        return frame.mapInArrow(PackedRows(alone, arrow_schema), schema)
    # Rule: what gives the rows packs them. As two functions in a row they would run in two processes for each task, and
    # each row would be written once more.
    before = made[first.stream]
    key = tuple(first.fields.index(field) for field in first.key)
    return before.frame.mapInArrow(PackedRows(alone, arrow_schema, before.by, key), schema)


def packed_schema(schema: Any, rows_out: RowsOut) -> Any:
    """Return the schema of packed rows for that of a stage's rows."""
    if len(rows_out.streams) == 1:
        return _lists(schema)
    first, *others = schema
    return StructType([first, *(StructField(field.name, _lists(field.dataType)) for field in others)])


def _lists(struct_type: Any) -> Any:
    return StructType([StructField(field.name, ArrayType(field.dataType)) for field in struct_type])


def unpacked_frames(made: Any, rows_out: RowsOut) -> list[Any]:
    """Return a DataFrame for each stream of packed rows."""
    return [
        frame.select(explode(col(frame.columns[0])).alias(frame.columns[0]))
        if len(frame.columns) == 1
        else frame.select(inline(arrays_zip(*(col(name) for name in frame.columns))))
        for frame in split_frame(made, rows_out)
    ]


def _check_keys(stage: Stage, types: Mapping[StreamId, Any]) -> None:
    """Refuse inputs whose key fields differ in type: equal values would not meet. Raises BadInput."""
    if stage.kind == FREE or not stage.inputs[0].key:
        return
    told: dict[str, str] = {}
    for one in stage.inputs:
        kinds = [types[one.stream][one.fields.index(field)].dataType.simpleString() for field in one.key]
        told[", ".join(kinds)] = f"{one.stream} by {', '.join(map(' '.join, zip(one.key, kinds, strict=True)))}"
    if len(told) > 1:
        raise BadInput(
            f"{stage.name} reads {' and '.join(told.values())}: values of different types do not meet. Cast the "
            "DataFrame's column, or name one type in schemas=."
        )


def _check_stream_keys(stage: Stage, types: Mapping[StreamId, Any]) -> None:
    """Refuse key fields whose type Spark cannot bring to its state. Raises BadInput."""
    # Rule: before the query starts. Spark lowers each letter of the key's schema on its way to Python, where an array
    # has no "elementtype": the first micro-batch would end with a KeyError of pyspark's that names no field.
    for one in stage.inputs:
        for field in one.key:
            kind = types[one.stream][one.fields.index(field)].dataType
            if _holds_array(kind):
                raise BadInput(
                    f"{stage.name} reads {one.stream} grouped by {field!r}, which is {kind.simpleString()}: in a "
                    "stream Spark keeps no state for a key that is an array, or that holds one. Give the key as text, "
                    "as JSON for example, or as several plain fields, and group by these. A batch takes such a key."
                )


def _holds_array(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_array(field.dataType) for field in kind)
    return isinstance(kind, ArrayType)


def written_schema(
    topology: TopologySpec,
    gives: Sequence[StreamId],
    types: Mapping[StreamId, Any],
    schemas: Mapping[str, Any],
    keeps_dead: bool,
) -> tuple[Any, RowsOut]:
    """Return the schema of a stage's rows, and their layout."""
    given = {str(stream_named(name)): schema for name, schema in schemas.items()}
    streams = (*gives, DEAD) if keeps_dead else tuple(gives)
    kinds = [_DEAD_TYPE if sid is DEAD else types[sid] for sid in streams]
    fields = tuple(DEAD_FIELDS if sid is DEAD else fields_of(topology, sid) for sid in streams)
    schema = kinds[0]
    if len(streams) > 1:
        columns = [StructField(f"v{at}", kind) for at, kind in enumerate(kinds)]
        schema = StructType([StructField(WHICH, IntegerType()), *columns])
    written = tuple(
        tuple(_as_written(given.get(str(sid)), field) for field in names)
        for sid, names in zip(streams, fields, strict=True)
    )
    return schema, RowsOut(streams, fields, to_arrow_schema(schema, timezone="UTC"), written)


def _as_written(given: Any, field: str) -> str:
    """Return the word that the user wrote for a type, or nothing."""
    # Spark has two words for most types, bigint and long, and tells the one that it likes better.
    if not isinstance(given, str) or "<" in given:
        return ""
    found = re.search(rf"(?:^|,)\s*`?{re.escape(field)}`?(?:\s*:\s*|\s+)(\w+)", given, re.IGNORECASE)
    return found[1] if found else ""


def split_frame(made: Any, rows_out: RowsOut) -> list[Any]:
    """Return a DataFrame for each stream that leaves a stage."""
    if len(rows_out.streams) == 1:
        return [made]
    parts = []
    for at, (sid, fields) in enumerate(zip(rows_out.streams, rows_out.fields, strict=True)):
        names = fields if sid is DEAD else column_names(len(fields))
        columns = [col(f"v{at}.c{place}").alias(name) for place, name in enumerate(names)]
        parts.append(made.where(col(WHICH) == at).select(*columns))
    return parts
