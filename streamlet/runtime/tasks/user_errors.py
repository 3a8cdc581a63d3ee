"""Errors of users' components as paragraphs: who raised them, where, and what follows.

An error that ends the run becomes a ``ComponentFailed``. An error of a bolt does not: ``Complaints`` tells it once and
then counts it, since a bolt that fails every tuple must not flood a log.
"""

from __future__ import annotations

import inspect
import logging
import resource
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from streamlet.base.clock import Clock
from streamlet.base.errors import BadEmit, StreamletError, text_of
from streamlet.base.notices import Notices
from streamlet.base.printable import MOST_TEXT, cut, cut_lines
from streamlet.components.batch import Batch
from streamlet.components.batching import BatchFailed
from streamlet.components.bolt import Bolt
from streamlet.components.tuples import ACKED, FAILED, NAMES_OF_ROWS, NamedValues, Tuple
from streamlet.model.validate import nearest
from streamlet.tracking.window import PendingWindow

AGAIN_S = 10.0
"""Seconds before the same error of the same component is reported again, with the number in between."""

ENDS_RUN = "It has exit_on_exception = True, so that ends the run."

Defined = Callable[..., Any] | None
"""The user's function that was called, or the class whose constructor was called."""

_OURS = str(Path(__file__).parents[2])
_BELOW_OURS = f"{_OURS}/"
_CALLERS = tuple(f"{_OURS}/{part}" for part in ("runtime", "components", "bolts/concurrent.py"))
"""Our code that calls the user's or is called by it: no line of it is a place for the user to look at."""

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

logger = logging.getLogger("streamlet")


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def called_by_users(function: FunctionT) -> FunctionT:
    """Name a function in Python's own errors as its user calls it."""
    function.__qualname__ = function.__name__.removesuffix("_anywhere")
    return function


class ComponentFailed(StreamletError):
    """A component could not start or close, or a spout raised: the topology cannot go on."""


class EveryTupleFailed(ComponentFailed):
    """A bolt has failed each tuple since it started: waiting for the rest would show nothing new."""


class NeverSettled(StreamletError):
    """A bolt with ``auto_ack = False`` dropped a tuple that nobody tracks."""


# -- errors that end the run -----------------------------------------------------------------------------------------


def could_not_start(
    component: str, task_id: int, where: str, error: BaseException, defined: Defined = None
) -> StreamletError:
    """Explain what a constructor or ``initialize`` raised; return an error of ours unchanged.

    ``task_id``: 0 for a bolt of a job on DataFrames, which has no task number and no ``--debug``.
    """
    if isinstance(error, StreamletError):
        return error
    who = f"{component} (task {task_id})" if task_id else f"The bolt {component}"
    then = "A component that cannot start stops the topology. The traceback is shown with --debug."
    if not task_id:
        then = "A bolt that cannot start ends the job: each task that has rows for it would fail likewise. Fix it."
    return ComponentFailed(
        f"{who} raised {type(error).__name__} in {where}{_place(error, defined)}{_said(error)}. {then}"
    )


def spout_failed(
    component: str, task_id: int, where: str, error: BaseException, defined: Defined = None
) -> StreamletError:
    """Explain what a running spout raised; return an error of ours unchanged."""
    if isinstance(error, StreamletError):
        return error
    return ComponentFailed(
        f"The spout {component} (task {task_id}) raised {type(error).__name__} in {where}{_place(error, defined)}"
        f"{_said(error)}. A spout that raises cannot say which of its messages are safe, so the topology "
        "stops; nothing acked is lost. Handle the error in the spout, or see the traceback with --debug."
    )


def could_not_close(
    component: str, task_id: int, where: str, error: BaseException, defined: Defined = None
) -> ComponentFailed:
    """Name what ``cleanup``, ``deactivate`` or ``close`` raised, without a full stop: several may be told in a row."""
    at = place(error, defined)
    # What one of our own spouts tells (a commit that failed) says all: a line of ours is no place to look at.
    at = "" if not at or (isinstance(error, StreamletError) and _below(at, _OURS)) else f" at {at}"
    who = f"{component} (task {task_id})" if task_id else component
    told = ComponentFailed(f"{type(error).__name__} in {where} of {who}{at}{_said(error)}")
    told.__cause__ = error
    return told


