"""Running a topology from Python: the request that every backend gets, and ``run`` for scripts, notebooks, tests.

Worker processes and Spark executors import a topology from its file. So a class that exists only in this process (in
a notebook's cell, inside a function) runs with ``backend="inline"`` alone, and a script is imported a second time
under its own name: what it runs stands under ``if __name__ == "__main__":``, as with ``multiprocessing``.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from streamlet.backends.contract import Backend, RunRequest, RunResult, RunStatus, Stop
from streamlet.base.errors import BadInput, SettingError, StreamletError, WrongArgument, refuse_all, text_of
from streamlet.base.loaded_sources import load_of
from streamlet.base.readable import why_unreadable
from streamlet.model.settings import SETTINGS, of_streamparse, parse_setting, resolve, streamparses_keys, unknown_key
from streamlet.model.spec import SPOUT
from streamlet.model.topology import ComponentDef, TopologyMeta, TopologySpec, is_topology
from streamlet.model.validate import InvalidTopology, checked, endless_spouts

if TYPE_CHECKING:
    from streamlet.backends.log_file import LogFile
    from streamlet.base.log_line import LogLine

BackendName = Literal["inline", "processes", "spark"]

BACKENDS = {
    "inline": "streamlet.backends.inline:InlineBackend",
    "processes": "streamlet.backends.processes:ProcessesBackend",
    "spark": "streamlet.backends.spark:SparkBackend",
}

FROM_PYTHON = "settings="
"""How messages call settings that a program gave; those of a command line are called ``-c``."""

Given = list[tuple[str, Any, str]]
"""(key, value, who gave it), later ones winning."""

PYSPARK_HANDLER = "pyspark.core.context"
"""The module of the handler of SIGINT that pyspark sets."""

logger = logging.getLogger("streamlet.run")
_loading = threading.Lock()
"""Guards ``sys.path`` while a topology's file is imported."""


class RunOptions(TypedDict, total=False):
    """What ``run`` takes beside the topology, for ``Topology.run``."""

    backend: BackendName | Backend
    until_caught_up: bool
    seconds: float | None
    workers: int | None
    settings: Mapping[str, Any] | None
    master: str | None
    drain_timeout: float | None
    check: bool
    on_status: Callable[[RunStatus], None] | None
    stop: Stop | None


def run(
    topology: TopologyMeta,
    *,
    backend: BackendName | Backend = "processes",
    until_caught_up: bool = True,
    seconds: float | None = None,
    workers: int | None = None,
    settings: Mapping[str, Any] | None = None,
    master: str | None = None,
    drain_timeout: float | None = None,
    check: bool = True,
    on_status: Callable[[RunStatus], None] | None = None,
    stop: Stop | None = None,
) -> RunResult:
    """Run a topology to its end and return what it came to. Any thread; several runs at once are allowed.

    ``settings`` holds keys of the run (``"topology.max.spout.pending"``), of the topology's ``config``, and
    ``"COMPONENT.NAME"`` for a component's own. The run ends when every spout has caught up, after ``seconds``, or when
    another thread calls ``stop.ask()``, whichever comes first; it then waits up to ``drain_timeout`` seconds (the
    setting ``streamlet.drain.timeout.secs``) for tuples under way. ``on_status`` is called about once a second, on
    the calling thread; what components log in workers goes to the logger ``streamlet.run``, with ``component``,
    ``task``, ``worker`` and ``epoch`` as attributes of the record.

    On the main thread the first Ctrl-C drains the run and the second kills it; both then raise KeyboardInterrupt.

    Raises StreamletError when the run fails; with ``check=False`` the result holds it as ``error``. What cannot be
    started at all is raised in any case, as BadInput.
    """
    check_topology(topology, "run")
    _check_types(backend, until_caught_up, seconds, workers, master, check, on_status, stop)
    given = settings_given(settings)
    _refuse_while_imported()
    runner = make_backend(backend) if isinstance(backend, str) else backend
    check_choices(IN_PYTHON, runner.name, workers, seconds, master)
    own = runner.name == "inline"
    spec, file = (topology.__topology__, None) if own else _importable(topology, runner.name)
    request = make_request(
        spec,
        given,
        backend=runner.name,
        workers=workers,
        until_caught_up=until_caught_up,
        seconds=seconds,
        master=master,
        drain_timeout=drain_timeout,
        file=file,
        attribute=None if own else topology.__name__,
    )
    for endless in endless_spouts(spec) if request.until_caught_up and not (stop or request.seconds) else ():
        logger.warning("%s", endless)
    stop = stop or Stop()
    watch = _Watch(on_status, _begun_log(request, runner.name))
    try:
        with _interrupts(stop), _log_kept(spec.name, watch):
            return runner.run(request, watch, stop)
    except StreamletError as error:
        if check:
            raise
        reached = getattr(error, "result", None) or RunResult("failed", watch.last, drained=False)
        return replace(reached, error=error)


