"""Where a user is told to look: the user's own file and line, whatever part of the call went wrong."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import FrameSummary
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet import Spout, Topology
from streamlet.backends.contract import RunRequest, RunStatus, Stop
from streamlet.backends.inline import InlineBackend
from streamlet.base.errors import StreamletError
from streamlet.base.log_line import LogLine
from streamlet.bolts.kafka import KafkaBolt
from streamlet.bolts.kafka.errors import TransactionsRefused
from streamlet.bolts.kafka.transactions import Transactions
from streamlet.cli.docs import pages
from streamlet.components.batching import BatchFailed, BatchingBolt
from streamlet.model.settings import resolve
from streamlet.runtime.tasks import user_errors
from streamlet.runtime.tasks.user_errors import bolt_ended_run, definition, waits_long
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.log_lines import shown_text
from streamlet.testing import BoltTester
from streamlet.tracking.window import PendingWindow

FILE = """
from streamlet import Bolt, ReliableSpout, Topology

class Numbers(ReliableSpout):
    outputs = ["n"]
    max_fails = 0
    sent = False
    {spout}
    def next_tuple(self):
        if not self.sent:
            self.sent = True
            self.emit([1], tup_id=1)
    def caught_up(self):
        return self.sent and not self.has_unfinished()

class Sink(Bolt):
    {sink}

class T(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs=[numbers])
"""
PROCESS = "def process(self, tup): pass"
INITIALIZE, SINK = 8, 17


class Told:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_status(self, status: RunStatus) -> None: ...

    def on_event(self, line: LogLine) -> None:
        self.events.append(shown_text(line))


Run = Callable[..., tuple[Path, str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs the file with these lines in it; gives it, and all that was told."""
    file = tmp_path / f"wrong_{tmp_path.name}".replace("-", "_")
    file = file.with_suffix(".py")

    def it(spout: str = "", sink: str = PROCESS, **conf: Any) -> tuple[Path, str]:
        file.write_text(FILE.format(spout=spout, sink=sink))
        topology = load_topology(file)
        told = Told()
        request = RunRequest(topology, resolve(topology.config, conf), file=file, until_caught_up=True, seconds=5)
        try:
            InlineBackend().run(request, told, Stop())
        except StreamletError as error:
            told.events.append(error.message)
        return file, " ".join(told.events)

    yield it
    sys.modules.pop(file.stem, None)
    sys.path.remove(str(tmp_path))


def test_a_process_without_its_tuple_is_located_where_it_is_defined(run: Run) -> None:
    """The call itself fails, in our code; what is wrong stands in the user's."""
    file, told = run(sink="def process(self): pass")
    assert f"TypeError at {file}:{SINK} " in told and "bolt_task.py" not in told


def test_what_a_library_raises_is_located_at_the_line_that_called_it(run: Run) -> None:
    """Nobody mends json, or socket."""
    lines = "def process(self, tup):\n        import json\n        json.loads('{')"
    file, told = run(sink=lines)
    assert f"JSONDecodeError at {file}:{SINK + 2} " in told


def test_a_constructor_that_wants_more_is_located_where_it_is_defined(run: Run) -> None:
    """Of its own, or the class if it has none."""
    file, told = run(sink=f"def __init__(self, limit): pass\n    {PROCESS}")
    assert f"in its constructor ({file}:{SINK})" in told and "building.py" not in told


def test_a_spouts_method_is_located_where_it_is_defined(run: Run) -> None:
    """``initialize`` with too few parameters."""
    file, told = run(spout="def initialize(self, conf): pass")
    assert f"in initialize ({file}:{INITIALIZE})" in told and "loop.py" not in told


def test_what_the_users_code_raises_is_located_where_it_raises(run: Run) -> None:
    """Not where the method begins."""
    file, told = run(sink="def process(self, tup):\n        x = 1\n        x / 0")
    assert f"ZeroDivisionError at {file}:{SINK + 2} " in told


def test_what_our_code_raises_for_the_users_is_located_at_the_users_line(run: Run) -> None:
    """``emit`` without its values."""
    file, told = run(sink="def process(self, tup):\n        self.emit()")
    assert f"TypeError at {file}:{SINK + 1} " in told


