"""Workers on Spark executors: one single-task job for each worker slot.

The only package that imports pyspark. Not one job of N tasks and not a barrier stage: there, one death ends or restarts
everybody. Here a slot that dies is submitted again with the next epoch, and the others notice no more than a lost link.
"""

from streamlet.backends.spark.backend import SparkBackend

__all__ = ["SparkBackend"]
