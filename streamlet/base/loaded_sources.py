"""The sources of the user's modules as this process has loaded them.

A run in other processes repeats an import that may have happened hours ago, in a notebook's kernel: what stands in the
file by then may be an edit. So a source is noted when its import reads it, where a check of ours does the import, and
else when a topology's class is defined, which its import does.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import sysconfig
import time
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_NOT_THEIRS = tuple(
    f"{path}{os.sep}"
    for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(__file__).parents[1]))
)
_LIBRARIES = ("site-packages", "dist-packages")
_CLOCK_REALTIME_COARSE = 5
"""Linux's number; the ``time`` module has no name for it."""
SOON_S = 1.0
"""Seconds that the start of this process may be off, as the kernel tells it."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What one load of a module has read."""

    mark: object
    """An object of this load alone: the module's spec, or its loader; ``__main__`` itself."""
    source: bytes
    noted_s: float
    """When it was noted, in seconds since 1970."""
    is_exact: bool
    """The import has read this very source; else it was read from the file soon after."""


_loads: dict[str, Load] = {}
"""The last noted load by the absolute path of its file; that of the program by ``__main__``."""


def note_read(path: str, loader: object, source: bytes) -> None:
    """Note a source that this loader is importing."""
    _loads[path] = Load(loader, source, file_clock_s(), is_exact=True)


def note_defined(module_name: object) -> None:
    """Note the modules in the folder of one that defines a topology."""
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    path = file_of(module)
    if module is None or path is None or not is_theirs(path):
        return
    # The folder that it is imported from, by its name: in a package some levels up.
    levels = module.__name__.count(".")
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
    load = Load(_mark(module), source, file_clock_s(), is_exact=False)
    _loads[_key(module)] = load
    return load


def load_of(module: ModuleType) -> Load | None:
    """Return the note of the load that a module is from."""
    # Rule: a module is of the noted load only while it has the spec or the loader of then. A reload, or another import,
    # makes others, and what runs then is another source.
    load = _loads.get(_key(module))
    spec = getattr(module, "__spec__", None)
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


def _mark(module: ModuleType) -> object:
    return getattr(module, "__spec__", None) or module


def _key(module: ModuleType) -> str:
    # A script is loaded a second time, under its own name.
    return "__main__" if module is sys.modules.get("__main__") else file_of(module) or ""


def file_of(module: Any) -> str | None:
    """Return the absolute path of a module's source file, if any."""
    # Anything may stand in sys.modules, and a module made lazily may raise whatever when it is asked.
    try:
        file = getattr(module, "__file__", None)
    except Exception:  # noqa: BLE001 - see above
        return None
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    # A Path costs ten times as much, for each of thousands of modules.
    return file if file.startswith("/") and "//" not in file and "/./" not in file else str(Path(file).absolute())


def is_theirs(path: str) -> bool:
    """Tell whether a file is not a library's, by its path alone."""
    return not path.startswith(_NOT_THEIRS) and not any(f"{os.sep}{name}{os.sep}" in path for name in _LIBRARIES)


@functools.cache
def process_began_s() -> float:
    """Return when this process began, in seconds since 1970."""
    fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
    since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s)


def fits(module: ModuleType, source: bytes) -> bool:
    """Tell whether a module's functions may be those of this source."""
    # Rule: where nobody has noted what an import read, a module's functions tell whether it was this text: their code
    # and its lines are in memory. A kernel that imported a helper before its edit would run another than its workers.
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if type(loader) is not SourceFileLoader:  # others may change code on its way
        return True
    path = str(module.__file__)
    try:
        tree = ast.parse(source)
        known = set(_shapes(compile(tree, path, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return False
    decorated = _decorated(tree)
    codes = [code for code in _codes(module, path) if decorated.isdisjoint(code.co_qualname.split("."))]
    return all(_shape(code) in known for code in codes)


def _decorated(tree: ast.Module) -> set[str]:
    """Return the names of decorated functions and classes."""
    # A decorator may compile them again: a checker of types does, under the file's own name.
    plain = {"property", "staticmethod", "classmethod"}
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and any(not isinstance(one, ast.Name) or one.id not in plain for one in node.decorator_list)
    }


def _codes(module: ModuleType, path: str) -> list[CodeType]:
    """Return the code of a module's own functions and methods."""
    values = list(vars(module).values())
    for cls in [value for value in values if isinstance(value, type) and value.__module__ == module.__name__]:
        values += vars(cls).values()
    codes = []
    for value in values:
        inner = getattr(value, "fget", None) if isinstance(value, property) else value
        inner = inner.__func__ if isinstance(inner, (staticmethod, classmethod)) else inner
        if isinstance(inner, FunctionType) and inner.__code__.co_filename == path:
            codes.append(inner.__code__)
    return codes


def _shapes(code: CodeType) -> list[object]:
    """Return the shapes of this code and of all within it."""
    within = [const for const in code.co_consts if isinstance(const, CodeType)]
    return [_shape(code), *(shape for inner in within for shape in _shapes(inner))]


def _shape(code: CodeType) -> object:
    """Return what makes two compilations of one text alike."""
    # Compared as bytes: the interpreter's own comparison has met code that it had made faster meanwhile.
    consts = tuple(_shape(const) if isinstance(const, CodeType) else _as_text(const) for const in code.co_consts)
    return code.co_name, code.co_firstlineno, code.co_code, code.co_names, code.co_varnames, consts


def _as_text(const: object) -> str:
    return f"frozenset {sorted(map(repr, const))}" if isinstance(const, frozenset) else repr(const)
