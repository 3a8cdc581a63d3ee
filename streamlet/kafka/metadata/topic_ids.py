"""Which topic a name stands for, where answers of several brokers cross. Pure."""

from __future__ import annotations


class TopicIds:
    """The id of each topic, and those that its name had before."""

    def __init__(self) -> None:
        self._present: dict[str, str] = {}
        """Also of a topic that is missing at the moment."""
        self._replaced: dict[str, set[str]] = {}

    def is_replaced(self, topic: str, topic_id: str | None) -> bool:
        """Tell whether the name had this id before."""
        # Rule: an answer with such an id comes from a broker that lags behind, and is not believed. An id never comes
        # back; taken for a topic that was made again it would reset positions, and once more with the next answer.
        return topic_id in self._replaced.get(topic, ())

    def note(self, topic: str, topic_id: str | None) -> bool:
        """Note the id of an answer that is believed; return whether it is a new one. None: the source has none."""
        before = self._present.get(topic)
        if topic_id is None or topic_id == before:
            return False
        if before is not None:
            self._replaced.setdefault(topic, set()).add(before)
        self._present[topic] = topic_id
        return True
