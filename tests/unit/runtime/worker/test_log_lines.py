"""Log records as lines: where each comes from, who sees it, and what a topology's own logging cannot part."""

from __future__ import annotations

import logging
import logging.config
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.base.log_line import LogLine, Origin
from streamlet.components.component import COMPONENT_LOGGER
from streamlet.runtime.tasks.in_hand import PAGE_BYTES, TASK, InHand
from streamlet.runtime.worker.log_lines import (
    SHOWN,
    Place,
    at_work,
    keep_shown,
    line_now,
    line_of,
    logs_shown,
    origin_here,
    prints_of,
    run_kept,
    runs_a_loop,
    shown_text,
)

COUNT = f"{COMPONENT_LOGGER}.count"


@pytest.fixture
def page() -> InHand:
    return InHand(bytearray(PAGE_BYTES))


@pytest.fixture
def lines() -> list[LogLine]:
    return []


def on_another_thread(act: Callable[[], Any]) -> Any:
    """Run it on a thread of the user's own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join()
    return found[0]


def test_a_line_of_the_loop_has_the_task_at_work(page: InHand) -> None:
    with at_work(Place(page.words, {4: "count", 5: "words"}, 2, 7)):
        page.note_call(4, "process", 1.0)
        assert origin_here("any") == Origin("any", "count", 4, 2, 7)
        page.clear()
        assert origin_here("any") == Origin("any", "", 0, 2, 7), "between two calls it is the worker's"
    assert origin_here("any") == Origin("any")


def test_a_task_that_lives_elsewhere_is_not_named(page: InHand) -> None:
    """The page is memory of a worker that may be replaced while it is read."""
    with at_work(Place(page.words, {4: "count"}, 0, 1)):
        page.words[TASK] = 9
        assert origin_here("any") == Origin("any", "", 0, 0, 1)


def test_a_line_of_a_users_thread_is_its_components_where_only_one_is_possible(page: InHand) -> None:
    with at_work(Place(page.words, {4: "count", 5: "words"}, 2, 7)):
        assert on_another_thread(lambda: origin_here(COUNT)) == Origin(COUNT, "count", 4, 2, 7)
        assert on_another_thread(lambda: origin_here("mine")) == Origin("mine"), "nothing says whose this is"


def test_of_two_tasks_of_a_component_none_is_guessed(page: InHand) -> None:
    with at_work(Place(page.words, {4: "count", 5: "count"}, 2, 7)):
        assert on_another_thread(lambda: origin_here(COUNT)) == Origin(COUNT, "count", 0, 2, 7)


def test_only_the_thread_of_a_loop_runs_one(page: InHand) -> None:
    with at_work(Place(page.words, {}, 0, 1)):
        assert runs_a_loop() and prints_of(threading.get_ident()) and not prints_of(1)
        assert not on_another_thread(runs_a_loop)
    assert not runs_a_loop() and not prints_of(threading.get_ident())


def record(message: str = "%s lines", *args: Any, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("mine", logging.ERROR, __file__, 1, message, args or (3,), None)
    vars(made).update(more)
    return made


def test_a_record_becomes_a_line_with_its_traceback_beside_the_text() -> None:
    try:
        raise ValueError("slip")
    except ValueError as error:
        line = line_of(record(exc_info=(type(error), error, error.__traceback__)))
    assert (line.level, line.text, line.origin.logger) == ("error", "3 lines", "mine")
    assert line.trace.startswith("Traceback") and line.trace.endswith("ValueError: slip")


class Mute:
    def __str__(self) -> str:
        raise OSError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (record("bad %d", "x"), "'bad %d' with ('x',) (TypeError: %d format: a real number is required, not str)"),
        (record(Mute()), "a Mute with (3,) (OSError: no text)"),  # type: ignore[arg-type]  # as users do
        (record("%s", Mute()), "'%s' with a tuple (OSError: no text)"),
    ],
)
def test_a_wrong_log_call_is_one_line_with_its_place(wrong: logging.LogRecord, says: str) -> None:
    """Each was forty lines of ours on standard error, and none in the log."""
    assert line_of(wrong).text == f"The log call at {__file__}:1 is wrong and says {says}."


def test_a_stack_stands_after_the_traceback() -> None:
    assert line_of(record(exc_text="Traceback: x", stack_info="Stack: y")).trace == "Traceback: x\nStack: y"
    assert line_of(record(stack_info="Stack: y")).trace == "Stack: y"
    assert line_of(record(exc_info=(None, None, None))).trace == "", "logger.exception() outside of an except"


@pytest.mark.parametrize(
    ("logger", "text"),
    [
        (COUNT, "count: hello"),
        ("streamlet.run", "hello"),
        ("streamlet", "hello"),
        ("kazoo.client", "kazoo.client: hello"),
    ],
)
def test_a_person_sees_whose_line_it_is(logger: str, text: str) -> None:
    line = line_now("info", "hello", logger)
    assert shown_text(line) == text
    assert shown_text(line._replace(trace="Traceback: x")) == f"{text}\nTraceback: x"


def test_a_line_about_a_component_names_it_wherever_it_is_written() -> None:
    assert line_now("warning", "slow", component="count", task=4).origin == Origin("streamlet", "count", 4)


@pytest.fixture
def mended() -> Iterator[None]:
    """Whatever a test configures, the loggers are as before after it."""
    names = ("", "streamlet", COMPONENT_LOGGER, "kazoo", "py4j")
    before = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    handlers = list(logging.getLogger().handlers)
    yield
    for logger, level in before:
        logger.setLevel(level)
        logger.disabled = False
    logging.getLogger().handlers[:] = handlers


@pytest.mark.usefixtures("mended")
def test_every_line_is_shown_while_a_run_lasts_and_levels_are_put_back(lines: list[LogLine]) -> None:
    root, before = logging.getLogger(), logging.getLogger().level
    with logs_shown(lines.append, debug=False):
        root.setLevel(logging.ERROR)  # as a topology may
        logging.getLogger("streamlet.run").info("ours")
        logging.getLogger("streamlet.run").debug("not asked for")
        logging.getLogger("kazoo.client").info("noise")
        logging.getLogger("mine").error("theirs")
        logging.getLogger("mine").error("shown already", extra={SHOWN: True})
    assert [line.text for line in lines] == ["ours", "theirs"]
    logging.getLogger("streamlet.run").error("over")
    assert len(lines) == 2 and root.level == before


@pytest.mark.usefixtures("mended")
def test_a_topologys_own_configuration_does_not_silence_the_run(lines: list[LogLine]) -> None:
    """By its default dictConfig disables the loggers there are, and takes the root's handlers away."""
    ours = logging.getLogger("streamlet.run")
    with logs_shown(lines.append, debug=False):
        logging.config.dictConfig({"version": 1, "root": {"level": "WARNING", "handlers": []}})
        ours.info("lost")
        keep_shown()
        ours.info("found")
    assert [line.text for line in lines] == ["found"]


@pytest.mark.usefixtures("mended")
def test_a_line_that_cannot_be_shown_stops_nobodys_work(capsys: pytest.CaptureFixture[str]) -> None:
    def full(line: LogLine) -> None:
        raise OSError("no space left")

    with logs_shown(full, debug=False):
        logging.getLogger("streamlet.run").info("hello")
    assert "no space left" in capsys.readouterr().err


@pytest.mark.usefixtures("mended")
def test_of_a_programs_lines_the_runs_own_are_kept(page: InHand, lines: list[LogLine]) -> None:
    """Those of streamlet and its components, and all that the loop's thread writes; a component's from INFO on."""
    with run_kept(lines.append):
        logging.getLogger("program").error("its own")
        logging.getLogger(COUNT).info("a component's")
        with at_work(Place(page.words, {}, 0, 1)):
            logging.getLogger("library").error("written by a component's call")
    assert [line.text for line in lines] == ["a component's", "written by a component's call"]
