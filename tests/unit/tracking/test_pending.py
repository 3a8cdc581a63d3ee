"""Open trees by root: whose a root is, and how old."""

from __future__ import annotations

from streamlet.tracking.pending import PendingSet
from streamlet.tracking.roots import STEP


def test_a_tree_is_old_between_one_and_one_and_a_quarter_timeouts() -> None:
    """Age is noted in steps of a quarter of the time-out."""
    pending = PendingSet(1, 1, timeout_s=8.0)
    root = pending.next_root
    pending.ids[root] = "message"
    pending.next_root += STEP
    pending.note_time(100.0)
    assert pending.old_bound(107.9) is None
    assert pending.old_bound(108.0) == root + STEP
    assert pending.resolve([root]) == ["message"]


def test_a_short_timeout_stays_short_however_long_trees_keep_coming() -> None:
    """Marks noted more often than once a second, when it is asked, would pile up: trees would live ever longer."""
    pending = PendingSet(1, 1, timeout_s=1.0)
    for tenth in range(1000):
        pending.ids[pending.next_root] = tenth
        pending.next_root += STEP
        pending.note_time(tenth / 10)
        if tenth % 10 == 0:
            pending.old_bound(tenth / 10)
    bound = pending.old_bound(100.0)
    assert bound is not None
    assert pending.next_root - bound <= 30 * STEP, "what was opened in the last three seconds at most is still open"


def test_a_root_is_resolved_to_its_message_once() -> None:
    """In the order that is asked for; what is still open keeps its message."""
    pending = PendingSet(3, 1, timeout_s=8.0)
    first = pending.next_root
    pending.ids.update({first: "a", first + STEP: "b", first + 2 * STEP: "c"})
    assert pending.resolve([first + 2 * STEP, first]) == ["c", "a"]
    assert len(pending) == 1 and pending.resolve([first + STEP]) == ["b"] and not pending.ids


def test_without_open_trees_no_time_is_noted() -> None:
    """A task that was idle for an hour does not fail the first tree after it."""
    pending = PendingSet(1, 1, timeout_s=4.0)
    pending.note_time(0.0)
    pending.ids[pending.next_root] = "late"
    pending.next_root += STEP
    pending.note_time(3600.0)
    assert pending.old_bound(3603.9) is None
    assert pending.old_bound(3604.0) == pending.next_root
