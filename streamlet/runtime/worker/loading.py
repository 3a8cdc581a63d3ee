"""Finding a topology in a file, in the same way in every process that runs a part of it.

The file's own folder goes first on ``sys.path`` and the file is imported by its stem, never as ``__main__``: its
classes have one name everywhere, and modules that lie beside it can be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from streamlet.base.errors import BadInput, StreamletError
from streamlet.model.topology import Topology, TopologySpec


class CannotLoad(BadInput):
    """The file is missing, does not parse, raises when imported, or holds no such topology."""


class ImportedOtherwise(StreamletError):
    """A worker could not import what the process that started the run has imported."""

    def __init__(self, worker: int, file: str, error: CannotLoad) -> None:
        super().__init__(
            f"In worker {worker}, on importing {file} there: {error.message} Where the run was started, the file "
            "could be imported and gave the topology. What may differ in a worker: sys.path, environment variables, "
            "the working directory, the machine, or an `if` in the file that looks at one of these or at how it was "
            "started."
        )


def load_topology(file: Path, name: str | None = None) -> TopologySpec:
    """The topology called ``name`` in ``file``, or the only one there. Raises CannotLoad."""
    module = _import(file)
    found = {
        key: value.__topology__
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Topology) and value is not Topology
    }
    if name is not None:
        if name not in found:
            have = f"It has: {', '.join(sorted(found))}." if found else "It has no Topology at all."
            raise CannotLoad(f"{file} has no topology called {name!r}. {have}")
        return found[name]
    own = {key: spec for key, spec in found.items() if vars(module)[key].__module__ == module.__name__}
    candidates = own or found
    if not candidates:
        raise CannotLoad(
            f"{file} holds no topology. Write a class that inherits from streamlet.Topology and names its spouts "
            "and bolts in its body."
        )
    if len(candidates) > 1:
        names = ", ".join(sorted(candidates))
        raise CannotLoad(f"{file} holds {len(candidates)} topologies: {names}. Say which one: {file}:NAME.")
    return next(iter(candidates.values()))


def _import(file: Path) -> ModuleType:
    file = file.absolute()
    if not file.is_file():
        raise CannotLoad(f"There is no file {file}. Give the path of a Python file that holds a topology.")
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise CannotLoad(
            f"{file.name} cannot be imported by every worker: the file must be a Python module, with a name "
            "made of letters, digits and underscores and ending in .py."
        )
    folder, stem = str(file.parent), file.stem
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    present = sys.modules.get(stem)
    if present is not None:
        if Path(getattr(present, "__file__", None) or "").absolute() == file:
            return present
        raise CannotLoad(
            f"{file} would be imported as {stem!r}, and a module of that name is loaded already, from "
            f"{getattr(present, '__file__', 'the interpreter itself')}. Rename the file."
        )
    try:
        return importlib.import_module(stem)
    except SyntaxError as error:
        place = f"line {error.lineno}" if error.lineno else "at its start"
        raise CannotLoad(
            f"{error.filename or file} does not parse: {error.msg}, {place}. Nothing was started."
        ) from error
    except StreamletError as error:  # a setting in the file that cannot be: its own paragraph says all
        raise CannotLoad(f"{file}, {_place(error, file)}: {error.message}") from error
    except (Exception, SystemExit) as error:
        raise CannotLoad(
            f"{file} raised {type(error).__name__} ({_place(error, file)}): {error}. A topology's file must import "
            "cleanly in every worker; what it imports must be installed or lie beside it."
        ) from error


def _place(error: BaseException, file: Path) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__))
    line = next((frame.lineno for frame in frames if frame.filename == str(file)), None)
    return "while it was imported" if line is None else f"line {line}"
