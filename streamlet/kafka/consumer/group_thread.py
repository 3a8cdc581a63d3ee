"""The thread that keeps a membership: joins, heartbeats, leaves.

It owns a client with connections of its own, and a membership with its requests: a :class:`ClassicGroup` or, in the
newer protocol, an :class:`EpochGroup`. No lock is shared with poll, so that neither can hold the other up: heartbeats
go out while the user works, and a join needs no poll to go on.

Two queues connect it with the user's thread, both deques, whose ``append`` and ``popleft`` are atomic:

- ``_wishes``, functions that the thread runs (join, leave, end); each wakes the thread's client;
- ``_news``, what happened to the membership; each wakes the consumer's client. News carries the number of the *life* it
  belongs to: a ``leave`` begins a new life, and the reader drops news of earlier ones.

Beside them, single values that one side writes and the other reads: ``polled_s`` of the membership, ``_lives``,
``_died``. Rule: nothing here may lead to the consumer object. A dropped one would live as long as its thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from streamlet.base.clock import Clock
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.closing import HASTE_S
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.errors import GroupThreadDied
from streamlet.kafka.consumer.membership import Fatal, MembershipLost, News
from streamlet.kafka.errors import KafkaError

_log = logging.getLogger(__name__)

W = TypeVar("W")
"""What a wish to join says: protocols with their bytes, or topics."""
W_contra = TypeVar("W_contra", contravariant=True)


class KeptMembership(Protocol[W_contra]):
    """What the thread asks of a membership, of either protocol."""

    polled_s: float
    """When the user polled last. Written by the user's thread."""
    news: list[News]
    """News in order. Emptied by the thread."""

    def join(self, wish: W_contra, now_s: float) -> None:
        """Join, or join again."""

    def without_us(self, error: type[KafkaError], now_s: float) -> str:
        """Return the text for a member that the coordinator has forgotten. Any thread."""


class GroupCalls(Protocol[W_contra]):
    """A membership's requests, and the client that carries them."""

    client: KafkaClient
    listener_error: Exception | None
    """Error of a listener, raised by the loop."""

    @property
    def membership(self) -> KeptMembership[W_contra]:
        """The membership that decides."""

    @property
    def left(self) -> bool:
        """Whether nothing of the leaving is to be sent or waited for."""

    def turn(self) -> None:
        """Send all requests that are due."""

    def wait_s(self, now_s: float) -> float:
        """Return seconds until :meth:`turn` may act without an event."""

    def leave(self) -> None:
        """Leave the group; a join under way makes no member any more."""


class GroupThread(Generic[W]):
    """A membership's thread, and the consumer's handle to it."""

    def __init__(
        self, config: ConsumerConfig, group: GroupCalls[W], wake_consumer: Callable[[], None], clock: Clock
    ) -> None:
        self._config = config
        self._group = group
        self._client = group.client
        self._wake_consumer = wake_consumer
        self._clock = clock
        self._wishes: deque[Callable[[], None]] = deque()
        self._news: deque[tuple[int, News]] = deque()
        self._lives = self._life = 0
        """How often the consumer left. ``_lives`` is the user's thread's count, ``_life`` the group thread's."""
        self._died: Fatal | None = None
        """The end of this thread by an error. Written by it, read by each poll."""
        self._thread = threading.Thread(target=self._run, name=f"streamlet-group-{config.group_id}", daemon=True)
        self._stop_by_s: float | None = None
        self._stopping = False

    # -- called by the user's thread

    def start(self) -> None:
        """Begin. Raises KafkaError where the system gives no further thread."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._client.close()
            raise KafkaError(
                f"The thread that keeps the membership in group {self._config.group_id!r} could not be started: "
                f"{error}. Raise the limit of threads (`ulimit -u`, or that of the container), and poll again."
            ) from error

    def polled(self, now_s: float) -> None:
        """Note that the user polls."""
        self._group.membership.polled_s = now_s

    def join(self, wish: W) -> None:
        """Wish to join the group, or to join again."""
        self.wish(lambda: self._group.membership.join(wish, self._clock.monotonic()))

    def leave(self) -> None:
        """Wish to leave, and drop the news of this life; the thread can join again."""
        self._lives += 1
        life = self._lives

        def leave() -> None:
            # Rule: news that has not been passed on is of the life that ends. Passed on later it would bear the number
            # of the next one, and end that for the user's thread alone.
            self._group.membership.news.clear()
            self._life = life
            self._group.leave()

        self.wish(leave)

    def expelled(self, error: type[KafkaError]) -> str:
        """End the membership after a commit was refused as no member's; return the reason."""
        reason = self._group.membership.without_us(error, self._clock.monotonic())
        self.leave()
        return reason

    def next_news(self) -> News | None:
        """Remove and return the next news; None without any. A thread that died says so each time."""
        while self._news:
            life, news = self._news.popleft()
            if life == self._lives:
                return news
        return self._died

    def unheard(self) -> list[News]:
        """Return the news that :meth:`next_news` will give."""
        return [news for life, news in list(self._news) if life == self._lives]

    def stop(self, timeout_s: float) -> None:
        """Leave the group and end; wait for it no longer than ``timeout_s`` and a second."""
        if self._thread.ident is None:  # never started
            self._client.close()
            return
        self.begin_stop(timeout_s)
        self._thread.join(timeout_s + 1.0)

    def abandon(self) -> None:
        """Leave the group and end without being waited for; called by the finalizer, in any thread."""
        self.begin_stop(HASTE_S)

    def begin_stop(self, timeout_s: float) -> None:
        """Leave the group and end within ``timeout_s``; returns at once. The first call counts."""
        if self._stopping:
            return
        self._stopping = True

        def ask() -> None:
            self._stop_by_s = self._clock.monotonic() + timeout_s
            self._group.leave()

        self.wish(ask)

    def wish(self, wish: Callable[[], None]) -> None:
        """Run a function on the group's thread."""
        self._wishes.append(wish)
        self._client.wakeup()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._over():
                while self._wishes:
                    self._wishes.popleft()()
                self._group.turn()
                self._pass_on()
                if self._wishes or self._over():
                    continue
                self._client.poll(self._wait_s())
                if self._group.listener_error is not None:
                    raise self._group.listener_error
        except BaseException as err:  # noqa: BLE001 - an assignor's sys.exit(), too: the next poll raises it
            _log.exception("the thread of group %r ended", self._config.group_id)
            died = GroupThreadDied(
                f"The thread that keeps the membership in group {self._config.group_id!r} ended with "
                f"{type(err).__name__}: {err}. Close this consumer and make a new one."
            )
            self._died = Fatal(died)
            self._wake_consumer()
        finally:
            self._client.close()

    def _wait_s(self) -> float:
        now = self._clock.monotonic()
        wait = self._group.wait_s(now)
        if self._stop_by_s is not None:
            wait = min(wait, max(self._stop_by_s - now, 0.0))
        return min(wait, 3600.0)

    def _over(self) -> bool:
        if self._stop_by_s is None:
            return False
        # The end waits until the leaving is sent (the membership has nothing to do at once) and answered: closing the
        # socket earlier might cost the request. Answers to other requests are not waited for.
        return self._group.left or self._clock.monotonic() >= self._stop_by_s

    def _pass_on(self) -> None:
        news = self._group.membership.news
        if news:
            for one in news:
                # Logged from here: a user who does not poll would hear of it late, or never.
                if isinstance(one, MembershipLost):
                    _log.warning("group %r: %s", self._config.group_id, one.reason)
            self._news.extend((self._life, one) for one in news)
            news.clear()
            self._wake_consumer()