def test_a_value_that_cannot_travel_is_told_with_the_line_that_emits_it(run: Run) -> None:
    file, told = run(sink="outputs = ['v']\n    def process(self, tup):\n        self.emit([{'a': {1}}])")
    assert "field 'v', at ['a'], is a set" in told and f"It was raised at {file}:{SINK + 2}." in told


def test_a_line_of_the_log_is_made_of_whole_sentences(run: Run) -> None:
    """Also where a text of the user's, raised as one of ours, ends without a stop."""
    text = "from streamlet.base.errors import BadInput; raise BadInput('no such user')"
    file, told = run(sink=f"def process(self, tup):\n        {text}")
    assert f"no such user. It was raised at {file}:{SINK + 1}." in told


def test_what_a_reliable_spout_refuses_is_located_at_the_users_emit(run: Run) -> None:
    """Not in streamlet's own ReliableSpout."""
    file, told = run(spout="def initialize(self, conf, context):\n        self.emit([7])")
    assert f"raised ValueError in initialize ({file}:{INITIALIZE + 1}): a ReliableSpout emits with tup_id" in told


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("AssertionError", "on a tuple from numbers. The tuple's tree has failed"),
        ("OSError('bad\\nvalue!')", "on a tuple from numbers: bad value. The tuple's tree has failed"),
    ],
)
def test_an_error_is_one_paragraph_whatever_its_text(run: Run, raised: str, said: str) -> None:
    _, told = run(sink=f"def process(self, tup): raise {raised}")
    assert said in told


PYSTORM = "self.storm_conf['topology.workers'], self.context, self.task_id, self.component_name, self.topology_name"


def test_pystorms_attributes_are_there_from_initialize_on(run: Run) -> None:
    """Also where ``initialize`` is not the component's own, or does not call the one above it."""
    _, told = run(
        spout="def initialize(self, conf, context):\n"
        "        assert self.storm_conf is conf and self.context is context\n"
        "        self.log(f'spout: {self.component_name} {self.task_id} {context.topology_name}')",
        sink=f"def process(self, tup):\n        raise OSError(({PYSTORM}))",
        **{"topology.workers": 1},
    )
    assert "raised OSError" in told
    assert "(1, TopologyContext(topology_name='T'" in told and "2, 'sink', 'T')" in told


def test_a_components_own_names_are_left_alone(run: Run) -> None:
    """A method, a value of the class, or one that its constructor set."""
    _, told = run(
        sink="task_id = 'mine'\n"
        "    def __init__(self): self.storm_conf = 'made here'\n"
        "    def context(self): return 'a method'\n"
        "    def process(self, tup):\n"
        "        raise OSError(f'{self.task_id} {self.storm_conf} {self.context()} {self.component_name}')"
    )
    assert "mine made here a method sink" in told


def test_a_bolt_that_exits_on_exceptions_ends_the_run(run: Run) -> None:
    """pystorm's ``exit_on_exception``: the first exception is the last, and is named."""
    file, told = run(sink="exit_on_exception = True\n    def process(self, tup): raise OSError('down')")
    assert f"sink raised OSError ({file}:{SINK + 1}): down. It has exit_on_exception = True" in told


def test_a_bolt_of_ours_ends_the_run_in_its_own_words() -> None:
    """Its user has set no ``exit_on_exception``, and would look for it in vain."""
    try:
        Transactions.raise_refusal(SimpleNamespace(_refusal=TransactionsRefused("It is refused.")))  # type: ignore[arg-type]
    except TransactionsRefused as error:
        for kind in (KafkaBolt, type("Mine", (KafkaBolt,), {})):
            assert bolt_ended_run("out", kind, error, KafkaBolt.process_batch) is error


