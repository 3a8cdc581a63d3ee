"""All connections of one client behind one epoll object: bytes out, frames in (Java: ``Selector``).

It knows frames and addresses, no requests. A :class:`FrameBuffer` cuts a connection's bytes into frames (pure), a
:class:`Transport` carries them, and :meth:`Selector.poll` gathers all that happened into one :class:`PollEvents` value;
the caller decides the order of acting on it. TLS is another transport and another :data:`Dial` (``tls.py``). SASL is
*not* here: it speaks in Kafka's frames, above the transport (``connection_setup.py``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from streamlet.base.keep_alive import keep_alive
from streamlet.kafka.errors import Disconnected, ForeignProtocol, KafkaError, MalformedFrame
from streamlet.kafka.metadata.cluster import Address
from streamlet.kafka.net.connection_states import SocketAddress
from streamlet.kafka.protocol.schema import INT32_LAYOUT

# -- frames: a length of four bytes, then the frame ------------------------------------------------------------------

_STAGING = 64 * 1024
_FIRST_GROWTH = 1024 * 1024


class FrameBuffer:
    """Bytes in through :meth:`get_buffer` / :meth:`buffer_updated`, whole frames out.

    Small reads go through one reused staging buffer. The rest of a large frame is received straight into that frame's
    own memory. One thread.
    """

    # A frame's memory grows with the bytes that arrive, not with the length that is claimed: a hostile length alone
    # allocates nothing.

    __slots__ = ("_filled", "_frame", "_limit", "_missing", "_staged", "_staging", "_view", "seen_frames")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._staging = bytearray(_STAGING)
        self._staged = 0
        self._frame: bytearray | None = None
        self._view: memoryview | None = None
        self._filled = 0
        self._missing = 0
        self.seen_frames = 0

    def get_buffer(self) -> memoryview:
        """Return the memory to receive into, never empty.

        Call :meth:`buffer_updated` before the next call.
        """
        frame = self._frame
        if frame is not None and (self._filled < len(frame) or self._missing >= _STAGING):
            # Doubled, so that receiving n bytes copies at most n more; never above what is missing.
            if self._filled == len(frame):
                frame.extend(bytes(min(self._missing, max(_FIRST_GROWTH, self._filled))))
            self._view = memoryview(frame)[self._filled :]
            return self._view
        self._view = memoryview(self._staging)[self._staged :]
        return self._view

    def buffer_updated(self, size: int) -> list[bytearray]:
        """Take ``size`` received bytes; return the frames that they complete.

        Raises MalformedFrame, or ForeignProtocol for the first bytes of a connection.
        """
        view, self._view = self._view, None
        if view is None:
            raise RuntimeError("buffer_updated without get_buffer")
        # The view is given back at once: a bytearray that has one cannot grow, and `get_buffer` extends the frame.
        direct = view.obj is self._frame
        view.release()
        if direct:
            self._filled += size
            self._missing -= size
            if self._missing:
                return []
            return [self._finish()]
        self._staged += size
        return self._split_staging()

    def _split_staging(self) -> list[bytearray]:
        frames: list[bytearray] = []
        staging, pos, end = self._staging, 0, self._staged
        while pos < end:
            if self._frame is None:
                if end - pos < 4:
                    break
                self._begin(INT32_LAYOUT.unpack_from(staging, pos)[0], bytes(staging[pos : min(end, pos + 16)]))
                pos += 4
            assert self._frame is not None
            part = staging[pos : min(end, pos + self._missing)]
            self._frame += part
            self._filled += len(part)
            pos += len(part)
            self._missing -= len(part)
            if not self._missing:
                frames.append(self._finish())
        staging[: end - pos] = staging[pos:end]
        self._staged = end - pos
        return frames

    def _begin(self, length: int, start: bytes) -> None:
        # Every answer begins with four bytes of correlation id: a shorter frame is no answer of Kafka.
        if not 4 <= length <= self._limit:
            raise self._bad_length(length, start)
        self._frame = bytearray()
        self._filled = 0
        self._missing = length

    def _finish(self) -> bytearray:
        frame, self._frame = self._frame, None
        assert frame is not None
        self.seen_frames += 1
        return frame

    def _bad_length(self, length: int, start: bytes) -> MalformedFrame:
        # Only the first bytes of a connection can come from another protocol; later a wrong length is damage.
        if self.seen_frames:
            return MalformedFrame(
                f"a frame announces {length} bytes, and the limit is {self._limit} (receive_message_max_bytes)"
            )
        return ForeignProtocol(f"{_guess(start)}, for its first bytes are {start!r}")


def _guess(start: bytes) -> str:
    if start[:1] in (b"\x15", b"\x16") and start[1:2] == b"\x03":
        return "it speaks TLS, and this client was told to speak plain text"
    if start.startswith((b"HTTP/", b"<html", b"<!DOC")):
        return "it speaks HTTP"
    if start.startswith(b"SSH-"):
        return "it speaks SSH"
    return "it speaks another protocol"


# -- transports ------------------------------------------------------------------------------------------------------


class Transport(Protocol):
    """Carries the bytes of one connection; owned by one thread.

    Connecting takes in a handshake, if there is one. Methods never block; they raise OSError (or KafkaError) when the
    connection is broken.
    """

    def fileno(self) -> int:
        """Return the descriptor for the selector."""

    def finish_connect(self) -> bool:
        """Go on connecting when the socket is ready; return whether bytes may flow."""

    def wants_write(self) -> bool:
        """Return whether the connecting waits for room to send, not for bytes."""

    def recv_into(self, buffer: memoryview) -> int | None:
        """Return the bytes received, None for none yet, 0 at the end."""

    def pending(self) -> bool:
        """Return whether it holds bytes that no event will announce."""

    def send(self, data: memoryview) -> int:
        """Return how many bytes were taken, 0 when there is no room."""

    def close(self) -> None:
        """Close it. Never blocks, never raises, may be called twice."""


Dial = Callable[[SocketAddress, Address], Transport]
"""Begin a connection to the socket address.

