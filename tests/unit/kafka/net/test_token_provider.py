"""Tokens from the user's own function or object."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import traceback
import urllib.error
from collections.abc import Callable
from email.message import Message
from types import SimpleNamespace

import pytest

from streamlet.kafka.errors import KafkaError, TokenFailed, TokenUnavailable
from streamlet.kafka.net.token_provider import fetcher, from_provider
from streamlet.kafka.net.tokens import Token
from tests.unit.kafka.net.token_rig import jwt, until


def test_a_provider_is_called_by_one_thread_at_a_time() -> None:
    """It belongs to all clients of the process, and few are made for several threads."""
    inside, most, go_on = [0], [0], threading.Event()

    class Counting:
        def token(self) -> str:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            go_on.wait(0.05)
            inside[0] -= 1
            return "abc"

    one = Counting()
    found: list[Token] = []
    for provider in (one, one, one.token, one.token):
        fetch = fetcher(provider)
        threading.Thread(target=lambda fetch=fetch: found.append(fetch()), daemon=True).start()  # type: ignore[misc]
    until(lambda: len(found) == 4)
    assert most == [1]


class Provider:
    """kafka-python's form."""

    def token(self) -> str:
        return "abc"

    def extensions(self) -> dict[str, str]:
        return {"tenant": "t1"}


def test_a_provider_is_a_function_or_an_object() -> None:
    token = from_provider(Provider(), 0)
    assert (token.value, token.life_s, token.extensions) == ("abc", None, {"tenant": "t1"})
    assert from_provider(lambda: ("abc", 30), 0).life_s == 30
    assert from_provider(lambda: b"abc", 0).value == "abc"
    assert from_provider(lambda: jwt(exp=1000), 900).life_s == 100
    assert from_provider(lambda: (jwt(exp=1000), 5), 900).life_s == 5
    for odd in (jwt(exp="soon"), jwt(exp=float("nan")), jwt(exp=10**400), jwt(), "a.b.c", "a.!.c".replace("!", "Zm9v")):
        assert from_provider(lambda odd=odd: odd, 0).life_s is None  # type: ignore[misc]
    assert "abc" not in repr(token) and "t1" not in repr(token)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "returned another thing than text (NoneType)"),
        ("", "returned text that is not a bearer token"),
        ("geheim\x01auth=x", "not a bearer token"),
        ("geheim mit Leerzeichen", "not a bearer token"),
        (("abc", 0), "a lifetime of 0: give the seconds from now"),
        (("abc", "5"), "a lifetime of '5'"),
        (("abc", float("nan")), "a lifetime of nan"),
    ],
)
def test_what_is_no_token_is_told_without_showing_it(given: object, said: str) -> None:
    with pytest.raises(TokenFailed) as caught:
        from_provider(lambda: given, 0)
    assert said in caught.value.message and "geheim" not in caught.value.message


def raises(error: Exception) -> Callable[[], str]:
    def provider() -> str:
        raise error

    return provider


def test_what_a_provider_raises_is_told_by_its_kind() -> None:
    with pytest.raises(TokenFailed, match="raised ValueError") as caught:
        from_provider(raises(ValueError("geheim")), 0)
    assert "geheim" not in caught.value.message
    with pytest.raises(TokenUnavailable, match=r"could not get a token \(ConnectionRefusedError"):
        from_provider(raises(ConnectionRefusedError("refused")), 0)

    class HttpError(OSError):
        """As of requests and urllib: its text may hold the request."""

    with pytest.raises(TokenFailed, match="raised HttpError") as caught:
        from_provider(raises(HttpError("geheim")), 0)
    assert "geheim" not in caught.value.message
    for error in (HttpError(errno.ECONNREFUSED, "geheim"), ConnectionResetError("geheim"), TimeoutError("geheim")):
        with pytest.raises(TokenUnavailable, match=rf"could not get a token \({type(error).__name__}") as out_of_reach:
            from_provider(raises(error), 0)
        assert "geheim" not in out_of_reach.value.message
    odd = Provider()
    for wrong in ({"auth": "x"}, {"a1": "x"}, {"a": "x\x01"}, {"a": 5}, ["a"]):
        odd.extensions = lambda wrong=wrong: wrong  # type: ignore[method-assign,misc,assignment]
        with pytest.raises(TokenFailed, match=r"extensions\(\)"):
            from_provider(odd, 0)
        printed = traceback.TracebackException.from_exception(out_of_reach.value)
        assert printed.__cause__ is None and printed.__suppress_context__, "a log would show the other error"


class LibraryError(OSError):
    """As requests raises: of the system's kind, without its number, and with the request in its text."""

    response: object = None


def raises_behind(cause: Exception, error: Exception) -> Callable[[], str]:
    """A provider whose library meets ``cause``, and raises ``error`` of its own."""

    def provider() -> str:
        try:
            try:
                raise cause
            except Exception:
                raise RuntimeError("geheim, of the pool of connections")  # noqa: B904 - as libraries do
        except RuntimeError:
            raise error  # noqa: B904

    return provider


def answered(status: int) -> LibraryError:
    error = LibraryError("geheim")
    error.response = SimpleNamespace(status_code=status)
    return error


def test_a_librarys_error_is_judged_by_the_networks_behind_it() -> None:
    """One that may be over soon is tried again; what stays wrong ends the start."""
    for cause, said in (
        (ConnectionRefusedError(errno.ECONNREFUSED, "geheim"), "LibraryError, from ConnectionRefusedError: Connection"),
        (TimeoutError("geheim"), "LibraryError, from TimeoutError)"),
        (socket.gaierror(socket.EAI_AGAIN, "geheim"), "LibraryError, from gaierror)"),
    ):
        with pytest.raises(TokenUnavailable) as caught:
            from_provider(raises_behind(cause, LibraryError("geheim")), 0)
        assert said in caught.value.message and "geheim" not in caught.value.message
    for other in (ssl.SSLCertVerificationError(1, "geheim"), ValueError("geheim")):
        with pytest.raises(TokenFailed, match="raised LibraryError: it must"):
            from_provider(raises_behind(other, LibraryError("geheim")), 0)
    circle = LibraryError("geheim")
    circle.__context__ = RuntimeError("geheim")
    circle.__context__.__context__ = circle
    with pytest.raises(TokenFailed, match="raised LibraryError"):
        from_provider(raises(circle), 0)


@pytest.mark.parametrize(
    ("status", "kind"), [(503, TokenUnavailable), (429, TokenUnavailable), (401, TokenFailed), (404, TokenFailed)]
)
def test_an_answer_of_a_providers_endpoint_is_told_by_its_status(status: int, kind: type[KafkaError]) -> None:
    of_urllib = urllib.error.HTTPError("https://login.example.org/token", status, "geheim", Message(), None)
    for error in (answered(status), of_urllib):
        with pytest.raises(kind, match=f"HTTP status {status}") as caught:
            from_provider(raises(error), 0)
        assert "geheim" not in caught.value.message
