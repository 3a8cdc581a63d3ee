"""Tokens: when one is fetched and renewed, and what a provider or an endpoint may give."""

from __future__ import annotations

import base64
import errno
import json
import socket
import ssl
import threading
import time
import traceback
import urllib.error
from collections.abc import Callable
from email.message import Message
from types import SimpleNamespace

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.errors import KafkaError, TokenFailed, TokenUnavailable
from streamlet.kafka.net.tokens import (
    PAUSE_S,
    UNKNOWN_LIFE_S,
    Token,
    TokenSource,
    fetcher_of,
    from_provider,
    read_answer,
)
from streamlet.kafka.settings.security import SecuritySettings
from tests.patience import PATIENCE_S

URL = "https://login.example.org/token"


def jwt(**claims: object) -> str:
    parts = ({"alg": "none"}, claims)
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return f"{coded[0]}.{coded[1]}."


class Fetches:
    """A source whose fetches a test lets through one by one."""

    def __init__(self, *outcomes: Token | KafkaError) -> None:
        self.outcomes = list(outcomes)
        self.count = 0
        self.clock = ManualClock()
        self.go_on = threading.Semaphore(len(outcomes))
        self.source = TokenSource(self._fetch, 10.0, self.clock)

    def _fetch(self) -> Token:
        self.count += 1
        self.go_on.acquire()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def settle(self) -> None:
        """Wait until the fetch under way has ended."""
        fetching = self.source._under_way
        assert fetching is not None
        until(lambda: fetching.token is not None or fetching.error is not None)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_token_is_fetched_when_a_connection_wants_it_and_renewed_before_it_ends() -> None:
    made = Fetches(Token("a", 100.0), Token("b", 100.0))
    assert not made.source.ready(wanted=False) and made.count == 0
    assert not made.source.ready()
    made.settle()
    assert made.source.ready() and made.source.token().value == "a"
    made.clock.advance(79)
    assert made.source.ready() and made.count == 1
    made.clock.advance(2)
    assert made.source.ready(wanted=False) and made.source.token().value == "a"
    made.settle()
    assert made.source.ready() and made.source.token().value == "b" and made.count == 2


def test_a_token_that_cannot_be_renewed_is_used_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    made = Fetches(Token("a", 10.0), TokenUnavailable("down"), TokenFailed("no more"))
    made.source.ready()
    made.settle()
    made.clock.advance(9)
    assert made.source.ready()
    made.settle()
    assert made.source.ready() and "could not be renewed" in caplog.text and made.count == 2
    assert made.source.ready() and made.count == 2  # a pause first
    made.clock.advance(PAUSE_S + 0.5)
    assert not made.source.ready()
    made.settle()
    with pytest.raises(TokenFailed, match="no more"):
        made.source.ready()
    assert not made.source.ready() and made.count == 3


def test_a_source_that_never_answers_is_given_up_and_not_asked_again_meanwhile() -> None:
    """Each fetch is a thread, and one that never returns would leave another behind every few seconds."""
    made = Fetches()
    assert not made.source.ready()
    for _ in range(5):
        made.clock.advance(10)
        with pytest.raises(TokenUnavailable, match=r"within 10 s \(sasl_login_read_timeout_ms\)"):
            made.source.ready()
    assert made.count == 1
    made.outcomes.append(Token("a", 20.0))
    made.go_on.release()
    made.settle()
    made.outcomes.append(Token("b", 100.0))
    made.go_on.release()
    with pytest.raises(TokenUnavailable, match="within 10 s"):
        made.source.ready()  # it came after all, and its life is over
    made.clock.advance(PAUSE_S)
    assert not made.source.ready()
    made.settle()
    assert made.source.ready() and made.count == 2


def test_a_valid_token_that_comes_late_is_taken() -> None:
    made = Fetches()
    made.source.ready()
    made.clock.advance(15)
    with pytest.raises(TokenUnavailable):
        made.source.ready()
    made.outcomes.append(Token("a", 100.0))
    made.go_on.release()
    made.settle()
    assert made.source.ready() and made.source.token().value == "a" and made.count == 1


