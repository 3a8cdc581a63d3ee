"""The producer's counts: a rate is the mean of the last minute."""

from __future__ import annotations

from streamlet.kafka.producer.metrics import ProducerMetrics, Rate


def test_p11_a_rate_is_the_mean_of_the_last_minute() -> None:
    """What happened a minute ago or earlier does not count any more."""
    rate = Rate()
    assert rate.per_second(0.0) == 0.0
    rate.add(60, 0.0)
    assert rate.per_second(0.0) == rate.per_second(59.0) == 1.0
    rate.add(15, 30.0)
    rate.add(15, 30.9)
    assert rate.per_second(59.0) == 1.5
    assert rate.per_second(61.0) == 0.5 and rate.per_second(91.0) == 0.0
    once = Rate()
    once.add(60, 0.0)
    assert once.per_second(61.0) == 0.0


def test_p11_failures_are_counted_by_topic_and_a_second() -> None:
    metrics = ProducerMetrics()
    metrics.failed("t", 40, 0.0)
    metrics.failed("u", 20, 0.0)
    found = metrics.snapshot(1.0)
    assert (found["records_failed"], found["failed_by_topic"]) == (60, {"t": 40, "u": 20})
    assert found["failed_per_second"] == 1.0
