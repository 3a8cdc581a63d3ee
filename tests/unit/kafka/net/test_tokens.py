"""Tokens: when one is fetched and renewed, and what a provider or an endpoint may give."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.errors import KafkaError, TokenFailed, TokenUnavailable
from streamlet.kafka.net.tokens import (
    PAUSE_S,
    UNKNOWN_LIFE_S,
    Token,
    TokenSource,
)
from tests.unit.kafka.net.token_rig import until

URL = "https://login.example.org/token"


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


def test_a_client_without_tokens_imports_no_http() -> None:
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from streamlet.kafka import Admin, Consumer, Producer; print('http.client' in sys.modules)",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == "False"
