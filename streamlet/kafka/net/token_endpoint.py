"""Tokens of SASL/OAUTHBEARER from an HTTP endpoint, by client credentials (RFC 6749, section 4.4; KIP-768)."""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Never

from streamlet.base.errors import SettingError
from streamlet.kafka.errors import TokenFailed, TokenUnavailable
from streamlet.kafka.net.tls import unusable_file
from streamlet.kafka.net.tokens import BEARER, LATEST_S, RETRIED, Token, life_in
from streamlet.kafka.settings.security import SecuritySettings

_MOST_BYTES = 1 << 20
"""Bytes of an endpoint's answer that are read."""


def fetcher(settings: SecuritySettings) -> Callable[[], Token]:
    """Return the function that asks the endpoint for a token. Raises SettingError."""
    endpoint_trust(settings)  # a file that cannot be used ends the start, and not the first fetch
    return lambda: from_endpoint(settings)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # A redirect is not followed: the secret would go to a host that nobody has named.
    def redirect_request(self, *_: object) -> None:
        return None


def from_endpoint(settings: SecuritySettings) -> Token:
    """Return a token by client credentials. Raises TokenFailed, TokenUnavailable."""
    url, name = settings.sasl_oauthbearer_token_endpoint_url, settings.sasl_oauthbearer_client_credentials_client_id
    secret = settings.sasl_oauthbearer_client_credentials_client_secret
    assert url is not None
    form = {"grant_type": "client_credentials"}
    if settings.sasl_oauthbearer_scope is not None:
        form["scope"] = settings.sasl_oauthbearer_scope
    credentials = base64.b64encode(f"{name}:{secret}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}", "Accept": "application/json"}
    # Only http and https come here: the settings are checked.
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers, method="POST")  # noqa: S310
    limit_s = settings.sasl_login_read_timeout_ms / 1000
    late = TokenUnavailable(
        f"the token endpoint {url} has not answered whole within {limit_s:.3g} s (sasl_login_read_timeout_ms)"
    )
    try:
        in_time = _InTime(endpoint_trust(settings), time.monotonic() + limit_s, late)
        with urllib.request.build_opener(_NoRedirect(), in_time).open(request, timeout=limit_s) as response:
            body = _whole(response)
    except SettingError as err:  # a file that was there when the client was made
        raise TokenFailed(err.message.rstrip(".")) from err
    except urllib.error.HTTPError as err:
        _refused(url, err)
    except (OSError, http.client.HTTPException) as err:
        reason = getattr(err, "reason", None) or err
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise TokenFailed(
                f"the certificate of the token endpoint {url} is not trusted ({reason.verify_message}): name its "
                "authority in sasl_oauthbearer_token_endpoint_cafile, or correct sasl_oauthbearer_token_endpoint_url"
            ) from err
        raise TokenUnavailable(f"the token endpoint {url} cannot be reached ({reason or type(err).__name__})") from err
    return read_answer(url, body)


def endpoint_trust(settings: SecuritySettings) -> ssl.SSLContext:
    """Return the context of TLS to the endpoint. Raises SettingError."""
    # Rule: never the user's ssl_context. It is made for brokers, and what it does not check would cost the secret.
    context = ssl.create_default_context()
    name = "ssl_cafile"
    if settings.sasl_oauthbearer_token_endpoint_cafile is not None:
        name = "sasl_oauthbearer_token_endpoint_cafile"
    cafile = getattr(settings, name)
    if cafile is not None:
        try:
            context.load_verify_locations(cafile)
        except OSError as err:
            raise unusable_file(name, cafile, err, "PEM certificates of authorities") from err
    return context