def every_tuple_failed(
    component: str,
    task_id: int,
    count: int,
    error: BaseException | None,
    by_itself: int,
    defined: Defined = None,
    acked: int = 0,
) -> EveryTupleFailed:
    """Explain that a bolt's first ``count`` tuples all failed.

    ``error``: the last one it raised, if any. ``by_itself``: how many tuples it failed without raising; ``acked``: how
    many it had acked before it raised. ``task_id``: 0 for a bolt of a job on DataFrames, which has no spout.
    """
    if error is None:
        what = f"failed each of its first {count:,} tuples by itself: it called self.fail, and raised nothing"
    else:
        how = f"raised on, or failed by itself ({by_itself:,}), each" if by_itself else "raised on each"
        last = (
            f"the last time it raised {type(error).__name__}" if by_itself else f"the last time {type(error).__name__}"
        )
        what = f"{how} of its first {count:,} tuples, {last}{_place(error, defined)}{_said(error, None, defined)}"
    then = "None of them is acked: they are read again, but for those that a spout has given up by then or that are not"
    then = f"It had acked {acked:,} before it raised; those are not read again." if acked else f"{then} tracked."
    who, stops = f"{component} (task {task_id})", f"topology stops. {then}"
    if not task_id:
        who, stops = f"The bolt {component}", "job ends."
    told = EveryTupleFailed(
        f"{who} {what}. What fails every tuple is hardly the fault of the tuples, so the {stops} Fix it, or set "
        "streamlet.first.failures.max to 0 to go on all the same."
    )
    told.__cause__ = error
    return told


def bolt_ended_run(
    component: str, kind: type[Bolt], error: BaseException, defined: Defined = None, job: bool = False
) -> StreamletError:
    """Explain why an exception ends the run, or the ``job`` on DataFrames: its bolt has ``exit_on_exception``."""
    # An error of one of our own bolts is a whole paragraph, and its user has set no exit_on_exception. By the class: a
    # user's bolt may call our clients, whose errors know neither its name nor what ends the run.
    ours = isinstance(error, StreamletError) and _below(place(error, defined), _OURS) and _sets_it_itself(kind)
    if ours or isinstance(error, BatchFailed):
        assert isinstance(error, StreamletError)
        return error
    raised = f"{component} raised {type(error).__name__}{_place(error, defined)}{_said(error, None, defined)}"
    if job:
        return ComponentFailed(
            f"The bolt {raised}. It has exit_on_exception = True, so that ends the job. Without it the tuple fails, "
            "and on_failed says what comes of that."
        )
    return ComponentFailed(
        f"{raised}. It has exit_on_exception = True, so that ends the run; what is tracked and was not acked will be "
        "read again. Without it the tuple fails, its spout is informed, and the bolt goes on."
    )


def _sets_it_itself(kind: type[Bolt]) -> bool:
    """Tell whether a bolt of ours, and no user, has set ``exit_on_exception``."""
    files = [getattr(sys.modules.get(cls.__module__), "__file__", None) or "" for cls in kind.__mro__]
    return not kind.exit_on_exception and any(_below(file, _OURS) and not _below(file, *_CALLERS) for file in files)


def behind(told: StreamletError, error: BaseException) -> BaseException | None:
    """Return what ``told`` is raised from. It explains ``error``, or is it."""
    # Rule: an error that is raised as it was keeps its cause. ``from None``, or from itself, would take away what
    # --debug shows of it.
    return error if told is not error else error.__cause__ or error.__context__


def exited(error: BaseException, components: Mapping[int, str]) -> StreamletError:
    """Explain a ``sys.exit()`` or the like in a process that components share.

    ``components``: the names of all components that live there, by the id of the object.
    """
    names = [components.get(id(frame.f_locals.get("self"))) for frame, _ in traceback.walk_tb(error.__traceback__)]
    who = next(filter(None, reversed(names)), "A component")
    what = f"raised {type(error).__name__}{_place(error)}{_said(error)}"
    if isinstance(error, SystemExit):
        what = f"called sys.exit({cut(repr(error.code))}){_place(error)}"
    told = ComponentFailed(
        f"{who} {what}, in a process that is not its alone. That stops the topology; what is tracked and was not acked "
        "will be read again. Raise an exception to fail a tuple; a spout says by caught_up() that it has no more."
    )
    told.__cause__ = error
    return told


