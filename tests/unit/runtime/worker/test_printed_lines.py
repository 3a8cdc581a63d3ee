"""What users' code prints, as lines."""

from __future__ import annotations

import contextlib
import io
import sys
import threading

import pytest

from streamlet.base.log_line import LogLine
from streamlet.runtime.worker.printed_lines import LONGEST, PrintedLines, prints_told


class Told:
    def __init__(self) -> None:
        self.lines: list[LogLine] = []

    def __call__(self, line: LogLine) -> None:
        self.lines.append(line)

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


def test_a_last_line_without_an_end_is_sent_when_the_worker_ends() -> None:
    told = Told()
    with PrintedLines(told) as lines, contextlib.redirect_stdout(lines):
        print("one\ntwo", end="")
        print(" and a half")
        print("the end", end="")
        assert told.texts == ["one", "two and a half"]
    assert told.texts == ["one", "two and a half", "the end"]
    assert not told.lines[0].printed and told.lines[0].origin.logger == "streamlet.stdout"


def test_nothing_is_sent_for_a_line_that_was_ended() -> None:
    told = Told()
    with PrintedLines(told) as lines:
        lines.write("whole\n")
    assert told.texts == ["whole"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    told = Told()
    with PrintedLines(told) as lines:
        lines.write("x" * (LONGEST + 1))
        assert [len(text) for text in told.texts] == [LONGEST + 1]


def test_the_end_of_a_line_that_was_told_is_no_line() -> None:
    told = Told()
    with PrintedLines(told) as lines:
        print("x" * (LONGEST + 1), file=lines)
        print("", file=lines)
        print("next", file=lines)
    assert [text[:4] for text in told.texts] == ["xxxx", "", "next"]


def test_what_is_printed_stands_where_it_stood_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told, before = Told(), (sys.stdout, sys.stderr)
    with prints_told(told):
        print("out")
        print("err", file=sys.stderr)
        sys.stdout.write("no end")
        assert sys.stdout.encoding == before[0].encoding and sys.stdout.buffer is before[0].buffer
        with prints_told(told):
            print(" twice")
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == ("out\nno end twice\n", "err\n")
    assert [(line.origin.logger, line.text, line.printed) for line in told.lines] == [
        ("streamlet.stdout", "out", True),
        ("streamlet.stderr", "err", True),
        ("streamlet.stdout", "no end twice", True),
    ]


def test_lines_of_two_threads_do_not_mix() -> None:
    told, under = Told(), io.StringIO()
    lines = PrintedLines(told, "stdout", under)
    lines.write("one ")
    other = threading.Thread(target=lambda: lines.write("other\n"))
    other.start()
    other.join()
    lines.write("line\n")
    assert told.texts == ["other", "one line"]
    assert under.getvalue() == "other\none line\n", "and none stands in the middle of another on the terminal"


def test_a_line_that_is_printed_in_pieces_gets_to_the_terminal_in_one() -> None:
    """A handler of [logging] wrote its line between two arguments of a ``print``."""
    writes: list[str] = []
    under = io.StringIO()
    under.write = lambda text: writes.append(text) or len(text)  # type: ignore[method-assign,func-returns-value]
    lines = PrintedLines(Told(), "stderr", under)
    print("printed", 1, 2, file=lines)
    assert writes == ["printed 1 2\n"]
    print("waits for", end=" ", file=lines)
    assert writes[1:] == []
    lines.flush()
    print("\r50 %", end="", file=lines)
    assert writes[1:] == ["waits for ", "\r50 %"], "whoever flushes, or draws over a line, is seen at once"
    lines.write("x" * (LONGEST + 1))
    assert len(writes[-1]) == LONGEST + 1


def test_what_threads_have_begun_to_print_is_there_when_the_run_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with prints_told(Told()):
        kept = sys.stdout
        other = threading.Thread(target=lambda: print("of a thread", end=" "))
        other.start()
        other.join()
        print("of the run", end=" ")
    print("later", end=" ", file=kept)
    assert capsys.readouterr().out == "of a thread of the run later "


def test_only_the_wanted_threads_lines_are_told() -> None:
    told, under = Told(), io.StringIO()
    lines = PrintedLines(told, "stdout", under, lambda: False)
    lines.write("of another\n")
    lines.end_line()
    assert told.texts == [] and under.getvalue() == "of another\n"
