"""Spouts that keep too much: each has its part, and one that stands for long is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.runtime.worker.spout_weights import TELL_HELD_AGAIN_S, TELL_HELD_S, WEIGH_S, SpoutWeights


def keeper(task_id: int) -> Any:
    return SimpleNamespace(task_id=task_id, kept_bytes=3 << 20, spout=SimpleNamespace(holds_back=False))


def weights(asked: list[tuple[int, int]]) -> SpoutWeights:
    return SpoutWeights(100, lambda spout, most: asked.append((spout.task_id, most)), "lines {}".format)


def test_each_spout_is_weighed_against_its_part_and_not_at_each_turn() -> None:
    asked: list[tuple[int, int]] = []
    looked, spouts = weights(asked), [keeper(1), keeper(2)]
    for now in (1.0, 1.0 + WEIGH_S / 2, 1.0 + WEIGH_S):
        looked.look_if_due(spouts, now)
    assert asked == [(1, 50), (2, 50), (1, 50), (2, 50)]
    looked.look_if_due([], 2.0)


def test_a_spout_that_holds_back_is_named_after_a_while_then_seldom_and_anew_once_it_has_gone_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looked, one = weights([]), keeper(7)

    def told(now: float, holds_back: bool = True) -> bool:
        before, one.spout.holds_back = len(caplog.records), holds_back
        looked.look_if_due([one], now)
        return len(caplog.records) > before

    moments = [
        0.0,
        TELL_HELD_S - 1,
        TELL_HELD_S,
        TELL_HELD_S + 1,
        TELL_HELD_AGAIN_S,
        TELL_HELD_AGAIN_S + 2 * TELL_HELD_S,
    ]
    assert [told(now) for now in moments] == [False, False, True, False, False, True]
    assert "lines 7 (task 7) has emitted nothing new for 10 s" in caplog.text and "take 3 MiB" in caplog.text
    went_on = moments[-1] + 1
    assert not told(went_on, holds_back=False)
    assert [told(went_on + later) for later in (1, TELL_HELD_S, TELL_HELD_S + 1)] == [False, False, True]
