"""TLS as another transport: the same contract as TCP, with a handshake as part of the connecting."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from streamlet.base.errors import SettingError
from streamlet.kafka.errors import ForeignProtocol, HungUp, TlsFailed
from streamlet.kafka.metadata.cluster import Address
from streamlet.kafka.net.connection_states import SocketAddress
from streamlet.kafka.net.selector import Dial, PlaintextTransport
from streamlet.kafka.settings.security import SecuritySettings

_HOST_NAME_MISMATCH = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_NO_TRUST = (18, 19, 20, 21)  # self-signed, or an issuer that is not among those trusted


@dataclass(frozen=True, slots=True)
class _Remedies:
    """Remedies that messages name: settings, or parts of the user's context."""

    unchecked_host: str
    trusted: str
    own_certificate: str


_BY_SETTINGS = _Remedies("ssl_check_hostname", "ssl_cafile", "ssl_certfile and ssl_keyfile")
_BY_CONTEXT = _Remedies(
    "ssl_context.check_hostname", "ssl_context.load_verify_locations()", "ssl_context.load_cert_chain()"
)


class TlsTransport(PlaintextTransport):
    """TLS over TCP. ``host`` is the name that the certificate must be made for."""

    __slots__ = ("_context", "_heard", "_host", "_remedies", "_sends", "_shaken", "_tls")

    def __init__(
        self,
        target: SocketAddress,
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
        context: ssl.SSLContext,
        host: str,
        remedies: _Remedies = _BY_SETTINGS,
    ) -> None:
        super().__init__(target, send_buffer_bytes, receive_buffer_bytes)
        self._context = context
        self._host = host
        self._remedies = remedies
        self._tls: ssl.SSLSocket | None = None
        self._shaken = False
        self._sends = True
        self._heard = False
        """Whether bytes came: the broker has then accepted our side of the handshake."""

    def wants_write(self) -> bool:
        """Return whether TCP or the handshake waits for room to send."""
        return self._sends

    def finish_connect(self) -> bool:
        if self._tls is None:
            super().finish_connect()
            try:
                # The descriptor stays the same, so the selector need not know.
                self._tls = self._context.wrap_socket(
                    self._socket, do_handshake_on_connect=False, server_hostname=self._host, suppress_ragged_eofs=False
                )
            except ValueError as err:  # a name that cannot stand in a TLS handshake; UnicodeError is one too
                raise TlsFailed(f"the host name {self._host!r} cannot be used with TLS ({err})") from err
            self._socket = self._tls
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._sends = False
            return False
        except ssl.SSLWantWriteError:
            self._sends = True
            return False
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as err:
            raise HungUp("it closed the connection in the middle of the TLS handshake") from err
        except ssl.SSLError as err:
            raise _failure(err, self._host, self._remedies) from err
        self._shaken = True
        return True

    def recv_into(self, buffer: memoryview) -> int | None:
        """Fill the buffer with everything there is: a short read means no more."""
        tls = self._tls
        assert tls is not None
        filled = 0
        try:
            while filled < len(buffer):
                size = tls.recv_into(buffer[filled:])
                if size == 0:
                    break
                filled += size
                self._heard = True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return filled or None
        except ssl.SSLEOFError as err:
            if not filled:
                raise ConnectionResetError("the broker closed the connection") from err
        except ssl.SSLError as err:
            raise self._broken(err) from err
        return filled

    def pending(self) -> bool:
        return self._tls is not None and self._shaken and self._tls.pending() > 0

    def send(self, data: memoryview) -> int:
        assert self._tls is not None
        try:
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except ssl.SSLEOFError as err:
            raise ConnectionResetError("the broker closed the connection") from err
        except ssl.SSLError as err:
            raise self._broken(err) from err

    def _broken(self, error: ssl.SSLError) -> Exception:
        # With TLS 1.3 our handshake is over before the broker has looked at our certificate: an alert at the first read
        # is its refusal. Once bytes have come, the broker has accepted it, and an alert is a connection that breaks.
        if not self._heard:
            return _failure(error, self._host, self._remedies)
        return ConnectionResetError(f"TLS broke off ({(error.reason or str(error)).lower().replace('_', ' ')})")


