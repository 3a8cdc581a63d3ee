"""The judges of ``tests.soak.long_faults``: the same seed gives the same faults, and what must not be is seen."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.offset_watcher import Version
from tests.soak.chaos import figures
from tests.soak.chaos.memory import MOST_GROWTH_MIB, Memory
from tests.soak.chaos.schedule import DECK, LONGEST_STOP_S, steps
from tests.soak.chaos.tally import Tally, by_the_deposed, owners

SPOUT, COUNT = 7, 8


def version(number: int, offset: int, epoch: int = 1, ns: int = 1000) -> Version:
    return Version(0, number, offset, epoch, 1, ns, seen=True)


def stored(tally: Tally, line: str, ns: int, spout: int = SPOUT) -> None:
    """A line is seen and each of its words is stored."""
    words = "".join(f"w {line}-{place}@{spout} {ns} {COUNT}\n" for place in range(3))
    tally.feed(f"s {line} {ns} {SPOUT}\n{words}".encode())


def test_a_seed_repeats_its_faults_and_another_has_others() -> None:
    def first(seed: int) -> list[str]:
        return [str(step) for step in itertools.islice(steps(seed), 80)]

    assert first(5) == first(5)
    assert first(5) != first(6)


def test_a_deck_has_every_kind_and_faults_are_numbered_without_a_gap() -> None:
    played = list(itertools.islice(steps(3), sum(DECK.values())))
    assert Counter(step.kind for step in played) == DECK
    numbers = sorted(one.number for step in played for one in (step, step.meanwhile) if one)
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(step.hold_s <= LONGEST_STOP_S for step in played)
    assert all(step.meanwhile.gap_s < step.hold_s for step in played if step.meanwhile)


def test_a_line_is_done_with_its_last_word_and_pending_until_then() -> None:
    tally = Tally(1)
    tally.feed(b"h spout 5 7\ns 0-0 10 8\nw 0-0-0@7 20 8\nw 0-0-1@7 3")
    assert (tally.seen, tally.done, tally.pending) == (1, 0, 1)
    tally.feed(b"0 8\nw 0-0-1@7 31 8\nw 0-0-2@7 40 8\n")
    assert (tally.done, tally.pending, tally.lines[0].done[0]) == (1, 0, 40)
    assert tally.began == {8: 10, 7: 20}
    assert tally.missing({0: 2}) == [(0, 1)]


def test_a_line_that_comes_again_counts_once_and_keeps_its_first_time() -> None:
    tally = Tally(1)
    stored(tally, "0-0", 10)
    stored(tally, "0-0", 90)
    assert (tally.done, tally.again, tally.lines[0].done[0]) == (1, 1, 10)


def test_a_run_is_through_when_every_partition_has_a_line_that_was_seen_after_the_mark() -> None:
    tally = Tally(2)
    tally.feed(b"s 0-0 10 8\n")
    tally.mark(50)
    stored(tally, "0-0", 60)
    assert tally.through() is None, "it was on its way before the fault"
    stored(tally, "0-1", 70)
    assert tally.through() is None, "nothing came from the other partition"
    stored(tally, "1-0", 80)
    assert tally.through() == 80


def test_a_commit_that_passes_an_open_line_is_found() -> None:
    tally = Tally(1)
    for offset in range(4):
        stored(tally, f"0-{offset}", 100 * (offset + 1))
    right = version(1, offset=4, ns=400)
    too_soon = version(2, offset=3, ns=299)
    never = version(3, offset=5, ns=900)
    assert tally.too_early({0: [version(0, 0), right, too_soon, never]}) == [too_soon, never]


def test_a_write_of_a_deposed_owner_and_a_commit_that_goes_back_are_found() -> None:
    old, new = version(0, 10, epoch=1), version(1, 10, epoch=2)
    deposed, back = version(2, 20, epoch=1), version(2, 9, epoch=2)
    assert not by_the_deposed({0: [old, new, version(2, 11, epoch=2)]})
    assert by_the_deposed({0: [old, new, deposed]}) == [deposed]
    assert by_the_deposed({0: [old, new, back]}) == [back]
    assert owners({0: [old, new], 1: [old]}) == 3


def test_a_word_that_a_deposed_worker_sends_after_it_was_woken_is_found_unless_it_stays_there() -> None:
    tally = Tally(1)
    tally.woken[SPOUT] = 50
    tally.feed(f"w 0-0-0@{SPOUT} 49 {COUNT}\nw 0-0-1@{SPOUT} 60 {SPOUT}\n".encode())
    assert not tally.late
    tally.feed(f"w 0-0-2@{SPOUT} 60 {COUNT}\n".encode())
    assert [late.word for late in tally.late] == ["0-0-2"]


def test_a_process_that_grows_is_named_and_one_that_fills_up_once_is_not() -> None:
    memory = Memory()
    for second in range(300):
        memory.take(1, second, 30 + min(second, 20))
        memory.take(2, second, 30 + second * MOST_GROWTH_MIB / 200)
        memory.take(3, second / 10, 30 + second)
    assert [text.split()[1] for text in memory.grown()] == ["2"]
    assert memory.figures()["long_lived"] == 2


def a_slice(name: str, seconds: list[float], **more: Any) -> dict[str, Any]:
    fault = {"fault": "kill worker", "alone": True, "pending": 9, "fenced_s": None}
    made = dict.fromkeys(figures.SUMMED, 1) | {"memory": {"peak": 1.0, "most_growth": 0.0, "long_lived": 1}}
    faults = [{**fault, "recovery_s": each} for each in seconds]
    return {"id": name, "faults": faults, "figures": made, "violations": [], "seconds": 60.0, **more}


def test_slices_add_up_in_their_file_and_one_that_is_told_again_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    figures.add(file, a_slice("one", [1.0], figures=None))
    figures.add(file, a_slice("one", [1.0, 2.0]))
    both = figures.add(file, a_slice("two", [2.5]))
    assert figures.load(file) == both
    assert "3 faults in 2 slices" in figures.table(both)
    assert figures.histogram(figures.killed_s(both)) == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert not figures.verdict(both, judge_times=True)


def test_a_violation_fails_the_sum_and_so_does_a_slow_recovery_unless_times_are_not_judged() -> None:
    assert figures.verdict([a_slice("one", [1.0], violations=["a line was lost"])], judge_times=False)
    slow = [a_slice("one", [figures.KILLED_P99_S + 1])]
    assert figures.verdict(slow, judge_times=True)
    assert not figures.verdict(slow, judge_times=False)


def test_a_slice_without_an_end_adds_nothing_but_its_violations() -> None:
    broken = a_slice("one", [1.0], figures=None, violations=["the slice broke off"])
    assert "0 faults in 0 slices" in figures.table([broken])
    assert figures.verdict([broken], judge_times=True)
