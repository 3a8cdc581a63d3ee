"""What shows a run may stand still: the run does not, its end waits for a reader, and not for ever after a signal."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from streamlet.backends.contract import RunResult, RunStatus
from streamlet.base.backlog import LINE_BYTES
from streamlet.base.log_line import LogLine
from streamlet.cli import view_thread
from streamlet.cli.output import OutputFailed
from streamlet.cli.show import LastingView
from streamlet.cli.view_thread import ViewThread
from tests.patience import PATIENCE_S

RESULT = RunResult("time", RunStatus("ended", 9.0), True)


class Standing:
    """A view that shows nothing until it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.shown: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def show(*given: Any) -> None:
            self.may.wait(PATIENCE_S)
            self.shown.append(" ".join([name, *(each.state for each in given if isinstance(each, RunStatus))]))

        return show if name != "show_due" else lambda over: None


class HalfStanding(Standing):
    """Its lines of standard error are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def on_errors(self, line: LogLine | None, event: bool = False) -> bool:
        return not event

    def notice(self, text: str) -> None:
        self.read.append(text)

    def log(self, line: LogLine) -> None:
        self.read.append(line.text)

    def show_due(self, over: bool) -> None:
        self.read.append("due, over" if over else "due")


def test_the_newest_status_is_shown_when_the_reader_is_back() -> None:
    view = Standing()
    shown = ViewThread(LastingView(view, lambda: None), lambda: False)  # type: ignore[arg-type]
    for number in range(50):
        shown.on_status(RunStatus(f"{number}", 1.0))
        shown.notice("x")
    threading.Timer(0.2, view.may.set).start()
    shown.finish(RESULT)
    shown.close()
    statuses = [each for each in view.shown if each.startswith("on_status")]
    assert statuses[-1] == "on_status 49" and len(statuses) <= 2, "one may have been taken up at once"
    assert view.shown[-2:] == ["finish", "close"] and not shown.stuck


def test_the_end_waits_for_its_reader_until_somebody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_thread, "HURRIED_S", 0.3)
    view, hurried = Standing(), threading.Event()
    shown = ViewThread(LastingView(view, lambda: None), hurried.is_set)  # type: ignore[arg-type]
    ending = threading.Thread(target=lambda: shown.finish(RESULT))
    ending.start()
    time.sleep(1.0)
    assert ending.is_alive(), "nobody has asked for the end yet"
    hurried.set()
    ending.join(PATIENCE_S)
    shown.close()
    assert shown.stuck and view.shown == []
    view.may.set()


def test_lines_of_standard_error_do_not_wait_for_the_reader_of_standard_output() -> None:
    view = HalfStanding()
    shown = ViewThread(LastingView(view, lambda: None), lambda: False, apart=True)  # type: ignore[arg-type]
    shown.on_status(RunStatus("running", 1.0))
    shown.notice("a notice")
    shown.log(LogLine("error", "an error", 0.0))
    deadline = time.monotonic() + PATIENCE_S
    while len(view.read) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert view.read == ["due", "a notice", "an error"] and view.shown == []
    view.may.set()
    shown.finish(RESULT)
    shown.close()
    assert view.read[-1] == "due, over" and not shown.stuck


@pytest.mark.parametrize("comes", [False, True])
def test_what_standard_output_lacks_is_told_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], comes: bool
) -> None:
    """Of a reader who never comes, and of one who comes when the run is over."""
    monkeypatch.setattr(view_thread, "HURRIED_S", PATIENCE_S if comes else 0.2)
    view = HalfStanding()
    shown = ViewThread(LastingView(view, lambda: None), lambda: True, apart=True)  # type: ignore[arg-type]
    shown.on_status(RunStatus("running", 1.0))
    text = "x" * (LINE_BYTES // 2 - 100)
    for _ in range(5):
        shown.on_event(LogLine("info", text, 0.0))
    if comes:
        view.may.set()
    shown.finish(RESULT)
    shown.close()
    lacks = re.findall(r"Standard output lacks (.*): nobody read it in time\.", capsys.readouterr().err)
    assert lacks == (["3 lines"] if comes else ["6 lines or more"]) and shown.stuck is not comes
    view.may.set()


def test_a_notice_of_missing_lines_that_standard_output_has_no_room_for_counts_them_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = HalfStanding()
    shown = ViewThread(LastingView(view, lambda: None), lambda: True, apart=True)  # type: ignore[arg-type]
    shown.on_status(RunStatus("running", 1.0))
    for _ in range(3):
        shown.on_event(LogLine("info", "x" * (LINE_BYTES // 2 - 100), 0.0))
    shown.on_event(LogLine("warning", "48,026 log lines were left out here", 0.0, left_out=48_026))
    view.may.set()
    shown.finish(RESULT)
    shown.close()
    assert "Standard output lacks 48,027 lines: nobody read it in time." in capsys.readouterr().err


def test_a_run_that_is_over_tells_on_standard_error_that_it_waits_for_a_reader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, and only where standard error is another file."""
    monkeypatch.setattr(view_thread, "WAIT_TOLD_S", 0.1)
    said = []
    for apart in (True, False):
        view = HalfStanding()
        shown = ViewThread(LastingView(view, lambda: None), lambda: False, apart=apart)  # type: ignore[arg-type]
        threading.Timer(1.0, view.may.set).start()
        shown.finish(RESULT)
        shown.close()
        assert not shown.stuck and view.shown[-1] == "close"
        said.append(capsys.readouterr().err.count(view_thread.WAITS))
    assert said == [1, 0]


def test_of_a_run_that_is_killed_nothing_is_shown_but_the_last_line() -> None:
    """What the kill does to workers is reported, too, and comes late."""
    view, killed = Standing(), threading.Event()
    view.may.set()
    lasting = LastingView(view, lambda: None)  # type: ignore[arg-type]
    shown = ViewThread(lasting, lambda: True, killed.is_set)
    shown.notice("draining")
    shown.finish(RESULT)
    killed.set()
    shown.killed(130, None)
    shown.log(LogLine("warning", "worker 0 ended by signal 9", 0.0))
    shown.on_status(RunStatus("recovering", 1.0))
    shown.failed(ValueError(), 1)
    assert view.shown == ["notice", "finish", "killed"]


def test_a_view_that_breaks_makes_the_run_drain_and_its_error_is_kept() -> None:
    """What breaks at the first line is raised there: nothing runs yet."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            def show(*_: Any) -> None:
                raise OutputFailed("its disk is full") if name in ("start", "on_status") else KeyError(name)

            return show

    asked: list[int] = []
    lasting = LastingView(Broken(), lambda: asked.append(1))  # type: ignore[arg-type]
    shown = ViewThread(lasting, lambda: bool(asked))
    with pytest.raises(OutputFailed):
        shown.start(None, "processes")  # type: ignore[arg-type]
    shown.log(LogLine("info", "x", 0.0))
    shown.on_status(RunStatus("running", 1.0))
    shown.close()
    assert isinstance(lasting.lost, KeyError) and asked
