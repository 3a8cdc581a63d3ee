"""What a user is told of an error in a bolt: only what is true of the tuple it was raised on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamlet import Bolt, Tuple
from streamlet.base.clock import ManualClock
from streamlet.base.log_line import LogLine
from streamlet.components.batch import Batch
from streamlet.components.tuples import ACKED, tick_tuple, tuple_with_names
from streamlet.runtime.tasks.user_errors import Complaints
from streamlet.runtime.worker.printed_lines import PrintedLines
from streamlet.testing import BoltTester
from tests.unit.runtime.tasks.test_bolt_task import Rig


class Raises(Bolt):
    outputs = ["v"]

    def process(self, tup: Tuple) -> None:
        raise KeyError("no such word")

    def process_tick(self, tup: Tuple) -> None:
        raise KeyError("no such word")


class RaisesUnfailed(Raises):
    auto_fail = False


class RaisesAcked(Raises):
    auto_ack = False

    def process(self, tup: Tuple) -> None:
        self.ack(tup)
        super().process(tup)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def told(error: BaseException, tup: Tuple | Batch | None, called: Any = None) -> str:
    lines: list[str] = []
    complaints = Complaints(lambda level, text, *where: lines.append(text), ManualClock(), lambda text: None)
    complaints.report("words", 3, error, tup, called)
    (line,) = lines
    return line


@pytest.mark.parametrize(
    ("bolt", "root", "what"),
    [
        (Raises, 7, "The tuple's tree has failed and its spout was informed; the bolt goes on with the next tuple."),
        (Raises, 0, "The tuple is not tracked, so no spout hears of it and nobody sends it again; the bolt goes on"),
        (RaisesUnfailed, 0, "The tuple is not tracked, so no spout hears of it"),
        (RaisesUnfailed, 7, "so the tuple is neither acked nor failed: its tree fails when topology.message.timeout"),
        (RaisesAcked, 7, "The tuple had been acked before, so nothing has failed by it"),
    ],
)
def test_a_complaint_says_what_became_of_the_tuple(bolt: type[Bolt], root: int, what: str) -> None:
    rig = Rig(bolt())
    rig.run((root, ["x"]))
    ((error, tup),) = rig.reported
    text = told(error, tup)
    assert what in text
    assert text.count("the bolt goes on with the next tuple.") == 1
    assert ("has failed and its spout was informed" in text) == bool(rig.fails)


@pytest.mark.parametrize("tup", [None, Tuple(["x"], "lines")])
@pytest.mark.parametrize("text", ["no such table", "no such table.", "no such table!"])
def test_a_users_text_ends_with_one_full_stop(text: str, tup: Tuple | None) -> None:
    said = told(ValueError(text), tup)
    assert ".. " not in said and "!. " not in said and "no such table" in said


def test_a_field_that_the_values_do_not_have_is_answered_with_those_they_have() -> None:
    tup: Any = tuple_with_names(["user", "amount", "offset"])(["ann", 3, 0], "orders")
    with pytest.raises(AttributeError) as raised:
        _ = tup.values.ammount
    assert "'ammount' (the fields are user, amount, offset; did you mean 'amount'?)" in told(raised.value, tup)
    with pytest.raises(AttributeError) as raised:
        _ = tup.values.zzz
    assert "'zzz' (the fields are user, amount, offset)." in told(raised.value, tup)
    plain: Any = Tuple(["ann"], "orders")
    with pytest.raises(AttributeError) as raised:
        _ = plain.values.ammount
    assert "no attribute 'ammount' (no input of the bolt declares such a field)" in told(raised.value, plain)


class EndsTheRun(Raises):
    exit_on_exception = True


def test_of_a_bolt_whose_error_ends_the_run_nothing_goes_on() -> None:
    for called in (EndsTheRun().process, EndsTheRun().process_tick):
        text = told(ValueError("x"), None, called)
        assert "exit_on_exception = True, so that ends the run." in text and "goes on" not in text


class Elsewhere(Bolt):
    def process(self, tup: Tuple) -> None:
        getattr(tup.values, "n" if tup.values[0] == "field" else tup.values[0])  # as a function of another module does


class Denies(Elsewhere):
    named_values = False


@pytest.mark.parametrize(
    ("cls", "name", "said"),
    [
        (
            Elsewhere,
            "field",
            "'n' (values are plain lists here, for the module of Elsewhere reads no field by its name: ",
        ),
        (Elsewhere, "_asdict", "set named_values = True in the class)"),
        (Elsewhere, "m", "'m' (no input of the bolt declares such a field: there is n)"),
        (Denies, "field", "'n' (Denies has named_values = False: no value has a name)"),
    ],
)
def test_a_field_that_another_module_reads_by_name_is_answered_with_the_line_that_is_missing(
    cls: type[Bolt], name: str, said: str
) -> None:
    with BoltTester(cls, sources={"lines": ["n"]}) as tester:
        tup = Tuple([name], "lines", root=7)
        with pytest.raises(AttributeError) as again:
            tester.bolt.process(tup)
        assert said in told(again.value, tup, tester.bolt.process)


def test_of_a_tick_nothing_fails() -> None:
    rig = Rig(Raises())
    rig.task.tick(1.0)
    ((error, tup),) = rig.reported
    text = told(error, tup, *rig.called)
    assert " in process_tick: 'no such word'. No tuple has failed by it; the bolt goes on." in text
    assert "its spout" not in text
    assert tick_tuple(1.0).root == 0


def test_an_error_that_has_no_text_is_told_all_the_same() -> None:
    """It would end the run as a bug of streamlet's."""
    error: Any = Unspeakable()
    text = told(error, Tuple(["x"], "source", root=7))
    assert "raised Unspeakable on a tuple from source: (its text could not be had: __str__ raised RuntimeError)" in text


