"""What bolts said of failures: bounded, and the first word counts."""

from __future__ import annotations

from streamlet.components.spout import FailureCause
from streamlet.runtime.tasks.failure_causes import MOST_TEXT, MOST_TOLD, NOT_KEPT, FailureCauses, cause_of


def test_a_cause_has_the_bolt_the_kind_of_error_and_its_text_cut() -> None:
    assert cause_of("b", ValueError("no")) == FailureCause("b", "ValueError", "no")
    assert cause_of("b", "not wanted", to_dead_letters=True) == FailureCause("b", "", "not wanted", True)
    assert cause_of("b", None) == FailureCause("b")
    assert len(cause_of("b", "x" * 10_000).text) == MOST_TEXT


def test_the_first_cause_of_a_tree_counts_but_one_for_the_dead_letters_before_all_others() -> None:
    causes = FailureCauses()
    first, second, final = FailureCause("a"), FailureCause("b"), FailureCause("c", to_dead_letters=True)
    causes.note([1, 2], first)
    causes.note([1], second)
    causes.note([2, 3], final)
    causes.note([3], first)
    assert causes.take() == {1: first, 2: final, 3: final}
    assert causes.take() == {}


def test_after_many_failures_of_one_turn_their_texts_stay_behind() -> None:
    causes = FailureCauses()
    for root in range(MOST_TOLD + 1):
        causes.note([root], FailureCause("b", "E", f"text {root}"))
    taken = causes.take()
    assert taken[MOST_TOLD - 1].text and not taken[MOST_TOLD].text
    causes.note([1], FailureCause("b", "E", "again"))
    assert causes.take()[1].text == "again", "the next turn begins anew"


def test_reasons_for_the_dead_letters_are_kept_however_many_fail_and_one_that_is_not_says_so() -> None:
    """A record that is given up is not told of again: its letter is the only place."""
    causes = FailureCauses()
    for root in range(3 * MOST_TOLD):
        causes.note([root], FailureCause("b", "E", f"text {root}"))
        causes.note([root], FailureCause("b", "", f"reason {root % 7}", True))
    taken = causes.take()
    assert [taken[root].text for root in range(3 * MOST_TOLD)] == [f"reason {n % 7}" for n in range(3 * MOST_TOLD)]
    assert len({id(cause) for cause in taken.values()}) == 7, "equal ones are one object"
    for root in range(MOST_TOLD + 1):
        causes.note([root], FailureCause("b", "", f"reason {root}", True))
    taken = causes.take()
    assert taken[MOST_TOLD - 1].text == f"reason {MOST_TOLD - 1}"
    assert taken[MOST_TOLD] == FailureCause("b", "", NOT_KEPT, True)


def test_failures_without_a_tree_cost_no_other_its_text() -> None:
    """Nobody takes their causes: the texts of all later turns would stay behind."""
    causes = FailureCauses()
    for number in range(2 * MOST_TOLD):
        causes.note([], FailureCause("b", "E", f"text {number}"))
        causes.note([], FailureCause("b", "", f"reason {number}", True))
    causes.note([1], FailureCause("b", "E", "no customer"))
    causes.note([2], FailureCause("b", "", "not wanted", True))
    assert [cause.text for cause in causes.take().values()] == ["no customer", "not wanted"]
