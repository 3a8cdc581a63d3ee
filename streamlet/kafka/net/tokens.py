"""Tokens of SASL/OAUTHBEARER: fetched in a thread, kept, and renewed before they end.

The loop of a client never waits for a token: it asks :meth:`TokenSource.ready` in each of its rounds. A token comes
from the user's own function or object, or from an HTTP endpoint by the grant of client credentials (RFC 6749, section
4.4; KIP-768).
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import logging
import os
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Never, cast
from weakref import WeakValueDictionary

from streamlet.base.clock import Clock
from streamlet.base.errors import SettingError
from streamlet.kafka.errors import KafkaError, TokenFailed, TokenUnavailable
from streamlet.kafka.net.tls import unusable_file
from streamlet.kafka.settings.security import SecuritySettings

_log = logging.getLogger(__name__)

RENEW_AT = 0.8
"""Share of a token's life after which the next one is fetched (Java: ``sasl.login.refresh.window.factor``)."""
UNKNOWN_LIFE_S = 60.0
"""Seconds after which a token that does not say when it ends is asked for again."""
PAUSE_S = 1.0
"""Seconds between a fetch that failed and the next one."""
_MOST_BYTES = 1 << 20
"""Bytes of an endpoint's answer that are read."""
_LATEST_S = 1e12
"""Seconds beyond which a lifetime says nothing."""
_RETRIED = (408, 425, 429)
"""HTTP's answers below 500 that say "later"."""
_LONGEST_CHAIN = 20
"""Errors behind a provider's error that are looked at: a chain may be a circle."""

_TOKEN = re.compile(r"[-\w.~+/]+=*", re.ASCII)
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its extensions (KIP-342); neither is in the ``repr``.

    ``life_s``: seconds that it is valid from now, None where nobody says.
    """

    value: str = field(repr=False)
    life_s: float | None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


class TokenSource:
    """One client's token. Its methods are of the client's thread; ``fetch`` runs in another.

    ``fetch`` may block; it raises TokenFailed where another try would end the same way, TokenUnavailable otherwise.
    """

    def __init__(self, fetch: Callable[[], Token], limit_s: float, clock: Clock) -> None:
        self._fetch, self._limit_s, self._clock = fetch, limit_s, clock
        self._token: Token | None = None
        self._ends_s = self._renew_s = self._next_try_s = float("-inf")
        self._under_way: _Fetching | None = None
        self._told = ""
        """What the log says already of the fetches since the last token."""

    def ready(self, wanted: bool = True) -> bool:
        """Return whether there is a valid token; if not, have one fetched where it is ``wanted``.

        Raises the error of a fetch that has failed, once; a later call begins another. While one takes too long, each
        call raises.
        """
        now = self._clock.monotonic()
        if self._under_way is not None:
            try:
                self._collect(self._under_way, now)
            except KafkaError as err:
                if self._under_way is None or self._under_way.over:
                    # Without a pause a source that refuses would be asked again in each round of the loop.
                    self._under_way, self._next_try_s = None, now + PAUSE_S
                self._tell(err, now)
                # The old token is good for a while: what is wrong may be over when it ends.
                if now >= self._ends_s:
                    raise
        valid = now < self._ends_s
        due = now >= self._renew_s if valid else wanted
        if due and self._under_way is None and now >= self._next_try_s:
            self._under_way = _Fetching(self._fetch, now)
        return valid

    def _tell(self, error: KafkaError, now: float) -> None:
        """Log once why there is no token, where it is tried again."""
        # Rule: here, for many callers wait in silence. A consumer without a connection only gets no records.
        valid = now < self._ends_s
        if error.message != self._told and (valid or isinstance(error, TokenUnavailable)):
            what = "renewed" if valid else "fetched"
            _log.warning("The token for Kafka could not be %s, and will be tried again: %s.", what, error.message)
            self._told = error.message

    def token(self) -> Token:
        """Return the token; :meth:`ready` must have said that there is one."""
        assert self._token is not None
        return self._token

    def _collect(self, fetching: _Fetching, now: float) -> None:
        late = TokenUnavailable(
            f"no token came within {self._limit_s:.3g} s (sasl_login_read_timeout_ms): its source has not answered"
        )
        in_time = now - fetching.began_s < self._limit_s
        if fetching.error is not None:
            raise fetching.error
        if fetching.token is None:
            # Rule: no other fetch begins while this one lives. An answer in drops, or a function that never returns,
            # has no time-out of its own, and each fetch given up would leave a thread behind.
            if not in_time:
                raise late
            return
        self._under_way, self._token = None, fetching.token
        life_s = UNKNOWN_LIFE_S if fetching.token.life_s is None else fetching.token.life_s
        self._ends_s = fetching.began_s + life_s
        self._renew_s = fetching.began_s + life_s * RENEW_AT
        self._told = ""
        if now >= self._ends_s:
            if not in_time:
                raise late
            raise TokenFailed("the token that was fetched has expired already: look at the clocks of both machines")


class _Fetching:
    """One fetch in a thread of its own, which ends with it."""

    __slots__ = ("began_s", "error", "token")

    def __init__(self, fetch: Callable[[], Token], now: float) -> None:
        self.began_s = now
        self.token: Token | None = None
        self.error: KafkaError | None = None
        threading.Thread(target=self._run, args=(fetch,), name="streamlet-kafka-token", daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether the thread has its outcome."""
        return self.token is not None or self.error is not None

    def _run(self, fetch: Callable[[], Token]) -> None:
        try:
            self.token = fetch()
        except KafkaError as err:
            self.error = err
        except BaseException as err:  # noqa: BLE001 - it would only end this thread, and the loop would wait for nothing
            self.error = TokenFailed(f"the fetch of a token failed with {type(err).__name__}")


