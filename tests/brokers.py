"""On which brokers a test runs, as names of fixtures."""

from __future__ import annotations

import os

ON_KAFKA_2_1 = "STREAMLET_TESTS_ON_KAFKA_2_1" in os.environ
"""A run of ``tests.soak.old_broker``, in which ``kafka39`` is a Kafka 2.1."""
BROKERS = ["kafka39", "kafka4"]
ONE_BROKER = ["kafka39"] if ON_KAFKA_2_1 else ["kafka4"]
"""For what does not depend on the broker's version and takes its time."""
