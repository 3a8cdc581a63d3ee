"""Requests and answers of a membership of the newer protocol (KIP-848): one API, ConsumerGroupHeartbeat.

In Java this is the ``ConsumerHeartbeatRequestManager``. What to send is decided by :class:`EpochMembership`. Everything
runs on the group's thread (``group_thread.py``).
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

from streamlet.base.clock import Clock
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import SEARCH_LIMIT_S, find_coordinator
from streamlet.kafka.consumer.consumer_config import ConsumerConfig
from streamlet.kafka.consumer.epoch_membership import EpochBeat, EpochMembership, Farewell
from streamlet.kafka.consumer.membership import FindCoordinator
from streamlet.kafka.future import RequestFuture, supervised
from streamlet.kafka.metadata.cluster import Broker
from streamlet.kafka.protocol.messages.groups import ConsumerGroupHeartbeatResponse


class EpochGroup:
    """The heartbeats of a membership, and its client."""

    def __init__(self, config: ConsumerConfig, membership: EpochMembership, clock: Clock) -> None:
        self.membership = membership
        self._clock = clock
        self.client = KafkaClient(config, clock)
        self.listener_error: Exception | None = None
        self._coordinator: Broker | None = None
        self._search_limit_s = min(SEARCH_LIMIT_S, config.request_timeout_ms / 1000)
        self._leaving: RequestFuture[ConsumerGroupHeartbeatResponse] | None = None

    def turn(self) -> None:
        """Send all requests that are due."""
        while (action := self.membership.step(self._clock.monotonic())) is not None:
            match action:
                case FindCoordinator():
                    search = find_coordinator(self.client, self.membership.settings.group_id, self._search_limit_s)
                    search.add_listener(supervised(self._found, self._note_error))
                case EpochBeat():
                    sent = self.client.send(action.request, self._coordinator)
                    sent.add_listener(supervised(partial(self._answered, action), self._note_error))
                case Farewell():
                    # Over the connection of the heartbeats: the coordinator takes it after those that are under way.
                    self._leaving = self.client.send(action.request, self._coordinator)
                case _:
                    assert_never(action)

    def wait_s(self, now_s: float) -> float:
        """Return seconds until :meth:`turn` may act without an event."""
        return self.membership.next_wake_s(now_s)

    def leave(self) -> None:
        """Leave the group; a heartbeat under way is not heard any more."""
        self.membership.leave()

    @property
    def left(self) -> bool:
        """Whether nothing of the leaving is to be sent or waited for."""
        answered = self._leaving is None or self._leaving.done
        return answered and self.membership.next_wake_s(0.0) > 0

    def _note_error(self, error: Exception) -> None:
        """Note an error of a listener: this turn of the loop raises it, and the thread ends."""
        self.listener_error = error

    def _found(self, done: RequestFuture[Broker]) -> None:
        if done.exception is not None:
            self.membership.coordinator_not_found(done.exception, self._clock.monotonic())
        else:
            self._coordinator = done.value.dedicated("group")
            self.membership.coordinator_found()

    def _answered(self, beat: EpochBeat, done: RequestFuture[ConsumerGroupHeartbeatResponse]) -> None:
        now = self._clock.monotonic()
        if done.exception is not None:
            self.membership.beat_failed(beat, done.exception, now)
        else:
            self.membership.beat_answered(beat, done.value, now)
