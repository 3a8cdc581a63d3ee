"""What spouts and bolts share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Never, Protocol

from streamlet.base.clock import Clock
from streamlet.base.errors import SettingError
from streamlet.components.context import TopologyContext
from streamlet.model.pystorm_names import COMPONENT, CONSTRUCTOR, CURRENT, PAGE, missing
from streamlet.model.stream import Stream

COMPONENT_LOGGER = "streamlet.component"
"""Parent of every component's logger: ``streamlet.component.count``."""

# Storm's and pystorm's names of levels; logging knows neither "trace" nor "warn".
_LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40, "critical": 50}
_LEVEL_NAMES = ", ".join(_LEVELS)
_unknown_levels: set[str] = set()
"""Names of levels that were refused; the log has each once a process."""


class NotRunning(RuntimeError):
    """A component was used outside a topology: nothing is bound to its ``emit``, ``ack`` and ``fail``."""


class TaskPort(Protocol):
    """The functions that the runtime binds to a starting component.

    Any thread may call ``emit``, ``ack`` and ``fail``: the loop makes the call later, in the order of that thread.
    """

    @property
    def emit(self) -> Callable[..., list[int] | None]: ...
    @property
    def emit_many(self) -> Callable[..., None]: ...
    @property
    def report_metric(self) -> Callable[[str, float], None]: ...
    @property
    def clock(self) -> Clock: ...


class BoltPort(TaskPort, Protocol):
    """The runtime's half of a bolt, beside a component's."""

    @property
    def ack(self) -> Callable[[Any], None]: ...
    @property
    def fail(self) -> Callable[..., None]: ...
    @property
    def fail_told(self) -> Callable[[Any, BaseException], None]:
        """Fail a tuple or batch for an error; the caller tells it."""

    @property
    def last_tries(self) -> Callable[[list[Any]], list[Any]]:
        """Return the tuples that are given up if they fail once more."""

    @property
    def dead_letter(self) -> Callable[[Any, str], None]: ...
    @property
    def hand_over(self) -> Callable[[Callable[[], None]], None]:
        """Have the loop make a call soon. Any thread. Raises BadEmit when the run ends."""

    @property
    def complain(self) -> Callable[[BaseException, Any], None]:
        """Tell an error of a tuple or batch (None: of neither) as one that ``process`` raised. Fails nothing."""

    @property
    def raised(self) -> Callable[[BaseException, Any], None]:
        """Treat an error as one that ``process`` raised on a tuple. Any thread."""

    @property
    def begins(self) -> Callable[[Any], None]:
        """Note that work on a held tuple begins now. Any thread."""

    @property
    def ends(self) -> Callable[[Any], None]:
        """Note that a held tuple is worked on no longer. Any thread."""

    @property
    def rest(self) -> Callable[[bool], None]:
        """Say whether tuples are to wait in the bolt's queue for now; when that is full, spouts pause."""


