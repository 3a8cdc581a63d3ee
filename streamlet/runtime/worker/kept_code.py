"""The code of a run: every module that was imported below the topology's folder when the run was checked.

A worker that starts, or is started again hours later, imports these modules as they were then. An edit made meanwhile
is reported and not used, so that two versions never meet in one run. Modules that are imported for the first time later
(inside a method, say) are read as they are then.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from streamlet.base.errors import StreamletError
from streamlet.runtime.worker.loading import place_of

Code = Mapping[str, Sequence[str]]
"""Name of a module -> its file, the hash of its source, and "package" or "module"."""

_INSTALLED = tuple(
    Path(path).resolve()
    for path in {*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
)
OWN = Path(__file__).resolve().parents[2]
"""Streamlet's own folder."""


def keep_code(file: Path, folder: Path) -> Code:
    """Copy the source of each module of a topology into ``folder``; return them."""
    base = place_of(file.absolute())[0].resolve()
    folder.mkdir()
    kept: dict[str, Sequence[str]] = {}
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/")
        if name == "__main__" or path.suffix != ".py" or not _is_users(path, base):
            continue
        try:
            source = path.read_bytes()
        except OSError:  # made by something that has no file any more: every worker has to make it, too
            continue
        digest = hashlib.sha256(source).hexdigest()
        (folder / digest).write_bytes(source)
        kept[name] = (str(path.absolute()), digest, "package" if hasattr(module, "__path__") else "module")
    return kept


def own_build() -> str:
    """Hash streamlet's own source files as they are now."""
    # By content: an upgrade changes it, and files that were only written again do not.
    digest = hashlib.sha256()
    for path in sorted(OWN.rglob("*.py")):
        digest.update(f"{path.relative_to(OWN)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _is_users(path: Path, base: Path) -> bool:
    path = path.resolve()
    return path.is_relative_to(base) and not any(path.is_relative_to(other) for other in (*_INSTALLED, OWN))


class KeptCode(MetaPathFinder):
    """Finds the modules of a run as they were at its check.

    Stands first on ``sys.meta_path`` of a worker.

    ``tell`` gets the path of each file that is another by now.
    """

    def __init__(self, code: Code, folder: Path, tell: Callable[[str], None]) -> None:
        self._code = code
        self._folder = folder
        self._tell = tell

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a kept module, or None for any other. Raises StreamletError."""
        if fullname not in self._code:
            return None
        file, digest, kind = self._code[fullname]
        loader = _KeptLoader(fullname, file, self._source(file, digest))
        places = [str(Path(file).parent)] if kind == "package" else None
        return importlib.util.spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=places)

    def _source(self, file: str, digest: str) -> bytes:
        try:
            source = Path(file).read_bytes()
        except OSError:
            source = b""
        if hashlib.sha256(source).hexdigest() == digest:
            return source
        why = "damaged"
        try:
            kept = (self._folder / digest).read_bytes()
        except OSError as error:
            kept, why = b"", str(error.strerror)
        if hashlib.sha256(kept).hexdigest() != digest:
            raise StreamletError(
                f"{file} was changed since the run began, and its code as it was then is gone from {self._folder} "
                f"({why}). A worker with the new code would not fit the others: start the run again."
            )
        self._tell(file)
        return kept


class _KeptLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from source at hand, not from its file."""

    def __init__(self, fullname: str, path: str, source: bytes) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_data(self, path: str) -> bytes:
        return self._source if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        raise OSError  # no time of change: byte code that lies beside the file may be of an edit
