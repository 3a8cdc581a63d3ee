from __future__ import annotations

import pytest

from streamlet.bolts.dataframe.column_types import SinkColumn, missing_fields, parse_columns


def test_columns_are_written_as_spark_writes_them() -> None:
    assert parse_columns(
        "station string, n BIGINT,celsius: double, `a, ``b`` c` ARRAY<array< int >>, at timestamp"
    ) == (
        SinkColumn("station", "string"),
        SinkColumn("n", "bigint"),
        SinkColumn("celsius", "double"),
        SinkColumn("a, `b` c", "int", 2),
        SinkColumn("at", "timestamp"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read as a column"),
        ("station", "'station' cannot be read as a column"),
        ("station string,", "cannot be read"),
        ("price decimal(10, 2), n int", "has the type 'decimal(10, 2)'. Known are string"),
        ("day date", "has the type 'date'"),
        ("n int, n long", "names the column 'n' twice"),
        ("Name string, n int, name string", "columns 'Name' and 'name', which differ in nothing but upper and lower"),
        ("`É` string, é string", "columns 'É' and 'é'"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_columns(text)
    assert said in str(refused.value)


def test_types_are_those_that_spark_reads() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    (names, at, plain) = parse_columns("names array<string>, at timestamp, plain smallint")
    assert names.arrow_type(pyarrow) == pyarrow.list_(pyarrow.string())
    assert at.arrow_type(pyarrow) == pyarrow.timestamp("us", tz="UTC")
    assert plain.arrow_type(pyarrow) == pyarrow.int16()


def test_a_column_that_a_source_has_not_is_named_before_the_run() -> None:
    columns = parse_columns("station string, n int")
    assert [*missing_fields(columns, "count", ("n", "station", "more"))] == []
    ((problem, _),) = missing_fields(columns, "count", ("n",))
    assert "'station'" in problem and "count" in problem
