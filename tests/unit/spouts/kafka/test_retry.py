"""Retries: real pauses, a limit that counts, nothing forgotten."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.backoff import Backoff
from streamlet.spouts.kafka.hosts import KafkaHosts
from streamlet.spouts.kafka.retry import ExponentialBackoffMsgRetryManager
from streamlet.spouts.kafka.spout_config import SpoutConfig

BACKOFF = Backoff(0.1, 1.0, 2.0)


def test_a_record_that_is_given_up_by_its_next_failure_is_at_its_last_try() -> None:
    bounded = ExponentialBackoffMsgRetryManager(Backoff(0.1, 1.0), 2)
    endless = ExponentialBackoffMsgRetryManager(Backoff(0.1, 1.0), 0)
    found = []
    while bounded.failed(7, 0.0):
        endless.failed(7, 0.0)
        found.append((bounded.is_last(7), endless.is_last(7)))
    assert found == [(False, False), (True, False)]
    assert not bounded.is_last(8)


def test_k10_pauses_grow_to_the_maximum() -> None:
    retries = ExponentialBackoffMsgRetryManager(BACKOFF, 0)
    now, pauses = 0.0, []
    for _ in range(6):
        assert retries.failed(7, now)
        due = retries.next_due_s()
        assert due is not None
        pauses.append(round(due - now, 3))
        assert retries.next_failed_message_to_retry(due - 0.001) is None
        assert retries.next_failed_message_to_retry(due) == 7
        retries.retry_started(7)
        assert retries.next_failed_message_to_retry(due + 100) is None
        now = due
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_k10_the_shipped_defaults_do_back_off() -> None:
    """Storm ships 0 ms times 1: no back-off at all."""
    backoff = SpoutConfig(KafkaHosts("k"), "t", id="x").retry_backoff()
    assert backoff.delay(1) > 0
    assert backoff.delay(2) > backoff.delay(1)


def test_k10_a_limit_of_n_gives_n_retries() -> None:
    retries = ExponentialBackoffMsgRetryManager(BACKOFF, 3)
    outcomes = []
    for _ in range(4):
        outcomes.append(retries.failed(1, 0.0))
        retries.retry_started(1)
    assert outcomes == [True, True, True, False]
    assert retries.tries(1) == 4
    assert retries.next_due_s() is None
    retries.acked(1)
    assert retries.tries(1) == 0


def test_an_acked_offset_is_due_no_more() -> None:
    retries = ExponentialBackoffMsgRetryManager(BACKOFF, 0)
    retries.failed(1, 0.0)
    retries.failed(2, 0.0)
    retries.acked(1)
    assert retries.next_failed_message_to_retry(10) == 2


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["fail", "start", "ack"])), max_size=60), st.integers(0, 9)
)
def test_what_is_due_is_what_failed_last_and_was_not_started_or_acked(steps: list[tuple[int, str]], seed: int) -> None:
    retries = ExponentialBackoffMsgRetryManager(BACKOFF, 0, random.Random(seed).random)
    waiting: set[int] = set()
    for now, (offset, step) in enumerate(steps):
        if step == "fail":
            retries.failed(offset, float(now))
            waiting.add(offset)
        elif step == "start":
            retries.retry_started(offset)
            waiting.discard(offset)
        else:
            retries.acked(offset)
            waiting.discard(offset)
    drained = set()
    while (offset := retries.next_failed_message_to_retry(1e9)) is not None:
        retries.retry_started(offset)
        drained.add(offset)
    assert drained == waiting


def test_what_was_lost_with_a_worker_does_not_count_towards_the_limit() -> None:
    """It waits as after a first failure, however often that happens, and the next real failure is the first."""
    retries = ExponentialBackoffMsgRetryManager(BACKOFF, 1)
    for now in range(20):
        retries.lost(7, float(now))
        assert retries.next_due_s() == now + 0.1
        assert retries.next_failed_message_to_retry(now + 0.1) == 7
        retries.retry_started(7)
    assert retries.tries(7) == 0
    assert retries.failed(7, 20.0) and not retries.failed(7, 21.0)
