"""DataFrameSpout: the rows of a DataFrame, a part at a time, as tracked tuples.

It stands on ``streamlet.components`` and on pyarrow, and knows neither Kafka nor Spark: a part is a Parquet file.
"""

from streamlet.spouts.dataframe.spout import DataFrameSpout

__all__ = ["DataFrameSpout"]