# -- errors that fail one tuple --------------------------------------------------------------------------------------


class Complaints:
    """Rate-limited reports of bolts' errors.

    ``tell`` gets (level, one paragraph, component, task id or 0), the first time of each kind of error of a component
    with the traceback of the user's code; whole tracebacks go to the log at DEBUG. ``first`` gets that paragraph: the
    end of a run may name it.
    """

    def __init__(self, tell: Callable[[str, str, str, int], None], clock: Clock, first: Callable[[str], None]) -> None:
        self._tell = tell
        self._first = first
        self._clock = clock
        self._notices: Notices[tuple[str, str]] = Notices(AGAIN_S)
        """By component and kind of error."""

    def report(self, component: str, task_id: int, error: BaseException, tup: Any, defined: Defined = None) -> None:
        """Tell or count an error that a call of ``defined`` raised."""
        # Of a batch that failed the user's error counts: its kind, and where in their code it was raised.
        raised = error.__cause__ if isinstance(error, BatchFailed) and error.__cause__ else error
        kind = type(raised).__name__
        is_first = (component, kind) not in self._notices
        unsaid = self._notices.due((component, kind), self._clock.monotonic())
        if unsaid is None:
            return
        text = _paragraph(component, task_id, error, tup, unsaid, defined)
        # With the traceback the first time, whatever the log's level: it is what a typing error is found by, and the
        # paragraph's one place may lie deep in somebody's library.
        self._tell("error", text + (_users_traceback(raised) if is_first else ""), component, task_id)
        if is_first:
            self._first(text)
        logger.debug("%s", "".join(traceback.format_exception(error)))

    def explain(self, why: str) -> None:
        """Keep why tuples failed, for the end of the run."""
        self._first(why)

    def flush(self) -> None:
        """Tell how many errors were only counted."""
        for (component, kind), unsaid in self._notices.take_left_out().items():
            self._tell("error", f"{component} raised {kind} {unsaid} more time(s).", component, 0)


def _said(error: BaseException, tup: Any = None, defined: Defined = None) -> str:
    """Return ``: TEXT`` for the middle of a sentence; nothing where an error has no text."""
    # One paragraph, whatever the error's own text is: its line ends would break it, and its full stop be a second one.
    text = cut(" ".join(text_of(error).split("\n"))).strip().rstrip(".!")
    return f": {text}{_about_fields(error, tup, defined)}" if text else ""


# Rule: no __getattr__ in NamedValues for this. With one, each field that a bolt reads by name takes twice as long.
def _about_fields(error: BaseException | None, tup: Any, defined: Defined = None) -> str:
    """Name the fields after an error about another one; empty otherwise.

    ``defined``: the bolt's method that was called.
    """
    if not isinstance(error, AttributeError) or error.obj is None:
        return ""
    if isinstance(error.obj, NamedValues):
        fields = error.obj._fields
        near = nearest(error.name, fields, "")
        have = f"the field{'s are' if len(fields) > 1 else ' is'} {', '.join(fields)}"
        return f" ({have}{near and f'; did{near[3:]}'})"
    bolt: Any = getattr(defined, "__self__", None)
    fields = _fields_of(bolt)
    by_name = type(error.obj) is list and error.name in {*fields, *NAMES_OF_ROWS}
    if not by_name and error.obj is not getattr(tup, "values", None):
        return ""
    if by_name and type(bolt).named_values is None:
        # Who asked for a field in another module has set nothing: the remedy is the line, not what it denies.
        return (
            f" (values are plain lists here, for the module of {type(bolt).__name__} reads no field by its name: set "
            "named_values = True in the class)"
        )
    if by_name:
        return f" ({type(bolt).__name__} has named_values = False: no value has a name)"
    have = f": there {'are' if len(fields) > 1 else 'is'} {', '.join(fields)}" if fields else ""
    return f" (no input of the bolt declares such a field{have})"


