"""The types of streams, as ``schemas`` names them."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from streamlet import StreamId
from streamlet.spark.applying.frame_types import named_types
from tests.topologies.nulls_within import NullsWithin

NULLS = StreamId("nulls")


def test_a_type_within_a_type_may_be_null_though_schemas_says_not_null() -> None:
    """A bolt may emit None anywhere, and Spark believes "not null" without a look."""
    row = StructField("row", StructType([StructField("n", LongType(), False)]), False)
    numbers = StructField("numbers", ArrayType(ArrayType(LongType(), False), False), False)
    found = named_types(NullsWithin.__topology__, [NULLS], {"nulls": StructType([row, numbers])})
    inner = StructType([StructField("n", LongType())])
    assert found[NULLS] == StructType([StructField("c0", ArrayType(ArrayType(LongType()))), StructField("c1", inner)])
