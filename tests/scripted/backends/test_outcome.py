"""How a run ends in which trees failed, whichever backend ran it: decided in one place, told in one paragraph."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import ComponentStatus, RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.backends.outcome import RunFailed, TickFailed, TreesFailed, TuplesLeft, check_end, check_result
from streamlet.backends.processes import ProcessesBackend
from streamlet.base.log_line import LogLine
from streamlet.model.settings import resolve
from streamlet.model.topology import TopologySpec
from streamlet.runtime.worker.loading import load_topology

FILE = """
from streamlet import Bolt, ReliableSpout, Spout, Topology

class Ten:
    outputs = ["n"]
    def initialize(self, conf, context):
        self.n = 0
        self.heard = 0
    def next_tuple(self):
        if self.n < 10:
            self.n += 1
            self.emit([self.n], tup_id=self.n)
    def ack(self, tup_id):
        super().ack(tup_id)
        self.heard += 1
    def caught_up(self):
        return self.n == 10

class Plain(Ten, Spout):
    pass

class Hearing(Ten, Spout):
    def fail(self, tup_id):
        self.heard += 1

class Again(Ten, Spout):
    'Sends what failed once more, by its own means.'
    def fail(self, tup_id):
        self.emit([-tup_id], tup_id=tup_id)

class Untracked(Ten, Spout):
    def next_tuple(self):
        if self.n < 10:
            self.n += 1
            self.emit([self.n])

class Reliable(Ten, ReliableSpout):
    max_fails = 1
    def caught_up(self):
        return self.n == 10 and not self.has_unfinished()

class Settling(Reliable):
    answers_for_failures = True
    def given_up(self, tup_id, values, fails): ...

class Bad(Bolt):
    outputs = ["thing"]
    def initialize(self, conf, context):
        self.seen = set()
    def process(self, tup):
        n = tup.values[0]
        first = n not in self.seen
        self.seen.add(n)
        if n in (3, 4) and (first or not SPOUT_MENDS):
            self.emit([{n}])

class Sink(Bolt):
    def process(self, tup): ...

class Made(Topology):
    spout = SPOUT.spec()
    bad = Bad.spec(inputs=[spout])
    sink = Sink.spec(inputs=[bad])
"""


class Silent:
    def on_status(self, status: RunStatus) -> None: ...

    def on_event(self, line: LogLine) -> None: ...


def run(backend: str, folder: Path, spout: str, mends: bool = False, seconds: float | None = None) -> RunResult:
    file = folder / f"made_{spout}_{mends}_{bool(seconds)}_{backend}.py".lower()
    file.write_text(FILE.replace("SPOUT_MENDS", str(mends)).replace("SPOUT", spout))
    topology = load_topology(file)
    conf = resolve(topology.config, {"streamlet.until.caught.up": seconds is None})
    request = RunRequest(topology, conf, file=file, workers=2, until_caught_up=seconds is None, seconds=seconds)
    runner: Any = InlineBackend() if backend == "inline" else ProcessesBackend()
    result: RunResult = runner.run(request, Silent(), Stop())
    return result


backends = pytest.mark.parametrize("backend", ["inline", "processes"])


@backends
@pytest.mark.parametrize("spout", ["Plain", "Hearing", "Reliable"])
def test_trees_that_failed_for_good_end_the_run_with_1_and_a_paragraph(
    tmp_path: Path, backend: str, spout: str
) -> None:
    """Component, stream and field of the value that could not travel stand in it; what was done is still known."""
    with pytest.raises(TreesFailed) as caught:
        run(backend, tmp_path, spout)
    said = caught.value.message
    assert caught.value.exit_status == 1
    assert "2 tuple trees of the spout spout failed and nobody sent them again" in said
    assert "bad emitted a tuple on stream 'default' whose field 'thing' is a set" in said and "\n" not in said
    rows = {row.name: row for row in caught.value.result.status.components}
    assert rows["spout"].unreplayed == 2 and caught.value.result.reason == "caught_up"
    assert (rows["spout"].given_up, rows["spout"].open, caught.value.result.status.pending) == (2, 0, 0)


@backends
@pytest.mark.parametrize("spout", ["Reliable", "Again"])
def test_a_tree_that_was_replayed_with_success_does_not_count(tmp_path: Path, backend: str, spout: str) -> None:
    """By a ReliableSpout, or by a spout that emits under the same id again."""
    result = run(backend, tmp_path, spout, mends=True)
    rows = {row.name: row for row in result.status.components}
    assert (result.reason, result.drained) == ("caught_up", True)
    assert rows["spout"].failed == 2 and rows["spout"].unreplayed == 0


@backends
def test_a_spout_that_answers_for_what_it_gives_up_ends_with_0(tmp_path: Path, backend: str) -> None:
    """Its policy has a name."""
    result = run(backend, tmp_path, "Settling")
    assert result.reason == "caught_up"
    spout = result.components["spout"]
    assert (spout.given_up, spout.lost, spout.unreplayed) == (2, 0, 0), "and it is told"


@backends
def test_untracked_tuples_on_which_a_bolt_raised_count_too(tmp_path: Path, backend: str) -> None:
    """No spout hears of them, so only the end of the run can tell."""
    with pytest.raises(TreesFailed, match=r"but 2 untracked tuples at bad failed .* field 'thing' is a set"):
        run(backend, tmp_path, "Untracked")


def test_untracked_tuples_that_fail_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bolt has failed them by itself: nothing was raised, and nobody sends them again."""
    monkeypatch.setitem(globals(), "FILE", FILE.replace("self.emit([{n}])", "self.fail(tup)"))
    with pytest.raises(TreesFailed, match=r"but 2 untracked tuples at bad failed .* bad failed 2 tuples by itself"):
        run("inline", tmp_path, "Untracked", seconds=1.5)


