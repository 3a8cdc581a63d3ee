"""The log file of a run, beside the run."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from streamlet.backends import log_file
from streamlet.backends.log_file import LogFile, LogUnavailable
from streamlet.base.log_line import LogLine
from streamlet.runtime.worker.messages import Event, line_of_event
from tests.patience import PATIENCE_S


def line(text: str, level: str = "info") -> LogLine:
    return LogLine(level, text, time.time())


def texts(path: Path) -> list[str]:
    return [each.partition("streamlet.run: ")[2] for each in path.read_text().splitlines()]


def made(path: Path, repeats_s: float = 0.0) -> LogFile:
    return LogFile(path, "text", 0, 0, repeats_s)


def begun_where_the_folder_goes(folder: Path, before: Path) -> LogFile:
    """A log whose folder is gone when its first line is written; it stands for a full disk."""
    folder.mkdir()
    log = made(folder / "run.log")
    log.begin(line("first"))
    (folder / "run.log").rename(before)
    folder.rmdir()
    return log


def begun_where_writes_hang(path: Path) -> tuple[LogFile, threading.Event]:
    """A log with its first line, 100 long ones that wait, and what lets them be written."""
    log = made(path)
    log.begin(line("first"))
    may_go_on, append = threading.Event(), log._file.append

    def hang(lines: bytes) -> None:
        may_go_on.wait()
        append(lines)

    log._file.append = hang  # type: ignore[method-assign]
    for number in range(100):
        log.keep(line(f"{number} " + 100_000 * "x"))
    return log, may_go_on


def test_lines_that_a_full_disk_cost_are_counted_where_they_are_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that is gone for a while stands for the disk."""
    folder = tmp_path / "logs"
    log = begun_where_the_folder_goes(folder, tmp_path / "before")
    for number in range(3):
        log.keep(line(f"lost {number}"))
    assert log._answered()
    folder.mkdir()
    log.write_due()
    log.keep(line("next"))
    log.end([line("last")])
    missing = "Missing here: 3 lines. No such file or directory."
    assert texts(tmp_path / "before") == ["first"]
    assert texts(folder / "run.log") == [missing, "next", "last"]
    assert [record.getMessage() for record in caplog.records] == [
        f"The log file {folder / 'run.log'} lacks lines: No such file or directory. The run goes on."
    ]


def test_what_is_told_at_the_end_of_what_the_file_lacks_is_not_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view gives it to the log file like any line; the process ended in the middle of that write."""
    log, tries = made(tmp_path / "run.log"), list[bytes]()

    def fails(lines: bytes) -> None:
        tries.append(lines)
        raise OSError(errno.EFBIG, "File too large")

    log.begin(line("first"))
    monkeypatch.setattr(log._file, "append", fails)
    monkeypatch.setattr(log_file.log, "warning", lambda text, *about: log.keep(line(text % about, "warning")))
    ended = threading.Event()
    monkeypatch.setattr(log._file, "close", ended.set)
    log.end([line("last")])
    assert ended.wait(PATIENCE_S)
    assert [each for each in tries if b"lacks its last" in each] == [] and b"last" in tries[0]


def test_a_repeated_line_is_counted_before_the_last_ones(tmp_path: Path) -> None:
    log = made(tmp_path / "run.log", 60.0)
    log.begin(line("first"))
    for _ in range(4):
        log.keep(line("again"))
    log.end([line("last")])
    assert texts(tmp_path / "run.log") == ["first", "again", "again (repeated 3 times)", "last"]


def test_a_repeat_is_told_though_no_other_line_comes(tmp_path: Path) -> None:
    log = made(tmp_path / "run.log", 0.05)
    log.begin(line("first"))
    for _ in range(3):
        log.keep(line("again"))
    deadline = time.monotonic() + 60
    while len(texts(tmp_path / "run.log")) < 3 and time.monotonic() < deadline:
        log.write_due()
        time.sleep(0.01)
    assert texts(tmp_path / "run.log")[2].startswith("again (repeated")


def test_what_finds_no_room_while_a_write_hangs_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "ANSWER_S", 0.2)
    log, may_go_on = begun_where_writes_hang(tmp_path / "run.log")
    time.sleep(0.3)
    log.write_due()
    assert "lacks lines: its disk, or the reader of its pipe, has not answered" in caplog.text
    began = time.monotonic()
    log.end([])
    assert time.monotonic() - began < 60
    may_go_on.set()
    assert log._writer.finish(lambda done: done.wait(60))
    said = texts(tmp_path / "run.log")
    assert said[-1] == f"{101 - len(said) + 1} lines were left out here: the log file did not take them in time."


def test_how_many_lines_a_file_that_hangs_to_the_end_may_lack_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in the write that hangs, those that wait, those that found no room, and the last ones."""
    monkeypatch.setattr(log_file, "ANSWER_S", 0.2)
    log = made(tmp_path / "run.log")
    log.begin(line("first"))
    hangs, may_go_on = threading.Event(), threading.Event()

    def hang(_lines: bytes) -> None:
        hangs.set()
        may_go_on.wait()

    log._file.append = hang  # type: ignore[method-assign]
    for number in range(100):
        log.keep(line(f"{number} " + 100_000 * "x"))
    assert hangs.wait(60)
    time.sleep(0.3)
    log.write_due()
    log.end([line("last"), line("very last")])
    may_go_on.set()
    assert caplog.records[-1].getMessage() == (
        f"The log file {tmp_path / 'run.log'} may lack 102 lines: its disk, or the reader of its pipe, does not answer."
    )