# -- what a run is given


@dataclass(frozen=True, slots=True)
class OptionNames:
    """The spellings of a run's options, for error messages."""

    master: str
    workers: str
    seconds: str
    spark: str
    inline: str


IN_PYTHON = OptionNames("master=", "workers=", "seconds=", 'backend="spark"', 'backend="inline"')


def check_choices(
    names: OptionNames, backend: str, workers: int | None, seconds: float | None, master: str | None
) -> None:
    """Refuse options that no run can have, alone or together. Raises BadInput.

    The command line and :func:`run` both ask here: what one refuses, the other refuses too.
    """
    if workers is not None and workers < 1:
        raise BadInput(f"{names.workers} is {workers}: give at least 1, or leave it out for one a core but one.")
    # False for NaN as well, which is never over.
    if seconds is not None and not 0 < seconds < math.inf:
        raise BadInput(
            f"{names.seconds} is {seconds}: give a number of seconds above 0, or leave it out for a run that time "
            "does not end."
        )
    if master is not None and backend != "spark":
        raise BadInput(f"{names.master} belongs to {names.spark}.")
    if backend == "inline" and workers is not None and workers > 1:
        raise BadInput(f"{names.inline} runs everything in this process: leave {names.workers} out.")


def check_topology(topology: object, taker: str) -> None:
    """Raise WrongArgument for anything but a class derived from ``Topology``."""
    if not is_topology(topology):
        raise WrongArgument(
            f"{taker} takes a class that inherits from streamlet.Topology, and {topology!r} is not one."
        )


def settings_given(settings: Mapping[str, Any] | None) -> Given:
    """Return a program's settings with their giver. Raises WrongArgument."""
    if settings is None:
        return []
    if not isinstance(settings, Mapping):
        raise WrongArgument(f'settings= is {settings!r}: give a dict, {{"topology.max.spout.pending": 100}}.')
    for key in settings:
        if not isinstance(key, str):
            raise WrongArgument(f"settings= has the key {key!r}: keys are strings, as in `streamlet check --settings`.")
    return [(key, value, FROM_PYTHON) for key, value in settings.items()]


def _check_types(
    backend: object,
    until_caught_up: object,
    seconds: object,
    workers: object,
    master: object,
    check: object,
    on_status: object,
    stop: object,
) -> None:
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    whole = isinstance(workers, int) and not isinstance(workers, bool)
    is_backend = isinstance(backend, str) or (hasattr(backend, "name") and callable(getattr(backend, "run", None)))
    for name, value, fits, wanted in (
        ("backend", backend, is_backend, f"{', '.join(map(repr, BACKENDS))}, or a backend object"),
        ("until_caught_up", until_caught_up, isinstance(until_caught_up, bool), "True or False"),
        ("seconds", seconds, seconds is None or number, "a number of seconds, or None"),
        ("workers", workers, workers is None or whole, "a whole number of at least 1, or None"),
        ("master", master, master is None or isinstance(master, str), 'Spark\'s master as a string, "local[2]"'),
        ("check", check, isinstance(check, bool), "True or False"),
        ("on_status", on_status, on_status is None or callable(on_status), "a function of a RunStatus, or None"),
        ("stop", stop, stop is None or isinstance(stop, Stop), "a streamlet.Stop, or None"),
    ):
        if not fits:
            raise WrongArgument(f"{name}= is {value!r}: give {wanted}.")


