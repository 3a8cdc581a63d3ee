"""What is tried again, what is told at once, and what is said when the time is over. Pure."""

from __future__ import annotations

from itertools import product

from streamlet.kafka.admin.call_rounds import Rounds
from streamlet.kafka.admin.errors import Answers, Unanswered
from streamlet.kafka.broker_errors import (
    BrokerRequestTimedOut,
    InvalidPartitions,
    NotController,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from streamlet.kafka.errors import ClientTimeout, Disconnected


def test_an_item_is_asked_for_until_it_has_a_result_or_a_final_error() -> None:
    """Each by itself."""
    rounds: Rounds[str, int] = Rounds("abc")
    rounds.take("abc", Answers({"a": 1}, {"b": NotController("b"), "c": PolicyViolation("c")}))
    assert rounds.pending == ("b",) and rounds.stale
    rounds.begin()
    assert not rounds.stale
    rounds.take("b", Answers({"b": 2}))
    assert rounds.pending == () and rounds.answers.results == {"a": 1, "b": 2}
    assert list(rounds.answers.errors) == ["c"]


def test_some_retriable_errors_are_told_at_once() -> None:
    """A topic that is not there is not waited for."""
    rounds: Rounds[str, int] = Rounds("a", final=(UnknownTopicOrPartition,))
    rounds.fail("a", UnknownTopicOrPartition("a"))
    assert isinstance(rounds.answers.errors["a"], UnknownTopicOrPartition)


def test_an_item_that_the_answer_leaves_out_has_failed() -> None:
    """It would be asked for for ever."""
    rounds: Rounds[str, int] = Rounds("ab")
    rounds.take("ab", Answers({"a": 1}))
    assert isinstance(rounds.answers.errors["b"], Unanswered) and "of b" in rounds.answers.errors["b"].message


def test_what_an_unanswered_try_may_have_done_is_said() -> None:
    """A topic "exists", or has as many partitions, because the lost request made them."""
    for lost, told in product(
        (Disconnected("gone"), BrokerRequestTimedOut("a")), (TopicAlreadyExists, InvalidPartitions)
    ):
        rounds: Rounds[str, int] = Rounds("ab")
        rounds.fail("a", lost)
        rounds.take("ab", Answers({}, {"a": told("a"), "b": told("b")}))
        assert "earlier try of this call got no answer" in rounds.answers.errors["a"].message
        assert "earlier try" not in rounds.answers.errors["b"].message


def test_when_the_time_is_over_the_last_error_is_told_with_the_number_of_tries() -> None:
    """Once, though several items share it; a time-out of the call hides no cause."""
    rounds: Rounds[str, int] = Rounds("ab")
    lost = Disconnected("The connection broke.")
    rounds.fail("ab", lost)
    rounds.fail("ab", ClientTimeout("No answer within 0 s."))
    rounds.give_up(3.0, 4, "Connections: none.")
    assert rounds.answers.errors["a"] is lost and rounds.pending == ()
    assert lost.message == "The connection broke. It was tried 4 times within 3 s. Connections: none."


def test_without_any_answer_it_says_whether_something_may_have_been_done() -> None:
    """Not known once a request has gone out."""
    rounds: Rounds[str, int] = Rounds("ab")
    rounds.fail("a", ClientTimeout("No answer."))
    rounds.give_up(3.0, 1, "Connections: none.")
    assert "whether it was done is not known" in rounds.answers.errors["a"].message
    assert "nothing was done" in rounds.answers.errors["b"].message
