"""A listening socket for other workers; each handshake has a thread."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamlet.base.notices import Notices
from streamlet.runtime.links import dialing
from streamlet.runtime.links.dialing import LinkAddress, PeerHungUp, Secured
from streamlet.runtime.links.handshake import DEADLINE_S, Hello, Refused

if TYPE_CHECKING:
    from streamlet.runtime.links.tls import LinkTls

MAX_UNPROVED = 64
"""Most connections in their handshake at once; a further one is closed."""

PLACE_S = 1.0
"""Seconds that a connection keeps its place while others wait for one. A handshake takes milliseconds."""

FULL_S = 0.2
"""Seconds before the next try to accept a connection that found no free descriptor."""

TELL_S = 10.0
"""Seconds between two reports of refused strangers."""

logger = logging.getLogger("streamlet.links")


class LinkServer:
    """A listener on an abstract Unix socket, or on TCP.

    Of a name that has several addresses, the first that is this machine's is used; ``address`` has its number.
    ``fileno`` is readable when ``serve`` should be called. ``check_hello`` raises Refused; ``on_secured`` gets a link
    that proved itself. Both run in other threads.
    """

    def __init__(
        self,
        address: LinkAddress,
        secret: bytes,
        check_hello: Callable[[Hello], None],
        on_secured: Callable[[Secured], None],
        frame_limit: int,
        tls: LinkTls | None = None,
    ) -> None:
        self._sock = bind_socket(address)
        self._sock.listen(128)
        self._sock.setblocking(False)
        self.address: LinkAddress = address if address[0] == "unix" else ("tcp", *self._sock.getsockname()[:2])
        self._secret = secret
        self._check_hello = check_hello
        self._on_secured = on_secured
        self._frame_limit = frame_limit
        self._tls = tls
        self._refusals_lock = threading.Lock()
        self._refusals: Notices[None] = Notices(TELL_S)
        self._unproved_lock = threading.Lock()
        self._unproved: dict[threading.Thread, tuple[socket.socket, float]] = {}
        """Thread of a handshake -> its socket, and since when."""
        self._spare = _spare_descriptor()

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._sock.fileno()

    def serve(self) -> None:
        """Take one connection, if there is one, and start its handshake."""
        sock = self._accept()
        if sock is None:
            return
        if sock.family == socket.AF_UNIX and not _is_of_this_user(sock):
            sock.close()
            return
        with self._unproved_lock:
            # Strangers can open connections without end, and each handshake has a thread: their number is bounded. A
            # peer that is turned away dials again.
            full = len(self._unproved) == MAX_UNPROVED
            now = time.monotonic()
            if not full:
                thread = threading.Thread(target=self._handshake, args=(sock,), name="handshake", daemon=True)
                self._unproved[thread] = sock, now
        if full:
            sock.close()
            self._make_room(now)
            return
        try:
            thread.start()
        except RuntimeError as error:  # no further thread can be started: the peer dials again
            with self._unproved_lock:
                del self._unproved[thread]
            sock.close()
            self._tell(error)

    def _make_room(self, now: float) -> None:
        """Hang up on connections that have had their time while others wait."""
        # Rule: who says nothing keeps no place from those who come. A worker that was replaced would else wait for
        # the end of all handshakes, with its run.
        with self._unproved_lock:
            late = [sock for sock, since in self._unproved.values() if now - since >= PLACE_S]
            for sock in late:
                with contextlib.suppress(OSError):  # its thread has closed it in the meantime
                    sock.shutdown(socket.SHUT_RDWR)
        if late:
            self._tell(Refused("it did not finish the handshake while others waited for its place"))

    def _accept(self) -> socket.socket | None:
        """Take the next connection; None if there is none, or no descriptor is free for it."""
        if self._spare is None:
            self._spare = _spare_descriptor()
        try:
            return self._sock.accept()[0]
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return None
        # User code has used up all descriptors. The connection stays in the listener's queue, and the listener would
        # be readable for ever: its thread would spin. So one descriptor is kept for this moment, and a peer that was
        # replaced can link.
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with contextlib.suppress(OSError):
                return self._sock.accept()[0]
        self._tell(
            OSError(
                errno.EMFILE,
                "this worker has no file descriptor left, so its peers cannot link; look at what its components leave "
                "open, or raise `ulimit -n`",
            )
        )
        time.sleep(FULL_S)
        return None

    def _handshake(self, sock: socket.socket) -> None:
        try:
            secured = self._authenticate(sock)
            if secured is not None:
                with self._unproved_lock:
                    self._unproved[threading.current_thread()] = sock, math.inf  # no stranger: it gives no place away
                self._on_secured(secured)
        finally:
            with self._unproved_lock:
                del self._unproved[threading.current_thread()]

    def _authenticate(self, sock: socket.socket) -> Secured | None:
        try:
            return dialing.accept(sock, self._secret, self._check_hello, self._frame_limit, self._tls)
        except PeerHungUp as error:  # a worker that ended, for example: not worth a warning
            logger.debug("A connection came to nothing: %s.", error)
        except (Refused, OSError) as error:
            self._tell(error)
        return None

    def _tell(self, error: Exception) -> None:
        # Told at most once in TELL_S, with their number: a line for each of a few thousand strangers would fill the
        # control channel that the lines go over, and the worker would be replaced for its silence.
        with self._refusals_lock:
            left_out = self._refusals.due(None, time.monotonic())
        if left_out is not None:
            more = f" ({left_out} more since the last report)" if left_out else ""
            logger.warning("A connection was refused: %s%s.", error, more)

    def close(self) -> None:
        """Stop listening and end all handshakes. ``on_secured`` is not called after this, and ``serve`` must not be."""
        self._sock.close()
        with self._unproved_lock:
            unproved = list(self._unproved.items())
        for _, (sock, _since) in unproved:
            with contextlib.suppress(OSError):  # its thread has closed it in the meantime
                sock.shutdown(socket.SHUT_RDWR)
        for thread, _ in unproved:
            thread.join(DEADLINE_S)
        if self._spare is not None:
            os.close(self._spare)


def new_socket_name(run_id: bytes, worker: int, epoch: int) -> str:
    """Return a fresh name for a worker's Unix socket: abstract, in no folder."""
    # A file would go with a temporary folder that is swept, as systems do after ten days, and no worker that is
    # replaced could link again. The end of the name is random: nobody else can take it before us.
    return f"\0streamlet-{run_id.hex()}-w{worker}.{epoch}-{os.urandom(8).hex()}"


def _is_of_this_user(sock: socket.socket) -> bool:
    """Tell whether a Unix socket's peer is this user's, or root's."""
    # An abstract name has no folder whose mode keeps other users out.
    size = struct.calcsize("3i")
    _pid, uid, _gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return uid in (os.geteuid(), 0)


def _spare_descriptor() -> int | None:
    with contextlib.suppress(OSError):
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return None


def bind_socket(address: LinkAddress) -> socket.socket:
    """Bind a socket to a name's first address that is ours. Raises OSError."""
    # IPv4 first, where a name has both: a machine without IPv6 can dial that one alone.
    failure: OSError | None = None
    for family, target in sorted(dialing.resolve(address), key=lambda row: row[0] == socket.AF_INET6):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.bind(target)
            return sock
        except OSError as error:
            sock.close()
            failure = failure or error
    raise failure or OSError(f"{address[1]} has no address")
