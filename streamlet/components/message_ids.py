"""Ids of messages that are emitted in one call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


class MessageIds(Sequence[Hashable]):
    """Ids for ``emit_each`` that are made when one is asked for. Never changes; none of them is None.

    The spout gets the same object back, in ``ack_many``, where all of these messages are done.
    """

    # A spout whose ids can be told from a few numbers pays for no object for each message.
    __slots__ = ()
