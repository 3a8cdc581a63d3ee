"""Consumers of real clusters, and what they read."""

from tests.consumers import make_consumer, produce

__all__ = ["make_consumer", "produce"]
