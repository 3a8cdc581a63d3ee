"""Errors as paragraphs: wrapped to the terminal, each with its exit status."""

from __future__ import annotations

import click
import pytest

from streamlet.base.errors import BadInput, StreamletError
from streamlet.cli.errors import explain, wrapped


def test_text_for_no_terminal_is_one_line() -> None:
    assert wrapped("word " * 100, None) == "word " * 100


@pytest.mark.parametrize("width", [30, 60, 100])
def test_lines_fit_the_terminal_and_paths_stay_whole(width: int) -> None:
    path = "/a/very-long/path/with-hyphens/" + "x" * 100
    lines = wrapped(f"Error: There is no file {path} and {'some more words ' * 10}", width).splitlines()
    assert any(path in line for line in lines)
    assert all(len(line) <= width for line in lines if path not in line)


def test_lines_of_a_numbered_problem_are_indented() -> None:
    lines = wrapped("1. " + "word " * 12, 30).splitlines()
    assert lines[0].startswith("1. word") and all(line.startswith("   word") for line in lines[1:])


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (BadInput("No such thing."), 2, "No such thing."),
        (StreamletError("Broke later."), 1, "Broke later."),
        (click.UsageError("Wrong option."), 2, "Wrong option. See `streamlet --help`."),
        (click.UsageError("'x' is not key=value"), 2, "'x' is not key=value. See `streamlet --help`."),
        (click.UsageError("Did you mean 'y'?"), 2, "Did you mean 'y'? See `streamlet --help`."),
        (click.Abort(), 130, "Interrupted"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (KeyError("x"), 1, "bug in streamlet"),
    ],
)
def test_each_error_has_its_exit_status(error: BaseException, status: int, words: str) -> None:
    text, exit_status = explain(error)
    assert exit_status == status and words in text and "\n" not in text
