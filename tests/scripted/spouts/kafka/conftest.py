"""A KafkaSpout without a topology around it."""

from tests.spout_harness import harness, witness4, witness39

__all__ = ["harness", "witness4", "witness39"]