def _refuse_while_imported() -> None:
    # Not at the top of the module: `import streamlet` comes before all else, and brings nothing of the runtime along.
    from streamlet.runtime.worker.loading import file_being_imported

    importing = file_being_imported()
    if importing is not None:
        raise BadInput(
            f"{importing.name} calls run while it is imported, and every worker imports it: the run would start "
            'another one, and that the next. Put the call under `if __name__ == "__main__":`, or into another file.'
        )


def make_request(
    topology: TopologySpec,
    given: Given,
    *,
    backend: str,
    workers: int | None = None,
    until_caught_up: bool = False,
    seconds: float | None = None,
    master: str | None = None,
    drain_timeout: float | None = None,
    file: Path | None = None,
    attribute: str | None = None,
    quiet_stdout: bool = False,
    keeps_log: bool = False,
    writes: bool = True,
) -> RunRequest:
    """Check everything and return the request. Raises BadInput, before anything is started.

    ``writes`` False: the topology's own bolts write nothing, so the way they would is not checked.
    """
    settings, overrides, wrong = split_settings(topology, given)
    try:
        checked(topology, overrides, imported=file is not None, settings=settings, writes=writes)
    except InvalidTopology as error:
        if not wrong:
            raise
        # Rule: one start names all that is wrong, settings and topology: who mends them wants one list.
        wrong += map(str, error.problems)
    refuse_all(wrong)
    if until_caught_up or _is_bounded(topology, overrides):
        settings["streamlet.until.caught.up"] = True
    if seconds is not None:
        settings["streamlet.run.secs"] = float(seconds)
    if drain_timeout is not None:
        settings["streamlet.drain.timeout.secs"] = parse_setting(
            "streamlet.drain.timeout.secs", drain_timeout, "drain_timeout"
        )
    conf = resolve(topology.config, settings, given_by=given[-1][2] if given else "-c")
    conf["streamlet.shared"] = _shared_here(conf["streamlet.shared"] or {})
    asked = workers or conf["topology.workers"] or default_workers(backend, len(os.sched_getaffinity(0)))
    # A worker without a task would only cost memory.
    asked = 1 if backend == "inline" else min(asked, sum(component.par for component in topology.components))
    conf["topology.workers"] = asked  # as in Storm, components read there how many there are
    return RunRequest(
        topology=topology,
        conf=conf,
        overrides=overrides,
        file=file,
        attribute=attribute,
        workers=asked,
        until_caught_up=conf["streamlet.until.caught.up"],
        seconds=conf["streamlet.run.secs"],
        master=master,
        quiet_stdout=quiet_stdout,
        keeps_log=keeps_log or conf["streamlet.log.file"] is not None,
    )


def _shared_here(named: Mapping[str, str]) -> dict[str, str] | None:
    """Return the absolute paths of shared files. Raises BadInput for those that are not there."""
    closed = [f"{name}={path}: {why}" for name, path in named.items() if (why := why_unreadable(Path(path)))]
    if closed:
        raise BadInput(
            f"streamlet.shared has what cannot be read ({'; '.join(closed)}). The user that starts the run must have "
            "the right to read the file or folder, and to enter the folders above it."
        )
    gone = [f"{name}={path}" for name, path in named.items() if not Path(path).exists()]
    if gone:
        raise BadInput(
            f"streamlet.shared has {', '.join(gone)}, and no such file or folder is there. A relative path begins at "
            f"{Path.cwd()}, where the run is started."
        )
    return {name: str(Path(path).absolute()) for name, path in named.items()} or None


