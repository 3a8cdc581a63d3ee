"""What a run looks like: words, numbers and tables that a person reads at once."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from streamlet import Spout, Topology
from streamlet.backends.contract import ComponentStatus, RunRequest, RunResult, RunStatus
from streamlet.base.log_line import LogLine, Origin
from streamlet.cli import show
from streamlet.cli.show import json_text
from streamlet.cli.table import TableView
from streamlet.model.topology import TopologySpec
from tests.unit.cli.statuses import ROWS, drawn, partitions, status


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (4.25, "4.2 s"), (59.9, "59.9 s"), (61.5, "1:01 min"), (3727, "1:02:07 h")]
)
def test_a_duration_is_shown_in_its_largest_units(seconds: float, text: str) -> None:
    assert show.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0042, "0.004"), (0.42, "0.42"), (3.14159, "3.14"), (27.4, "27"), (12345.6, "12,346")],
)
def test_milliseconds_show_the_digits_that_count(value: float | None, text: str) -> None:
    assert show.milliseconds(value) == text


def test_columns_stand_below_each_other_by_cells() -> None:
    assert list(show.aligned([("", "acked"), ("数える", "7"), ("count", "12")])) == [
        "        acked",
        "数える      7",
        "count      12",
    ]


def test_the_table_is_aligned() -> None:
    assert list(show.component_lines(status(), {"lines": 20_074.3})) == [
        "       tasks    emitted      acked  failed   per s  p50 ms  p99 ms",
        "lines      1  1,234,567  1,234,000      12  20,074    3.14      27",
        "count      2          0      7,000       0       -   0.004       -",
    ]


def test_the_last_table_of_plain_lines_has_the_rates_of_the_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    view = show.PlainView()
    view.on_status(RunStatus("running", 60.0, ROWS))
    view.finish(RunResult("caught_up", RunStatus("ended", 70.0, ROWS), True))
    heads, lines, count = (line.split() for line in capsys.readouterr().out.splitlines()[1:4])
    assert heads[4:6] == ["per", "s"] and (lines[5], count[5]) == ("17,637", "100")


def test_a_status_line_says_what_went_in_what_failed_and_how_far_behind() -> None:
    line = show.status_line(status(partitions=partitions(3)))
    assert line == "1:01 min  lines 1,234,567 (12 failed)   count 7,000   open 567   lag 3"


def test_partitions_whose_numbers_are_not_known_yet_have_dashes() -> None:
    assert list(show.partition_lines(({"topic": "t", "partition": 0},)))[1].split() == ["t/0", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("reason", "drained", "pending", "words"),
    [
        ("caught_up", True, 0, ("Caught up", "everything that was emitted is done")),
        ("time", True, 0, ("Time is over", "done")),
        ("interrupted", False, 3, ("Stopped", "3 tuple trees still open", "replayed")),
        ("interrupted", False, 1, ("1 tuple tree still",)),
        ("interrupted", False, 0, ("without a drain",)),
    ],
)
def test_the_last_line_says_why_and_what_is_left(
    reason: str, drained: bool, pending: int, words: tuple[str, ...]
) -> None:
    line = show.ending(RunResult(reason, RunStatus("ended", 1.0, ROWS, pending=pending), drained))
    assert all(word in line for word in words)


def test_a_run_that_was_to_catch_up_and_ran_out_of_time_says_so() -> None:
    result = RunResult("time", RunStatus("ended", 60.0, ROWS, pending=1), False)
    assert "Time is over after 1:00 min: not caught up; 1 tuple tree still open" in show.ending(result, 1)
    assert "caught up" not in show.ending(result)
    cut = dataclasses.replace(result, drain_cut_s=4.0)
    assert "1 tuple tree still open when the drain's 4 s were over, to be replayed" in show.ending(cut)


def test_a_cut_drain_without_open_trees_claims_nothing_of_the_next_run() -> None:
    """What it left may be untracked, or what a tick was to send on: no run reads that again."""
    status = RunStatus("ended", 11.6, ROWS)
    line = show.ending(RunResult("time", status, False, left={"count": 7000}, drain_cut_s=4.0))
    assert line.endswith("Time is over after 11.6 s: not everything was done when the drain's 4 s were over.")


def test_a_cut_drain_whose_last_call_did_all_says_so() -> None:
    """The call under way comes to its end when the worker closes; nothing is left then, by its last numbers."""
    result = RunResult("interrupted", RunStatus("ended", 11.6, ROWS), False, drain_cut_s=4.0)
    assert "not everything was done when the drain's 4 s were over, but a moment later it was." in show.ending(result)
    hurt = dataclasses.replace(result, unclosed=("worker 0 (count) was killed",))
    assert "a moment later" not in show.ending(hurt)


def test_no_0_of_a_worker_that_did_not_close_is_taken_for_nothing() -> None:
    """What its spout emitted before it hung is in no number of it, and may be done."""
    none_yet = tuple(dataclasses.replace(row, emitted=0) for row in ROWS)
    status = RunStatus("ended", 11.6, none_yet)
    result = RunResult("interrupted", status, False, unclosed=("worker 0 (lines) was killed in next_tuple",))
    assert "what is open is not known: a worker did not close" in show.ending(result)
    assert "nothing had been emitted yet" in show.ending(dataclasses.replace(result, unclosed=()))


def test_done_records_that_come_again_behind_an_open_one_are_in_the_last_line() -> None:
    seen = partitions(3)
    beyond = sum(row["position"] - row["committed"] for row in seen)
    line = show.ending(RunResult("interrupted", RunStatus("ended", 1.0, ROWS, seen, pending=1), False))
    assert f"1 tuple tree still open, to be replayed by the next run, which reads {beyond} offsets again, done" in line
    line = show.ending(RunResult("interrupted", RunStatus("ended", 1.0, ROWS, seen, pending=beyond), False))
    assert "offsets again" not in line


def test_a_call_that_hung_at_the_end_stands_in_the_last_line() -> None:
    hang = {"worker": 0, "component": "pool", "task": 4, "call": "process", "seconds": 7.4, "tuple": "[100]"}
    status = RunStatus("ended", 60.0, ROWS, pending=1, hanging=(hang,))
    line = show.ending(RunResult("interrupted", status, False))
    assert "to be replayed by the next run; pool (task 4) had been in process for 7 s on [100]." in line


def test_a_run_that_emitted_nothing_leaves_nothing_to_be_read_again() -> None:
    """Ctrl-C while it starts."""
    rows = (ComponentStatus("lines", "spout", 1), ComponentStatus("count", "bolt", 2))
    line = show.ending(RunResult("interrupted", RunStatus("ended", 1.0, rows), False))
    assert line == "Stopped after 1.0 s: nothing had been emitted yet."


def test_numbers_that_no_worker_has_reported_are_not_told_as_zeros() -> None:
    """A bolt that hangs in its first tuples keeps its worker's numbers from being read."""
    rows = (ComponentStatus("lines", "spout", 1), ComponentStatus("count", "bolt", 2))
    workers = ({"worker": 0, "state": "gone", "reported": False}, {"worker": 1, "state": "up", "reported": True})
    ended = RunStatus("ended", 9.4, rows, workers=workers)
    told = "not known: worker 0 has reported no numbers since its last start"
    assert told in show.ending(RunResult("interrupted", ended, False))
    assert "not known (worker 0 has reported" in show.killed(ended)
    running = dataclasses.replace(ended, state="running", workers=({**workers[0], "state": "up"}, workers[1]))
    assert told in show.status_line(running) and "worker 0 has reported no" in drawn(120, running)
    starts_again = dataclasses.replace(running, workers=({**workers[0], "state": "starting"}, workers[1]))
    assert "not known" not in show.status_line(starts_again)