def _fields_of(bolt: Any) -> tuple[str, ...]:
    """Return the fields that a bolt's inputs declare; none of anything else."""
    sources = getattr(getattr(bolt, "context", None), "sources", {}) if isinstance(bolt, Bolt) else {}
    return tuple(dict.fromkeys(name for streams in sources.values() for own in streams.values() for name in own))


def _paragraph(component: str, task_id: int, error: BaseException, tup: Any, unsaid: int, defined: Defined) -> str:
    again = f" ({unsaid} more since the last report)" if unsaid else ""
    if isinstance(error, StreamletError):
        at = place(error)
        text = cut(text_of(error), 2 * MOST_TEXT) + (
            _about_fields(error.__cause__, None, defined) if isinstance(error, BatchFailed) else ""
        )
        return text + again if not at or _below(at, _OURS) else f"{text.rstrip('.')}. It was raised at {at}.{again}"
    where = place(error, defined)
    at = f" at {where}" if where else ""
    what = f" on a tuple from {tup.component}" if tup is not None else _call_text(defined)
    if isinstance(tup, Batch):
        what = f" on a batch of {len(tup):,} tuple{'' if len(tup) == 1 else 's'} from {tup.component}"
    return (
        f"{component} (task {task_id}) raised {type(error).__name__}{at}{what}{_said(error, tup, defined)}{again}. "
        f"{_about_memory(error)}{ENDS_RUN if _ends_run(defined) else _consequence(tup)}"
    )


def _call_text(defined: Defined) -> str:
    """Return `` in on_timer`` for an error without a tuple; empty if the call is not known."""
    name = getattr(defined, "__name__", "")
    if defined is None:
        return ""
    return f" in {name}" if name.isidentifier() else " in a call of its own"