class _InTime(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Reads an answer, status and headers too, until a deadline."""

    def __init__(self, context: ssl.SSLContext, ends_s: float, late: TokenUnavailable) -> None:
        urllib.request.HTTPSHandler.__init__(self, context=context)
        self._trust, self._ends_s, self._late = context, ends_s, late

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._tls_connection, req)

    def _connection(self, host: str, **settings: Any) -> http.client.HTTPConnection:  # Any: urllib's
        return self._bounded(http.client.HTTPConnection(host, **settings))

    def _tls_connection(self, host: str, **settings: Any) -> http.client.HTTPConnection:
        return self._bounded(http.client.HTTPSConnection(host, context=self._trust, **settings))

    def _bounded(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        def response(sock: socket.socket, **settings: Any) -> http.client.HTTPResponse:
            made = http.client.HTTPResponse(sock, **settings)
            made.fp = io.BufferedReader(_Deadline(made.fp.detach(), sock, self._ends_s, self._late))
            return made

        connection.response_class = response  # type: ignore[assignment]  # it is only called, as the class is
        return connection


class _Deadline(io.RawIOBase):
    """The bytes of a socket until a deadline."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, ends_s: float, late: TokenUnavailable) -> None:
        self._raw, self._sock, self._ends_s, self._late = raw, sock, ends_s, late

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # Any: a writable buffer
        # Rule: less time for each read. The time-out of a socket begins again with each drop that comes, and drops of
        # a status or of headers are read by the library, in a loop of its own.
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise self._late
        self._sock.settimeout(left_s)
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            raise self._late from None

    def close(self) -> None:
        self._raw.close()
        super().close()


def _whole(response: Any) -> bytes:  # Any: HTTPResponse, which mypy loses
    """Return an answer's body, one byte more than allowed at most."""
    body = bytearray()
    while len(body) <= _MOST_BYTES:
        piece = response.read1(_MOST_BYTES + 1 - len(body))
        body += piece
        if not piece:
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            break
    return bytes(body)


def _refused(url: str, err: urllib.error.HTTPError) -> Never:
    with err:
        code = err.code
        try:
            told = json.loads(_whole(err.fp))
        except (ValueError, OSError, TokenUnavailable, http.client.HTTPException, RecursionError):
            told = None
    if code >= 500 or code in RETRIED:
        raise TokenUnavailable(f"the token endpoint {url} answers with HTTP status {code}")
    if 300 <= code < 400:
        raise TokenFailed(
            f"the token endpoint {url} answers with a redirect (HTTP status {code}), which is not followed: set "
            "sasl_oauthbearer_token_endpoint_url to the address that it leads to"
        )
    said = ""
    if isinstance(told, dict) and isinstance(told.get("error"), str):
        detail = told.get("error_description")
        said = f", and says {told['error'][:80]!r}" + (f": {detail[:200]!r}" if isinstance(detail, str) else "")
    raise TokenFailed(
        f"the token endpoint {url} refuses us (HTTP status {code}{said}): correct "
        "sasl_oauthbearer_client_credentials_client_id, its client_secret or sasl_oauthbearer_scope"
    )


def read_answer(url: str, body: bytes) -> Token:
    """Return the token in an endpoint's answer. Raises TokenFailed, which shows nothing of it."""
    hint = "check that sasl_oauthbearer_token_endpoint_url is the token endpoint itself"
    if len(body) > _MOST_BYTES:
        raise TokenFailed(f"the token endpoint {url} answers with more than {_MOST_BYTES} bytes: {hint}")
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        what = "a web page" if body.lstrip()[:1] == b"<" else "no JSON" if body.strip() else "nothing"
        raise TokenFailed(f"the token endpoint {url} answers with {what} where a token should be: {hint}") from None
    value = told.get("access_token") if isinstance(told, dict) else None
    if not isinstance(value, str) or not BEARER.fullmatch(value):
        raise TokenFailed(f"the answer of the token endpoint {url} has no access_token that is one: {hint}")
    life_s = told.get("expires_in")
    if isinstance(life_s, str) and life_s.isascii() and life_s.isdigit():
        life_s = int(life_s[:12])
    if isinstance(life_s, bool) or not isinstance(life_s, (int, float)) or not 0 < life_s < LATEST_S:
        return Token(value, life_in(value, time.time()))
    return Token(value, float(life_s))
