"""What kept messages take, from a sample by size: near enough to the truth, whatever sizes are mixed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from streamlet.components.kept_bytes import LEAST_STEP, MESSAGE_BYTES, PARTS, KeptBytes

MOST = 64 << 20
STEP = MOST // PARTS


class Kept(NamedTuple):
    size: int
    mark: int


class Keeper:
    """Keeps messages that are sizes."""

    def __init__(self, most: int = MOST) -> None:
        self.unacked: dict[int, Kept] = {}
        self.passed = 0
        self.bytes = KeptBytes(lambda: self.unacked, self._over)
        self.bytes.bound(most)

    def _over(self) -> None:
        self.passed += 1

    def keep(self, tup_id: int, size: int) -> None:
        self.unacked[tup_id] = Kept(size, self.bytes.count(tup_id, size))

    @property
    def truth(self) -> int:
        return sum(kept.size + MESSAGE_BYTES for kept in self.unacked.values())


@pytest.mark.parametrize(("every", "large"), [(20, 5_000_000), (64, 200_000), (100, 500_000), (64, 9000), (7, 3000)])
def test_one_large_message_in_so_many_is_counted_at_every_offset(every: int, large: int) -> None:
    """Also where the large ones stay and the others are acked, or the other way round."""
    for offset in range(every):
        keeper = Keeper()
        while keeper.truth < MOST * 0.8 and len(keeper.unacked) < 4000:
            for _ in range(every):
                number = len(keeper.unacked)
                keeper.keep(number, large if number % every == offset else 60)
        for acked in ((), [n for n in keeper.unacked if n % every != offset], [*keeper.unacked]):
            for number in acked:
                keeper.unacked.pop(number, None)
            assert abs(keeper.bytes.look() - keeper.truth) <= MOST * 0.03, (offset, len(acked))
        assert keeper.bytes.look() == 0


@pytest.mark.parametrize("usual", [50, STEP // 3, STEP - 1, STEP])
def test_messages_of_one_size_are_counted_as_closely(usual: int) -> None:
    keeper = Keeper()
    for number in range(MOST // (usual + MESSAGE_BYTES) // 2):
        keeper.keep(number, usual)
    assert abs(keeper.bytes.look() - keeper.truth) <= MOST * 0.03
    for number in range(0, len(keeper.unacked), 2):
        del keeper.unacked[number]
    assert abs(keeper.bytes.look() - keeper.truth) <= MOST * 0.03


def test_sizes_by_chance_are_counted_as_closely() -> None:
    """No seed of the sizes is an unlucky one."""
    draws: list[Callable[[random.Random], int]] = [
        lambda chance: 500_000 if chance.random() < 0.01 else 50,
        lambda chance: int(chance.paretovariate(0.8) * 50),
        lambda chance: int(chance.lognormvariate(6, 3)),
    ]
    for draw in draws:
        for seed in range(20):
            keeper, chance = Keeper(), random.Random(seed)
            while not keeper.passed and len(keeper.unacked) < 20_000:
                keeper.keep(len(keeper.unacked), min(draw(chance), 5_000_000))
            assert keeper.truth < MOST * 1.03 + 5_000_000
            assert keeper.passed or abs(keeper.bytes.look() - keeper.truth) < MOST * 0.03


def test_a_large_message_is_counted_as_what_it_takes() -> None:
    keeper = Keeper()
    sizes = [STEP, STEP + 1, 7 * STEP, 3_000_000]
    for number, size in enumerate(sizes):
        keeper.keep(number, size)
    assert keeper.bytes.look() == keeper.truth


def test_an_id_that_is_emitted_again_counts_once() -> None:
    """By its replay, or for another message: with the mark of before, small ones would seem as large."""
    keeper = Keeper()
    for _ in range(50):
        keeper.keep(1, 1_000_000)
    assert keeper.bytes.look() == keeper.truth
    for _ in range(3):
        keeper.keep(1, 1)
    assert keeper.bytes.look() < 2 * STEP


def test_who_passes_the_bound_is_told_at_once_and_not_for_what_is_acked() -> None:
    keeper = Keeper(most=10_000_000)
    for number in range(50):
        keeper.unacked.clear()
        keeper.keep(number, 900_000)
    assert not keeper.passed, "the marks of those that are acked are looked through first"
    for number in range(50, 60):
        keeper.keep(number, 900_000)
    assert not keeper.passed
    keeper.keep(60, 900_000)
    assert keeper.passed == 1


def test_a_small_bound_has_a_least_step() -> None:
    keeper = Keeper(most=100_000)
    assert keeper.bytes.step == LEAST_STEP
    for number in range(50):
        keeper.keep(number, LEAST_STEP)
    assert keeper.bytes.look() == keeper.truth
