"""Tokens of SASL/OAUTHBEARER: fetched in a thread, kept, and renewed before they end.

The loop of a client never waits for a token: it asks :meth:`TokenSource.ready` in each of its rounds. A token comes
from the user's own function or object (``token_provider``), or from an HTTP endpoint (``token_endpoint``).
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamlet.base.clock import Clock
from streamlet.kafka.errors import KafkaError, TokenFailed, TokenUnavailable

_log = logging.getLogger(__name__)

RENEW_AT = 0.8
"""Share of a token's life after which the next one is fetched (Java: ``sasl.login.refresh.window.factor``)."""
UNKNOWN_LIFE_S = 60.0
"""Seconds after which a token that does not say when it ends is asked for again."""
PAUSE_S = 1.0
"""Seconds between a fetch that failed and the next one."""
LATEST_S = 1e12
"""Seconds beyond which a lifetime says nothing."""
RETRIED = (408, 425, 429)
"""HTTP's answers below 500 that say "later"."""
BEARER = re.compile(r"[-\w.~+/]+=*", re.ASCII)
"""The form of every token (RFC 6750)."""


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


def life_in(token: str, now_s: float) -> float | None:
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
    return float(ends_s) - now_s if known and abs(ends_s) < LATEST_S else None
