"""Incremental fetch sessions with one broker (KIP-227; Java: ``FetchSessionHandler``). Pure.

The broker remembers which partitions are wanted and from where; a request then carries only what changed.

Rule: any doubt (an error, a lost connection, a topic created again) ends in a full request, which starts a new session.
That is always possible, since the session keeps everything that is wanted, not only the changes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from streamlet.kafka.broker_errors import FetchSessionIdNotFound
from streamlet.kafka.client.leader_requests import FetchPosition, SessionPart
from streamlet.kafka.errors import BrokerError
from streamlet.kafka.metadata.cluster import TopicPartition

_NO_SESSION = 0
_FULL = 0
_LAST_EPOCH = 0x7FFFFFFF


@dataclass(slots=True)
class FetchSession:
    """Client side of one broker's fetch session. One thread; one request at a time."""

    enabled: bool = True
    session_id: int = _NO_SESSION
    epoch: int = _FULL
    """Epoch of the next request; 0 asks for a new session and ends the one with ``session_id``, if there is one."""
    _wanted: dict[TopicPartition, FetchPosition] = field(default_factory=dict)
    _topic_ids: dict[str, str | None] = field(default_factory=dict)
    _starts_over: bool = False

    def build(self, wanted: Mapping[TopicPartition, FetchPosition], topic_ids: Mapping[str, str | None]) -> SessionPart:
        """Return the next request, so that the session holds exactly ``wanted``."""
        before, known_ids = self._wanted, self._topic_ids
        self._wanted = dict(wanted)
        self._topic_ids = {tp.topic: topic_ids[tp.topic] for tp in wanted}
        if not self.enabled:
            return SessionPart(self._wanted, self._wanted, self._topic_ids)
        if self._starts_over or self._ids_changed(known_ids):
            self.epoch, self._starts_over = _FULL, False
        if self.epoch == _FULL:
            return SessionPart(self._wanted, self._wanted, self._topic_ids, self.session_id, _FULL)
        send = {tp: position for tp, position in wanted.items() if before.get(tp) != position}
        forget = tuple(tp for tp in before if tp not in wanted)
        ids = {tp.topic: self._topic_ids.get(tp.topic, known_ids.get(tp.topic)) for tp in (*send, *forget)}
        return SessionPart(self._wanted, send, ids, self.session_id, self.epoch, forget)

    def answered(self, session_id: int) -> None:
        """Take in a good answer to the last request."""
        if self.epoch == _FULL:
            self.session_id = session_id
            self.epoch = _FULL if session_id == _NO_SESSION else 1
        elif session_id != self.session_id:
            self._restart()  # the broker closed the session and forgot the positions
        else:
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def refused(self, error: type[BrokerError]) -> None:
        """Take in an error for the session as a whole."""
        if error is FetchSessionIdNotFound:
            self._restart()
        else:
            self.epoch = _FULL

    def lost(self) -> None:
        """Note that no answer came.

        The broker may or may not have taken the request in.
        """
        self.epoch = _FULL

    def keep(self, assigned: Container[TopicPartition]) -> None:
        """Start over if a partition that is wanted is assigned no longer."""
        # Rule: a partition that comes back is asked for again, though its position is the same. In an idle one the
        # broker sees no news, and its end would never be told again. Not at once: an answer may be under way.
        self._starts_over = self._starts_over or any(tp not in assigned for tp in self._wanted)

    def _restart(self) -> None:
        self.session_id, self.epoch = _NO_SESSION, _FULL

    def _ids_changed(self, known: Mapping[str, str | None]) -> bool:
        """Return whether topic ids forbid an incremental request.

        They do after a topic was created again, and where topics with and without an id would be mixed.
        """
        if any(topic in known and known[topic] != topic_id for topic, topic_id in self._topic_ids.items()):
            return True
        either = {topic_id is None for topic_id in (*known.values(), *self._topic_ids.values())}
        return len(either) > 1
