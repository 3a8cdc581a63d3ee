"""Whether a log is still the one that was read: where the leader epoch of the record before a position ends in it.

The leader is asked (KIP-320), under the leader epoch that the coordinator's last look names: a broker that leads under
another one refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from streamlet.base.clock import Clock
from streamlet.spouts.kafka.activity import Steps
from streamlet.spouts.kafka.broker_connections import Connection
from streamlet.spouts.kafka.errors import LeadersBehind
from streamlet.spouts.kafka.partition import Broker, Partition

log = logging.getLogger(__name__)

BEHIND_S = 10.0
"""Seconds to look for a leader as new as the records that were read; after that its log is taken for another one."""


@dataclass(frozen=True, slots=True)
class LastLook:
    """Tells what the coordinator's last look says of one partition."""

    leader: Callable[[], Broker | None]
    topic_id: Callable[[], str | None] = lambda: None
    leader_epoch: Callable[[], int] = lambda: -1
    """-1: not known."""
    again: Callable[[], None] = lambda: None
    """Asks for another look; returns at once."""


class EpochEnds:
    """Asks leaders where an epoch ends, for all partitions of a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind: dict[Partition, tuple[int, float]] = {}
        """Leader epochs that no look has named yet, and since when each is awaited."""

    def ask(self, partition: Partition, connection: Connection, look: LastLook, epoch: int) -> Steps[int | None]:
        """Ask where the leader epoch before a position ends.

        -1: the log is another one. None: not known. Raises LeadersBehind and other retriable errors.
        """
        end, known = None, None
        # Asked again when another election came meanwhile: its leader has another log.
        while known != look.leader_epoch():
            known = look.leader_epoch()
            self._await_leader(partition, known, epoch)
            end = yield from connection.epoch_end(partition, epoch, known)
        assert known is not None
        # Rule: only a log whose leader epochs are older than ours is another one. A leader that keeps epochs knows its
        # own, so of one not older than ours the answer would be an end: this one keeps none (messages of a format
        # before epochs), or nobody names them. A spout that was right to go on would stop at each start.
        if end == -1 and not 0 <= known < epoch:
            log.warning(
                "%s: whether its log was truncated is not known: %s keeps no leader epochs",
                partition,
                connection.broker,
            )
            return None
        return end

    def forget(self, partition: Partition) -> None:
        """Forget since when a newer leader is awaited: an opening or a reset is over."""
        self._behind.pop(partition, None)

    def _await_leader(self, partition: Partition, known: int, epoch: int) -> None:
        """Raise LeadersBehind while a newer leader may be heard of."""
        # Rule: ask no older leader. It would answer that it knows no such epoch, and a whole log would be taken for
        # another one. The epochs of one log never fall, so it is another one if no newer leader is found for long.
        if not 0 <= known < epoch:
            self._behind.pop(partition, None)
            return
        now = self._clock.monotonic()
        before, since_s = self._behind.get(partition, (epoch, now))
        since_s = since_s if before == epoch else now
        self._behind[partition] = epoch, since_s
        if now - since_s < BEHIND_S:
            raise LeadersBehind(
                f"{partition} was read under leader epoch {epoch}, and the cluster names the leader of epoch {known}: "
                "another election is waited for."
            )