@pytest.mark.parametrize("reason", ["time", "caught_up", "interrupted"])
@pytest.mark.parametrize("spout", ["Plain", "Hearing", "Reliable"])
def test_what_was_given_up_fails_a_run_however_it_ended(tmp_path: Path, spout: str, reason: str) -> None:
    """What counts as given up: ``test_a_failure_is_open_or_given_up_and_never_both``."""
    file = tmp_path / f"judged_{spout}_{reason}.py".lower()
    file.write_text(FILE.replace("SPOUT_MENDS", "False").replace("SPOUT", spout))
    status = RunStatus("ended", 1.0, (ComponentStatus("spout", "spout", 1, given_up=2),))
    with pytest.raises(TreesFailed, match=r"2 tuple trees of the spout spout failed"):
        check_result(RunResult(reason, status, drained=True), load_topology(file), [])


def test_a_run_ended_by_time_is_judged_like_any_other(tmp_path: Path) -> None:
    """Through a backend that runs in this process, and so is up at once."""
    with pytest.raises(TreesFailed, match=r"2 tuple trees of the spout spout failed"):
        run("inline", tmp_path, "Plain", seconds=1.5)


def ended(reason: str, *rows: ComponentStatus) -> RunResult:
    return RunResult(reason, RunStatus("ended", 1.0, rows), drained=True)


def topology_with(tmp_path: Path, spout: str) -> TopologySpec:
    file = tmp_path / f"gone_{spout}_{tmp_path.name}.py".lower()
    file.write_text(FILE.replace("SPOUT_MENDS", "False").replace("SPOUT", spout))
    return load_topology(file)


@pytest.mark.parametrize("reason", ["caught_up", "time", "interrupted"])
def test_what_was_given_up_or_lost_fails_the_run_unless_a_policy_names_it(tmp_path: Path, reason: str) -> None:
    """However it ended; an interrupted one, too, for a status of 0 would hide it."""
    gone = ComponentStatus("spout", "spout", 1, given_up=2)
    with pytest.raises(TreesFailed, match=r"2 tuple trees of the spout spout failed"):
        check_result(ended(reason, gone), topology_with(tmp_path, "Reliable"), [])
    assert check_result(ended(reason, gone), topology_with(tmp_path, "Settling"), [])
    with pytest.raises(TuplesLeft, match=r"3 at bad\. They are not tracked"):
        check_result(ended(reason, ComponentStatus("bad", "bolt", 1, lost=3)), topology_with(tmp_path, "Settling"), [])
    lost = ComponentStatus("spout", "spout", 1, lost=3)
    assert check_result(ended(reason, lost), topology_with(tmp_path, "Settling"), [])
    both = (gone, ComponentStatus("bad", "bolt", 1, lost=3))
    with pytest.raises(
        TuplesLeft, match=r"3 at bad.* Besides, 2 tuple trees of the spout spout failed and were given up"
    ):
        check_result(ended(reason, *both), topology_with(tmp_path, "Reliable"), [])


def test_open_trees_that_a_drain_leaves_fail_a_run_whose_spout_does_not_answer_for_them(tmp_path: Path) -> None:
    left = ComponentStatus("spout", "spout", 1, open=7)
    cut = dataclasses.replace(ended("time", left), drain_cut_s=4.0)
    with pytest.raises(TuplesLeft, match="left 7 open tuple trees of spout"):
        check_result(cut, topology_with(tmp_path, "Plain"), [])
    with pytest.raises(
        TuplesLeft, match=r"and 7 tuple trees of spout had failed and not .* by then\. bad raised"
    ) as caught:
        check_result(ended("time", left), topology_with(tmp_path, "Plain"), ["bad raised ValueError."])
    assert "drain" not in caught.value.message, "it was whole"
    assert check_result(ended("time", left), topology_with(tmp_path, "Settling"), [])
    assert check_result(ended("interrupted", left), topology_with(tmp_path, "Plain"), [])