def _failure(error: ssl.SSLError, host: str, remedies: _Remedies) -> TlsFailed | ForeignProtocol:
    """Return the error for a failed handshake, with its remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or str(error)
        if error.verify_code in _HOST_NAME_MISMATCH:
            return TlsFailed(
                f"its certificate is not made for the host name {host!r} ({why}): connect to a name that is in the "
                f"certificate, or set {remedies.unchecked_host} to False where the network itself is trusted"
            )
        if error.verify_code in _NO_TRUST:
            return TlsFailed(
                f"its certificate is signed by nobody we trust ({why}): name the authority's certificate in "
                f"{remedies.trusted}"
            )
        return TlsFailed(f"its certificate is not valid ({why}): have it renewed, or look at this machine's clock")
    reason = error.reason or str(error)
    words = reason.lower().replace("_", " ")
    if "ALERT" in reason:
        return TlsFailed(
            f"it refuses our side of the TLS handshake ({words}): it may want a client certificate, signed by an "
            f"authority it trusts ({remedies.own_certificate}), or another version of TLS"
        )
    if reason in (
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "HTTP_REQUEST",
        "UNKNOWN_PROTOCOL",
        "BAD_RECORD_TYPE",
    ):
        return ForeignProtocol(f"it does not speak TLS, and this client was told to ({words})")
    return TlsFailed(f"the TLS handshake failed ({words})")


class TlsDial:
    """Makes TLS transports; a replaced certificate file is read again.

    The files are read when it is made, and when one of them has changed since.

    Raises SettingError, naming setting and file, when one cannot be used.
    """

    def __init__(self, settings: SecuritySettings, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        self._settings = settings
        self._buffers = send_buffer_bytes, receive_buffer_bytes
        self._seen = self._file_stamps()
        self._context = make_context(settings)

    def __call__(self, target: SocketAddress, address: Address) -> TlsTransport:
        seen = self._file_stamps()
        if seen != self._seen:
            # Certificates are renewed while programs run. A file that is just being replaced fails this one connection,
            # as an OSError, and the next try reads it again.
            try:
                self._context, self._seen = make_context(self._settings), seen
            except SettingError as err:
                raise OSError(err.message) from err
        return TlsTransport(target, *self._buffers, self._context, address.host)

    def _file_stamps(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in (self._settings.ssl_cafile, self._settings.ssl_certfile, self._settings.ssl_keyfile):
            try:
                row = None if path is None else Path(path).stat()
            except OSError:
                row = None
            found.append(None if row is None else (row.st_mtime_ns, row.st_size, row.st_ino))
        return found


def make_context(settings: SecuritySettings) -> ssl.SSLContext:
    """Make a context of TLS 1.2 or newer that verifies certificates. Raises SettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The host name may be left unchecked, the certificate never: without it anybody on the way could be the broker.
    context.check_hostname = settings.ssl_check_hostname
    context.verify_mode = ssl.CERT_REQUIRED
    if settings.ssl_cafile is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(settings.ssl_cafile)
        except OSError as err:
            raise unusable_file("ssl_cafile", settings.ssl_cafile, err, "PEM certificates of authorities") from err
    if settings.ssl_certfile is not None:
        _load_own(context, settings, settings.ssl_certfile)
    return context


def _load_own(context: ssl.SSLContext, settings: SecuritySettings, certfile: str) -> None:
    def password() -> str:
        # OpenSSL always gets this function: without one it asks for the password of a locked key at the terminal, and
        # the program stands still.
        if settings.ssl_password is None:
            raise SettingError(f"The private key {keyfile} is encrypted: give ssl_password.")
        return settings.ssl_password

    keyfile = settings.ssl_keyfile or certfile
    for name, path in (("ssl_certfile", certfile), ("ssl_keyfile", keyfile)):
        try:
            Path(path).open("rb").close()
        except OSError as err:
            raise unusable_file(name, path, err, "PEM") from err
    try:
        context.load_cert_chain(certfile, keyfile, password)
    except ssl.SSLError as err:
        if err.reason in ("KEY_VALUES_MISMATCH",):
            raise SettingError(
                f"ssl_keyfile = {keyfile!r} is not the key of the certificate in ssl_certfile = {certfile!r}."
            ) from err
        if settings.ssl_password is not None and err.reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", None):
            raise SettingError(
                f"ssl_password does not open the private key {keyfile}, or that file is damaged."
            ) from err
        raise unusable_file("ssl_certfile", certfile, err, f"a PEM certificate, with its key in {keyfile}") from err


def unusable_file(name: str, path: str, error: OSError, wanted: str) -> SettingError:
    """Return the error for a file of certificates that cannot be used."""
    why = error.strerror if not isinstance(error, ssl.SSLError) else None
    return SettingError(f"{name} = {path!r} cannot be used ({why or 'it holds nothing usable'}): {wanted} are wanted.")


class ContextDial:
    """Makes TLS transports with a context of the user's own."""

    def __init__(self, context: ssl.SSLContext, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        self._context = context
        self._buffers = send_buffer_bytes, receive_buffer_bytes

    def __call__(self, target: SocketAddress, address: Address) -> TlsTransport:
        return TlsTransport(target, *self._buffers, self._context, address.host, _BY_CONTEXT)


def dial_for(settings: SecuritySettings, send_buffer_bytes: int, receive_buffer_bytes: int) -> Dial:
    """Return the maker of connections under these settings.

    Raises SettingError for a file that cannot be used.
    """
    if settings.uses_tls and settings.ssl_context is not None:
        return ContextDial(settings.ssl_context, send_buffer_bytes, receive_buffer_bytes)
    if settings.uses_tls:
        return TlsDial(settings, send_buffer_bytes, receive_buffer_bytes)
    return lambda target, _address: PlaintextTransport(target, send_buffer_bytes, receive_buffer_bytes)
