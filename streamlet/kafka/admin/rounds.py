"""Which items of a call are done, which failed for good, and which are tried again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from streamlet.kafka.admin.errors import Answers, Unanswered
from streamlet.kafka.broker_errors import (
    BrokerRequestTimedOut,
    GroupIdNotFound,
    InvalidPartitions,
    NotController,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from streamlet.kafka.errors import BrokerError, ClientTimeout, Disconnected, KafkaError, also

K = TypeVar("K")
V = TypeVar("V")

_PERHAPS_OURS = (TopicAlreadyExists, UnknownTopicOrPartition, GroupIdNotFound, InvalidPartitions)
"""What one hears when an earlier try, whose answer was lost, had done it already."""


class Rounds(Generic[K, V]):
    """One call's items, through as many rounds as it takes.

    ``final`` are errors that are not tried again though the broker calls them retriable: an unknown topic, for
    instance, is told at once.
    """

    def __init__(self, items: Iterable[K], final: tuple[type[KafkaError], ...] = ()) -> None:
        self._pending: dict[K, KafkaError | None] = dict.fromkeys(items)
        self._final = final
        self._unsure: set[K] = set()
        self.answers: Answers[K, V] = Answers()
        self.stale = False
        """Whether what is known of the cluster must be refreshed before the next round."""

    @property
    def pending(self) -> tuple[K, ...]:
        """The items that are still to be asked for."""
        return tuple(self._pending)

    def begin(self) -> None:
        """A round begins, with a fresh view of the cluster."""
        self.stale = False

    def take(self, items: Iterable[K], told: Answers[K, V]) -> None:
        """An answer to a request for these items."""
        for item in items:
            if item in told.errors:
                self.fail((item,), told.errors[item])
            elif item in told.results:
                self.answers.results[item] = told.results[item]
                del self._pending[item]
            else:
                self.refuse(item, Unanswered(f"The broker's answer says nothing of {item}. Its own log may say why."))

    def fail(self, items: Iterable[K], error: KafkaError) -> None:
        """No answer, or an error instead of one."""
        self.stale = self.stale or error.stale_metadata or isinstance(error, NotController)
        again = error.retriable and not isinstance(error, self._final)
        for item in items:
            if isinstance(error, ClientTimeout):
                # The call's own time is over: an error that came before it says more.
                self._unsure.add(item)
                continue
            if not again:
                self.refuse(item, error)
                continue
            self._pending[item] = error
            if isinstance(error, (Disconnected, BrokerRequestTimedOut)):
                self._unsure.add(item)

    def refuse(self, item: K, error: KafkaError) -> None:
        """This item has failed for good."""
        del self._pending[item]
        if item in self._unsure and isinstance(error, _PERHAPS_OURS):
            error = also(error, "An earlier try of this call got no answer: perhaps it did what was asked.")
        self.answers.errors[item] = error

    def give_up(self, timeout_s: float, tries: int, report: str) -> None:
        """The time is over: what is pending has failed with the last error that it had."""
        times = "once" if tries == 1 else f"{tries} times"
        for error in {id(last): last for last in self._pending.values() if last is not None}.values():
            tail = "" if isinstance(error, BrokerError) else f" {report}"
            also(error, f"It was tried {times} within {timeout_s:.3g} s.{tail}")
        for item, last in tuple(self._pending.items()):
            unsure = "whether it was done is not known" if item in self._unsure else "nothing was done"
            self.refuse(item, last or ClientTimeout(f"No answer within {timeout_s:.3g} s; {unsure}. {report}"))