def test_a_call_that_hangs_stands_in_the_line_and_below_the_table() -> None:
    row = {"worker": 1, "component": "count", "task": 3, "call": "process", "seconds": 41.2, "tuple": "['a']"}
    told = "count (task 3) is in process for 41 s"
    assert told in show.status_line(status(hanging=(row,))) and told in drawn(120, status(hanging=(row,)))
    assert "is in process" not in show.status_line(status())


@pytest.mark.parametrize("away", ["starting", "gone"])
def test_a_start_says_who_is_there(away: str) -> None:
    """No row of zeros, which would look like a run that does nothing. One that died is not there."""
    workers = ({"worker": 0, "state": "ready"}, {"worker": 1, "state": away})
    assert (
        show.status_line(RunStatus("starting", 2.0, ROWS, workers=workers)) == "  2.0 s  starting: 1 of 2 workers there"
    )


def test_the_last_words_of_a_killed_run_say_what_was_not_drained() -> None:
    line = show.killed(status(partitions=partitions(3)))
    assert line.startswith(
        "Killed, not drained: 567 tuple trees still open, and 3 records beyond what is committed, as of"
    )
    assert line.endswith("What was tracked and open is read again by the next run; `cleanup` was not called.")
    assert "lost" not in line and "Before" not in line
    assert "nothing was drained" in show.killed(None)


