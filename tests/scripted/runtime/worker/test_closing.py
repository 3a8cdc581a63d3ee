"""The end of a worker's components: every one has its turn, in an order in which nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamlet import Bolt, Spout, Topology, Tuple
from streamlet.base.clock import ManualClock
from streamlet.runtime.links.links import NoLinks
from streamlet.runtime.worker.loop import WorkerLoop
from tests.worker_contexts import made_context


class Closing(Spout):
    outputs = ["n"]

    heard: list[str]

    def next_tuple(self) -> None: ...

    def deactivate(self) -> None:
        self.heard.append("deactivate")

    def begin_close(self) -> None:
        self.heard.append("begin_close")

    def close(self) -> None:
        self.heard.append("close")


class Cleaned(Bolt):
    outputs = ["n"]

    heard: list[str]

    def process(self, tup: Tuple) -> None: ...

    def cleanup(self) -> None:
        self.heard.append("cleanup")


class ClosingPair(Topology):
    closing = Closing.spec(par=2)
    cleaned = Cleaned.spec(inputs=[closing])


@pytest.fixture
def loop() -> WorkerLoop:
    """A loop of two spouts and a bolt, active; each writes what it hears into one list."""
    loop = WorkerLoop(made_context(ClosingPair.__topology__, 1, 0, {}, clock=ManualClock()), NoLinks())
    loop.initialize()
    heard: list[str] = []
    for live in loop.tasks.values():
        vars(live.component)["heard"] = heard
    loop.activate()
    return loop


def component(loop: WorkerLoop, kind: type) -> Any:
    return next(live.component for live in loop.tasks.values() if isinstance(live.component, kind))


def test_bolts_clean_up_before_spouts_wait_for_a_last_commit(loop: WorkerLoop) -> None:
    """A store that does not answer costs replays; a cleanup that is not called costs what it was to write."""
    heard = component(loop, Cleaned).heard
    assert loop.close(clean=True) == [] and heard[0] == "cleanup" and heard[-1] == "close"


def test_all_spouts_begin_to_close_before_the_first_one_is_closed(loop: WorkerLoop) -> None:
    """What they begin to give up there goes on side by side."""
    heard = component(loop, Closing).heard
    loop.close(clean=True)
    assert heard[1:] == [name for name in ("deactivate", "begin_close", "close") for _ in range(2)]


def test_after_an_error_spouts_are_closed_and_nothing_else_is_called(loop: WorkerLoop) -> None:
    heard = component(loop, Closing).heard
    assert loop.close(clean=False) == [] and heard == ["close", "close"]


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, MemoryError])
@pytest.mark.parametrize("where", ["cleanup", "deactivate", "begin_close"])
def test_a_close_that_raises_whatever_it_be_does_not_keep_the_others_from_theirs(
    loop: WorkerLoop, kind: type[BaseException], where: str
) -> None:
    """It is one component's fault, as any exception is: the others' last words are nowhere else."""

    def raises() -> None:
        raise kind

    heard = component(loop, Closing).heard
    setattr(component(loop, Cleaned if where == "cleanup" else Closing), where, raises)
    (error,) = loop.close(clean=True)
    assert isinstance(error.__cause__, kind) and where in str(error)
    assert heard.count("close") == 2 and ("cleanup" in heard) == (where != "cleanup")


@pytest.mark.parametrize("kind", [Cleaned, Closing])
def test_an_emit_while_closing_is_refused(loop: WorkerLoop, kind: type) -> None:
    """Nobody would ever see it, and nobody would ever know."""
    last = component(loop, kind)
    setattr(last, "cleanup" if kind is Cleaned else "close", lambda: last.emit([1]))
    (error,) = loop.close(clean=True)
    assert "nothing is delivered any more" in str(error)