def _is_bounded(topology: TopologySpec, overrides: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether each spout comes to an end by itself."""
    for spout in (component for component in topology.components if component.kind == SPOUT):
        own = overrides.get(spout.name)
        kwargs = spout.cls.with_overrides(spout.kwargs, own) if own else spout.kwargs
        if not spout.cls.is_bounded(kwargs):
            return False
    return True


def default_workers(backend: str, cores: int) -> int:
    """Return how many workers serve a run that names no number."""
    # Rule: one core is left to all that is no worker. A broker on the same cores, and the client that feeds it, want
    # one; a worker for each core takes it from them, and at each live rate one worker was faster than two on two cores.
    # On Spark the cores are the cluster's.
    return max(1, cores - 1) if backend == "processes" else cores


def make_backend(name: str, debug: bool = False) -> Backend:
    """Return the backend of that name; its module is imported only now. Raises BadInput."""
    if name not in BACKENDS:
        raise BadInput(f"There is no backend {name!r}. There are: {', '.join(map(repr, BACKENDS))}.")
    module, attribute = BACKENDS[name].split(":")
    make = getattr(importlib.import_module(module), attribute)
    # Tracebacks and debug logs have to come from workers; inline they are here already.
    backend: Backend = make() if name == "inline" else make(debug=debug)
    return backend


def split_settings(topology: TopologySpec, given: Given) -> tuple[dict[str, Any], dict[str, dict[str, Any]], list[str]]:
    """Return settings of the run, overrides by component, and the problems.

    An override is ``COMPONENT.NAME``; ``model.validate`` checks it together with the topology.
    """
    components = {component.name: component for component in topology.components}
    settings: dict[str, Any] = {}
    overrides: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    theirs: dict[str, list[str]] = {}
    for key, value, source in given:
        component, dot, name = key.partition(".")
        if key in SETTINGS or key in topology.config:
            try:
                settings[key] = parse_setting(key, value, source)
            except SettingError as error:
                wrong.append(error.message)
        elif source != FROM_PYTHON and key.endswith("password") and name not in _names_of(components.get(component)):
            wrong.append(
                f"{key} given by {source} is not taken: what stands on a command line every user of the machine can "
                "read, so passwords are given neither there nor in the files that do the same. Let the topology read "
                "it from a file that only its user can, as `streamlet docs security` shows."
            )
        elif dot and component in components:
            overrides.setdefault(component, {})[name] = value
        elif of_streamparse(key):
            theirs.setdefault(source, []).append(key)
        else:
            names = {component.name: _names_of(component) for component in topology.components}
            wrong.append(unknown_key(key, source, {*SETTINGS, *topology.config}, names))
    wrong += [streamparses_keys(keys, source) for source, keys in theirs.items()]
    return settings, overrides, wrong


def own_names(component: ComponentDef) -> frozenset[str]:
    """Return the names of all settings that a component has."""
    fixed: frozenset[str] = getattr(component.cls, "topology_keys", frozenset)()
    return fixed.union(_names_of(component))


def _names_of(component: ComponentDef | None) -> Iterable[str]:
    names: frozenset[str] = getattr(component.cls, "override_keys", frozenset)() if component else frozenset()
    return names


def _importable(topology: TopologyMeta, backend: str) -> tuple[TopologySpec, Path]:
    """Return the topology as workers will import it, and from where. Raises BadInput."""
    from streamlet.runtime.worker.loading import load_topology

    module = sys.modules.get(topology.__module__)
    path = _file_of(topology, module, backend)
    # A file that is gone is known by what this process has imported.
    known_as = None if path.is_file() else topology.__module__
    # Two runs at once must not mix up each other's sys.path. Code of the user, the file, runs under this lock: sys.path
    # belongs to the process, and the import reads it to its end.
    with _loading:
        before = list(sys.path)
        try:
            return load_topology(path, topology.__name__, known_as=known_as), path
        finally:
            sys.path[:] = before


def _file_of(topology: TopologyMeta, module: ModuleType | None, backend: str) -> Path:
    """Return the file that workers import a topology from. Raises BadInput."""
    file = getattr(module, "__file__", None)
    # A program read from standard input is called "<stdin>".
    if file is not None and not Path(file).is_file() and (module is None or load_of(module) is None):
        file = None
    there = None if module is None else vars(module).get(topology.__name__)
    if file is not None and there is topology:
        return Path(file).absolute()
    # Rule: say of a class from before a reload that it is one. Its module has a file: "has no file" sent the user
    # to look for one that was there.
    is_former = there is not topology and topology.__qualname__ == topology.__name__
    if is_former and topology.__module__ != "__main__" and (module is None or is_topology(there)):
        raise BadInput(
            f"This {topology.__name__} is of a former import of the module {topology.__module__}, which was loaded "
            f"again or forgotten since. Workers import the present one: take the class from there "
            f"(`from {topology.__module__} import {topology.__name__}`), and run that."
        )
    where = "has no file (a notebook, a prompt, `python -c`)" if file is None else f"has it in no line of {file}"
    raise BadInput(
        f"The backend {backend!r} runs {topology.__name__} in other processes, which import it by its name from "
        f"its file, and the module {topology.__module__} {where}. Put the class at the top level of a module of "
        'its own and import it from there, or run it in this process: backend="inline".'
    )


class _Watch:
    """The observer of a run from Python: keeps the last status and logs events."""

    def __init__(self, on_status: Callable[[RunStatus], None] | None, log_file: LogFile | None) -> None:
        self.last = RunStatus("starting", 0.0)
        self.log_file = log_file
        self._pass_on = on_status

    def on_status(self, status: RunStatus) -> None:
        self.last = status
        if self.log_file is not None:
            self.log_file.write_due()
        if self._pass_on is not None:
            self._pass_on(status)

    def on_event(self, line: LogLine) -> None:
        from streamlet.runtime.worker.log_lines import SHOWN, shown_text
        from streamlet.runtime.worker.printed_lines import STDERR, STDOUT

        if self.log_file is not None:
            self.log_file.keep(line)
        if line.printed:
            return
        origin = line.origin
        # Rule: what components print is printed. On processes it comes here by itself; from an executor as a line.
        if origin.logger in (STDOUT, STDERR):
            # A reader that has gone ends no run, as with a log's handler.
            with contextlib.suppress(OSError, ValueError):
                print(line.text, file=sys.stdout if origin.logger == STDOUT else sys.stderr)
            return
        logger.log(
            logging.getLevelNamesMapping().get(line.level.upper(), logging.INFO),
            "%s",
            shown_text(line),
            extra={SHOWN: True, **{name: getattr(origin, name) for name in ("component", "task", "worker", "epoch")}},
        )


def _begun_log(request: RunRequest, backend: str) -> LogFile | None:
    """Begin the log file that the settings name, if any. Raises BadInput."""
    if request.conf["streamlet.log.file"] is None:
        return None
    from streamlet.backends.log_file import log_file

    kept = log_file(request.conf)
    if kept is not None:
        workers = "" if backend == "inline" else f", {request.workers} workers"
        kept.begin(_line("info", f"{request.topology.name} begins (backend {backend}{workers})."))
    return kept


@contextlib.contextmanager
def _log_kept(name: str, watch: _Watch) -> Iterator[None]:
    """Keep the lines of a run in its log file while entered."""
    kept = watch.log_file
    if kept is None:
        yield
        return
    from streamlet.runtime.worker.log_lines import run_kept

    try:
        with run_kept(kept.keep):
            yield
    except BaseException as error:
        kept.end([_line("error", f"{name} failed: {text_of(error) or type(error).__name__}")])
        raise
    kept.end([_line("info", f"{name} came to its end after {watch.last.elapsed_s:.1f} s.")])


def _line(level: str, text: str) -> LogLine:
    from streamlet.base.log_line import LogLine

    return LogLine(level, text, time.time())


@contextlib.contextmanager
def _interrupts(stop: Stop) -> Iterator[None]:
    """Let the first Ctrl-C drain and the second kill; raise KeyboardInterrupt afterwards.

    Python delivers signals to the main thread alone, and a program that has a handler of its own decides for itself:
    in both cases nothing is changed here.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    # pyspark's is nobody's decision: each session made on the main thread sets it. It would cancel the run's jobs.
    if not main or (before is not signal.default_int_handler and getattr(before, "__module__", "") != PYSPARK_HANDLER):
        yield
        return
    came = False

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            stop.kill()
            raise KeyboardInterrupt
        came = True
        stop.ask()

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    except StreamletError as error:
        if came:  # what was asked for is the program's end, however the run ended
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if came:  # the run is over in good order; the program that was to end is not
        raise KeyboardInterrupt
