"""The counts of a worker: what it writes on a page is what a reader of that page finds."""

from __future__ import annotations

from streamlet.runtime.tasks.in_hand import PAGE_BYTES, InHand, holding
from streamlet.runtime.tasks.untracked_counts import UntrackedCounts, page_size


def test_each_task_has_its_own_numbers_and_the_page_before_them_is_left_alone() -> None:
    page = bytearray(page_size(3))
    InHand(page).note_call(2, "process_tick", 1.0)
    counts = UntrackedCounts(3, page)
    for column, first in (
        (counts.done, 1),
        (counts.emitted, 4),
        (counts.handed, 7),
        (counts.given_up, 10),
        (counts.lost, 13),
        (counts.open, 16),
        (counts.kept, 19),
    ):
        for at in range(3):
            column[at] += first + at
    found = UntrackedCounts(3, page).look()
    assert found == ({1: 1, 2: 2, 3: 3}, {1: 4, 2: 5, 3: 6}, {1: 7, 2: 8, 3: 9})
    counts.refused[1], counts.in_outboxes[2] = 5, 4
    assert UntrackedCounts(3, page).look().handed == {1: 7, 2: 8, 3: 13}, "with what is in outboxes"
    final = UntrackedCounts(3, page).look_at_final()
    assert final.given_up == {1: 10, 2: 16, 3: 12}, "refused emits among them"
    assert (final.kept, final.lost) == ({1: 19, 2: 20, 3: 21}, {1: 13, 2: 14, 3: 15})
    assert UntrackedCounts(3, page).look_at_open() == {1: 16, 2: 17, 3: 18}
    held = holding(page)
    assert held is not None and (held.task, held.call) == (2, "process_tick")
    assert len(page) == PAGE_BYTES + 27 * 8


def test_without_a_page_they_are_kept_by_the_process_and_zeros_are_not_told() -> None:
    counts = UntrackedCounts(1000)
    assert counts.look() == ({}, {}, {})
    counts.emitted[999] = 5
    assert counts.look().emitted == {1000: 5}