def test_what_closing_raised_hides_nothing_that_was_given_up(tmp_path: Path) -> None:
    result = ended("caught_up", ComponentStatus("spout", "spout", 1, given_up=3))
    topology = topology_with(tmp_path, "Reliable")
    with pytest.raises(TreesFailed, match=r"3 tuple trees of the spout spout .* Besides, closing it raised: db gone"):
        check_end(result, topology, [], ["db gone"])
    with pytest.raises(RunFailed, match="closing it raised: db gone") as caught:
        check_end(ended("caught_up"), topology, [], ["db gone"])
    assert caught.value.result is not None and caught.value.result.reason == "caught_up"


@pytest.mark.parametrize(
    ("where", "advised"),
    [
        ("", True),
        (" in cleanup of bad (task 2): it had been in cleanup of bad (task 2) for 31 s", True),
        (" at work in bad (task 2) on the tuple [300]", False),
        (" in next_tuple of bad (task 2): it had been in next_tuple of bad (task 2) for 40 s", False),
    ],
)
def test_more_time_to_close_is_no_advice_for_a_call_that_hangs(tmp_path: Path, where: str, advised: bool) -> None:
    killed = f"worker 1 (bad) did not stop within 30.0 s and was killed{where}"
    result = dataclasses.replace(ended("time"), unclosed=(killed,))
    with pytest.raises(RunFailed) as caught:
        check_end(result, topology_with(tmp_path, "Reliable"), [], [])
    assert killed in caught.value.message and ("streamlet.stop.timeout.secs" in caught.value.message) is advised


@pytest.mark.parametrize(
    ("reason", "words"), [("caught_up", "The topology ran to its end"), ("time", "The time of the run was over")]
)
def test_a_run_whose_time_was_over_is_not_told_as_one_that_ran_to_its_end(
    tmp_path: Path, reason: str, words: str
) -> None:
    result = dataclasses.replace(ended(reason), unclosed=("worker 1 (bad) was killed",))
    with pytest.raises(RunFailed, match=f"^{words}, but worker 1"):
        check_end(result, topology_with(tmp_path, "Reliable"), [], [])


def test_a_bolt_that_failed_tuples_by_itself_is_named(tmp_path: Path) -> None:
    rows = ComponentStatus("spout", "spout", 1, given_up=2), ComponentStatus("bad", "bolt", 1, failed=8)
    with pytest.raises(TreesFailed, match=r"anything: bad failed 8 tuples by itself, with self\.fail\. Fix that\."):
        check_result(ended("caught_up", *rows), topology_with(tmp_path, "Reliable"), [])
    with pytest.raises(TreesFailed, match=r"anything: they took longer than topology\.message\.timeout\.secs, or"):
        check_result(ended("caught_up", rows[0]), topology_with(tmp_path, "Reliable"), [])


@pytest.mark.parametrize("died", [(), ("worker 1 (bad) was killed by SIGKILL before it was to close",)])
@pytest.mark.parametrize("cut_s", [None, 4.0])
def test_what_a_drain_left_is_told_with_its_time_also_beside_a_death(
    tmp_path: Path, died: tuple[str, ...], cut_s: float | None
) -> None:
    """More time is advised where the time was over, and nowhere else."""
    topology = topology_with(tmp_path, "Plain")
    reached = dataclasses.replace(ended("time"), unclosed=died, drain_cut_s=cut_s, drained=False)
    open_trees = ComponentStatus("spout", "spout", 1, open=7)
    left_open = dataclasses.replace(reached, status=dataclasses.replace(reached.status, components=(open_trees,)))
    for result in (dataclasses.replace(reached, left={"bad": 7}), left_open):
        with pytest.raises(TuplesLeft) as caught:
            check_end(result, topology, [], [])
        said = caught.value.message
        assert "7 untracked tuples for bad" in said or re.search("7 (open )?tuple trees of spout", said)
        assert ("The drain's time of 4 s was over" in said) is ("--drain-timeout" in said) is (cut_s is not None)
        assert ("SIGKILL" in said) is bool(died)