UNTRACKED = RunStatus(
    "running",
    5.0,
    (
        ComponentStatus("lines", "spout", 1, emitted=3000),
        ComponentStatus("sink", "bolt", 1, executed=215, lost=4, untracked=2785),
        ComponentStatus("keep", "bolt", 1, untracked=3),
    ),
)


def test_a_killed_run_names_the_untracked_tuples_that_it_loses_by_component_and_number(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert show.killed(UNTRACKED).startswith(
        "Killed, not drained: 0 tuple trees still open, and up to 2,788 untracked tuples lost "
        "(sink 2,785, keep 3), as of 5.0"
    )
    view = show.JsonView()
    view.on_status(UNTRACKED)
    view.killed(130, None)
    out, err = capfd.readouterr()
    rows = {row["name"]: row for row in json.loads(out.splitlines()[-1])["components"]}
    assert (rows["sink"]["lost"], rows["keep"]["lost"]) == (2789, 3) and "(sink 2,785, keep 3)" in err


def test_a_killed_run_repeats_what_was_given_up_and_lost_before() -> None:
    rows = (ComponentStatus("lines", "spout", 1, given_up=3), ComponentStatus("sink", "bolt", 1, lost=4, untracked=5))
    line = show.killed(RunStatus("running", 5.0, rows, pending=2))
    assert "2 tuple trees still open, and up to 5 untracked tuples lost (sink 5), as of 5.0 s after the start." in line
    assert "Before, lines: 3 given up; nobody sends them again. Before, sink: 4 lost; nobody sends them again." in line


def test_the_last_line_has_the_numbers_of_the_kills_own_moment(capfd: pytest.CaptureFixture[str]) -> None:
    for view in (show.JsonView(), show.PlainView()):
        view.on_status(status())
        view.killed(130, UNTRACKED)
        assert "2,788 untracked tuples lost" in "".join(capfd.readouterr())


def test_a_rate_is_of_the_time_since_the_status_before_and_at_the_end_of_the_whole_run() -> None:
    def at(seconds: float, emitted: int, state: str = "running") -> RunStatus:
        rows = (ComponentStatus("lines", "spout", 1, emitted=emitted), ComponentStatus("count", "bolt", 1))
        return RunStatus(state, seconds, rows)

    rates = show.Rates()
    assert rates.of(at(1, 100)) == {"lines": 100, "count": 0}
    assert rates.of(at(3, 600)) == {"lines": 250, "count": 0}
    assert rates.of(at(3, 600)) == {"lines": 250, "count": 0}  # no time has passed
    assert rates.of(at(4, 500))["lines"] == 0
    assert rates.of(at(6, 600, "ended"))["lines"] == 100


def test_time_outs_stand_beside_failures_once_there_are_any() -> None:
    late = ComponentStatus("lines", "spout", 1, emitted=9, failed=3, timed_out=2, metrics={"size": 4.0, "big": 1.5e6})
    lines = list(show.component_lines(RunStatus("running", 1.0, (late,)), {}))
    assert lines[0].split()[:6] == ["tasks", "emitted", "acked", "failed", "timed", "out"]
    assert lines[1].split()[:6] == ["lines", "1", "9", "0", "3", "2"]
    assert lines[2] == "lines: big 1,500,000, size 4"
    text = drawn(80, RunStatus("running", 1.0, (late,), pending=1))
    assert "timed out" in text and "per s" in text and "lines: big" in text and "1 tree open" in text


def test_the_window_and_the_wait_are_shown_while_tuples_wait() -> None:
    rows = (
        ComponentStatus("lines", "spout", 1, emitted=9, window=250, wait_ms=7400),
        ComponentStatus("call", "bolt", 1, acked=9),
    )
    lines = list(show.component_lines(RunStatus("running", 1.0, rows), {}))
    assert lines[0].split()[4:7] == ["window", "wait", "ms"]
    assert lines[1].split()[5:7] == ["250", "7,400"] and lines[2].split()[5:7] == ["-", "-"]
    brief = dataclasses.replace(rows[0], wait_ms=20)
    assert "window" not in next(show.component_lines(RunStatus("running", 1.0, (brief,)), {}))


def test_partitions_stand_in_order() -> None:
    rows = tuple({"topic": "t", "partition": n, "lag": n} for n in (10, 2, 0, 9))
    assert [line.split()[0] for line in show.partition_lines(rows)][1:] == ["t/0", "t/2", "t/9", "t/10"]
    text = drawn(80, status(partitions=rows))
    assert text.index("t/0") < text.index("t/2") < text.index("t/9") < text.index("t/10")


def test_partitions_of_several_spouts_are_shown_with_their_spout() -> None:
    """Of one alone the name would say nothing."""
    rows = tuple({"component": name, "topic": "t", "partition": n} for n in (1, 0) for name in ("orders", "audit"))
    shown = [line.split("  ")[0] for line in show.partition_lines(rows)]
    assert shown[1:] == ["audit t/0", "audit t/1", "orders t/0", "orders t/1"]
    assert "orders t/1" in drawn(80, status(partitions=rows))
    assert "orders" not in "".join(show.partition_lines(rows[::2]))


def test_where_old_records_wait_is_a_column_once_it_is_known() -> None:
    rows: Any = [{"topic": "t", "partition": 0, "waits_at": None}, {"topic": "t", "partition": 1, "waits_at": None}]
    assert "waits at" not in next(show.partition_lines(tuple(rows)))
    rows[1]["waits_at"] = "store"
    head, *lines = show.partition_lines(tuple(rows))
    assert head.endswith("waits at") and [line.split()[-1] for line in lines] == ["-", "store"]
    assert "store" in drawn(80, status(partitions=tuple(rows)))


def test_the_result_of_a_killed_run_has_the_fields_of_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    view = show.JsonView()
    view.on_status(status())
    view.killed(137, None)
    shown, result = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    assert set(shown) <= set(result)
    assert [row.keys() for row in shown["components"]] == [row.keys() for row in result["components"]]


@pytest.mark.parametrize("kind", [show.PlainView, TableView])
def test_last_words_that_nobody_reads_are_said_on_standard_error(
    kind: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that was stopped with Ctrl-S took a table's, and the kill waited for it."""
    goes_on, own = threading.Event(), os.write
    monkeypatch.setattr(show.os, "write", lambda to, text: own(to, text) if to == 2 else goes_on.wait())
    try:
        kind().killed(130, status())
        assert "Killed, not drained" in capfd.readouterr().err
    finally:
        goes_on.set()


def test_nothing_follows_the_result_of_a_killed_run(capfd: pytest.CaptureFixture[str]) -> None:
    """The thread that shows the run does not know of the signal yet."""
    view = show.JsonView()
    view.killed(130, None)
    view.on_status(status())
    view.on_event(LogLine("info", "late", 0.0))
    assert [json.loads(line)["event"] for line in capfd.readouterr().out.splitlines()] == ["result"]


def test_a_librarys_line_is_an_event_between_start_and_result_and_else_a_line_on_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    view = show.JsonView()
    line, own = LogLine("warning", "slow", 0.0, Origin("client")), LogLine("info", "a worker came back", 0.0)
    view.log(line._replace(text="early"))
    view.start(RunRequest(TopologySpec("Words", (), {}), {}), "inline")
    view.log(line)
    view.log(own)
    view.finish(RunResult("caught_up", status(), True))
    view.log(line._replace(text="late"))
    out, err = capfd.readouterr()
    events = [json.loads(each) for each in out.splitlines()]
    assert [(each["event"], each.get("text")) for each in events] == [
        ("start", None),
        ("log", "client: slow"),
        ("result", None),
    ]
    assert [each in err for each in ("early", "a worker came back", "late", "slow")] == [True, True, True, False]


def test_a_writer_that_stands_still_keeps_back_the_result_of_a_killed_run_for_a_moment_only(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stands, goes_on = threading.Event(), threading.Event()

    class Terminal:
        def write(self, text: str) -> None:
            stands.set()
            goes_on.wait()

        def flush(self) -> None:
            pass

        def fileno(self) -> int:
            return 1

    monkeypatch.setattr(sys, "stdout", Terminal())
    view = show.JsonView()
    writing = threading.Thread(target=view.on_status, args=(status(),))
    writing.start()
    try:
        stands.wait()
        view.killed(130, None)
        assert json.loads(capfd.readouterr().out)["reason"] == "killed"
    finally:
        goes_on.set()
        writing.join()


def test_a_number_that_is_not_finite_is_null_in_json() -> None:
    """A user's metric may be one, and what Python writes for it is no JSON."""
    text = json_text({"a": [1.5, float("nan")], "b": {"c": (float("inf"), -float("inf"))}, "d": Path("x")})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [1.5, None], "b": {"c": [None, None]}, "d": "x"}


def test_what_is_kept_as_a_dead_letter_or_lost_at_most_is_told_from_what_is_gone() -> None:
    rows = (
        ComponentStatus("lines", "spout", 1, given_up=3, kept=2, lost=1),
        ComponentStatus("words", "spout", 1, given_up=1, kept=1),
        ComponentStatus("plain", "spout", 1, given_up=1),
        ComponentStatus("sink", "bolt", 1, lost=12, taken=2),
        ComponentStatus("last", "bolt", 1, lost=1, taken=1),
    )
    assert show.gone_lines(dataclasses.replace(status(), components=rows)) == [
        "lines: 2 given up, and kept as dead letters.",
        "lines: 1 given up, 1 lost; nobody sends them again.",
        "words: 1 given up, and kept as a dead letter.",
        "plain: 1 given up; nobody sends them again.",
        "sink: up to 12 lost; nobody sends them again.",
        "last: 1 lost; nobody sends them again.",
    ]


def test_the_numbers_of_a_run_that_failed_stand_above_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    """After a failed night they say what was done, and which offsets are committed."""
    view = show.PlainView()
    view.failed(ValueError("before any numbers"), 1)
    view.on_status(status(partitions=partitions(1)))
    view.failed(ValueError("x"), 1)
    told = "".join(capsys.readouterr())
    assert told.count("emitted") == 1 and "1,234,567" in told and "committed" in told


def test_the_numbers_stand_there_too_where_the_spout_told_none(capsys: pytest.CaptureFixture[str]) -> None:
    """It hung in its first second; its bolt has told what it did."""
    view = show.PlainView()
    rows = (ComponentStatus("lines", "spout", 1), ComponentStatus("words", "bolt", 1, executed=256))
    view.on_status(RunStatus("running", 1.0, rows))
    capsys.readouterr()  # the line of the status has some of them
    view.failed(ValueError("x"), 1)
    assert "words" in capsys.readouterr().out


def test_what_was_given_up_is_not_said_to_be_sent_again() -> None:
    def told(**counts: int) -> str:
        rows = (ComponentStatus("lines", "spout", 1, emitted=9, **counts),)
        return show.ending(RunResult("caught_up", RunStatus("ended", 1.0, rows), True))

    assert told(failed=5).startswith("5 tuple trees failed on the way, for the spout to send again.")
    # Records that no scheme could decode are given up, too, and no tree of them failed.
    assert told(failed=5, given_up=8, kept=8).startswith(
        "5 tuple trees failed on the way, for the spout to send again what it did not give up."
    )
    assert "on the way" not in told(given_up=2)
    assert "on the way" not in told(failed=5, unreplayed=5), "nobody sent any of them again"


def test_a_run_that_could_not_commit_what_is_done_says_how_much_the_next_one_reads_again() -> None:
    rows = (
        {"partition": "t/0", "position": 1500, "committed": 300, "uncommitted": 1200},
        {"partition": "t/1", "position": 7, "committed": 5},
    )
    result = RunResult("time", RunStatus("ended", 2.0, partitions=rows), drained=True)
    assert show.ending(result) == (
        "Time is over after 2.0 s: everything that was emitted is done, but 1,200 offsets could not be committed: the "
        "next run reads what is behind them again."
    )


class Goes(Spout):
    outputs = ["n"]


class Endless(Topology):
    goes = Goes.spec()


@pytest.mark.parametrize(("until", "seconds", "warned"), [(True, None, True), (True, 5.0, False), (False, None, False)])
def test_the_heading_warns_of_a_run_that_will_not_end_by_itself(
    until: bool, seconds: float | None, warned: bool
) -> None:
    request = RunRequest(Endless.__topology__, {}, until_caught_up=until, seconds=seconds)
    assert ("The spout goes defines no caught_up" in show.heading(request, "inline")) is warned
