"""Lines of a run's log: their two forms, and repeats."""

from __future__ import annotations

import json
import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streamlet.base.log_line import MOST_HELD_BYTES, LogLine, Origin, Repeats, as_json, as_text, kind_of, together

COUNT = Origin("streamlet.component.count", "count", 3, 1, 2)
AT = 1_700_000_000.25

texts = st.text(st.characters(exclude_categories=()), max_size=60)
names = st.text(st.characters(exclude_categories=()), max_size=10)
origins = st.builds(Origin, names, names, st.integers(0, 9), st.none() | st.integers(0, 9), st.integers(0, 9))
lines = st.builds(
    LogLine,
    st.sampled_from(["debug", "info", "warning", "error"]),
    texts,
    st.floats(0, 253_402_300_799, exclude_max=True),
    origins,
    texts,
)
HEAD = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ worker=\S+ epoch=\S+ component=.*? task=\S+ .*: ?", re.DOTALL
)


def test_a_line_says_when_how_bad_and_where() -> None:
    assert as_text(LogLine("warning", "it is late", AT, COUNT)) == (
        "2023-11-14T22:13:20.250Z WARNING worker=1 epoch=2 component=count task=3 streamlet.component.count: it is late"
    )
    assert as_text(LogLine("info", "there", AT)) == (
        "2023-11-14T22:13:20.250Z INFO worker=- epoch=- component=- task=- streamlet.run: there"
    )


def test_a_traceback_stays_with_its_line() -> None:
    text = as_text(LogLine("error", "no\nluck", AT, COUNT, "Traceback\n  File x"))
    assert text.endswith("count: no\n    luck\n    Traceback\n      File x")
    assert json.loads(as_json(LogLine("error", "no", AT, COUNT, "Trace\nback")))["traceback"] == "Trace\nback"


def test_a_line_as_json_has_every_field() -> None:
    assert json.loads(as_json(LogLine("error", "zwölf\nlines", AT, COUNT))) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "error",
        "logger": "streamlet.component.count",
        "component": "count",
        "task": 3,
        "worker": 1,
        "epoch": 2,
        "text": "zwölf\nlines",
        "traceback": None,
        "repeated": None,
    }
    ours = json.loads(as_json(LogLine("info", "x", AT)))
    assert (ours["worker"], ours["epoch"], ours["component"], ours["task"]) == (None,) * 4


@given(lines)
def test_any_line_is_one_object_of_ascii(line: LogLine) -> None:
    text = as_json(line)
    assert text.isascii() and text.isprintable()
    assert json.loads(text)["level"] == line.level
    json.loads(text)["text"].encode()  # no half of a character


@given(lines)
def test_no_text_can_be_taken_for_a_line_of_its_own(line: LogLine) -> None:
    first, *rest = as_text(line).split("\n")
    assert HEAD.match(first)
    assert all(each.startswith("    ") for each in rest)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", as_text(line))


def repeats(window_s: float = 10.0, most: int = 1000) -> Repeats[LogLine]:
    return Repeats(window_s, together, most)


def told(found: list[tuple[LogLine, int]]) -> list[tuple[str, int]]:
    return [(line.text, count) for line, count in found]


def passed(folding: Repeats[LogLine], at_s: float, text: str, origin: Origin = COUNT) -> list[tuple[str, int]]:
    line = LogLine("info", text, at_s, origin)
    return told(folding.pass_on(kind_of(line), line, line.size, at_s))


def test_a_line_that_comes_again_is_counted_until_its_time_is_over() -> None:
    folding = repeats()
    assert passed(folding, 0, "a") == [("a", 0)]
    assert passed(folding, 1, "b") == [("b", 0)]
    assert passed(folding, 2, "a") == passed(folding, 3, "a") == []
    assert told(folding.over(9.9)) == []
    assert told(folding.over(10)) == [("a", 2)], "b came once"
    assert passed(folding, 15, "a") == [], "and is counted on"
    assert passed(folding, 21, "c") == [("a", 1), ("c", 0)]
    assert told(folding.flush()) == []
    assert passed(folding, 22, "a") == [("a", 0)]


def test_the_same_text_of_another_component_level_or_logger_is_no_repeat() -> None:
    folding = repeats()
    for origin in (COUNT, COUNT._replace(component="store"), COUNT._replace(logger="mine")):
        assert passed(folding, 0, "a", origin) == [("a", 0)]
    louder = LogLine("error", "a", 0, COUNT)
    assert told(folding.pass_on(kind_of(louder), louder, 1, 0)) == [("a", 0)]


def test_a_count_names_the_task_and_worker_that_all_its_lines_share() -> None:
    folding = repeats()
    for task, worker in ((1, 0), (2, 1), (3, 1)):
        passed(folding, 0, "a", COUNT._replace(task=task, worker=worker))
    ((line, count),) = folding.flush()
    assert (count, line.origin) == (2, COUNT._replace(task=0, worker=1))
    assert as_text(line._replace(repeated=2)).endswith(
        "component=count task=- streamlet.component.count: a (repeated 2 times)"
    )
    assert as_text(line._replace(repeated=1)).endswith("a (repeated once)")


def test_without_a_window_each_line_is_written() -> None:
    folding = repeats(0.0)
    assert [passed(folding, 0, "a") for _ in range(3)] == [[("a", 0)]] * 3


def test_what_is_counted_takes_bounded_room() -> None:
    folding = repeats(most=3)
    for number in range(100):
        passed(folding, 0, "0")
        passed(folding, 0, f"{number}")
    assert len(folding._held) <= 3
    for number in range(100):
        passed(folding, 0, f"{number}" + "x" * (MOST_HELD_BYTES // 4))
    assert folding._size <= MOST_HELD_BYTES


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0, 5)), max_size=60), st.floats(0, 12))
def test_every_line_is_written_or_counted(comings: list[tuple[str, float]], window_s: float) -> None:
    folding, now_s = repeats(window_s, most=3), 0.0
    written: Counter[str] = Counter()
    for text, pause_s in comings:
        now_s += pause_s
        for said, count in passed(folding, now_s, text):
            written[said] += count or 1
    for line, count in folding.flush():
        written[line.text] += count
    assert written == Counter(text for text, _ in comings)