@pytest.mark.parametrize("where", ["", "def initialize(self, conf, context):\n        self."])
def test_a_users_bolt_that_exits_on_an_error_of_ours_is_named_with_what_ends_the_run(run: Run, where: str) -> None:
    """The text of a client's error knows nothing of the bolt that called it."""
    lines = "    def process(self, tup):\n        parse_servers(5)"
    imported = "from streamlet.kafka.settings.client_config import parse_servers"
    _, told = run(sink=f"{imported}\n    {where}exit_on_exception = True\n{lines.replace('parse', 'type(self).parse')}")
    assert "sink raised SettingError" in told and "has exit_on_exception = True, so that ends the run" in told


def test_the_error_of_a_users_batch_that_ends_the_run_keeps_its_cause() -> None:
    """``--debug`` shows its traceback: it is what the error is found by."""
    cause = ValueError("down")

    class Fails(BatchingBolt):
        exit_on_exception = True

        def process_batch(self, key: Any, tups: Any) -> None:
            raise cause

    with pytest.raises(BatchFailed) as raised, BoltTester(Fails, conf={"topology.tick.tuple.freq.secs": 1}) as tester:
        tester.give("a")
        tester.tick()
    assert raised.value.__cause__ is cause and "exit_on_exception ends the run" in str(raised.value)


@pytest.mark.parametrize("where", ["initialize", "next_tuple"])
def test_an_error_of_ours_that_a_spout_raises_keeps_its_cause(where: str) -> None:
    cause = ValueError("down")

    def fails(self: Any, *args: Any) -> None:
        raise StreamletError("It is down.") from cause

    class Fails(Topology):
        numbers = type("Numbers", (Spout,), {"outputs": ["n"], "next_tuple": fails, where: fails}).spec()

    error = Fails.run(backend="inline", check=False).error
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__
    assert cause in seen


def test_a_definition_is_found_for_functions_classes_and_nothing_else() -> None:
    """A class without a constructor of its own is where it begins; what is built in is nowhere."""

    class Plain:
        pass

    assert definition(Plain).startswith(f"{__file__}:")
    assert definition(json.loads).startswith(f"{json.__file__}:")
    assert definition(len) == definition(None) == ""


def test_a_bolt_that_is_too_slow_hears_of_the_pool_and_of_the_page_that_shows_one() -> None:
    """Most slow bolts wait for a service: more tasks and workers are the dear answer to that."""
    text = waits_long("orders", "price", 12.0, PendingWindow(2000, 7.5))
    assert "If price waits for answers (a service, a database), derive it from ThreadedBolt" in text
    named = re.findall(r"`streamlet docs (\S+)`", text)
    assert named == ["slow-bolts"] and named[0] in pages()


def test_how_many_trees_may_be_open_is_told_and_that_one_is_the_least() -> None:
    window = PendingWindow(2000, 7.5)
    assert "one tree open at a time now, which is the least" in waits_long("orders", "price", 12.0, window)
    window.size = 40
    assert "it may have 40 trees open, and no more" in waits_long("orders", "price", 12.0, window)


OURS = str(Path(user_errors.__file__).parents[2])
LIBRARY = json.__file__


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (["/u/main.py", f"{OURS}/running.py", f"{OURS}/runtime/loop.py", "/u/bolt.py"], ["/u/bolt.py"]),
        ([f"{OURS}/runtime/loop.py", "/u/bolt.py", f"{OURS}/runtime/worker/printed_lines.py"], ["/u/bolt.py"]),
        ([f"{OURS}/runtime/loop.py", "/u/bolt.py", LIBRARY, f"{OURS}/kafka/x.py", LIBRARY], ["/u/bolt.py", LIBRARY]),
        (["/u/main.py", f"{OURS}/runtime/loop.py", f"{OURS}/spouts/spout.py", LIBRARY],
         [f"{OURS}/spouts/spout.py", LIBRARY]),
        (["/u/main.py", LIBRARY], ["/u/main.py", LIBRARY]),
    ],
)  # fmt: skip
def test_a_stack_is_shown_from_the_users_innermost_code_to_its_end(files: list[str], shown: list[str]) -> None:
    frames = [FrameSummary(file, 1, "call", lookup_line=False) for file in files]
    assert [frame.filename for frame in user_errors.of_users(frames)] == shown