def _fetch_all() -> None: ...


@pytest.mark.parametrize(
    ("called", "said"),
    [(_fetch_all, " in _fetch_all: x."), (lambda: None, " in a call of its own: x."), (None, " raised ValueError: x.")],
)
def test_an_error_without_a_tuple_is_told_with_the_call_it_came_from(called: Any, said: str) -> None:
    assert said in told(ValueError("x"), None, called)


def test_of_what_had_been_acked_before_nothing_is_lost() -> None:
    """Also where it is not tracked: it is done."""
    tup, batch = Tuple(["x"], "lines"), Batch([["x"]], "lines")
    tup.state = batch.state = ACKED
    assert "had been acked before, so nothing has failed by it" in told(ValueError("x"), tup)
    assert "had been acked before, so nothing has failed by it" in told(ValueError("x"), batch)


@pytest.mark.parametrize("text", ["x" * 1_000_000, "x\n" * 500_000])
def test_an_error_with_a_megabyte_of_text_does_not_fill_the_log(text: str) -> None:
    """Nor does its traceback, which ends with the text."""
    try:
        raise ValueError(text)
    except ValueError as error:
        line = told(error, Tuple(["a"], component="lines"))
    assert len(line) < 50_000 and "words (task 3) raised ValueError" in line and " more)" in line


def writes_a_number(stream: PrintedLines) -> None:
    stream.write(7)  # type: ignore[arg-type]


def test_a_traceback_ends_at_the_users_line_that_called_a_function_of_ours() -> None:
    """``print`` goes through ours where a run has a log file: no line of it is a place for the user to look at."""
    with pytest.raises(TypeError) as raised:
        writes_a_number(PrintedLines(lambda line: None))
    text = told(raised.value, None)
    assert "stream.write(7)" in text and "printed_lines" not in text, text
    assert text.rstrip().splitlines()[-1].strip().startswith("TypeError: can only concatenate str"), text


def test_so_does_the_traceback_of_what_it_was_raised_from() -> None:
    def wraps(stream: PrintedLines) -> None:
        try:
            writes_a_number(stream)
        except TypeError as error:
            raise RuntimeError("could not say it") from error

    with pytest.raises(RuntimeError) as raised:
        wraps(PrintedLines(lambda line: None))
    text = told(raised.value, None)
    assert text.count("printed_lines") == 0 and "stream.write(7)" in text and "could not say it" in text, text


def test_the_users_code_that_ours_has_called_back_is_shown() -> None:
    def tells(line: LogLine) -> None:
        raise LookupError("no lines today")

    with pytest.raises(LookupError) as raised:
        PrintedLines(tells).write("a line\n")
    text = told(raised.value, None)
    assert 'raise LookupError("no lines today")' in text and '.write("a line' in text, text


def test_a_library_that_the_user_called_is_shown_to_its_end() -> None:
    def parses() -> None:
        json.loads("{")

    with pytest.raises(ValueError) as raised:
        parses()
    text = told(raised.value, None)
    assert 'json.loads("{")' in text and "decoder.py" in text, text