def test_a_renewal_that_never_answers_is_told_once_while_the_old_token_is_valid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Fetches(Token("a", 100.0))
    made.source.ready()
    made.settle()
    assert made.source.ready()
    made.clock.advance(80)
    assert made.source.ready()
    for _ in range(3):
        made.clock.advance(5)
        assert made.source.ready()
    assert made.count == 2 and caplog.text.count("could not be renewed") == 1
    made.clock.advance(5)
    with pytest.raises(TokenUnavailable):
        made.source.ready()
    made.outcomes.append(Token("b", None))
    made.go_on.release()


def test_a_fetch_that_ends_its_thread_is_an_error_and_no_silence() -> None:
    def fetch() -> Token:
        raise SystemExit

    source = TokenSource(fetch, 10.0, ManualClock())
    with pytest.raises(TokenFailed, match="SystemExit"):
        until(lambda: source.ready())


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
        fetch = fetcher_of(SecuritySettings(sasl_oauth_token_provider=provider))
        threading.Thread(target=lambda fetch=fetch: found.append(fetch()), daemon=True).start()  # type: ignore[misc]
    until(lambda: len(found) == 4)
    assert most == [1]


def test_a_token_without_an_end_is_asked_for_again() -> None:
    made = Fetches(Token("a", None), Token("b", 5))
    made.source.ready()
    made.settle()
    assert made.source.ready()
    made.clock.advance(UNKNOWN_LIFE_S)
    assert not made.source.ready()
    made.settle()
    assert made.source.ready() and made.source.token().value == "b"


def test_a_token_that_came_too_late_says_to_look_at_the_clocks() -> None:
    made = Fetches(Token("a", -5.0))
    made.source.ready()
    made.settle()
    with pytest.raises(TokenFailed, match="expired already"):
        made.source.ready()


def test_a_fault_of_the_fetch_itself_is_an_error_and_no_silence() -> None:
    def fetch() -> Token:
        raise RuntimeError("geheim")

    source = TokenSource(fetch, 10.0, ManualClock())
    with pytest.raises(TokenFailed, match="RuntimeError") as caught:
        until(lambda: source.ready())
    assert "geheim" not in str(caught.value)


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
    of_urllib = urllib.error.HTTPError(URL, status, "geheim", Message(), None)
    for error in (answered(status), of_urllib):
        with pytest.raises(kind, match=f"HTTP status {status}") as caught:
            from_provider(raises(error), 0)
        assert "geheim" not in caught.value.message


def test_a_token_that_is_tried_again_is_told_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that gets no connection gets no records, and says nothing else."""
    made = Fetches(*[TokenUnavailable("down")] * 3, TokenUnavailable("busy"), Token("a", 10.0), TokenFailed("no more"))
    for _ in range(4):
        assert not made.source.ready()
        made.settle()
        with pytest.raises(TokenUnavailable):
            made.source.ready()
        made.clock.advance(PAUSE_S)
    assert [row.getMessage() for row in caplog.records] == [
        f"The token for Kafka could not be fetched, and will be tried again: {why}." for why in ("down", "busy")
    ]
    made.source.ready()
    made.settle()
    assert made.source.ready()
    made.clock.advance(9)
    made.source.ready()
    made.settle()
    assert made.source.ready() and "could not be renewed, and will be tried again: no more." in caplog.text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!doctype html><title>Log in</title>", "answers with a web page where a token should be"),
        (b"", "answers with nothing"),
        (b"geheim", "answers with no JSON"),
        (b"[1]", "has no access_token that is one"),
        (b'{"token": "geheim"}', "has no access_token"),
        (b'{"access_token": "geheim here"}', "has no access_token"),
        (b" " * ((1 << 20) + 1), "more than 1048576 bytes"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_what_an_endpoint_may_answer_in_place_of_a_token(body: bytes, said: str) -> None:
    with pytest.raises(TokenFailed) as caught:
        read_answer(URL, body)
    assert said in caught.value.message and URL in caught.value.message and "geheim" not in caught.value.message


@pytest.mark.parametrize(
    ("expires_in", "life_s"), [(60, 60), (0.5, 0.5), ("3600", 3600), (0, None), (-1, None), (True, None), ("x", None)]
)
def test_the_life_of_a_token_is_what_the_endpoint_says(expires_in: object, life_s: float | None) -> None:
    body = json.dumps({"access_token": "abc", "token_type": "Bearer", "expires_in": expires_in}).encode()
    assert read_answer(URL, body).life_s == life_s
