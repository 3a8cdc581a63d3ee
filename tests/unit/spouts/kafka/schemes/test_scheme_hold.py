"""How long a partition rests whose scheme is not ready."""

from __future__ import annotations

from streamlet.spouts.kafka.schemes.scheme_hold import SchemeHold


def test_pauses_grow_and_end_with_the_first_record_that_is_decoded() -> None:
    hold = SchemeHold()
    assert not hold.waits and not hold.holds(100.0)
    now, pauses = 100.0, []
    for _ in range(8):
        hold.not_ready()
        now += 3.0  # a try takes long, and its pause begins after it
        assert hold.holds(now)
        begun = now
        while hold.holds(now):
            now += 0.05
        pauses.append(round(now - begun, 1))
    assert pauses[:3] == [0.2, 0.4, 0.8] and pauses[-1] == 5.0
    assert hold.waits
    hold.ready()
    assert not hold.waits and not hold.holds(now)


def test_only_the_first_failure_in_a_row_is_worth_a_line() -> None:
    hold = SchemeHold()
    assert [hold.not_ready(), hold.not_ready()] == [True, False]
    hold.ready()
    assert hold.not_ready()