class Component:
    """Base of :class:`Spout` and :class:`Bolt`. One instance is one task; all its methods run on one thread.

    ``outputs`` declares the streams: ``["word"]`` (the default stream's fields) or a list of ``Stream``.
    ``config`` holds settings for this component only, ``par`` its number of tasks where ``spec`` names none.
    """

    outputs: ClassVar[list[str] | list[Stream] | None] = None
    par: ClassVar[int] = 1
    config: ClassVar[Mapping[str, Any]] = {}
    logger: logging.Logger = logging.getLogger(COMPONENT_LOGGER)

    storm_conf: Mapping[str, Any]
    context: TopologyContext
    topology_name: str
    component_name: str
    task_id: int
    pid: int
    debug: bool
    """pystorm's names for what ``initialize`` is given; the runtime sets them just before it calls that."""

    if not TYPE_CHECKING:  # with it a type checker would accept every argument
        # Rule: what pystorm's constructor takes is refused by name. Taken and dropped, a stream or a serializer that
        # somebody gives would be ignored in silence; object's own error names none of them.
        def __init__(self, *given: Any, **named: Any) -> None:
            after = super().__init__
            if (given or named) and getattr(after, "__objclass__", None) is object:
                raise TypeError(_no_arguments(type(self).__name__, given, named))
            after(*given, **named)

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Prepare, once, before the first tuple. May block; may raise, which fails the run."""

    def cleanup(self) -> None:
        """Finish, once, after the last tuple of a clean stop.

        Not called after ``kill -9`` (as in Storm). An emit raises here: it would reach nobody.
        """

    def log(self, message: str, level: str | None = None) -> None:
        """Log under this component's name; as "info" without a known level."""
        if level is not None and level not in _LEVELS and level not in _unknown_levels:
            _unknown_levels.add(level)
            self.logger.warning("self.log has no level %r, and takes it for info. There are: %s.", level, _LEVEL_NAMES)
        self.logger.log(_LEVELS.get(level or "info", 20), message)

    def raise_exception(self, exception: BaseException, tup: Any = None) -> None:
        """Log an exception of your own handling, with its traceback; nothing is failed by it."""
        on = "" if tup is None else f" on {tup!r:.200}"
        self.logger.error("%s%s: %s", type(exception).__name__, on, exception, exc_info=exception)

    def report_metric(self, name: str, value: float) -> None:
        """Set a metric of your own; its latest value is shown."""

    @staticmethod
    def is_heartbeat(tup: Any) -> bool:
        """Return False: heartbeats do not come as tuples here."""
        return False

    # `emit`, `ack` and the like are methods that raise; `bind` puts the task's own functions over them on the instance.
    # A call from user code is then one call, and a component outside a topology says why it cannot emit.
    def bind(self, port: Any) -> None:
        """Make ``emit``, ``ack``, ``fail`` and ``report_metric`` live, for the runtime."""
        raise NotImplementedError

    def bind_context(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Set pystorm's names, for the runtime. A user's own attribute of such a name stays."""
        # Set here and not in __init__, which subclasses rarely call.
        names = {
            "storm_conf": conf,
            "context": context,
            "topology_name": context.topology_name,
            "component_name": context.component_name,
            "task_id": context.task_id,
            "pid": os.getpid(),
            "debug": bool(conf.get("topology.debug", False)),
        }
        own, cls = vars(self), type(self)
        own.update({name: value for name, value in names.items() if name not in own and not hasattr(cls, name)})

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        """Return the names that ``-c COMPONENT.NAME=VALUE`` may set on such a component."""
        return frozenset()

    @classmethod
    def topology_keys(cls) -> frozenset[str]:
        """Return the names of its settings that the topology alone can set."""
        return frozenset()

    @classmethod
    def with_overrides(cls, kwargs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Apply ``-c COMPONENT.NAME=VALUE`` to constructor arguments. Raises SettingError."""
        if overrides:
            # Refused also here: a class that declares keys and forgets this would run with the old values.
            raise SettingError(f"{cls.__name__} has no settings that a run could override.")
        return dict(kwargs)


def _no_arguments(name: str, given: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Say what takes the place of arguments of pystorm's constructor."""
    theirs = [*list(CONSTRUCTOR)[: len(given)], *(key for key in named if key in CONSTRUCTOR)]
    answers = "; ".join(f"{key}: {CONSTRUCTOR[key]}" for key in theirs)
    page = f" ({answers}; `streamlet docs {PAGE}`)" if answers else ""
    return f"{name}() takes no arguments{page}. Call super().__init__() with none, and prepare in initialize."


class _NotHere:
    """A name of pystorm's that a component does not have: looking at it says what takes its place."""

    # Rule: no __getattr__ for this: with one, each attribute that user code reads takes twice as long or more. And no
    # property: a component may have something of its own under such a name.
    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, made: object, owner: type) -> Never:
        text = missing(f"{owner.__name__!r} object", self.name, {**COMPONENT, **CURRENT})
        raise AttributeError(text, name=self.name, obj=owner if made is None else made)


for _name in (*COMPONENT, *CURRENT):
    setattr(Component, _name, _NotHere(_name))


def not_running(name: str) -> NotRunning:
    """Make the error for ``emit`` and friends outside a running topology."""
    return NotRunning(
        f"{name} was called on a component that is not part of a running topology. In a test use "
        "streamlet.testing.BoltTester or TopologyTester (`streamlet docs testing`)."
    )
