"""A consumer that nobody holds any more, and that was not closed: its thread and its connections end with it."""

from __future__ import annotations

import logging
import os
import weakref
from typing import TYPE_CHECKING

from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.consumer.group_thread import GroupThread

if TYPE_CHECKING:
    from streamlet.kafka.consumer.consumer import Consumer

_log = logging.getLogger(__name__)


def ended_with(consumer: Consumer, client: KafkaClient, threads: list[GroupThread]) -> weakref.finalize[..., Consumer]:
    """What ends ``client`` and ``threads`` (filled later) once the consumer is gone; a close detaches it.

    Neither may lead to the consumer, or it would never be gone: no listener, no callback of its user's is in them.
    """
    watch = weakref.finalize(consumer, _end, client, threads, consumer.config.client_id, consumer.config.group_id)
    watch.atexit = False
    return watch


def _end(client: KafkaClient, threads: list[GroupThread], client_id: str, group_id: str | None) -> None:
    """In whatever thread the last reference went: it waits for nothing, and takes no lock that a thread may hold."""
    if os.getpid() != client.pid:  # a fork's copy: the thread and the connections are its parent's
        return
    if threads or client.connected_brokers():
        left = f"; it leaves group {group_id!r}, and what it has not committed is read again" if threads else ""
        _log.warning("consumer %r was dropped without close()%s: close it, or use it in a with block.", client_id, left)
    for thread in threads:
        thread.abandon()
    client.close()
