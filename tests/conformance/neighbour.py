"""Lies beside the suite's file, and nowhere else: what it says was said where it was imported."""

import os

GREETING = "imported from beside the topology"
IMPORTED_IN = os.getpid()


def introduce() -> list[object]:
    """Its greeting, and the process that imported it."""
    return [GREETING, IMPORTED_IN]
