"""The code of a run: the Python files below the topology's folder as they were when the run was checked.

A worker that starts, or is started again hours later, imports these files as they were then, wherever the ``import``
stands. An edit made meanwhile is reported and not used, so that two versions never meet in one run.

Kept are the modules that the check imported, and the files of the folder (and of ``src`` beside it), the nearest first
and up to a bound. Of any other file below the folder (one that was made since, or is beyond the bound) the first worker
that imports it keeps a copy, and all others use that; one that was made since is told.

What the topology's own import looked for and did not find at the check is not there for its import in a worker either.

A file is known by the path that it is imported by, and by its real one: a link that is turned meanwhile, to another
release or by Kubernetes, is an edit like any other.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.machinery
import importlib.util
import itertools
import linecache
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from streamlet.base.errors import StreamletError
from streamlet.base.loaded_sources import names_of
from streamlet.base.python_files import python_files
from streamlet.runtime.worker.imported_code import ImportedCode, imported_code
from streamlet.runtime.worker.loading import (
    CannotLoad,
    SideNotes,
    changed_s,
    code_roots,
    file_being_imported,
    known_place,
    place_of,
    side_notes,
)
from streamlet.runtime.worker.users_files import OWN, is_installed, is_users, may_be_users

MOST_FILES = 2000
"""Files that are kept beside the modules that were imported: a topology may lie in a home folder."""

MOST_BYTES = 32 << 20
"""Bytes of these files."""

MOST_FOLDERS = 2000
"""Folders that are looked into for them."""

_OF_FILES = {
    importlib.machinery.SourceFileLoader,
    importlib.machinery.SourcelessFileLoader,
    importlib.machinery.ExtensionFileLoader,
    importlib.machinery.NamespaceLoader,
}
"""What the interpreter itself loads from the folders of ``sys.path``."""


@dataclass(frozen=True, slots=True)
class Code:
    """What a run has kept."""

    modules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name of a module that the check imported -> its file, and "package" or "module"."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path of a file, as it is imported and without links -> the hash of its source."""
    roots: Sequence[str] = ()
    """The folders of the user's code."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic link in the path of a kept file -> where it led."""
    elsewhere: Sequence[str] = ()
    """Names that meant no file of the user's at the check: nothing at all, or a library."""
    kept_s: float = 0.0
    """When it was kept, in seconds since 1970."""
    compiled: Mapping[str, str] = field(default_factory=dict)
    """File of imported modules that is no source, as an extension or a zip -> its hash. It is not kept."""
    edited: Sequence[str] = ()
    """Files that were edited between their import and the start of the run."""
    told: Sequence[str] = ()
    """A sentence or two of each of them, for when the run begins."""

    def name_of(self, file: Path) -> str | None:
        """Return the name that the check has imported a topology's file by."""
        # Rule: a worker knows the topology's file by what was kept, not by what stands there: it, or a package above
        # it, may be gone when the worker starts again.
        names = [name for name, (path, _) in self.modules.items() if path == str(file.absolute())]
        wanted = place_of(file.absolute())[1]
        return wanted if wanted in names else next(iter(names), None)


def keep_code(file: Path, folder: Path) -> Code:
    """Copy the sources of a topology into ``folder``; return them.

    Raises CannotLoad where what this process has imported is not to be had, or has an edit that nobody can undo.
    """
    roots, kept_s, notes, imported = code_roots(file), time.time(), side_notes(file), imported_code(file)
    folder.mkdir()
    files: dict[str, str] = {}
    for path, source in imported.sources.items():
        _keep(path, folder, files, source)
    size, beside = 0, dict[str, bytes]()
    later = (str(path.absolute()) for path in _importable_later(file, roots))
    for path in itertools.chain(imported.former or (), itertools.islice(later, MOST_FILES)):
        text = None if path in files else imported.text_of(path)
        # Beside former code of a second run goes what was there for the first, and no file that came since.
        if text is None and path not in files and imported.former is None:
            text = _text_beside(path, imported, notes)
        if text is not None:
            beside[path] = text
            _keep(path, folder, files, text)
            size += len(text)
        if size > MOST_BYTES:
            break
    notes.beside = beside
    others = {name for name in list(sys.modules) if "." not in name} | notes.missed - sys.modules.keys()
    return Code(
        imported.modules,
        files,
        roots=[*map(str, roots)],
        links=_links(file, files),
        elsewhere=sorted(others - imported.modules.keys()),
        kept_s=kept_s,
        compiled=_compiled(roots),
        edited=imported.edited,
        told=[imported.told(path) for path in imported.edited],
    )


