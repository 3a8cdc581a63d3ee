"""The place where other workers connect: a listening socket, proofs checked in threads."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from streamlet.base.notices import Notices
from streamlet.runtime.links import dialing
from streamlet.runtime.links.dialing import Address, HungUp, Secured
from streamlet.runtime.links.handshake import DEADLINE_S, Hello, Refused

MAX_UNPROVED = 64
"""Most connections in their handshake at once; a further one is closed."""

TELL_S = 10.0
"""Seconds between two reports of refused strangers."""

logger = logging.getLogger("streamlet.links")


class LinkServer:
    """A listener on a Unix socket of the run, or on TCP.

    ``fileno`` is readable when ``serve`` should be called. ``admits`` raises Refused; ``welcomed`` gets a link that
    proved itself. Both run in other threads.
    """

    def __init__(
        self,
        address: Address,
        secret: bytes,
        admits: Callable[[Hello], None],
        welcomed: Callable[[Secured], None],
        frame_limit: int,
    ) -> None:
        kind, host, port = address
        family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        self._sock.bind(host if kind == "unix" else (host, port))
        self._sock.listen(128)
        self._sock.setblocking(False)
        self.address: Address = address if kind == "unix" else ("tcp", host, self._sock.getsockname()[1])
        self._secret = secret
        self._admits = admits
        self._welcomed = welcomed
        self._frame_limit = frame_limit
        self._telling = threading.Lock()
        self._refusals: Notices[None] = Notices(TELL_S)
        self._proving = threading.Lock()
        self._unproved: dict[threading.Thread, socket.socket] = {}

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._sock.fileno()

    def serve(self) -> None:
        """Take one connection, if there is one, and start its handshake."""
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return
        with self._proving:
            # Strangers can open connections without end, and each handshake has a thread: their number is bounded. A
            # peer that is turned away dials again.
            if len(self._unproved) == MAX_UNPROVED:
                sock.close()
                return
            thread = threading.Thread(target=self._prove, args=(sock,), name="handshake", daemon=True)
            self._unproved[thread] = sock
        thread.start()

    def _prove(self, sock: socket.socket) -> None:
        try:
            secured = self._proved(sock)
            if secured is not None:
                self._welcomed(secured)
        finally:
            with self._proving:
                del self._unproved[threading.current_thread()]

    def _proved(self, sock: socket.socket) -> Secured | None:
        try:
            if sock.family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return dialing.accept(sock, self._secret, self._admits, self._frame_limit)
        except HungUp as error:  # a worker that ended, for example: not worth a warning
            logger.debug("A connection came to nothing: %s.", error)
        except (Refused, OSError) as error:
            self._tell(error)
        return None

    def _tell(self, error: Exception) -> None:
        # Told at most once in TELL_S, with their number: a line for each of a few thousand strangers would fill the
        # control channel that the lines go over, and the worker would be replaced for its silence.
        with self._telling:
            untold = self._refusals.due(None, time.monotonic())
        if untold is not None:
            more = f" ({untold} more since the last report)" if untold else ""
            logger.warning("A connection was refused: %s%s.", error, more)

    def close(self) -> None:
        """Stop listening and end all handshakes. ``welcomed`` is not called after this, and ``serve`` must not be."""
        self._sock.close()
        with self._proving:
            unproved = list(self._unproved.items())
        for _, sock in unproved:
            with contextlib.suppress(OSError):  # its thread has closed it in the meantime
                sock.shutdown(socket.SHUT_RDWR)
        for thread, _ in unproved:
            thread.join(DEADLINE_S)
        if self.address[0] == "unix":
            with contextlib.suppress(OSError):
                Path(self.address[1]).unlink()


def socket_path(directory: Path, worker: int, epoch: int) -> str:
    """Return the path of a worker's socket in the run's directory. The path of a Unix socket may have 107 bytes."""
    return str(directory / f"w{worker}.{epoch}")