def test_a_call_that_hung_at_the_end_is_named_beside_what_the_drain_left(tmp_path: Path) -> None:
    """Also where its worker could close: a thread of a pool was in it. Once, where its worker could not."""
    topology = topology_with(tmp_path, "Plain")
    hang = {"worker": 1, "component": "pool", "task": 4, "call": "process", "seconds": 7.4, "tuple": "[100]"}
    open_trees = ComponentStatus("spout", "spout", 1, open=1)
    status = RunStatus("ended", 1.0, (open_trees,), hanging=(hang,))
    reached = RunResult("time", status, drained=False, drain_cut_s=4.0)
    named = "pool (task 4) had been in process for 7 s on [100]"
    with pytest.raises(TuplesLeft, match=re.escape(f"before all was done: {named}, and it left 1 open")) as caught:
        check_end(reached, topology, [], [])
    assert "drain_timeout) if that call comes back, or say by" in caught.value.message
    killed = f"worker 1 (pool) did not stop within 30.0 s and was killed: it {named}"
    with pytest.raises(TuplesLeft) as caught:
        check_end(dataclasses.replace(reached, unclosed=(killed,)), topology, [], [])
    assert caught.value.message.count(named) == 1
    other = "worker 0 was killed by SIGKILL before it was to close"
    with pytest.raises(TuplesLeft, match=re.escape(f"{other}; {named}. It left up to 1 open")):
        check_end(dataclasses.replace(reached, unclosed=(other,)), topology, [], [])


def test_what_was_lost_in_the_middle_of_a_run_stands_beside_what_its_drain_left(tmp_path: Path) -> None:
    bad = ComponentStatus("bad", "bolt", 1, lost=60)
    result = dataclasses.replace(ended("time", bad), left={"bad": 7})
    with pytest.raises(
        TuplesLeft, match=r"left 7 untracked tuples for bad; before that, more had been lost: 53 at bad\."
    ):
        check_result(result, topology_with(tmp_path, "Plain"), [])
    result = dataclasses.replace(ended("time", dataclasses.replace(bad, lost=7)), left={"bad": 7})
    with pytest.raises(TuplesLeft, match=r"left 7 untracked tuples for bad\. They"):
        check_result(result, topology_with(tmp_path, "Plain"), [])


def test_the_user_of_a_reliable_spout_is_not_told_to_take_one(tmp_path: Path) -> None:
    result = ended("caught_up", ComponentStatus("spout", "spout", 1, given_up=1))
    why = "Worker 1 was killed by SIGSEGV at work in split (task 2) on the tuple [1500]."
    with pytest.raises(TreesFailed) as caught:
        check_end(result, topology_with(tmp_path, "Reliable"), [why], [])
    assert "failed and nobody sent it again, so it was not processed." in str(caught.value)
    assert str(caught.value).endswith(f"{why} Fix that.")


@pytest.mark.parametrize(("bad_ticks", "fails"), [({1, 2, 3, 4, 5, 6, 7, 8}, True), ({1}, False)])
def test_an_error_of_the_last_tick_fails_the_run_and_one_that_a_later_tick_made_good_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad_ticks: set[int], fails: bool
) -> None:
    """What a tick was to write is in no tree: "everything that was emitted is done" says nothing of it."""
    tick = f"""
    config = {{"topology.tick.tuple.freq.secs": 0.2}}
    ticks = 0
    def process_tick(self, tup):
        self.ticks += 1
        if self.ticks in {bad_ticks}:
            raise ConnectionError("the table is gone")

class Made(Topology):"""
    monkeypatch.setitem(globals(), "FILE", FILE.replace("\nclass Made(Topology):", tick))
    if fails:
        with pytest.raises(TickFailed, match=r"last process_tick of sink raised.* sink \(task 3\) .*the table is gone"):
            run("inline", tmp_path, "Reliable", mends=True, seconds=0.9)
    else:
        result = run("inline", tmp_path, "Settling", mends=True, seconds=0.9)
        sink = result.components["sink"]
        assert (sink.tick_errors, sink.tick_failed) == (1, 0)


def test_a_tick_that_failed_stands_beside_what_else_went_wrong(tmp_path: Path) -> None:
    rows = ComponentStatus("spout", "spout", 1, given_up=3), ComponentStatus("bad", "bolt", 2, tick_failed=1)
    topology, errors = topology_with(tmp_path, "Reliable"), ["bad (task 2) raised OSError: x."]
    with pytest.raises(TreesFailed, match=r"3 tuple trees .* the last process_tick of bad \(in 1 of 2"):
        check_end(ended("caught_up", *rows), topology, errors, [])
    with pytest.raises(RunFailed, match=r"closing it raised: db gone.* Besides, the last process_tick of bad"):
        check_end(ended("caught_up", rows[1]), topology, errors, ["db gone"])
