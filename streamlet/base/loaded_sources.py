"""The sources of the user's modules as this process has loaded them.

A run in other processes repeats an import that may have happened hours ago, in a notebook's kernel: what stands in the
file by then may be an edit. So a source is noted when its import reads it, where a check of ours does the import, and
else when a topology's class is defined, which its import does.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

_NOT_THEIRS = tuple(
    f"{path}{os.sep}"
    for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(__file__).parents[1]))
)
_LIBRARIES = ("site-packages", "dist-packages")
_CLOCK_REALTIME_COARSE = 5
"""Linux's number; the ``time`` module has no name for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What one load of a module has read."""

    mark: object
    """An object of this load alone: the module's spec, or its loader; ``__main__`` itself."""
    source: bytes
    noted_s: float
    """When it was noted, in seconds since 1970."""


_loads: dict[str, Load] = {}
"""Name of a module -> its last noted load. By names: one file may be loaded under two."""


def note_read(loader: SourceFileLoader, source: bytes) -> None:
    """Note a source that this loader is importing."""
    _loads[loader.name] = Load(loader, source, file_clock_s())


def note_defined(module_name: object) -> None:
    """Note the modules in the folder of one that defines a topology."""
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    path = file_of(module)
    if module is None or path is None or not is_theirs(path):
        return
    # The folder that it is imported from, by its name: in a package some levels up.
    levels = names_of(module)["__name__"].count(".")
    root = f"{Path(path).parents[min(levels, len(Path(path).parents) - 1)]}{os.sep}"
    for other in list(sys.modules.values()):
        file = file_of(other)
        if file is not None and file.startswith(root) and is_theirs(file) and load_of(other) is None:
            note_file(other)


def note_file(module: ModuleType) -> Load | None:
    """Note what stands in a module's file now; None where it cannot be read."""
    path = file_of(module)
    try:
        source = Path(path or "").read_bytes()
    except (OSError, ValueError):
        return None
    names = names_of(module)
    load = _loads[names["__name__"]] = Load(names.get("__spec__") or module, source, file_clock_s())
    return load


def load_of(module: ModuleType) -> Load | None:
    """Return the note of the load that a module is from."""
    # Rule: a module is of the noted load only while it has the spec or the loader of then. A reload, or another import,
    # makes others, and what runs then is another source.
    names = names_of(module)
    load, spec = _loads.get(names.get("__name__", "")), names.get("__spec__")
    marks = (module,) if spec is None else (spec, getattr(spec, "loader", None))
    return load if load is not None and any(load.mark is mark for mark in marks) else None


def source_of_main(path: str) -> bytes | None:
    """Return the source of the program, where this is its file."""
    main = sys.modules.get("__main__")
    load = None if main is None or file_of(main) != path else load_of(main)
    return None if load is None else load.source


def file_clock_s() -> float:
    """Return seconds since 1970 by the clock that dates files.

    It moves on by ticks of the kernel.
    """
    return time.clock_gettime(_CLOCK_REALTIME_COARSE)


def names_of(module: object) -> Mapping[str, Any]:
    """Return a module's names with their values; none of anything else."""
    # Rule: ask a module nothing that it may answer by code. Anything may stand in sys.modules: one that is loaded
    # lazily would be loaded by the question, and others raise.
    return object.__getattribute__(module, "__dict__") if issubclass(type(module), ModuleType) else {}


def file_of(module: object) -> str | None:
    """Return the absolute path of a module's source file, if any."""
    file = names_of(module).get("__file__")
    if not isinstance(file, str) or not file.endswith(".py") or "\0" in file:
        return None
    # A Path costs ten times as much, for each of thousands of modules.
    return file if file.startswith("/") and "//" not in file and "/./" not in file else str(Path(file).absolute())


def is_theirs(path: str) -> bool:
    """Tell whether a file is not a library's, by its path alone."""
    return not path.startswith(_NOT_THEIRS) and not any(f"{os.sep}{name}{os.sep}" in path for name in _LIBRARIES)