def memory_limit() -> str:
    """Return the limit of this process's memory, in parentheses after a space; empty without one."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f" (its limit is {limit >> 20} MiB of addresses, RLIMIT_AS)"


def _about_memory(error: BaseException) -> str:
    return f"The process is out of memory{memory_limit()}. " if isinstance(error, MemoryError) else ""


def _ends_run(defined: Defined) -> bool:
    """Tell whether an error of this method ends the run."""
    bolt = getattr(defined, "__self__", None)
    return isinstance(bolt, Bolt) and bool(bolt.exit_on_exception)


def _consequence(tup: Any) -> str:
    """Say what the error means for the tuple; None: it came from a call without one."""
    if tup is None:
        return "No tuple has failed by it; the bolt goes on."
    if isinstance(tup, Batch):
        return _consequence_for(tup)
    on = "the bolt goes on with the next tuple."
    if tup.state == ACKED:
        return f"The tuple had been acked before, so nothing has failed by it; {on}"
    if not tup.root:
        return f"The tuple is not tracked, so no spout hears of it and nobody sends it again; {on}"
    if tup.state == FAILED:
        return f"The tuple's tree has failed and its spout was informed; {on}"
    return (
        "The bolt has auto_fail = False, so the tuple is neither acked nor failed: its tree fails when "
        f"topology.message.timeout.secs are over, unless the bolt acks or fails it; {on}"
    )


def _consequence_for(batch: Batch) -> str:
    on = "the bolt goes on with the next batch."
    if batch.state == ACKED:
        return f"The batch had been acked before, so nothing has failed by it; {on}"
    untracked = batch.roots.count(0)
    if untracked == len(batch):
        return f"Its tuples are not tracked, so no spout hears of them and nobody sends them again; {on}"
    if batch.state == FAILED:
        split = "" if len(batch) == 1 else ' With on_batch_error = "split" only the tuples at fault would fail.'
        return f"The trees of its tuples have failed and their spouts were informed; {on}{split}"
    return (
        "The bolt has auto_fail = False, so its tuples are neither acked nor failed: their trees fail when "
        f"topology.message.timeout.secs are over, unless the bolt acks or fails them; {on}"
    )


# -- tuples that take too long ---------------------------------------------------------------------------------------


class Holder(NamedTuple):
    """The bolt that has tuples which timed out."""

    bolt: str
    task: int
    has_calls: bool
    """It is a ThreadedBolt or an AsyncBolt: as long as it has a tuple, a call of ``process`` is under way."""


def forgotten_by(holder: Holder, timeout_s: float) -> str:
    """Name the bolt that had tuples which timed out."""
    limit = f"longer than topology.message.timeout.secs ({timeout_s:g} s)"
    if holder.has_calls:
        return f"The bolt {holder.bolt} (task {holder.task}) had been in process for {limit} on its tuples."
    return (
        f"The bolt {holder.bolt} (task {holder.task}) was given tuples {limit} ago, and has neither acked nor failed "
        "them."
    )


def timed_out(spout: str, count: int, timeout_s: float, holder: Holder | None) -> str:
    """Explain time-outs; ``holder`` is None if nobody has the tuples."""
    what = f"{count:,} tuple tree{'' if count == 1 else 's'} of the spout {spout} timed out"
    limit = f"topology.message.timeout.secs ({timeout_s:g} s)"
    if holder is None:
        return (
            f"{what}: older than {limit}, and no worker has a tuple of theirs, in a queue or in a bolt. The spout was "
            "informed. Where no component catches and drops what streamlet raises, this is a bug of streamlet: please "
            "report it."
        )
    bolt = f"the bolt {holder.bolt} (task {holder.task})"
    if holder.has_calls:
        return (
            f"{what}: {bolt} has been in process for longer than {limit} on tuples of theirs. The spout was informed. "
            "Give what process waits for a time-out of its own; one that works for so long needs a longer "
            "topology.message.timeout.secs."
        )
    return (
        f"{what}: {bolt} was given tuples of theirs longer than {limit} ago, and has neither acked nor failed them. "
        "The spout was informed. A bolt with auto_ack = False calls self.ack(tup) or self.fail(tup) once for each "
        "tuple, in the end. One whose threads are behind needs a smaller max_unacked; one that holds tuples for longer "
        "on purpose needs a longer time-out."
    )


def never_settled(bolt: str, task_id: int, tup: Tuple) -> NeverSettled:
    """Explain that a bolt dropped an untracked tuple without ack or fail."""
    return NeverSettled(
        f"{bolt} (task {task_id}) kept a tuple from {tup.component} beyond its call, and dropped it without self.ack "
        "or self.fail. It is not tracked, so it has failed, and nobody sends it again; the bolt goes on. Where threads "
        "of the bolt's own work on it, an error there ends their call without a word: catch it and call self.fail("
        "tup, error), or derive the bolt from ThreadedBolt, which does so."
    )


def held_lock(component: str, task_id: int, call: str, took_s: float, on: str, held_s: float) -> str:
    """Return the warning of a call that held the interpreter's lock."""
    return (
        f"{component} (task {task_id}) was in {call} for {took_s:.0f} s{on}, and for {held_s:.0f} s of that no other "
        "thread of its process could run, nor look where it stood: a call into C (a library, a large regular "
        "expression) kept the interpreter's lock. Make such calls in a process of their own."
    )


def someone_held_lock(held_s: float, under_way: Sequence[str]) -> str:
    """Return the warning of a lock whose holder is not known."""
    calls = ", ".join(under_way) or "no call of a component"
    return (
        f"For {held_s:.0f} s no thread of this process could run, nor look which one kept the others from it: a call "
        "into C (a library, a large regular expression) kept the interpreter's lock. Under way, and not waiting for "
        f"the lock: {calls}. It was one of these, or a thread that a component or a library has begun. Make such calls "
        "in a process of their own."
    )


def waits_long(spout: str, bolt: str, wait_s: float, window: PendingWindow) -> str:
    """Explain that a bolt's tuples wait long, so fewer trees are open."""
    # One tree alone may have work for longer than tuples should wait: no smaller window would help.
    most = f"Until they are fewer it may have {window.size:,} trees open, and no more."
    if window.size == 1:
        most = "It has one tree open at a time now, which is the least."
    return (
        f"The tuples that wait for {bolt} take about {wait_s:,.1f} s to work off, and {window.target_s:g} s is the "
        f"longest that tuples of the spout {spout} should wait. {most} Nothing has failed. If {bolt} waits for answers "
        "(a service, a database), derive it from ThreadedBolt or AsyncBolt, to ask for many at once: `streamlet docs "
        "slow-bolts` shows both. If it does so, it needs more threads. If it computes, it needs more tasks (par) on "
        "more workers."
    )


