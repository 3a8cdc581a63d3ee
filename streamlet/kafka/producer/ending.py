"""How a producer's thread comes to its end: by ``close()``, after the last reference is gone, or with the program."""

from __future__ import annotations

import atexit
import logging
from functools import partial

from streamlet.kafka.client.closing import TOLD_AFTER_S
from streamlet.kafka.producer.sender import Sender

_log = logging.getLogger(__name__)

EXIT_S = 30.0
"""How long the end of the program waits for records that were taken."""
_FORCED_S = 1.0


def end_within(sender: Sender, limit_s: float) -> None:
    """Wait for a sender that was told to end; after ``limit_s`` seconds it gives up what is open.

    A thread that does not even do that (a callback that does not return, a name that is looked up) is told in the log
    and left alone: nothing of ours may hang.
    """
    if _joined(sender, limit_s):
        return
    with sender.lock:
        sender.forced = True
        sender.wake()
    if not sender.join(_FORCED_S):
        _log.warning("close() gives up, and the producer's thread is not at its end: %s", sender.still_open())


def _joined(sender: Sender, limit_s: float) -> bool:
    if limit_s <= TOLD_AFTER_S or sender.join(TOLD_AFTER_S):
        return sender.join(limit_s)
    _log.warning("close() waits, at most %.0f s more: %s", limit_s - TOLD_AFTER_S, sender.still_open())
    return sender.join(limit_s - TOLD_AFTER_S)


def leave(sender: Sender, limit_s: float = EXIT_S) -> None:
    """Tell a sender to send what it has and to end, and wait for nothing: the end of the program does.

    May run anywhere, in a signal handler or in a garbage collection too: it takes no lock. The sender's thread is a
    daemon, so a program that ends before it would kill it with what it has.
    """
    if sender.at_exit is None:
        sender.at_exit = partial(end_within, sender, limit_s)
        atexit.register(sender.at_exit)
    sender.abandon()
    if sender.over:  # between the look and the registration: it could not take the hook back
        atexit.unregister(sender.at_exit)