def notice(count: int) -> LogLine:
    """A worker's, as it comes to the coordinator."""
    text = f"{count} log lines were left out here: the coordinator did not read in time."
    return line_of_event(Event("warning", text, time.time(), left_out=count), 1, 1)


def test_a_notice_of_missing_lines_that_finds_no_room_counts_them_all(tmp_path: Path) -> None:
    """Dropped, it was one line: of 100,078 missing lines the file told of 52,055."""
    log, may_go_on = begun_where_writes_hang(tmp_path / "run.log")
    for _ in range(3):
        log.keep(notice(48_026))
    assert log._unwritten() == 100 + 3 * 48_026
    may_go_on.set()
    assert log._writer.finish(lambda done: done.wait(PATIENCE_S))
    said = texts(tmp_path / "run.log")
    left_out = 102 - len(said) + 3 * 48_026
    assert said[-1] == f"{left_out:,} lines were left out here: the log file did not take them in time."


def test_a_notice_of_missing_lines_that_a_full_disk_refuses_counts_them_all(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    log = begun_where_the_folder_goes(folder, tmp_path / "before")
    log.keep(notice(48_026))
    log.keep(line("lost"))
    assert log._answered()
    folder.mkdir()
    log.end([line("last")])
    assert texts(folder / "run.log") == ["Missing here: 48,027 lines. No such file or directory.", "last"]


def test_two_like_notices_of_missing_lines_are_no_repeats(tmp_path: Path) -> None:
    """Who adds the numbers up would miss the second one."""
    log = made(tmp_path / "run.log", 60.0)
    log.begin(line("first"))
    for _ in range(2):
        log.keep(notice(7))
    log.end([line("last")])
    assert texts(tmp_path / "run.log").count("first") == 1
    said = (tmp_path / "run.log").read_text()
    assert said.count("7 log lines were left out here") == 2 and "repeated" not in said


def test_the_last_words_are_written_on_the_thread_that_says_them(tmp_path: Path) -> None:
    log = made(tmp_path / "run.log", 60.0)
    log.begin(line("first"))
    log.last_words(line("killed"))
    assert texts(tmp_path / "run.log") == ["first", "killed"]


def test_a_file_that_only_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.mkdir()
    with pytest.raises(LogUnavailable, match=r"run.log cannot be written: Is a directory. Name a file in a folder"):
        made(path).begin(line("first"))


def test_a_file_that_cannot_be_put_aside_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid() == 0:
        (tmp_path / "run.log.1").mkdir()  # root may write anywhere, but puts no file over a folder
    else:
        tmp_path.chmod(0o500)
    log = LogFile(tmp_path / "run.log", "text", 50, 1, 0.0)
    (tmp_path / "run.log").touch()
    for number in range(5):
        log.keep(line(f"{number}"))
    log.end([])
    assert texts(tmp_path / "run.log") == ["0", "1", "2", "3", "4"]
    assert caplog.text.count("grows beyond streamlet.log.max.bytes: it cannot be put aside as run.log.1") == 1
