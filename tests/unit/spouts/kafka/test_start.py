"""Where reading begins: one test per named case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.spouts.kafka.broker_connections import LogBounds
from streamlet.spouts.kafka.partition import OffsetRange
from streamlet.spouts.kafka.partition_opening import decide_start
from streamlet.spouts.kafka.spout_config import StartPolicy
from streamlet.spouts.kafka.stores.offset_store import Reason, StoredOffset

LOG = LogBounds(start=100, end=200, at_time=150)


def test_t01_the_first_start_is_earliest() -> None:
    decision = decide_start(None, LOG, StartPolicy())
    assert (decision.offset, decision.reason) == (100, Reason.FIRST_EARLIEST)


def test_k8_a_start_is_latest_or_by_time() -> None:
    assert decide_start(None, LOG, StartPolicy("latest")).offset == 200
    assert decide_start(None, LOG, StartPolicy("timestamp")).offset == 150
    assert decide_start(None, LogBounds(100, 200, None), StartPolicy("timestamp")).offset == 200


def test_k8_a_stored_offset_wins_over_the_policy() -> None:
    decision = decide_start(StoredOffset(170, "another run"), LOG, StartPolicy("latest"), topology_id="run")
    assert (decision.offset, decision.reason) == (170, Reason.STORED)


def test_t04_a_stored_zero_is_an_offset() -> None:
    decision = decide_start(StoredOffset(0), LogBounds(0, 200), StartPolicy("latest"))
    assert (decision.offset, decision.reason) == (0, Reason.STORED)


def test_k8_a_forced_start_gives_way_to_an_offset_of_its_own_run() -> None:
    forced = StartPolicy("earliest", ignore_stored_offset=True)
    assert decide_start(StoredOffset(170, "old run"), LOG, forced, topology_id="run").reason is Reason.FORCED
    again = decide_start(StoredOffset(170, "run"), LOG, forced, topology_id="run")
    assert (again.offset, again.reason) == (170, Reason.STORED)


def test_t02_below_the_start_is_a_loss_with_its_exact_range_and_goes_on_at_the_start() -> None:
    decision = decide_start(StoredOffset(40), LOG, StartPolicy("latest"))
    assert decision.is_loss
    assert (decision.offset, decision.reason) == (100, Reason.BELOW_START)
    assert decision.lost == OffsetRange(40, 100)


def test_ahead_of_the_end_is_another_loss_and_goes_on_at_the_end() -> None:
    decision = decide_start(StoredOffset(260), LOG, StartPolicy())
    assert decision.is_loss
    assert (decision.offset, decision.reason) == (200, Reason.AHEAD_OF_END)
    assert decision.lost == OffsetRange(200, 260)


IN_TRANSACTION = LogBounds(start=100, end=200, high_watermark=260)
"""A transaction has been open since 200."""


@pytest.mark.parametrize("offset", [200, 230, 260])
def test_an_offset_behind_an_open_transaction_is_in_the_log(offset: int) -> None:
    stored = decide_start(StoredOffset(offset), IN_TRANSACTION, StartPolicy())
    assert (stored.offset, stored.reason, stored.lost) == (offset, Reason.STORED, None)
    written = decide_start(None, IN_TRANSACTION, StartPolicy("offset", offset=offset))
    assert (written.offset, written.reason) == (offset, Reason.FIRST_OFFSET)


def test_an_offset_behind_the_end_of_the_whole_log_is_ahead_of_it_and_latest_is_the_stable_end() -> None:
    ahead = decide_start(StoredOffset(300), IN_TRANSACTION, StartPolicy())
    assert (ahead.offset, ahead.reason, ahead.lost) == (260, Reason.AHEAD_OF_END, OffsetRange(260, 300))
    assert decide_start(None, IN_TRANSACTION, StartPolicy("latest")).offset == 200


def test_what_was_written_again_below_the_stored_offset_is_a_loss_and_is_read() -> None:
    """The offset fits into the log, but that parted from the one that was read: nobody has read what is there now."""
    decision = decide_start(StoredOffset(170, leader_epoch=3), LOG, StartPolicy(), epoch_end=160)
    assert decision.is_loss
    assert (decision.offset, decision.reason, decision.lost) == (160, Reason.DIVERGED, OffsetRange(160, 170))
    older = decide_start(StoredOffset(170, leader_epoch=3), LOG, StartPolicy(), epoch_end=90)
    assert (older.offset, older.lost) == (100, OffsetRange(90, 170))
    for end in (170, 180, None):
        assert decide_start(StoredOffset(170), LOG, StartPolicy(), epoch_end=end).reason is Reason.STORED


def test_a_re_created_topic_is_a_third_loss_even_where_the_offset_would_fit() -> None:
    decision = decide_start(StoredOffset(150, topic_id="old"), LOG, StartPolicy(), topic_id="new")
    assert decision.is_loss
    assert (decision.offset, decision.reason) == (100, Reason.TOPIC_RECREATED)
    unknown = decide_start(StoredOffset(150, topic_id=None), LOG, StartPolicy(), topic_id="new")
    assert unknown.reason is Reason.STORED


def test_k8_a_partition_that_appears_while_running_begins_at_its_start() -> None:
    decision = decide_start(None, LOG, StartPolicy("latest"), appeared_while_running=True)
    forced = StartPolicy("latest", ignore_stored_offset=True)
    assert decide_start(StoredOffset(170, "old run"), LOG, forced, appeared_while_running=True) == decision
    assert (decision.offset, decision.reason) == (100, Reason.NEW_PARTITION)


@pytest.mark.parametrize("offset", [100, 200])
def test_both_ends_of_the_log_are_inside_it(offset: int) -> None:
    assert decide_start(StoredOffset(offset), LOG, StartPolicy()).reason is Reason.STORED


OFFSETS = st.integers(0, 300)


@given(
    st.none() | st.builds(StoredOffset, OFFSETS, st.sampled_from(["a", "b"]), st.sampled_from([None, "x", "y"])),
    OFFSETS,
    st.integers(0, 100),
    st.builds(StartPolicy, st.sampled_from(["earliest", "latest", "timestamp"]), st.booleans()),
)
def test_wherever_it_begins_is_in_the_log_and_no_skip_is_silent(
    stored: StoredOffset | None, start: int, size: int, policy: StartPolicy
) -> None:
    decision = decide_start(stored, LogBounds(start, start + size), policy, topology_id="a", topic_id="x")
    assert start <= decision.offset <= start + size
    if stored is not None and decision.offset != stored.offset:
        assert decision.is_loss or decision.reason is Reason.FORCED
