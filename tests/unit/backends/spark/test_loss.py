"""What is said of an application that is gone."""

from __future__ import annotations

from streamlet.backends.spark.loss import Loss, spark_lost

LATE = "was lost by Spark: org.apache.spark.SparkException: Job 2 cancelled because SparkContext was shut down."
TOO_LATE = "was lost by Spark: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
CAUSE = "was lost by Spark: org.apache.spark.SparkException: Job aborted: Master removed our application: KILLED."


def test_of_a_stopped_application_sparks_reason_is_told() -> None:
    said = spark_lost(Loss.STOPPED, running=True, said=[LATE, CAUSE]).message
    assert (
        "(org.apache.spark.SparkException: Job aborted: Master removed our application: KILLED). What is tracked"
        in said
    )


def test_what_only_came_too_late_is_no_reason() -> None:
    said = spark_lost(Loss.STOPPED, running=True, said=[LATE, TOO_LATE]).message
    assert said.startswith("The Spark application was stopped while the topology ran, and its executors with it. What")


def test_before_a_run_nothing_is_said_to_be_read_again() -> None:
    said = spark_lost(Loss.JVM_ENDED, running=False).message
    assert said.startswith("Spark's driver JVM ended before the topology ran") and "read again" not in said
