"""DataFrameSink: tuples as rows of Parquet files, acked when their file is there.

It stands on ``streamlet.components`` and on pyarrow, and knows neither Kafka nor Spark.
"""

from streamlet.bolts.dataframe.sink import DataFrameSink

__all__ = ["DataFrameSink"]
