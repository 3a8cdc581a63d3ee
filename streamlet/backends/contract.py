"""The contract of every backend: what it is given and gives back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamlet.base.errors import StreamletError
from streamlet.model.topology import TopologySpec

if TYPE_CHECKING:
    from streamlet.base.log_line import LogLine


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run. ``conf`` is resolved (``model.settings``); ``overrides`` are ``-c COMPONENT.NAME=VALUE``.

    ``file`` and ``attribute`` are how another process finds the same topology; ``inline`` does not need them.
    """

    topology: TopologySpec
    conf: Mapping[str, Any]
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    file: Path | None = None
    attribute: str | None = None
    workers: int = 1
    until_caught_up: bool = False
    seconds: float | None = None
    master: str | None = None
    quiet_stdout: bool = False
    """What users' code prints goes to stderr: stdout is for ``--json``."""
    keeps_log: bool = False
    """The observer keeps the lines of the run, with those that users' code prints, marked as printed."""


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """A component's counters over all its tasks since the run began. Latencies in ms, None while unknown."""

    name: str
    kind: str
    tasks: int
    emitted: int = 0
    """Tuples, each once, whatever the number of their readers."""
    executed: int = 0
    acked: int = 0
    failed: int = 0
    """Trees of a spout, tuples of a bolt; with those of ``timed_out``."""
    timed_out: int = 0
    """Trees that took longer than the message time-out; they are in ``failed``, too."""
    errors: int = 0
    tick_errors: int = 0
    """Of the errors, those of ``process_tick`` that no failure of tuples stands for."""
    tick_failed: int = 0
    """Tasks of a bolt whose latest ``process_tick`` raised such an error."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    given_up: int = 0
    """Messages that a spout has given up, and untracked tuples that a bolt failed: nobody sends them again."""
    kept: int = 0
    """Of the messages given up, those that the spout keeps as dead letters."""
    lost: int = 0
    """Untracked tuples that reached nobody, of a bolt; of a spout, records that the source has no more.

    And trees that died with a worker, where it hears of no failures.
    """
    taken: int = 0
    """Of the lost, those that workers took along when they died: at most so many."""
    open: int = 0
    """Messages of a spout that are neither acked nor given up."""
    owed: int = 0
    """Of the open, trees of workers that died, which have not come again."""
    in_doubt: int = 0
    """Trees of workers that died; whether they have come again only the spout knows."""
    unreplayed: int = 0
    """Failed, and sent again by nobody: messages of a spout, untracked tuples of a bolt."""
    untracked: int = 0
    """Untracked tuples that wait for a bolt or are at work there, about; a kill loses them."""
    window: int = 0
    """Trees that a spout may have open at present, over all its tasks; 0 for bolts."""
    wait_ms: int = 0
    """How long a tuple that a spout emits now is estimated to wait in queues; 0 for bolts."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What its tasks that run now report, added up."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One look at a run.

    ``partitions`` are the spouts' own rows (topic, partition, position, committed, lag). ``pending`` are the open
    trees, and the failures that wait to be sent again.
    """

    state: str
    elapsed_s: float
    components: tuple[ComponentStatus, ...] = ()
    partitions: tuple[Mapping[str, Any], ...] = ()
    pending: int = 0
    paused: tuple[str, ...] = ()
    """What emits nothing because somebody asked for it: ``lines``, ``lines clicks``, ``lines clicks/3``."""
    workers: tuple[Mapping[str, Any], ...] = ()
    hanging: tuple[Mapping[str, Any], ...] = ()
    """Calls that take longer than ``streamlet.task.hang.secs``: worker, component, task, call, seconds, tuple.

    Of a run that has ended those that hung then.
    """


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: ``reason`` is ``caught_up``, ``time`` or ``interrupted``.

    A failed run raises instead; with ``check=False`` its ``reason`` is ``failed``. ``drained`` says that at the end no
    tree was open and none had failed without a replay: every emitted tuple is done.
    """

    reason: str
    status: RunStatus
    drained: bool
    unclosed: tuple[str, ...] = ()
    """Workers that did not close their components, and how they went.

    After an interrupt alone: otherwise the run failed.
    """
    left: Mapping[str, int] = field(default_factory=dict)
    """Untracked tuples that were left when the drain's time was over, by the bolt they were for."""
    drain_cut_s: float | None = None
    """The seconds that the drain had, if they were over before it was done; else None."""
    error: StreamletError | None = None
    """Why the run failed, of one that was started with ``check=False``."""

    @property
    def components(self) -> Mapping[str, ComponentStatus]:
        """The counters of each component, by its name."""
        return {row.name: row for row in self.status.components}

    @property
    def seconds(self) -> float:
        """How long the run took, from its first worker's start."""
        return self.status.elapsed_s

    def raise_for_error(self) -> None:
        """Raise ``error`` if there is one."""
        if self.error is not None:
            raise self.error


class Observer(Protocol):
    """A watcher of a run. Called on the thread of ``Backend.run``; must not block."""

    def on_status(self, status: RunStatus) -> None:
        """Show a status: about once a second, and once at the end."""

    def on_event(self, line: LogLine) -> None:
        """Show a line: a worker replaced, an error of a bolt, a log line."""


LOOKS = 3
"""Times that a run is looked at which goes on meanwhile, until a look succeeds."""


class Stop:
    """A request to end a run. Any thread or signal handler makes it.

    A backend looks at ``asked`` several times a second, and registers with ``on_kill`` what ends its processes at once,
    for the second Ctrl-C.
    """

    def __init__(self) -> None:
        # No lock: a signal handler may interrupt code that holds it on the same thread, and the program would hang.
        self.asked = False
        """Whether somebody asked; read by backends."""
        self.killed = False
        """Whether somebody wants it ended at once."""
        self.drain_s: float | None = None
        """Seconds that a drain may take which is asked for now; written by backends. None: nothing bounds it."""
        # Acts that kill at once, in the order in which they were registered.
        self._kills: list[Callable[[], None]] = []
        self.look: Callable[[], RunStatus | None] = lambda: None
        """Returns the numbers of the run as they are; written by backends. Any thread: it waits for nothing."""

    def ask(self) -> None:
        """Drain and stop."""
        self.asked = True

    def on_kill(self, act: Callable[[], None]) -> None:
        """Register an act of ``kill``.

        It may run in a signal handler or any thread. It kills by process id and waits for nothing.
        """
        self._kills.append(act)

    def last_look(self) -> RunStatus | None:
        """Return the numbers of a run that is about to be killed; None where nobody can tell."""
        # Rule: tell a kill with the numbers of its own moment. Those that were shown last may be older than a call that
        # hangs, and of one in its first tuples there are none: its untracked tuples would be lost without a word.
        for _ in range(LOOKS):
            with contextlib.suppress(Exception):  # what it looks at changes meanwhile
                return self.look()
        return None

    def kill(self) -> None:
        """End every process of the run without draining. The next run replays whatever was not committed."""
        self.asked = self.killed = True
        for act in self._kills:
            with contextlib.suppress(OSError):  # one that is gone already must not keep the others alive
                act()


class Backend(Protocol):
    """Runs a valid topology to its end. Raises StreamletError when the run fails."""

    name: str

    def run(self, request: RunRequest, observer: Observer, stop: Stop) -> RunResult:
        """Run to the end: return when every process of the run is gone."""