def _compiled(roots: Sequence[Path]) -> dict[str, str]:
    """Return the files of imported modules that are no sources, with hashes."""
    found = {}
    for module in list(sys.modules.values()):
        names = names_of(module)
        archive = getattr(getattr(names.get("__spec__"), "loader", None), "archive", None)
        file = archive if isinstance(archive, str) else names.get("__file__")
        path = Path(file if isinstance(file, str) and "\0" not in file else "/")
        if path.suffix != ".py" and str(path.absolute()) not in found and path.is_file() and is_users(path, roots):
            with contextlib.suppress(OSError):
                found[str(path.absolute())] = _hash_of(path)
    return found


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text_beside(path: str, imported: ImportedCode, notes: SideNotes) -> bytes | None:
    """Return the text of a file that was not imported, if readable.

    Raises CannotLoad where it is of another version than the imported code.
    """
    # Rule: a file that was written since the import began, and that nothing had imported, is there in its edit alone.
    # It is kept, for the topology may have made it, but not beside former code of a file that was edited, too: two
    # versions would meet in one run. What the topology itself had written before it imported it is no such edit.
    if imported.mixable and changed_s(path) > notes.began_s and os.path.realpath(path) not in imported.sources:
        raise CannotLoad(
            f"{imported.mixable} was changed after it had been imported, and {path} after that import had begun: "
            "nothing has imported that one, so its text of before is gone, and a run would mix two versions. Nothing "
            "was started. Start it again once all files are written; a program that stays may reload what it has "
            "imported instead (importlib.reload). A topology that writes modules itself, when it is imported, writes "
            "each before it imports it, and not after."
        )
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _links(file: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Return the links in these paths, and where each leads."""
    paths = {place for path in (str(file.absolute()), *files) for place in (Path(path), *Path(path).parents)}
    return {str(path): os.path.realpath(path) for path in paths if path.is_symlink()}


def _importable_later(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield files below the roots, those of the topology's own folder first."""
    base, name = known_place(file)
    own = base / name.partition(".")[0] if "." in name else file.absolute().parent
    # Links to folders, too: a volume of Kubernetes has nothing else, and a package may lie behind one.
    paths = (path for place in [own, *roots] for path in python_files(place, MOST_FOLDERS, follow_links=True))
    return (path for path in paths if is_users(path, roots))


def _keep(path: str, folder: Path, files: dict[str, str], source: bytes) -> None:
    """Copy this source of a file."""
    # Rule: a file is known by the path that it is imported by, and by its real one. A link that is turned while the
    # run goes on (a release, a volume of Kubernetes) leads to another real path, whose code would be taken for new.
    files[path] = digest = hashlib.sha256(source).hexdigest()
    files.setdefault(os.path.realpath(path), digest)
    (folder / digest).write_bytes(source)


def own_build() -> str:
    """Hash streamlet's own source files as they are now."""
    # By content: an upgrade changes it, and files that were only written again do not.
    digest = hashlib.sha256()
    for path in sorted(OWN.rglob("*.py")):
        digest.update(f"{path.relative_to(OWN)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class KeptCode(MetaPathFinder):
    """Finds the modules of a run as they were at its check.

    Stands first on ``sys.meta_path`` of a worker, and gives the source files that others load, too.

    ``tell`` gets the path of each file that is another by now; ``tell_added`` that of each one that was not there, and
    whether it was taken; ``tell_compiled`` that of each one that is another and, as no source, is not kept.
    """

    def __init__(
        self,
        code: Code,
        folder: Path,
        tell: Callable[[str], None],
        tell_added: Callable[[str, bool], None],
        tell_compiled: Callable[[str], None],
    ) -> None:
        self._code = code
        self._roots = list(dict.fromkeys([*map(Path, code.roots), *(Path(root).resolve() for root in code.roots)]))
        self._elsewhere = frozenset(code.elsewhere)
        self._folder = folder
        known = frozenset(code.edited)  # told when the run began
        self._tell = functools.cache(lambda file: None if file in known else tell(file))  # once for each
        self._tell_added = functools.cache(tell_added)
        self._tell_compiled = tell_compiled

    def install(self) -> None:
        """Let whatever finder or loader is asked load the start's code."""
        # Rule: code of the user's is looked at where its bytes are read, not where its name is found. A module loaded
        # by its file (`spec_from_file_location`), or by a finder of the user's, asks no finder of ours.
        sys.meta_path.insert(0, self)
        loader, finder = importlib.machinery.SourceFileLoader, importlib.machinery.FileFinder
        get_data, path_stats, find_spec = loader.get_data, loader.path_stats, finder.find_spec

        def kept_data(own: importlib.machinery.SourceFileLoader, path: str) -> bytes:
            return self._source(path) if path == own.path and self._is_code(path) else get_data(own, path)

        def no_stats(own: importlib.machinery.SourceFileLoader, path: str) -> Any:
            if path == own.path and self._is_code(path):
                raise OSError  # no time of change: byte code that lies beside the file may be of an edit
            return path_stats(own, path)

        def found_then(own: importlib.machinery.FileFinder, fullname: str, target: ModuleType | None = None) -> Any:
            spec = find_spec(own, fullname, target)
            return None if spec is not None and self._was_missed(fullname, spec) else spec

        # In the classes: every loader and finder of these kinds, whatever made it, then knows the start.
        loader.get_data = kept_data  # type: ignore[method-assign,assignment]  # as above
        loader.path_stats = no_stats  # type: ignore[method-assign,assignment]  # as above
        finder.find_spec = found_then  # type: ignore[method-assign,assignment]  # as above
        self._compare_compiled()

    def _compare_compiled(self) -> None:
        """Tell which extensions and archives are others by now."""
        # Rule: each worker that starts with an exchanged module says so, where that is no source and so not kept. Those
        # that started before have the former, and the run would mix two versions in silence.
        for path, digest in self._code.compiled.items():
            with contextlib.suppress(OSError):  # removed: its import says so
                if _hash_of(Path(path)) != digest:
                    self._tell_compiled(path)

    def _is_code(self, path: str) -> bool:
        if not may_be_users(path):
            return False
        known = not is_installed(Path(path)) and self._hash_at_start(path) is not None
        return known or is_users(Path(path), self._roots)

    def _was_missed(self, fullname: str, spec: importlib.machinery.ModuleSpec) -> bool:
        """Tell whether the topology's import would find more than its check."""
        # Rule: what a topology's own import did not find at the check, or found in a library, it finds so in every
        # worker. A file that was added since (`try: import extra`) gave the workers of one run different code. In
        # methods it is found: a topology may make modules while it runs.
        if fullname not in self._elsewhere or file_being_imported() is None or spec.origin is None:
            return False
        if not self._is_code(spec.origin) or self._hash_at_start(spec.origin) is not None:
            return False
        self._tell_added(spec.origin, False)
        return True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a module: of the user's as it was. Raises StreamletError."""
        if fullname in self._code.modules:
            file, kind = self._code.modules[fullname]
            return self._spec(fullname, file, is_package=kind == "package")
        spec = self._found_by_others(fullname, path, target)
        known = self._known_before(fullname, path, spec)
        if known is not None:
            return self._instead(fullname, spec, *known)
        if spec is None:
            return self._removed_folder(fullname, path)
        # Only what the interpreter itself would read from a source file: loaders of the user's have their own ways.
        if type(spec.loader) is not importlib.machinery.SourceFileLoader or spec.origin is None:
            return spec
        if not self._is_code(spec.origin):
            return spec
        return self._spec(fullname, spec.origin, is_package=spec.submodule_search_locations is not None)

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = None
            if finder is not self and find is not None:
                spec = find(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _known_before(
        self, fullname: str, path: Sequence[str] | None, spec: importlib.machinery.ModuleSpec | None
    ) -> tuple[str, bool] | None:
        """Return a kept file that comes before ``spec``, and whether a package's."""
        # Rule: a kept file is what its module's name means, whatever stands there now. A package in its place, or a
        # library behind it once it was removed, would be other code of the same name.
        if spec is not None and type(spec.loader) not in _OF_FILES:
            return None
        folders = [Path(place).absolute() for place in (sys.path if path is None else path)]
        if spec is not None and spec.origin is not None:
            end = Path(spec.origin).parents[spec.submodule_search_locations is not None]
            # A compiled module comes before a source file beside it, and may have stood there at the start.
            last = type(spec.loader) is not importlib.machinery.ExtensionFileLoader
            folders = folders[: folders.index(end) + last] if end in folders else []
        name = fullname.rpartition(".")[2]
        for folder in folders:
            for file, is_package in ((f"{folder / name}/__init__.py", True), (f"{folder / name}.py", False)):
                # A link costs a look at the disk: only for a module that nobody else has.
                if file in self._code.files or (spec is None and os.path.realpath(file) in self._code.files):
                    return file, is_package
        return None

    def _instead(
        self, fullname: str, spec: importlib.machinery.ModuleSpec | None, file: str, is_package: bool
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a kept file; tell another in its place."""
        if spec is not None and spec.origin not in (None, file) and Path(file).exists():
            self._tell(str(spec.origin))
        return self._spec(fullname, file, is_package)

    @functools.cached_property
    def _folders(self) -> set[Path]:
        """Folders that held kept files at the start."""
        return {folder for file in self._code.files for folder in Path(file).parents}

    def _removed_folder(self, fullname: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a package without ``__init__.py``, now removed."""
        name = fullname.rpartition(".")[2]
        folders = [Path(place).absolute() / name for place in (sys.path if path is None else path)]
        there = [str(folder) for folder in folders if folder in self._folders]
        if not there:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = there
        return spec

    def _spec(self, fullname: str, file: str, is_package: bool) -> importlib.machinery.ModuleSpec | None:
        loader = _KeptLoader(fullname, file, self._source(file))
        places = [str(Path(file).parent)] if is_package else None
        return importlib.util.spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=places)

    def _source(self, file: str) -> bytes:
        try:
            source = Path(file).read_bytes()
        except OSError:
            source = b""
        digest = self._hash_at_start(file)
        if digest is None:
            kept = self._first_import(file, source)
        elif hashlib.sha256(source).hexdigest() == digest:
            kept = source
        else:
            kept = self._from_start(file, digest)
        if kept != source:
            self._tell(file)
        return kept

    def _hash_at_start(self, file: str) -> str | None:
        """Return the hash of a file's source at the start, if kept."""
        files, real = self._code.files, os.path.realpath(file)
        known = files.get(str(Path(file).absolute())) or files.get(real)
        if known is not None:
            return known
        return next((files[before] for before in self._before(real) if before in files), None)

    def _before(self, real: str) -> Iterator[str]:
        """Yield where a file would have been before links were turned."""
        # The topology may have put the real folder of its file, or of a package, on sys.path.
        for link, was in self._code.links.items():
            now = os.path.realpath(link)
            for place, before in ((now, was), (now.rpartition("/")[0], was.rpartition("/")[0])):
                if now != was and real.startswith(f"{place}/"):
                    yield before + real[len(place) :]

    def _from_start(self, file: str, digest: str) -> bytes:
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
        return kept

    def _first_import(self, file: str, source: bytes) -> bytes:
        """Return the source as this file's first importer has read it."""
        # A link is made whole or not at all, by one of several workers: all others, and those that start later, read
        # what that one has read.
        first = self._folder / f"first-{hashlib.sha256(str(Path(file).absolute()).encode()).hexdigest()}"
        own = first.with_name(f"{first.name}.{os.getpid()}")
        try:
            own.write_bytes(source)
            with contextlib.suppress(FileExistsError):
                first.hardlink_to(own)
                if changed_s(file) > self._code.kept_s:
                    self._tell_added(file, True)
            own.unlink()
            return first.read_bytes()
        except OSError:  # no room, or the folder was swept: what is there is all that there is
            return source


class _KeptLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from source at hand, not from its file."""

    def __init__(self, fullname: str, path: str, source: bytes) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_data(self, path: str) -> bytes:
        return self._source if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType | None:
        code = super().get_code(fullname)
        # Rule: a traceback shows the lines that run. Python reads them from the file when it needs them, and after an
        # edit an error would be shown at a line of another function. None for the time: never stale.
        lines = importlib.util.decode_source(self._source).splitlines(keepends=True)
        linecache.cache[self.path] = len(self._source), None, lines, self.path
        return code

    def path_stats(self, path: str) -> Any:
        raise OSError  # no time of change: byte code that lies beside the file may be of an edit
