"""Spark's DataFrames: Kafka as one, without a jar, and a topology's bolts on them.

Of the format ``options`` and ``planning`` decide; ``source`` and ``sink`` are what Spark calls, ``arrow_reader`` reads
one range of offsets on an executor, ``epochs`` writes one epoch's partition at most once. ``applying`` has the bolts,
``parts`` writes a DataFrame for a DataFrameSpout.
"""

from streamlet.spark.applying.apply import apply
from streamlet.spark.options import FORMAT
from streamlet.spark.parts import write_parts
from streamlet.spark.registration import register

__all__ = ["FORMAT", "apply", "register", "write_parts"]