def fetcher_of(settings: SecuritySettings) -> Callable[[], Token]:
    """Return the function that fetches a token, as the settings say. Raises SettingError."""
    provider = settings.sasl_oauth_token_provider
    if provider is None:
        endpoint_trust(settings)  # a file that cannot be used ends the start, and not the first fetch
        return lambda: _from_endpoint(settings)
    lock = _lock_of(provider)

    def fetch() -> Token:
        with lock:
            return from_provider(provider, time.time())

    return fetch


# -- the user's own

_LOCKS: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()
"""By the id of the provider, which lives as long as the functions that hold both."""
_LOCKS_LOCK = threading.Lock()


def _lock_of(provider: Any) -> threading.Lock:
    """Return the one lock of this object, for all clients."""
    # A function of an object is another object each time that it is asked for.
    owner = provider.__self__ if isinstance(provider, MethodType) else provider
    with _LOCKS_LOCK:
        lock = _LOCKS.get(id(owner))
        if lock is None:
            lock = _LOCKS[id(owner)] = threading.Lock()
        return lock


def from_provider(provider: Any, now_s: float) -> Token:  # Any: the user's
    """Return the token of a function, or of an object with ``token()``.

    Raises TokenFailed, or TokenUnavailable where its error shows that something was out of reach.
    """
    asked = getattr(provider, "token", None)
    try:
        given = asked() if callable(asked) else provider()
        told = getattr(provider, "extensions", None)
        extensions = told() if callable(told) else {}
    except KafkaError:
        raise
    # Rule: an error's text is not shown. Libraries of identity providers put the request, with its secret, into it.
    # Nor is the error a cause, which a traceback would print into a log; a debugger finds it as the context.
    except Exception as err:  # noqa: BLE001 - raised on, as what it means for the client
        said, passing = _judged(err)
        if passing:
            raise TokenUnavailable(f"sasl_oauth_token_provider could not get a token ({said})") from None
        raise TokenFailed(
            f"sasl_oauth_token_provider raised {said}: it must return a token, or (token, seconds)"
        ) from None
    value, life_s = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        what = "another thing than text" if not isinstance(value, str) else "text that is not a bearer token"
        raise TokenFailed(
            f"sasl_oauth_token_provider returned {what} ({type(value).__name__}): it must return a token, or (token, "
            "seconds that it is valid)"
        )
    if life_s is not None and (isinstance(life_s, bool) or not isinstance(life_s, (int, float)) or not life_s > 0):
        raise TokenFailed(
            f"sasl_oauth_token_provider returned a lifetime of {life_s!r}: give the seconds from now that the token is "
            "valid"
        )
    return Token(value, _life_in(value, now_s) if life_s is None else float(life_s), _extensions(extensions))


def _judged(error: Exception) -> tuple[str, bool]:
    """Return words for an error, and whether it may soon be over."""
    # Rule: look behind the error. Libraries of HTTP raise their own, without an errno; the network's is its context.
    # The first link that says anything decides.
    name, link = type(error).__name__, cast("BaseException | None", error)
    for _ in range(_LONGEST_CHAIN):
        if link is None or isinstance(link, ssl.SSLCertVerificationError):
            break
        status = _http_status(link)
        if status is not None:
            return f"{name}, HTTP status {status}", status >= 500 or status in _RETRIED
        number = link.errno if isinstance(link, OSError) else None
        if number is not None or isinstance(link, (TimeoutError, ConnectionError)):
            behind = "" if link is error else f", from {type(link).__name__}"
            # Negative ones are of the name service, which the system has no words for.
            why = f": {os.strerror(number)}" if isinstance(number, int) and number > 0 else ""
            return name + behind + why, True
        link = link.__cause__ or link.__context__
    return name, False


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of urllib, requests or httpx."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code
    try:
        status = getattr(getattr(error, "response", None), "status_code", None)
    except Exception:  # noqa: BLE001 - an attribute may be anything
        return None
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def _extensions(given: Any) -> dict[str, str]:
    found = dict(given) if isinstance(given, Mapping) else None
    if found is None or not all(
        isinstance(name, str)
        and isinstance(value, str)
        and name != "auth"
        and _EXTENSION_NAME.fullmatch(name)
        and _EXTENSION_VALUE.fullmatch(value)
        for name, value in found.items()
    ):
        raise TokenFailed(
            "extensions() of sasl_oauth_token_provider must give a dict of text: names of letters other than 'auth', "
            "values of printable ASCII"
        )
    return found


def _life_in(token: str, now_s: float) -> float | None:
    """Return a JWT's seconds until its ``exp``, None for other tokens."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends_s = claims["exp"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    known = isinstance(ends_s, (int, float)) and not isinstance(ends_s, bool)
    return float(ends_s) - now_s if known and abs(ends_s) < _LATEST_S else None


# -- an endpoint


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # A redirect is not followed: the secret would go to a host that nobody has named.
    def redirect_request(self, *_: object) -> None:
        return None


def _from_endpoint(settings: SecuritySettings) -> Token:
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
    if code >= 500 or code in _RETRIED:
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
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise TokenFailed(f"the answer of the token endpoint {url} has no access_token that is one: {hint}")
    life_s = told.get("expires_in")
    if isinstance(life_s, str) and life_s.isascii() and life_s.isdigit():
        life_s = int(life_s[:12])
    if isinstance(life_s, bool) or not isinstance(life_s, (int, float)) or not 0 < life_s < _LATEST_S:
        return Token(value, _life_in(value, time.time()))
    return Token(value, float(life_s))
