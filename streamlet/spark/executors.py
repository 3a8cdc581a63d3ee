"""What the Pythons of Spark's workers lack, asked once a session: pyspark's own code there fails before ours."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from streamlet.base.errors import BadInput, StreamletError

PACKAGES = {
    "msgpack": "msgpack>=1.2.4",
    "crc32c": "crc32c>=2.7",
    "cramjam": "cramjam>=2.9",
    "pyarrow": "pyarrow>=18",
    "numpy": "numpy",
    "pandas": "pandas>=2.2,<3",
}
"""Each module that executors may need, as pip is asked for it."""
ALWAYS = ("msgpack", "crc32c", "cramjam", "pyarrow", "numpy")
KEYED_STREAMS = (*ALWAYS, "pandas")
"""With what pyspark's transformWithState imports."""
_ANSWER_S = 20.0
"""Seconds that executors may take to answer. Some may not be there yet, or have no free slot: then nothing is said."""
_MOST_TASKS = 16
_SCRIPT = "import importlib.util, json, socket, sys; print(json.dumps([socket.gethostname(), sys.executable, [name for \
name in sys.argv[1:] if importlib.util.find_spec(name) is None]]))"

_log = logging.getLogger(__name__)
_have: WeakKeyDictionary[Any, dict[bool, frozenset[str]]] = WeakKeyDictionary()
"""What the workers of each context were asked for, and have; True: the Python of the driver's machine, too."""


class PackagesMissing(StreamletError):
    """The Python of a Spark worker lacks packages."""


class Found(NamedTuple):
    """What one Python lacks."""

    host: str
    executable: str
    missing: Sequence[str]


def check_workers(context: Any, names: Sequence[str], *, here: bool = True) -> None:
    """Refuse a session whose Python workers lack packages. Asks once for each context. Raises BadInput.

    ``here``: whether Spark starts a Python on the driver's machine, too, as it does for plans and for keyed streams.
    """
    # Rule: ask before Spark does anything with the format or a stage. pyspark's own worker imports pyarrow first, and
    # dies of it: the user would see a crash, and ten thousand characters of Java.
    here = here or _is_local(context)
    known = _have.setdefault(context, {})
    if any(known[asked].issuperset(names) for asked in known if asked >= here):
        return
    found = [*(_of_this_machine(context) if here else ()), *_of_executors(context)]
    for one in found:
        if missing := [name for name in names if name in one.missing]:
            raise BadInput(text_of(one.host, one.executable, missing))
    known[here] = frozenset(names).union(PACKAGES).difference(*(one.missing for one in found))


def require(*names: str) -> None:
    """Raise PackagesMissing where this Python lacks a package. On an executor."""
    # Where nobody answered, or another executor did.
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise PackagesMissing(text_of(socket.gethostname(), sys.executable, missing))


def text_of(host: str, executable: str, missing: Sequence[str]) -> str:
    """Return the paragraph about a Python that lacks packages."""
    wanted = " ".join(shlex.quote(PACKAGES[name]) for name in missing)
    return (
        f"Spark's Python workers on {host} run {executable}, which cannot import {', '.join(missing)}. streamlet "
        f"itself travels there; compiled packages must be installed: {executable} -m pip install {wanted}. Or let "
        "PYSPARK_PYTHON name a Python that has them, before the session is made."
    )


def _of_this_machine(context: Any) -> Iterator[Found]:
    """Yield the report of the Python that Spark starts here."""
    # Plans are made by it, on the driver's machine; in local mode it does all. Mostly it is the one that asks.
    python = shutil.which(context.pythonExec)
    if python is None or _same_python(python):
        return
    folder = _sent_to(context)
    sent = [str(Path(folder, name)) for name in getattr(context, "_python_includes", ())]
    path = os.pathsep.join([*sent, *filter(None, [os.environ.get("PYTHONPATH")])])
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(
            [python, "-c", _SCRIPT, *PACKAGES],
            check=True,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            env={**os.environ, "PYTHONPATH": path},
        )
        yield Found(*json.loads(done.stdout))


def _is_local(context: Any) -> bool:
    return bool(context.master.startswith("local") and not context.master.startswith("local-cluster"))


def _same_python(python: str) -> bool:
    # Of a virtual environment's folder both names, python and python3, lead to one file.
    ours = Path(sys.executable)
    return Path(python).parent == ours.parent and Path(python).resolve() == ours.resolve()


def _sent_to(context: Any) -> str:
    from pyspark import SparkFiles

    return str(SparkFiles.getRootDirectory())


def _of_executors(context: Any) -> list[Found]:
    """Return the reports of executors on other machines; none where they do not answer in time."""
    if _is_local(context):
        return []
    from pyspark import InheritableThread

    group, rows = f"streamlet-packages-{uuid.uuid4()}", []

    def ask() -> None:
        try:
            context.setJobGroup(group, "streamlet: packages of the executors", interruptOnCancel=False)
            count = min(max(1, context._jsc.sc().getExecutorMemoryStatus().size() - 1), _MOST_TASKS)
            rows.extend(context.parallelize([None] * count, count).mapPartitions(_probe([*PACKAGES])).collect())
        except Exception as error:  # noqa: BLE001 - py4j raises half a dozen kinds; the user's own job tells it as well
            _log.debug("the executors were not asked for their packages: %s", error)

    # A thread of its own: a job's group is a property of the JVM's thread.
    thread: threading.Thread = InheritableThread(target=ask, name="packages", daemon=True)
    thread.start()
    try:
        thread.join(_ANSWER_S)
    finally:
        if thread.is_alive():
            with contextlib.suppress(Exception):  # the JVM may be gone
                context.cancelJobGroup(group)
    return [Found(*json.loads(row)) for row in [*rows]]


def _probe(names: list[str]) -> Callable[[Any], Iterator[str]]:
    """Make the function that looks around on an executor. It travels by value, and imports nothing of streamlet."""

    def probe(rows: Any) -> Iterator[str]:
        import importlib.util
        import json
        import socket
        import sys

        for _ in rows:  # consumed, so that this Python worker stays for the next task
            pass
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        yield json.dumps([socket.gethostname(), sys.executable, missing])

    return probe
