"""Consumers of real clusters, and what they read."""

from tests.consumers import cluster, make_consumer, produce

__all__ = ["cluster", "make_consumer", "produce"]
