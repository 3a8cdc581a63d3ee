"""Links in TLS 1.3, by choice: one certificate for a run, which both ends of every link must have.

The proof of the run's secret comes afterwards, within it: epochs and workers are told nowhere else. OpenSSL works in
memory, between a plain socket and its user. So deadlines, half-closed sockets and the count of segments stay those of
the socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any

from streamlet.runtime.links.handshake import Refused

RECORD_BYTES = (1 << 14) + 512
"""Most bytes that a record of TLS 1.3 holds, with what it adds."""

PIECE_BYTES = 1 << 17
"""Most bytes that are encrypted before the socket has taken them."""

HELLO_BYTES = 1 << 14
"""Most bytes of a peer that has shown no certificate yet."""

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons about bytes that are none of TLS."""

_NOT_TAKEN = ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "TLSV13_ALERT_CERTIFICATE_REQUIRED")
"""OpenSSL's reasons about what the other end says of a certificate."""


class BrokenTls(OSError):
    """The other end broke what it encrypted, or refused ours."""


class LinkTls:
    """A run's certificate and key, for both ends of a link; ``pem`` holds both."""

    def __init__(self, pem: bytes) -> None:
        self._accepting = _context(ssl.PROTOCOL_TLS_SERVER, pem)
        self._accepting.num_tickets = 0  # nobody resumes, and nothing is sent that nobody asked for
        self._dialing = _context(ssl.PROTOCOL_TLS_CLIENT, pem)

    def accept(self, sock: socket.socket, deadline: float) -> TlsSocket:
        """Encrypt for a peer that has dialled. Raises OSError or Refused."""
        return _shake_hands(TlsSocket(sock, self._accepting, server_side=True), deadline)

    def dial(self, sock: socket.socket, deadline: float) -> TlsSocket:
        """Encrypt for a peer that was dialled. Raises OSError or Refused."""
        return _shake_hands(TlsSocket(sock, self._dialing, server_side=False), deadline)


def _context(protocol: int, pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # No names: who is on the other end is proved by the one certificate, and then by the handshake of links.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem[pem.index(b"-----BEGIN CERTIFICATE-----") :].decode())
    # OpenSSL wants a file. This one is in memory, has no name, and goes with this block.
    with os.fdopen(os.memfd_create("streamlet", os.MFD_CLOEXEC), "wb") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


def _shake_hands(stream: TlsSocket, deadline: float) -> TlsSocket:
    try:
        stream.shake_hands(deadline)
    except TimeoutError:
        raise Refused("it did not finish the handshake in time") from None
    except ssl.SSLCertVerificationError:
        raise Refused("its certificate is not that of this run") from None
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            raise Refused("it does not speak TLS, and links of this run do (streamlet.links.tls)") from None
        if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            raise Refused("it has no certificate") from None
        if error.reason in _NOT_TAKEN:
            raise Refused("it does not take the certificate of this run") from None
        raise Refused(f"no TLS with it ({error.reason or error})") from None
    return stream


class TlsSocket:
    """A socket whose bytes are encrypted; of ``socket.socket`` it has what links use.

    One thread may receive while another one sends.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_side: bool) -> None:
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server_side)
        # OpenSSL lets one thread at a time at a connection. Reentrant: a finalizer that logs may interrupt a `recv` of
        # its own thread with a `send`, and both leave it whole between any two calls.
        self._lock = threading.RLock()
        self._plain = b""
        """Bytes that were decrypted and not asked for."""
        self._unsent = memoryview(b"")
        """Encrypted bytes that have not left."""
        self._of_caller = 0
        """How many of the caller's bytes that is."""

    def shake_hands(self, deadline: float) -> None:
        """Prove, and have proved, the certificate. Raises OSError or Refused."""
        came = 0
        while not self._handshake_is_over():
            self._sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = self._sock.recv(RECORD_BYTES)
            came += len(data)
            if not data:
                raise ConnectionResetError("it hung up during the handshake")
            if came > HELLO_BYTES:
                raise Refused("it sent too many bytes before a certificate")
            if time.monotonic() > deadline:
                raise TimeoutError
            self._in.write(data)

    def _handshake_is_over(self) -> bool:
        try:
            self._tls.do_handshake()
            over = True
        except ssl.SSLWantReadError:
            over = False
        except ssl.SSLError:
            with contextlib.suppress(OSError):  # what it is told is why
                self._sock.sendall(self._out.read())
            raise
        if self._out.pending:
            self._sock.sendall(self._out.read())
        return over

    # -- reading -------------------------------------------------------------------------------------------------

    def recv(self, count: int) -> bytes:
        """Return at most ``count`` bytes; b"" at the end. Raises OSError; BlockingIOError where none are there."""
        # Rule: a call for more than a record leaves nothing behind. No selector would tell of bytes that are decrypted
        # and wait here, so what is read of the socket always fits into what is returned.
        plain, self._plain = self._plain, b""
        if self._in.pending:  # it came together with the end of the handshake
            plain += self._decrypted(b"")
        # And one read where it gives anything: filled to the last byte by ever smaller reads, a backlog would hold the
        # caller up, and an error of a later read would take along what the first had brought.
        while not plain:
            data = self._sock.recv(count - RECORD_BYTES if count > RECORD_BYTES else count)
            if not data:
                break  # an end without a word is as good: what counts is in frames, which are whole or not there
            plain = self._decrypted(data)
        self._plain = plain[count:]
        return plain[:count]

    def _decrypted(self, data: bytes) -> bytes:
        found = []
        with self._lock:
            self._in.write(data)
            try:
                while part := self._tls.read(RECORD_BYTES):  # one record each, however much is asked for
                    found.append(part)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                pass
            except ssl.SSLError as error:
                raise BrokenTls(f"its TLS broke off ({error.reason or error})") from None
        return b"".join(found)

    # -- writing -------------------------------------------------------------------------------------------------

    def send(self, data: Any) -> int:
        """Send some bytes; return how many. Raises OSError; BlockingIOError where the socket takes none."""
        return self.sendmsg([data])

    def sendmsg(self, buffers: Iterable[Any]) -> int:
        """Send some bytes of buffers, as ``send`` does."""
        # Rule: bytes count as sent when all of their encryption has left, and until then the caller comes with the same
        # ones again. So nobody but the caller, who has a queue and watches the socket, has to remember that something
        # waits.
        with self._lock:
            if not self._unsent:
                self._encrypt(buffers)
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            return self._of_caller

    def _encrypt(self, buffers: Iterable[Any]) -> None:
        self._of_caller = 0
        for buffer in buffers:
            piece = memoryview(buffer)[: PIECE_BYTES - self._of_caller]
            while piece:
                written = self._tls.write(piece)
                self._of_caller += written
                piece = piece[written:]
            if self._of_caller == PIECE_BYTES:
                break
        self._unsent = memoryview(self._out.read())

    def sendall(self, data: bytes) -> None:
        """Send all of the bytes, within the time-out."""
        left = memoryview(data)
        while left:
            left = left[self.send(left) :]

    # -- the socket itself ---------------------------------------------------------------------------------------

    @property
    def family(self) -> int:
        return self._sock.family

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self._sock.setblocking(flag)

    def settimeout(self, value: float | None) -> None:
        self._sock.settimeout(value)

    def getsockname(self) -> Any:
        return self._sock.getsockname()

    def getsockopt(self, level: int, option: int, length: int) -> bytes:
        return self._sock.getsockopt(level, option, length)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        self._sock.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> TlsSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


LinkSocket = socket.socket | TlsSocket
"""The socket of a link, or of a control channel."""
