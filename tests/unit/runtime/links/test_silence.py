"""How long a connection was silent, by counts of segments and times."""

from __future__ import annotations

from streamlet.runtime.links.silence import LOOK_S, PROBE_S, SILENT_S, Silence


def test_segments_that_come_end_a_silence_and_none_make_it_longer() -> None:
    silence = Silence(0.0)
    assert silence.note_segments(7, 0.5) == 0.0
    assert [silence.note_segments(7, at) for at in (1.0, 1.5, 2.0)] == [0.5, 1.0, 1.5]
    assert silence.note_segments(8, 2.5) == 0.0
    assert silence.note_segments(8, 3.0) == 0.5


def test_the_time_in_which_nobody_looked_counts_as_one_look() -> None:
    """A bolt of a minute on our side is no silence of the other."""
    silence = Silence(0.0)
    silence.note_segments(7, 0.5)
    assert silence.note_segments(7, 60.0) == 2 * LOOK_S < SILENT_S


def test_where_the_system_does_not_count_nothing_is_silent() -> None:
    silence = Silence(0.0)
    assert {silence.note_segments(None, at / 2) for at in range(1, 100)} == {0.0}


def test_a_peer_that_sends_nothing_is_found_within_five_seconds() -> None:
    """Idle or not: the kernel's probes are a second apart, so each silence begins within one."""
    silence, now, last = Silence(0.0), 0.0, 1.3
    while silence.note_segments(int(min(now, last) / PROBE_S), now) < SILENT_S:
        now += LOOK_S
        assert now - last < 5.0
