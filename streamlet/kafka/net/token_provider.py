"""Tokens of SASL/OAUTHBEARER from the user's own function or object."""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
import urllib.error
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, cast
from weakref import WeakValueDictionary

from streamlet.kafka.errors import KafkaError, TokenFailed, TokenUnavailable
from streamlet.kafka.net.tokens import BEARER, RETRIED, Token, life_in

_LONGEST_CHAIN = 20
"""Errors behind a provider's error that are looked at: a chain may be a circle."""
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_LOCKS: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()
"""By the id of the provider, which lives as long as the functions that hold both."""
_LOCKS_LOCK = threading.Lock()


def fetcher(provider: Any) -> Callable[[], Token]:  # Any: the user's
    """Return the function that fetches a token from the provider."""
    lock = _lock_of(provider)

    def fetch() -> Token:
        with lock:
            return from_provider(provider, time.time())

    return fetch


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
    if not isinstance(value, str) or not BEARER.fullmatch(value):
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
    return Token(value, life_in(value, now_s) if life_s is None else float(life_s), _extensions(extensions))


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
            return f"{name}, HTTP status {status}", status >= 500 or status in RETRIED
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
