"""Everything that can be wrong with a topology, said before anything runs."""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streamlet.base.errors import BadInput, SettingError
from streamlet.model.bolt_numbers import not_numbers
from streamlet.model.delivery import delivery_problems
from streamlet.model.grouping import KINDS, Grouping
from streamlet.model.misspelt_names import CALLED, misspelt
from streamlet.model.own_attributes import users_classes
from streamlet.model.plan import TICK_PERIOD, TIME_OUT
from streamlet.model.settings import SETTINGS, STORMS_SETTINGS, parse_setting
from streamlet.model.spec import BOLT, SPOUT
from streamlet.model.stream import DEFAULT_STREAM, Stream
from streamlet.model.time_outs import first_time_out, spouts_behind
from streamlet.model.topology import BoltInput, ComponentDef, TopologySpec, declared_streams
from streamlet.model.uncalled_names import uncalled


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a topology cannot run. ``component`` is None where the topology as a whole is meant."""

    component: str | None
    message: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.component}: " if self.component else ""
        return f"{where}{self.message} {self.remedy}"


MOST_NESTED = 64
"""Deepest nesting of a setting of the user's own."""

Finding = tuple[str, str]
"""Message and remedy of a component's problem; ``validate`` adds the component's name."""


class InvalidTopology(BadInput):
    """A topology with problems; ``problems`` has them all, the message too."""

    def __init__(self, topology: str, problems: tuple[Problem, ...], cannot: str = "cannot run") -> None:
        self.problems = problems
        if len(problems) == 1:
            message = f"{topology} {cannot}. {problems[0]}"
        else:
            # Numbered lines: the command line wraps each as a paragraph of its own.
            listed = "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, 1))
            message = f"{topology} {cannot}: {len(problems)} problems.\n{listed}"
        super().__init__(message)