# -- parts of the paragraphs -----------------------------------------------------------------------------------------


def place(error: BaseException, defined: Defined = None) -> str:
    """Return ``FILE:LINE`` where the user has to look; empty if nothing is known."""
    if isinstance(error, BadEmit) and error.called_at:
        return error.called_at
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last, others = frames[-1], [frame for frame in frames if not _below(frame.filename, _OURS)]
    by_us = _below(last.filename, *_CALLERS)
    if by_us or _is_library(last.filename):
        # Rule: our code raised it, or a library: the user's line that called it counts, where there is one.
        users = [frame for frame in others if not _is_library(frame.filename)] or (others if by_us else [last])
        # Without any the call of the user's code itself failed (too many arguments, for example), and the place is the
        # definition of the function that was called.
        if by_us and not users:
            return definition(defined) or f"{last.filename}:{last.lineno}"
        last = users[-1]
    return f"{last.filename}:{last.lineno}"


def users_line() -> tuple[str, int]:
    """Return file and number of the nearest line that is not ours. Any thread."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BELOW_OURS):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_library(path: str) -> bool:
    """Tell whether a file is Python's or an installed package's."""
    return path.startswith("<") or (_below(path, *_LIBRARIES) and not _below(path, _OURS))


def of_users(frames: Sequence[traceback.FrameSummary]) -> Sequence[traceback.FrameSummary]:
    """Return a stack's frames of the user's innermost code; all if there is none."""
    callers = [at for at, frame in enumerate(frames) if _below(frame.filename, *_CALLERS)]
    if not callers:
        return frames
    end = callers[0] + _users_end(frames[callers[0] :])  # a program that calls `run` stands above them
    return frames[max(at for at in callers if at < end) + 1 : end] or frames


def _users_end(frames: Sequence[traceback.FrameSummary]) -> int:
    """Return where the user's last code ends, with libraries that it called."""
    # Rule: what a user is shown ends at their own line, or in a library that it calls. Below a call of ours (an emit,
    # a print that goes into a log) stand lines that nobody but us can change.
    users = [
        at for at, frame in enumerate(frames) if not _is_library(frame.filename) and not _below(frame.filename, _OURS)
    ]
    if not users:
        return len(frames)
    below = (at for at in range(users[-1] + 1, len(frames)) if _below(frames[at].filename, _OURS))
    return next(below, len(frames))


def _users_traceback(error: BaseException) -> str:
    """Return the user's part of a traceback, indented; it may be empty."""
    if isinstance(error, StreamletError):
        return ""
    at = error.__traceback__
    while at is not None and _below(at.tb_frame.f_code.co_filename, _OURS):
        at = at.tb_next
    if at is None:
        return ""
    told = traceback.TracebackException(type(error), error, at)
    _cut_after_users(told)
    return "\n" + textwrap.indent(cut_lines("".join(told.format()).rstrip()), "    ")


def _cut_after_users(told: traceback.TracebackException | None) -> None:
    """Leave out frames below the user's, also of causes."""
    while told is not None:
        del told.stack[_users_end(told.stack) :]
        told = told.__cause__ or told.__context__


def definition(defined: Defined) -> str:
    """Return ``FILE:LINE`` of a function or class; empty if it has none.

    For a class: of its own constructor if it has one.
    """
    called: Any = inspect.unwrap(defined) if defined is not None else None
    if isinstance(called, type):
        own = inspect.unwrap(next(vars(cls)["__init__"] for cls in called.__mro__ if "__init__" in vars(cls)))
        called = own if hasattr(own, "__code__") else called
    if hasattr(called, "__code__"):
        return f"{called.__code__.co_filename}:{called.__code__.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(called)}:{inspect.getsourcelines(called)[1]}"
    except (TypeError, OSError):
        return ""


def _below(filename: str, *folders: str) -> bool:
    return any(Path(filename).is_relative_to(folder) for folder in folders)


def _place(error: BaseException, defined: Defined = None) -> str:
    found = place(error, defined)
    return f" ({found})" if found else ""
