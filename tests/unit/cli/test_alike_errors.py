"""Errors that are alike are folded for a person who watches."""

from __future__ import annotations

from streamlet.base.log_line import LogLine, Origin
from streamlet.cli.alike_errors import MOST_KINDS, MOST_SHOWN, WINDOW_S, AlikeErrors

NUMBERS = Origin("streamlet.component.numbers", "numbers", 1, 0, 1)


def gave_up(number: int, level: str = "error", words: str = "gave up") -> LogLine:
    return LogLine(level, f"{words} tuple {number} after 4 failures", 0.0, NUMBERS)


def test_the_first_are_shown_and_the_others_counted_with_the_last_of_them() -> None:
    alike = AlikeErrors()
    shown = [line.text for number in range(16_000) for line in alike.pass_on(gave_up(number), 1.0)]
    assert shown == [gave_up(number).text for number in range(MOST_SHOWN)]
    assert alike.over(1.0 + WINDOW_S - 0.1) == []
    (told,) = alike.over(1.0 + WINDOW_S)
    assert told.text.startswith("gave up tuple 15999 after 4 failures (and 15,949 more like it, not shown here: ")
    assert told.origin == NUMBERS and alike.over() == []
    assert alike.pass_on(gave_up(7), 20.0) == [gave_up(7)], "a window of its own"


def test_other_words_other_components_and_lines_that_are_no_errors_are_shown() -> None:
    alike = AlikeErrors()
    for number in range(MOST_SHOWN + 1):
        alike.pass_on(gave_up(number), 1.0)
        assert alike.pass_on(gave_up(number, "info"), 1.0) and alike.pass_on(gave_up(number, "warning"), 1.0)
    other = gave_up(1)._replace(origin=NUMBERS._replace(component="others"))
    assert alike.pass_on(other, 1.0) == [other]
    assert alike.pass_on(gave_up(1, words="no server"), 1.0) == [gave_up(1, words="no server")]
    assert [line.text for line in alike.over()] == [gave_up(MOST_SHOWN).text], "one left out is shown itself"


def test_kinds_are_bounded_and_none_is_forgotten_in_silence() -> None:
    alike = AlikeErrors()
    for number in range(MOST_SHOWN + 2):
        alike.pass_on(gave_up(number), 1.0)
    told = [line.text for one in range(MOST_KINDS) for line in alike.pass_on(gave_up(1, words=f"kind {one}"), 1.0)]
    assert any("and 1 more like it" in text for text in told)