The second argument is the name it was resolved from (for TLS).
"""


KEEP_ALIVE_S = 10
"""Seconds between two probes of an idle connection."""
KEEP_ALIVE_PROBES = 3
"""Unanswered probes after which it ends."""


class PlaintextTransport:
    """Plain TCP."""

    __slots__ = ("_socket",)

    def __init__(self, target: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        family, sockaddr = target
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            # A request is written whole, so Nagle's algorithm could only delay its last segment.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A machine without power says nothing. A request finds that out by its time-out; the probes find it on a
            # connection that nobody asks anything of, before the next request has to.
            keep_alive(self._socket, KEEP_ALIVE_S, KEEP_ALIVE_PROBES)
            # -1 leaves the size to the operating system, which lets it grow with need.
            if send_buffer_bytes != -1:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes != -1:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            code = self._socket.connect_ex(sockaddr)
            if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                raise OSError(code, os.strerror(code))
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def finish_connect(self) -> bool:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def wants_write(self) -> bool:
        return True

    def pending(self) -> bool:
        return False

    def recv_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    def close(self) -> None:
        self._socket.close()


def resolve_all(address: Address) -> list[SocketAddress]:
    """Return every address of a name, in the resolver's order.

    Blocks while the system resolves. Raises OSError.
    """
    rows = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(int(family), sockaddr) for family, _kind, _proto, _name, sockaddr in rows]


# -- the selector ----------------------------------------------------------------------------------------------------

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE
_READS_A_TURN = 16
"""Receives from one connection in a row; a fast broker must not starve the others."""


@dataclass(slots=True)
class PollEvents:
    """The events of one poll."""

    connected: list[Address] = field(default_factory=list)
    completed_sends: list[Address] = field(default_factory=list)
    completed_receives: list[tuple[Address, bytearray]] = field(default_factory=list)
    disconnected: dict[Address, KafkaError] = field(default_factory=dict)


@dataclass(slots=True)
class _Channel:
    address: Address
    transport: Transport
    frames: FrameBuffer
    last_active_s: float
    connected: bool = False
    outgoing: deque[memoryview] = field(default_factory=deque)
    interest: int = _WRITE


class Wakeup:
    """A socket pair: any thread ends the wait of a selector with it."""

    def __init__(self) -> None:
        # Reentrant: a consumer that is garbage-collected signals, and the collector may run inside either method.
        self._lock = threading.RLock()
        self._signalled = False
        self.receiver, self._sender = socket.socketpair()
        self.receiver.setblocking(False)
        self._sender.setblocking(False)

    def signal(self) -> None:
        """Make the socket readable. Any thread, after :meth:`close` too."""
        with self._lock:
            if not self._signalled:
                self._signalled = True
                with contextlib.suppress(OSError):  # closed
                    self._sender.send(b"w")

    def take(self) -> None:
        """Empty the socket until the next signal."""
        with self._lock:
            with contextlib.suppress(OSError):  # nothing there, or closed
                self.receiver.recv(16)
            self._signalled = False

    def close(self) -> None:
        """Close both ends; later signals do nothing."""
        # Under the lock: without it a signal could go to a descriptor that the system has given to another file.
        with self._lock:
            self.receiver.close()
            self._sender.close()


class Selector:
    """Channels by address.

    One thread (:meth:`wakeup` is for all); nothing here blocks but :meth:`poll`, and that only as long as told.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._selector = selectors.DefaultSelector()
        self._channels: dict[Address, _Channel] = {}
        # An error while sending is kept for the next poll: the sender may be in the middle of work on other
        # connections, and one place handles the end of a connection.
        self._failed_at_once: dict[Address, KafkaError] = {}
        self._held: dict[Address, _Channel] = {}
        """Channels whose transport holds bytes that no event announces."""
        self._closed = False
        self._wakeup = Wakeup()
        self._selector.register(self._wakeup.receiver, _READ, None)

    def wakeup(self) -> None:
        """Let the :meth:`poll` under way, or else the next one, not wait. Any thread."""
        self._wakeup.signal()

    def fileno(self) -> int:
        """Return the descriptor of the epoll object: readable when a poll has something."""
        number: int = self._selector.fileno()
        return number

    def holds_bytes(self) -> bool:
        """Return whether a poll has something though :meth:`fileno` is silent."""
        return bool(self._held or self._failed_at_once)

    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses with a channel, connected or connecting."""
        return tuple(self._channels)

    def open(self, address: Address, transport: Transport, now_s: float) -> None:
        """Watch a transport that has begun to connect; it is ours from now on."""
        channel = _Channel(address, transport, FrameBuffer(self._max_frame_bytes), now_s)
        self._channels[address] = channel
        self._selector.register(transport, _WRITE, channel)

    def send(self, address: Address, frame: bytes, now_s: float) -> bool:
        """Queue a frame, and write at once; return whether all of it was taken."""
        channel = self._channels[address]
        channel.last_active_s = now_s  # what is taken at once makes no event, and with acks=0 no answer follows
        channel.outgoing.append(memoryview(frame))
        if len(channel.outgoing) == 1:
            try:
                return self._write(channel) == 1
            except OSError as err:
                self._failed_at_once[address] = _broken(err)
            except KafkaError as err:
                self._failed_at_once[address] = err
        return False

    def poll(self, timeout_s: float, now_s: float) -> PollEvents:
        """Wait at most ``timeout_s`` for an event, then read and write."""
        ready = PollEvents(disconnected=self._failed_at_once)
        self._failed_at_once = {}
        held, self._held = self._held, {}
        if ready.disconnected or held:
            timeout_s = 0.0
        found = {channel.address: (channel, _READ) for channel in held.values()}
        try:
            happened = self._selector.select(max(timeout_s, 0.0))
        except (OSError, ValueError):
            if not self._closed:
                raise
            return ready  # a signal's handler closed it while it waited
        for key, events in happened:
            if key.data is None:
                self._wakeup.take()
            else:  # an event of its socket says nothing of what its transport holds
                holds = _READ if key.data.address in held else 0
                found[key.data.address] = (key.data, events | holds)
        for channel, events in found.values():
            if self._channels.get(channel.address) is not channel:
                continue  # closed since
            try:
                self._serve(channel, events, ready)
            except OSError as err:
                ready.disconnected[channel.address] = _broken(err)
            except KafkaError as err:
                ready.disconnected[channel.address] = err
            channel.last_active_s = now_s
        # Closed after all channels were served: frames that came before the end of a connection are in the result.
        for address in ready.disconnected:
            self.close(address)
        return ready

    def idle(self, now_s: float, idle_s: float) -> list[Address]:
        """Return the connections without an event or a request for so long."""
        return [row.address for row in self._channels.values() if now_s - row.last_active_s >= idle_s]

    def close(self, address: Address) -> None:
        """Close one channel, dropping its queue."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            self._selector.unregister(channel.transport)
            channel.transport.close()

    def close_all(self) -> None:
        """Close all channels and the epoll object. May be called twice."""
        self._closed = True
        # The epoll object goes first: a forked child shares it, and unregistering a socket here would take it out of
        # the parent's epoll object too.
        self._selector.close()
        for channel in self._channels.values():
            channel.transport.close()
        self._channels.clear()
        self._wakeup.close()

    def _serve(self, channel: _Channel, events: int, ready: PollEvents) -> None:
        if not channel.connected:
            if not channel.transport.finish_connect():
                self._watch(channel)
                return
            channel.connected = True
            ready.connected.append(channel.address)
            self._watch(channel)
            return
        if events & _READ:
            self._read(channel, ready)
        if events & _WRITE:
            ready.completed_sends += [channel.address] * self._write(channel)

    def _read(self, channel: _Channel, ready: PollEvents) -> None:
        frames, transport = channel.frames, channel.transport
        for _ in range(_READS_A_TURN):
            room = frames.get_buffer()
            wanted = len(room)
            try:
                size = transport.recv_into(room)
            except OSError:
                frames.buffer_updated(0)
                raise
            # The frames are taken before the end of the stream is reported: a broker may answer and then close.
            done = frames.buffer_updated(size or 0)
            ready.completed_receives += [(channel.address, frame) for frame in done]
            if size == 0:
                raise ConnectionResetError("the broker closed the connection")
            if size is None or size < wanted:
                return
        # Decrypted bytes in the TLS layer are announced by no event: unread they would stay there until the broker
        # sends more, and the answer that they complete would be late or lost to a time-out.
        if transport.pending():
            self._held[channel.address] = channel

    def _write(self, channel: _Channel) -> int:
        """Write until the socket takes no more; return the number of finished frames."""
        finished = 0
        outgoing = channel.outgoing
        while outgoing:
            head = outgoing[0]
            taken = channel.transport.send(head)
            if taken < len(head):
                outgoing[0] = head[taken:]
                if not taken:
                    break
            else:
                outgoing.popleft()
                finished += 1
        self._watch(channel)
        return finished

    def _watch(self, channel: _Channel) -> None:
        writes = bool(channel.outgoing) if channel.connected else channel.transport.wants_write()
        # While connecting only one of the two: a socket is nearly always writable, and a handshake that waits for the
        # broker's bytes would spin.
        interest = (_READ | _WRITE if channel.connected else _WRITE) if writes else _READ
        if interest != channel.interest:
            channel.interest = interest
            self._selector.modify(channel.transport, interest, channel)


def _broken(err: OSError) -> KafkaError:
    return Disconnected(err.strerror or str(err))
