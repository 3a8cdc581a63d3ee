"""The types of streams, as ``schemas`` names them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from streamlet import StreamId
from streamlet.base.errors import BadInput
from streamlet.model.dataframe_plan import KEYED, Stage, StageInput
from streamlet.spark.applying.frame_types import named_types, read_frame
from tests.topologies.nulls_within import NullsWithin

NULLS = StreamId("nulls")


def test_a_type_within_a_type_may_be_null_though_schemas_says_not_null() -> None:
    """A bolt may emit None anywhere, and Spark believes "not null" without a look."""
    row = StructField("row", StructType([StructField("n", LongType(), False)]), False)
    numbers = StructField("numbers", ArrayType(ArrayType(LongType(), False), False), False)
    found = named_types(NullsWithin.__topology__, [NULLS], {"nulls": StructType([row, numbers])})
    inner = StructType([StructField("n", LongType())])
    assert found[NULLS] == StructType([StructField("c0", ArrayType(ArrayType(LongType()))), StructField("c1", inner)])


LONGS = ArrayType(LongType())


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (LONGS, "array<bigint>"),
        (ArrayType(LONGS), "array<array<bigint>>"),
        (StructType([StructField("in", StructType([StructField("n", LONGS)]))]), "struct<in:struct<n:array<bigint>>>"),
    ],
    ids=["array", "array-of-arrays", "within-structs"],
)
@pytest.mark.parametrize("others", [0, 1])
def test_a_key_with_an_array_is_refused_in_a_stream_by_component_and_field(
    kind: DataType, said: str, others: int
) -> None:
    """Of one input, and of several."""
    streams = [StreamId("split"), StreamId("lower")][: 1 + others]
    types = {one: StructType([StructField("c0", LongType()), StructField("c1", kind)]) for one in streams}
    inputs = tuple(StageInput(one, ("n", "words"), ("words",)) for one in streams)
    stage = Stage(KEYED, inputs, ("count",), (StreamId("count"),))
    with pytest.raises(BadInput) as caught:
        read_frame(stage, {}, types, True)
    told = str(caught.value)
    assert told.startswith(f"count reads split grouped by 'words', which is {said}: ")
    assert "group by these" in told and "\n" not in told
