"""Whether a process has grown."""

from __future__ import annotations

import os
from typing import Any

import pytest

from streamlet.runtime.worker.memory_growth import LEAST_BYTES, LOOK_S, MemoryGrowth, ResidentMemory


def test_memory_has_grown_once_it_is_higher_than_ever_by_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([100, 100 + LEAST_BYTES - 1, 100 + LEAST_BYTES, 50, 100 + LEAST_BYTES])
    monkeypatch.setattr(ResidentMemory, "bytes", lambda self: next(sizes))
    growth = MemoryGrowth(1 << 20)
    assert [growth.look(float(now)) for now in range(5)] == [True, False, True, False, False]
    assert growth.looks_at == 4.0 + LOOK_S


def test_a_process_without_a_free_descriptor_goes_on_and_has_not_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = MemoryGrowth(1 << 20), MemoryGrowth(1 << 20)
    assert first.look(0.0) and first.resident.bytes() > 1 << 20

    def refused(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refused)
    assert second.resident.bytes() == 0 and not second.look(1.0)
    assert first.resident.bytes() > 1 << 20, "its own is open since before"
    first.resident.close()
    assert first.resident.bytes() == 0
