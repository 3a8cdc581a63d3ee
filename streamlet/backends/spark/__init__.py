"""Workers on Spark executors: one single-task job a worker slot. The only package that imports pyspark.

Not one job of N tasks and not a barrier stage: there, one death ends or restarts everybody. Here a slot that dies is
resubmitted with the next epoch, and the others never notice more than a lost link.
"""

from streamlet.backends.spark.backend import SparkBackend

__all__ = ["SparkBackend"]
