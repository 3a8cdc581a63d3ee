"""The topology's modules on their way to executors: a zip for each folder that they are imported from.

A class of a notebook or a script (``__main__``) travels by value, as Spark sends functions; one of a package that is
installed must be installed on the executors, too.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from streamlet.base.errors import BadInput
from streamlet.base.python_files import python_files
from streamlet.spark.zips import write_zip

MAX_FILES = 2000
MAX_BYTES = 32 << 20
"""Most files, and bytes of them, that travel from one folder."""

_ZIP = re.compile(r"topology-[0-9a-f]{8}\.zip")
"""Name of a zip, wherever Spark has put it."""

_INSTALLED = {"site-packages", "dist-packages"}
_STDLIB = tuple(Path(sysconfig.get_path(name)).absolute() for name in ("stdlib", "platstdlib"))
"""Folders of Python's own modules. Its prefix may be /usr, and a project in /usr/src."""


def module_folders(modules: Iterable[str]) -> dict[Path, set[str]]:
    """Return the folders of modules, with the first parts of their names.

    Only such as travel: not those of streamlet, of Python itself or of installed packages, and not ``__main__``, whose
    classes travel by value.
    """
    found: dict[Path, set[str]] = {}
    for name in modules:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or not Path(file).is_file() or name.partition(".")[0] in ("streamlet", "__main__"):
            continue
        path = Path(file).absolute()
        parts = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        root = path.parent.parents[len(parts) - 1] if parts else path.parent
        if _INSTALLED.isdisjoint(root.parts) and not any(map(root.is_relative_to, _STDLIB)):
            found.setdefault(root, set()).add(parts[0] if parts else "")
            # A streamparse project has its modules in `src`, beside the folder of its topologies.
            beside = path.parent.parent / "src"
            if beside.is_dir() and beside != root:
                found.setdefault(beside, set()).add("")
    return found


def zip_modules(root: Path, tops: set[str], folder: Path) -> Path:
    """Write a zip of the packages ``tops`` below ``root`` into ``folder``; "" stands for the modules in it, and below.

    Raises BadInput for a huge folder.
    """
    files: dict[str, bytes] = {}
    for path in _files(root, tops):
        files[str(path.relative_to(root))] = path.read_bytes()
        if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
            raise BadInput(
                f"{root} holds more than {MAX_FILES} Python files or {MAX_BYTES >> 20} MiB of them, and all Python "
                "files beside a topology travel to the executors. Move the topology and the modules that it imports "
                "into a folder of their own."
            )
    return write_zip(files, folder, "topology")


def import_from(zips: Collection[str]) -> None:
    """Let the topology's modules come from these zips alone, by name.

    On an executor, before anything of them is imported.
    """
    # Rule: a task runs the code that its DataFrame was made with. A Python worker is used again and has what earlier
    # ones imported; and its path holds every zip that the session ever shipped, in the order of the first time.
    ours = [path for path in sys.path if Path(path).name in zips]
    others = [path for path in sys.path if path not in ours]
    sys.path[:] = [*others[:1], *ours, *others[1:]]
    shipped = {name: _zips_of(module) for name, module in list(sys.modules.items())}
    if any(found.difference(zips) for found in shipped.values()):
        # Rule: drop all of them. A module that stays would keep its imports from one that goes.
        for name in [name for name, found in shipped.items() if found]:
            del sys.modules[name]


def _zips_of(module: object) -> set[str]:
    """Return the zips of a module; several of a package without ``__init__``."""
    if not isinstance(module, ModuleType):
        return set()
    known = vars(module)  # not getattr: a lazy module would import something
    paths = [known.get("__file__"), *known.get("__path__", ())]
    return {part for path in paths if isinstance(path, str) for part in Path(path).parts if _ZIP.fullmatch(part)}


def _files(root: Path, tops: set[str]) -> Iterator[Path]:
    if "" in tops:
        yield from python_files(root)
        return
    for top in sorted(tops):
        yield from python_files(root / top)