def nearest(wrong: Any, right: Iterable[str], otherwise: str) -> str:
    """Ask for the nearest right name, or return ``otherwise``."""
    # A low cutoff: a wrong guess costs the reader less than a list of all names.
    near = difflib.get_close_matches(str(wrong), list(right), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence."""
    return ", ".join(sorted(names)) or "none"


def checked(
    topology: TopologySpec,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    imported: bool = True,
    settings: Mapping[str, Any] = {},
    writes: bool = True,
) -> TopologySpec:
    """Return the topology itself if it is valid. Raises InvalidTopology with every problem."""
    problems = validate(topology, overrides, imported, settings, writes)
    if problems:
        raise InvalidTopology(topology.name, tuple(problems))
    return topology


def validate(
    topology: TopologySpec,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    imported: bool = True,
    settings: Mapping[str, Any] = {},
    writes: bool = True,
) -> list[Problem]:
    """Return all problems: the topology's, then each component's.

    Components come in declaration order. ``overrides`` are the ``-c COMPONENT.NAME=VALUE`` of a run, by component.
    ``imported``: whether other processes are to import the components' classes. ``settings`` are those of a run.
    ``writes`` False: its bolts write nothing, so ``topology.delivery`` and how long they keep tuples do not count.
    """
    conf = {key: setting.default for key, setting in SETTINGS.items()} | {**topology.config, **settings}
    findings = [*config_problems(topology.config), *travel_problems(topology.config)]
    problems = [*_whole(topology), *(Problem(None, *finding) for finding in findings)]
    for component in topology.components:
        # All of them at once, in the order of the declaration: who fixes a topology wants one list and not one error a
        # start.
        findings = [
            *_component(component, imported),
            *_ticks(topology, component, conf),
            *input_problems(topology, component),
            *wiring_problems(topology, component, (overrides or {}).get(component.name, {})),
            *(_kept_problems(topology, component, conf, (overrides or {}).get(component.name, {})) if writes else ()),
            *config_problems(component.config),
            *misplaced_settings(component),
            *override_problems(component, (overrides or {}).get(component.name, {})),
        ]
        problems += [Problem(component.name, *finding) for finding in findings]
    problems += [*unknown_components(topology, overrides or {}), *_unreachable(topology)]
    if not problems and writes:
        problems = [Problem(*row) for row in delivery_problems(topology, conf, overrides or {})]
    return problems


def _whole(topology: TopologySpec) -> Iterator[Problem]:
    for name, cls in topology.forgotten:
        yield Problem(
            name,
            f"{name} is the class {cls}, or made of it, and no line of the topology: it would be left out.",
            f"Write {name} = {cls}.spec(...).",
        )
    if not topology.components and not topology.forgotten:
        yield Problem(
            None,
            f"The topology {topology.name} has no components.",
            "Name a spout and the bolts that read it in its body: `lines = Lines.spec()`. A class without `.spec()` "
            "is not a component.",
        )
    elif not topology.forgotten and not any(component.kind == SPOUT for component in topology.components):
        yield Problem(
            None,
            f"The topology {topology.name} has no spout, so no tuple would ever flow.",
            "Add one, for example a class that inherits from streamlet.ReliableSpout.",
        )
    for name, count in Counter(component.name for component in topology.components).items():
        if count > 1:
            yield Problem(name, f"{count} components have this name.", "Give each its own, with name= or another line.")


def warnings_of(topology: TopologySpec, *, exactly_once: bool = False) -> list[str]:
    """Return a warning for each thing that was hardly meant."""
    classes = dict.fromkeys(component.cls for component in topology.components)
    names = (line for cls in classes for line in misspelt(cls))
    return [*unread_streams(topology), *names, *batches_that_fail_whole(topology, exactly_once)]


def batches_that_fail_whole(topology: TopologySpec, exactly_once: bool) -> list[str]:
    """Warn of bolts whose batches fail whole behind spouts that give up."""
    # Rule: said where a policy gives up what was never tried alone. A batch with one bad tuple fails its good ones,
    # too: good records became dead letters, and the run ended with 0.
    found = []
    for bolt in topology.components:
        cls = bolt.cls
        if bolt.kind != BOLT or not cls.takes_batches() or cls.process_batch.__module__.startswith("streamlet."):
            continue
        if not cls.auto_fail or cls.on_batch_error != "fail":
            continue
        policies = {
            spout.name: spout.cls.gives_up_by(spout.kwargs, exactly_once)
            for spout in spouts_behind(topology, bolt.name)
        }
        by = " and ".join(f"{name} by {policy}" for name, policy in policies.items() if policy)
        if by:
            found.append(
                f"The bolt {bolt.name} fails a whole batch for one tuple that raises, and what fails too often is "
                f'given up ({by}): good records with it. Set on_batch_error = "split" in {cls.__name__}: then the '
                "tuple at fault alone fails."
            )
    return found


def endless_spouts(topology: TopologySpec) -> list[str]:
    """Return a warning for each spout that has no ``caught_up``."""
    # Rule: who waits for a run to catch up hears at its start that it never will. It emitted, all was done, and nothing
    # happened any more.
    found = []
    for component in topology.components:
        owner = next((base for base in component.cls.__mro__ if "caught_up" in vars(base)), component.cls)
        if component.kind == SPOUT and owner.__module__.startswith("streamlet.components."):
            found.append(
                f"The spout {component.name} defines no caught_up: it never says that it has sent everything, so the "
                "run does not end by itself. Give it a caught_up(self), or a time to the run."
            )
    return found


def unread_streams(topology: TopologySpec) -> list[str]:
    """Return a warning for each spout or stream that no bolt reads.

    A stream counts beside one of its component that is read.
    """
    read = {(sub.source.component, sub.source.stream) for component in topology.components for sub in component.inputs}
    warnings = []
    for component in topology.components:
        names = [stream.name for stream in component.streams()]
        unread = [name for name in names if (component.name, name) not in read]
        if len(unread) < len(names):
            whats = [f"the stream {name} of {component.name}: what it emits there" for name in unread]
        else:  # the last bolt of a line may emit for nobody; a spout that does was hardly meant to
            whats = [f"the spout {component.name}: what it emits"] if component.kind == SPOUT else []
        warnings += [f"No bolt reads {what} counts as done at once." for what in whats]
    return warnings


def _unreachable(topology: TopologySpec) -> Iterator[Problem]:
    names = {component.name for component in topology.components}
    reached = {component.name for component in topology.components if component.kind == SPOUT}
    if not reached:
        return
    # A source that is not there, or a bolt without inputs, is a problem of its own; what follows from it is none.
    reached |= {sub.source.component for c in topology.components for sub in c.inputs} - names
    reached |= {component.name for component in topology.components if not component.inputs}
    grown = True
    while grown:
        more = {c.name for c in topology.components if any(sub.source.component in reached for sub in c.inputs)}
        grown = not more <= reached
        reached |= more
    for component in topology.components:
        if component.inputs and component.name not in reached:
            sources = ", ".join(dict.fromkeys(sub.source.component for sub in component.inputs))
            yield Problem(
                component.name,
                f"No spout leads here: it reads only {sources}, and nothing reaches that either.",
                "Let one bolt of the circle read a spout.",
            )


def _component(component: ComponentDef, imported: bool) -> Iterator[Finding]:
    yield from _name(component)
    if isinstance(component.par, Mapping):
        yield (
            f"par is {dict(component.par)!r:.80}: there are no environments to choose by.",
            'It is the number of tasks; choose it in Python, as in par=int(os.environ.get("COUNT_TASKS", "2")).',
        )
    elif isinstance(component.par, bool) or not isinstance(component.par, int) or component.par < 1:
        yield f"par is {component.par!r}.", "It is the number of tasks: a whole number of at least 1."
    if component.kind == BOLT and not component.inputs:
        yield "It is a bolt without inputs.", "Say what it reads: inputs=[a_spout]."
    if component.kind == SPOUT and getattr(component.cls, "exit_on_exception", True) is not True:
        yield (
            "exit_on_exception is off, but a spout that raises cannot say which of its messages are safe: it ends the "
            "run.",
            "Handle the error in next_tuple, and take the line away.",
        )
    if imported:
        yield from _place(component)
    yield from _class(component)
    yield from _outputs(component)


def _name(component: ComponentDef) -> Iterator[Finding]:
    name: Any = component.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"The name {name!r} cannot be used.", "Use a letter, then letters, digits, underscores or hyphens."
    elif name.startswith("__"):
        yield "Names that begin with two underscores are streamlet's own.", "Give it another name."


# A call of a coroutine or generator runs none of it: the tuple would be acked and nothing done.
NEVER_RUN: dict[str, Callable[[Any], bool]] = {
    "async": inspect.iscoroutinefunction,
    "a generator (it yields)": inspect.isgeneratorfunction,
    "an async generator": inspect.isasyncgenfunction,
}


# Asked only where other processes import the class: the inline backend runs whatever class it is given.
def _place(component: ComponentDef) -> Iterator[Finding]:
    cls = component.cls
    if cls.__module__ == "__main__":
        yield (
            f"The class {cls.__qualname__} stands in __main__, where no worker could import it.",
            "Put it into a file of its own and run that: `streamlet run FILE`.",
        )
    elif "<" in cls.__qualname__:
        yield (
            f"The class {cls.__module__}.{cls.__qualname__} is made inside a function, where no worker could import "
            "it.",
            "Move it to the top level of its module.",
        )


def _class(component: ComponentDef) -> Iterator[Finding]:
    """Yield the reasons why a class cannot run."""
    cls = component.cls
    shown = f"{cls.__module__}.{cls.__qualname__}"
    duty = getattr(cls, "must_define", None)
    by_batch = getattr(cls, "takes_batches", None)
    # Of ours that says so; a BatchingBolt, with a process_batch of its own kind, has another duty.
    says_so = sum("takes_batches" in vars(base) for base in cls.__mro__) > 1
    one_by_one = duty == "process" and by_batch is not None and says_so and not by_batch()
    if duty is not None and not (by_batch is not None and by_batch()):
        owner = next((base for base in cls.__mro__ if duty in vars(base)), None)
        if owner is None or "must_define" in vars(owner):
            what = "handles a tuple" if component.kind == BOLT else "emits tuples"
            signature = f"{duty}(self, tup)" if component.kind == BOLT else f"{duty}(self)"
            or_batch = ", or process_batch(self, batch)" if duty == "process" and not one_by_one else ""
            yield (
                f"The class {shown} does not define {duty}.",
                f"Give it a method {signature} that {what}{or_batch}.",
            )
    if one_by_one and _by_user(cls, "process_batch"):
        yield (
            f"{shown} defines process_batch, which nothing calls: a ThreadedBolt or AsyncBolt gets single tuples.",
            "Define process, or derive it from Bolt.",
        )
    if by_batch is not None and by_batch():
        yield from _batches(cls, shown)
    yield from _replays(cls, shown)
    yield from _timer(cls, shown)
    if component.kind == BOLT:
        yield from _bounds(cls, shown)
    yield from _signatures(component)
    yield from uncalled(cls, component.kind)
    # A call of a coroutine or generator function runs none of it: its tuple would be acked unprocessed, and an async
    # caught_up, whose coroutine object is true, would end a run before its first tuple.
    for name, base in _hooks(cls).items():
        kind, meant = _never_run(getattr(cls, name, None)), _never_run(getattr(base, name, None))
        if kind is not None and kind != meant:
            yield (
                f"The method {name} of {shown} is {kind}: calling it runs nothing, and its work would count as done.",
                _remedy(cls, name, kind, meant),
            )


def _remedy(cls: Any, name: str, kind: str, meant: str | None) -> str:
    """Say what to write instead of a method whose call runs nothing."""
    if meant == "async":
        return "Leave out its yield: it is awaited."
    if kind == "async" and name == "process":
        return "Derive the bolt from AsyncBolt, which awaits it."
    if kind == "async" and hasattr(cls, f"async_{name}"):
        return f"Call it async_{name}, which is awaited on the bolt's own loop."
    return "Make it a plain method; run coroutines with asyncio.run inside it."


def _by_user(cls: Any, name: str) -> bool:
    """Tell whether a class of the user's defines a method."""
    return any(name in vars(base) for base in users_classes(cls))


def _signatures(component: ComponentDef) -> Iterator[Finding]:
    """Yield the methods that cannot take what they are called with."""
    cls, ours = component.cls, _hooks(component.cls)
    for name, base in ours.items():
        own = inspect.getattr_static(cls, name, None)
        model = vars(base)[name]
        # Functions alone: of a builtin or another callable the signature may be missing, or be that of its wrapper.
        if not (inspect.isfunction(own) and inspect.isfunction(model)) or own is model or hasattr(own, "__wrapped__"):
            continue
        takes = [one for one in inspect.signature(model).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        needed = [one.name for one in takes if one.default is one.empty]
        if component.kind != SPOUT and name in ("ack", "fail"):  # a bolt's own calls, not the runtime's
            continue
        if name in CALLED_BY_POSITION and not _binds(own, len(needed)):
            yield (
                f"The method {name} of {cls.__module__}.{cls.__qualname__} cannot be called with the arguments it "
                f"gets: it is {name}{inspect.signature(own)}.",
                f"Write {name}({', '.join(needed)}).",
            )
    made = inspect.getattr_static(cls, "__init__", None)
    if inspect.isfunction(made) and not hasattr(made, "__wrapped__") and not _binds(made, 1, component.kwargs):
        yield (
            f"The constructor of {cls.__module__}.{cls.__qualname__} cannot be called with "
            f"{listed(component.kwargs)}, the arguments of its spec: it is __init__{inspect.signature(made)}.",
            "Take it away, and prepare in initialize(self, conf, context); settings stand in conf.",
        )


CALLED_BY_POSITION = (*CALLED, "ack", "fail")
"""Methods that the runtime calls with nothing but positions."""


def _binds(method: Any, positions: int, named: Mapping[str, Any] = {}) -> bool:
    """Tell whether a function takes so many arguments by position, itself included."""
    try:
        inspect.signature(method).bind(*range(positions), **named)
    except NameError:  # an annotation that only a type checker can see
        return True
    except TypeError:
        return False
    return True


def _hooks(cls: Any) -> dict[str, type]:
    """Return the names a class may override, with their owners."""
    # Only methods that a class of ours has are hooks; a user's own method may have any name and kind.
    ours = [base for base in cls.__mro__ if base.__module__.startswith("streamlet.")]
    return {name: base for base in reversed(ours) for name in vars(base) if not name.startswith("_")}


def _never_run(method: Any) -> str | None:
    """Return the kind of a method whose call runs nothing; None: a plain one."""
    return next((kind for kind, test in NEVER_RUN.items() if test(method)), None)


def _batches(cls: Any, shown: str) -> Iterator[Finding]:
    """Yield the wrong choices of a bolt that takes batches."""
    places = {name: at for at, base in reversed([*enumerate(cls.__mro__)]) for name in vars(base)}
    if places["process"] <= places["process_batch"]:
        yield (
            f"{shown} defines process beside process_batch, which is called in its place: process would never run.",
            "Leave out one of the two.",
        )
    size, on_error = cls.batch_size, cls.on_batch_error
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        yield (f"{shown} has batch_size = {size!r}.", "It is the most tuples of a batch: a whole number, 1 or more.")
    if on_error not in ("fail", "split"):
        yield (
            f"{shown} has on_batch_error = {on_error!r}.",
            'Set it to "fail" (all tuples of the batch) or "split" (only those that raise when they come alone).',
        )


def _bounds(cls: Any, shown: str) -> Iterator[Finding]:
    """Yield wrong numbers of tuples that a bolt may have."""
    for name, value, what in not_numbers(cls):
        yield f"{shown} has {name} = {value!r}.", what


def _timer(cls: Any, shown: str) -> Iterator[Finding]:
    """Yield a period of ``on_timer`` that is none."""
    period = inspect.getattr_static(cls, "timer_interval_s", None)
    number = isinstance(period, (int, float)) and not isinstance(period, bool) and 0 < period < math.inf
    if period is not None and not number and not hasattr(period, "__get__"):  # a property has its value in the task
        yield (
            f"{shown} has timer_interval_s = {period!r}.",
            "It is the seconds between calls of on_timer, more than 0; None is for no calls.",
        )


def _replays(cls: Any, shown: str) -> Iterator[Finding]:
    """Yield the wrong choices of a spout that replays."""
    # Only of a class of ours, for a user's own attribute may have any name; and only what stands there, for a property
    # has its value when the task runs.
    if not any("replay_backoff" in vars(base) for base in cls.__mro__ if base.__module__.startswith("streamlet.")):
        return
    fails, backoff = (inspect.getattr_static(cls, name) for name in ("max_fails", "replay_backoff"))
    number = isinstance(fails, int) and not isinstance(fails, bool) and fails >= 0
    if fails is not None and not number and not hasattr(fails, "__get__"):
        yield (
            f"{shown} has max_fails = {fails!r}.",
            "It is how often a tuple that failed is emitted again: a whole number, 0 or more, or None for no limit.",
        )
    if not hasattr(backoff, "__get__") and not callable(getattr(backoff, "delay", None)):
        yield (
            f"{shown} has replay_backoff = {backoff!r}.",
            "It says how long a replay waits: replay_backoff = streamlet.Backoff(initial=0.5, maximum=10.0), in "
            "seconds.",
        )


def _outputs(component: ComponentDef) -> Iterator[Finding]:
    problem = outputs_problem(component.outputs)
    if problem is not None:
        yield (
            problem,
            'Declare field names, outputs = ["word"], or streams, outputs = [Stream(["word"]), Stream(["why"], '
            'name="errors")].',
        )


def _ticks(topology: TopologySpec, component: ComponentDef, conf: Mapping[str, Any]) -> Iterator[Finding]:
    if not getattr(component.cls, "needs_ticks", False):
        return
    period = {**conf, **component.config}.get(TICK_PERIOD)
    if period is None:
        yield (
            "It processes its batches at ticks, and gets none.",
            f'Give it a period in seconds: config={{"{TICK_PERIOD}": 1}}, or derive it from TicklessBatchingBolt.',
        )
    else:
        yield from _late_batches(topology, component, conf, period)


def _late_batches(topology: TopologySpec, component: ComponentDef, conf: Any, period: Any) -> Iterator[Finding]:
    # Rule: refused before the run. Each tuple that waits for its batch would be sent again, and nobody can take the
    # first copy out of the batch.
    try:
        between_s = float(period) * getattr(component.cls, "ticks_between_batches", 1)
        first = first_time_out(topology, component.name, conf)
    except (TypeError, ValueError):
        return  # told where settings are read
    if first is not None and between_s >= first.seconds:
        where = "secs_between_batches" if hasattr(component.cls, "secs_between_batches") else TICK_PERIOD
        yield (
            f"It processes its batches every {between_s:g} s, and a tuple of {first.spout} times out after "
            f"{first.seconds:g} s ({TIME_OUT}): what waits for its batch is sent again meanwhile, and would be in the "
            "batch twice.",
            f"Let batches come well within the time-out: a shorter period ({where} of the bolt), or a longer time-out.",
        )


def _kept_problems(
    topology: TopologySpec, component: ComponentDef, conf: Mapping[str, Any], overrides: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield why a component may keep its tuples for too long."""
    find = getattr(component.cls, "time_out_problems", None)
    if find is None:
        return
    try:
        first = first_time_out(topology, component.name, conf)
    except (TypeError, ValueError):
        return  # told where settings are read
    if first is not None:
        yield from find(_kwargs_of(component, overrides), first.spout, first.seconds)


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def outputs_problem(outputs: Any) -> str | None:
    """Return why ``outputs`` declares no streams; None if it does, or means to declare none."""
    if outputs is None or outputs == [] or outputs == ():
        return None
    if isinstance(outputs, (str, Stream)):
        outputs = [outputs]
    if not isinstance(outputs, (list, tuple)):
        return f"outputs is {outputs!r:.80}, which is neither a list of field names nor of streams."
    if not any(isinstance(item, Stream) for item in outputs):
        return _fields_problem(outputs, "outputs")
    if not all(isinstance(item, Stream) for item in outputs):
        return "outputs mixes streams and field names."
    for stream in outputs:
        if not isinstance(stream.name, str) or not NAME.fullmatch(stream.name):
            return f"A stream cannot be called {stream.name!r}."
        if stream.name.startswith("__"):
            return f"The stream name {stream.name!r} begins with two underscores: such names are streamlet's own."
        problem = _fields_problem(stream.fields, f"the stream {stream.name!r}")
        if problem is not None:
            return problem
    twice = [name for name, count in Counter(stream.name for stream in outputs).items() if count > 1]
    return f"outputs declares the stream {twice[0]!r} twice." if twice else None


def _fields_problem(fields: Iterable[Any], where: str) -> str | None:
    names = list(fields)
    for name in names:
        if not isinstance(name, str) or not name:
            return f"{where} holds {name!r:.80}, which is not a field name."
    twice = [name for name, count in Counter(names).items() if count > 1]
    return f"{where} names the field {twice[0]!r} twice." if twice else None


def input_problems(topology: TopologySpec, component: ComponentDef) -> Iterator[Finding]:
    """Yield everything wrong with the inputs of one component."""
    for subscription in component.inputs:
        yield from _subscription(topology, component, subscription)
    seen = Counter((sub.source, str(sub.grouping)) for sub in component.inputs)
    for (source, _), count in seen.items():
        if count > 1:
            yield (
                f"inputs names {source} {count} times with one grouping, so each tuple would come {count} times.",
                "Name it once.",
            )


def wiring_problems(topology: TopologySpec, component: ComponentDef, overrides: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the problems that a component's class finds with its arguments."""
    find = getattr(component.cls, "wiring_problems", None)
    if find is None:
        return
    outputs = {c.name: declared_streams(c.outputs) for c in topology.components if outputs_problem(c.outputs) is None}
    sources = {
        str(sub.source): stream.fields
        for sub in component.inputs
        for stream in outputs.get(sub.source.component, ())
        if stream.name == sub.source.stream
    }
    yield from find(_kwargs_of(component, overrides), sources.items())


def _kwargs_of(component: ComponentDef, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a component's arguments, with what a run changes in them."""
    if overrides and not any(override_problems(component, overrides)):
        changed: Mapping[str, Any] = component.cls.with_overrides(component.kwargs, overrides)
        return changed
    return component.kwargs


def _subscription(topology: TopologySpec, component: ComponentDef, sub: BoltInput) -> Iterator[Finding]:
    grouping = sub.grouping
    if grouping is not None and (not isinstance(grouping, Grouping) or str(grouping.kind) not in KINDS):
        yield (
            f"The grouping of input {sub.source} is {grouping!r:.80}.",
            'Use one of Grouping\'s: Grouping.SHUFFLE, Grouping.fields("word"), Grouping.ALL, Grouping.GLOBAL, '
            "Grouping.LOCAL_OR_SHUFFLE, Grouping.NONE, Grouping.DIRECT.",
        )
        # The other checks go on without it: a wrong grouping hides no wrong name.
        grouping = None
    source = next((c for c in topology.components if c.name == sub.source.component), None)
    if sub.stray:
        yield (
            f"inputs holds {sub.source.component}, which stands in no line of this topology.",
            "Use a name assigned in the topology's own body, as in `split = Split.spec(inputs=[lines])`.",
        )
    elif source is None:
        names = [c.name for c in topology.components if c is not component]
        yield (
            f"inputs names the component {sub.source.component!r}, and there is none of that name.",
            nearest(sub.source.component, names, f"The others are: {listed(names)}."),
        )
    elif outputs_problem(source.outputs) is None:
        yield from _stream(sub, source, grouping)


def _stream(sub: BoltInput, source: ComponentDef, grouping: Grouping | None) -> Iterator[Finding]:
    declared = {stream.name: stream for stream in declared_streams(source.outputs)}
    stream = declared.get(sub.source.stream)
    if stream is None and not declared:
        yield (
            f"It reads {source.name}, which declares no outputs.",
            f'Give the class {source.cls.__qualname__} a line such as outputs = ["word"].',
        )
    elif stream is None:
        name = next(iter(declared))
        example = source.name if name == DEFAULT_STREAM else f"{source.name}[{name!r}]"
        yield (
            f"It reads the stream {sub.source.stream!r} of {source.name}, which declares "
            f"{', '.join(map(repr, declared))} only.",
            nearest(sub.source.stream, declared, f"As an input, write {example}."),
        )
    elif grouping is not None:
        yield from _grouping(source, stream, grouping)


def _grouping(source: ComponentDef, stream: Stream, grouping: Grouping) -> Iterator[Finding]:
    of = source.name if stream.name == DEFAULT_STREAM else f"{source.name}[{stream.name}]"
    if stream.direct and grouping.kind != "direct":
        yield (
            f"It reads {of} with {grouping}, but that stream is direct: its producer names the task.",
            "Use Grouping.DIRECT, or declare the stream without direct=True.",
        )
    if grouping.kind == "direct" and not stream.direct:
        yield (
            f"It reads {of} with Grouping.DIRECT, but that stream is not declared as direct.",
            f"Declare it so: Stream({list(stream.fields)!r}, name={stream.name!r}, direct=True).",
        )
    if grouping.kind == "fields":
        if not grouping.field_names:
            yield (
                f"It reads {of} with Grouping.fields() that names no field.",
                f"Name at least one of: {', '.join(stream.fields)}.",
            )
        for name in grouping.field_names:
            if name not in stream.fields:
                remedy = "Group by one of these."
                yield (
                    f"It groups {of} by the field {name!r}, which that stream does not have: it declares "
                    f"{', '.join(map(repr, stream.fields)) or 'none'}.",
                    nearest(name, stream.fields, remedy) if isinstance(name, str) else remedy,
                )


def config_problems(config: Mapping[Any, Any]) -> Iterator[Finding]:
    """Yield reserved keys that nothing reads, and values a setting cannot have."""
    for key, value in config.items():
        reserved = isinstance(key, str) and key.startswith(("topology.", "streamlet."))
        if not isinstance(key, str):
            yield f"config has the key {key!r}.", "Keys are strings."
        elif key in SETTINGS:
            try:
                parse_setting(key, value, "config")
            except SettingError as error:
                yield error.message, "Change it, or leave it out for the default."
        elif key.startswith("pystorm."):
            yield (
                f"config has pystorm's setting {key!r}, which nothing reads.",
                "`streamlet docs migrating-from-streamparse` says what takes its place.",
            )
        elif reserved:
            yield (
                f"config has the setting {key!r}, which nothing reads (topology.* and streamlet.* are reserved).",
                STORMS_SETTINGS.get(key)
                or nearest(
                    key, SETTINGS, "`streamlet check --settings` lists them; a key of your own begins otherwise."
                ),
            )


def travel_problems(config: Mapping[Any, Any]) -> Iterator[Finding]:
    """Yield values of the user's own settings that workers cannot be sent."""
    # Of a topology's alone: a component's own config is imported with its class, and may hold anything.
    for key, value in config.items():
        if key not in SETTINGS and (fault := _fault_of(value)):
            yield (
                f"config has a value for {key!r} that cannot travel to workers: {fault}.",
                "It may hold None, bool, int of at most 64 bits, float, str, bytes, aware datetime, and lists, tuples "
                "and dicts of these (keys: all but lists, tuples and dicts). Make anything else of it in initialize.",
            )


def _fault_of(value: Any, depth: int = 0) -> str:
    """Return why a setting of a user's own cannot be sent; empty if it can."""
    # By isinstance, as the wire takes them: an IntEnum or an OrderedDict travels as the plain form of its value.
    if value is None or isinstance(value, (float, str, bytes, bytearray)):
        return ""
    if isinstance(value, int):
        return "" if -(1 << 63) <= value < 1 << 64 else f"an int of {value.bit_length()} bits"
    if isinstance(value, datetime):
        return "" if value.tzinfo is not None else f"{value!r} has no time zone"
    if depth > MOST_NESTED:
        return f"it is nested more than {MOST_NESTED} deep, or contains itself"
    if isinstance(value, (list, tuple)):
        return next(filter(None, (_fault_of(item, depth + 1) for item in value)), "")
    if isinstance(value, dict):
        bad = next((key for key in value if isinstance(key, tuple) or _fault_of(key)), None)
        if bad is not None:
            return f"a dict with the key {bad!r:.80}"
        return next(filter(None, (_fault_of(item, depth + 1) for item in value.values())), "")
    return f"{value!r:.80} is of type {type(value).__qualname__}"


def misplaced_settings(component: ComponentDef) -> Iterator[Finding]:
    """Yield a component's settings that nothing reads there.

    They are the whole run's, or the other kind of component's.
    """
    for key in component.config:
        of = SETTINGS[key].component if key in SETTINGS else component.kind
        if of is None:
            yield (
                f"config has the setting {key!r}, which is the whole run's: nothing reads it here.",
                "Move it into the topology's config, or give it for one run (-c, settings=).",
            )
        elif of != component.kind:
            yield (
                f"config has the setting {key!r}, which only a {of} has, and this is a {component.kind}.",
                f"Move it to the {of} that it is meant for, or into the topology's config for all of them.",
            )


def override_problems(component: ComponentDef, overrides: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield settings of a run, ``COMPONENT.NAME``, that the component refuses."""
    if not overrides:
        return
    known: frozenset[str] = getattr(component.cls, "override_keys", frozenset)()
    fixed: frozenset[str] = getattr(component.cls, "topology_keys", frozenset)()
    for name in overrides:
        # Rule: a name that is right is told where it can be set, and gets no other one proposed: the nearest of those
        # that a run can change has nothing to do with it.
        if name in fixed:
            yield (
                f"Its setting {name!r} can be set in the topology alone.",
                "Write it there, where the component is made: its value is code, a secret, or belongs to the "
                "topology's shape, and stands on no command line and in no file of settings.",
            )
        elif name not in known:
            yield (
                f"It has no setting {name!r} that a run could change.",
                _how_to_set(component, name, known, fixed),
            )
    if all(name in known for name in overrides):
        try:
            component.cls.with_overrides(component.kwargs, overrides)
        except SettingError as error:
            for problem in error.message.split("\n"):
                yield problem, "It was given for this run."


def _how_to_set(component: ComponentDef, name: str, known: frozenset[str], fixed: frozenset[str]) -> str:
    if name in SETTINGS:
        return (
            f"{name} of one component stands in its own config (of its class, or of spec), which goes before what is "
            f"given for the run; -c {name}=VALUE is for all that have no value of their own."
        )
    if known:
        return nearest(name, known | fixed, f"There are: {listed(known)}.")
    return f"{component.cls.__qualname__} has none; a key of your own belongs into the topology's config."


def unknown_components(topology: TopologySpec, overrides: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield components that a run's settings name and the topology lacks."""
    names = [component.name for component in topology.components]
    for name in overrides:
        if name not in names:
            yield Problem(
                None,
                f"A setting is given for the component {name!r}, which is not there.",
                nearest(name, names, f"There are: {listed(names)}."),
            )
