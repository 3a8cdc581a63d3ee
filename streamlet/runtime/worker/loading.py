"""Finding a topology in a file, alike in every process that runs a part of it.

The file's own folder goes first on ``sys.path`` and the file is imported by its stem (in a package: by its dotted
name), never as ``__main__``: its classes have one name everywhere, and modules that lie beside it can be imported.
A folder ``src`` beside the file's own goes last, as in a streamparse project.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from streamlet.base.errors import BadInput, StreamletError, hurts_one_tuple, text_of
from streamlet.base.loaded_sources import file_clock_s, load_of, note_read, source_of_main
from streamlet.base.readable import why_unreadable
from streamlet.model.pystorm_names import PAGE
from streamlet.model.topology import TopologySpec, is_topology
from streamlet.runtime.worker.log_lines import keep_shown
from streamlet.runtime.worker.users_files import is_library, is_users, may_be_users
from streamlet.runtime.worker.wrong_calls import remedy_for

NULL_BYTES_FOUND = "source code string cannot contain null bytes"
"""The text of the ValueError that older Pythons raise for such a file; newer ones raise a SyntaxError."""

_file_being_imported: ContextVar[Path | None] = ContextVar("file_being_imported", default=None)


class CannotLoad(BadInput):
    """The file does not import, or holds no such topology."""


class ImportedOtherwise(StreamletError):
    """A worker could not import the file that its coordinator imported."""

    def __init__(self, worker: int, file: str, error: CannotLoad) -> None:
        super().__init__(
            f"In worker {worker}, on importing {file} there: {error.message} Where the run was started, the file "
            "could be imported and gave the topology. What may differ in a worker: sys.path, environment variables, "
            "the working directory, the machine, or an `if` in the file that looks at one of these or at how it was "
            "started."
        )


def load_topology(
    file: Path, name: str | None = None, notes_sources: bool = True, known_as: str | None = None
) -> TopologySpec:
    """Return the topology called ``name`` in a file, or the only one. Raises CannotLoad.

    ``notes_sources``: for a run that starts after this check, and keeps the code that was imported. ``known_as``: the
    name of its module where that is loaded, or was kept, and the file may be gone.
    """
    module = _import(file, notes_sources, known_as)
    found = {key: value.__topology__ for key, value in vars(module).items() if is_topology(value)}
    if name is not None:
        if name not in found:
            have = f"It has: {', '.join(sorted(found))}." if found else "It has no Topology at all."
            raise CannotLoad(f"{file} has no topology called {name!r}. {have}")
        return found[name]
    own = {key: spec for key, spec in found.items() if vars(module)[key].__module__ == module.__name__}
    candidates = own or found
    if not candidates:
        raise CannotLoad(
            f"{file} holds no topology{_of_another_package(module)}. Write a class that inherits from "
            "streamlet.Topology and names its spouts and bolts in its body."
        )
    if len(candidates) > 1:
        names = ", ".join(sorted(candidates))
        raise CannotLoad(f"{file} holds {len(candidates)} topologies: {names}. Say which one: {file}:NAME.")
    return next(iter(candidates.values()))


def _of_another_package(module: ModuleType) -> str:
    """Say that a file's topology is streamparse's, where that is installed; empty otherwise."""
    kinds = [base for value in vars(module).values() if isinstance(value, type) for base in value.__mro__]
    theirs = [kind for kind in kinds if kind.__module__.partition(".")[0] in ("streamparse", "pystorm")]
    return f" of streamlet's, but classes of {theirs[0].__module__} (`streamlet docs {PAGE}`)" if theirs else ""


def place_of(file: Path) -> tuple[Path, str]:
    """Return the folder that ``file`` is imported from, and its name there: dotted where it lies in a package.

    A folder with an ``__init__.py`` is a package, so that relative imports in the file work as they do elsewhere.
    """
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _forget_former_program(file: Path, name: str) -> None:
    """Forget the import of a script that ran before with another text."""
    # Rule: a script is run again in one process, too (IPython's %run). Its class is of the text of now, and the workers
    # of the run would import that of its first time.
    program, former = source_of_main(str(file)), sys.modules.get(name)
    load = None if former is None else load_of(former)
    if program is not None and load is not None and load.source != program:
        del sys.modules[name]


def known_place(file: Path) -> tuple[Path, str]:
    """Return where this process has imported a file from, or would."""
    # A package's files may be gone by now.
    return side_notes(file).place or place_of(file.absolute())


def source_folder(file: Path) -> Path | None:
    """Return the ``src`` beside the folder of ``file``, where there is one."""
    folder = file.absolute().parent.parent / "src"
    return folder if folder.is_dir() else None


def code_roots(file: Path) -> list[Path]:
    """Return the folders of the user's code.

    They are the one that ``file`` is imported from, ``src``, and what the topology itself put on ``sys.path``: as they
    are imported from, and without links.
    """
    # Rule: the folder of a link's target is one, too, and one that the topology put on sys.path. A topology's file, or
    # a package, that is a link may put its real folder there: neighbours in it are code of the run like any other.
    added = [Path(place).absolute() for place in list(side_notes(file).places) if not is_library(Path(place))]
    nearest = [known_place(file)[0], source_folder(file), place_of(file.resolve())[0], *added]
    roots = [root for root in nearest if root is not None]
    return [*dict.fromkeys([*roots, *(root.resolve() for root in roots)])]


def _import(file: Path, notes_sources: bool, known_as: str | None) -> ModuleType:
    file = file.absolute()
    if known_as is None:
        _check_is_module(file)
        folder, name = place_of(file)
    else:
        folder, name = file.parents[known_as.count(".")], known_as
    _forget_former_program(file, name)
    side_notes(file).place = folder, name
    _put_on_path(file, folder)
    _check_name_is_free(file, folder, name)
    token = _file_being_imported.set(file)
    try:
        with _noted(file, name, notes_sources):
            return importlib.import_module(name)
    except SyntaxError as error:
        place = f"line {error.lineno}" if error.lineno else "at its start"
        raise CannotLoad(
            f"{error.filename or file} does not parse: {error.msg}, {place}. Nothing was started."
        ) from error
    except StreamletError as error:  # a setting in the file that cannot be: its own paragraph says all
        raise CannotLoad(f"{file}, {_place(error, file)}: {error.message}") from error
    # SystemExit, too: a topology's file cannot be told from a program, and must not decide our exit status.
    except BaseException as error:
        if not (hurts_one_tuple(error) or isinstance(error, SystemExit)):
            raise
        # Python up to 3.11.3 raises this for a file with null bytes, later ones a SyntaxError.
        if type(error) is ValueError and str(error) == NULL_BYTES_FOUND:
            raise CannotLoad(f"{file} does not parse: {error}, at its start. Nothing was started.") from error
        raise CannotLoad(
            f"{file} raised {type(error).__name__} ({_place(error, file)}): {text_of(error).rstrip('.')}. "
            + (remedy_for(error) or _must_import(error))
        ) from error
    finally:
        _file_being_imported.reset(token)
        keep_shown()


def _check_is_module(file: Path) -> None:
    """Check that every worker can import a file. Raises CannotLoad."""
    why = why_unreadable(file)
    if why:
        raise CannotLoad(
            f"{file} cannot be read: {why}. The user that starts a run (here number {os.geteuid()}) must have "
            "the right to read the file, and to enter the folders above it. Nothing was started."
        )
    if file.is_dir():
        raise CannotLoad(f"{file} is a folder. Give the path of a Python file that holds a topology.")
    if not file.is_file():
        raise CannotLoad(f"There is no file {file}. Give the path of a Python file that holds a topology.")
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise CannotLoad(
            f"{file.name} cannot be imported by every worker: the file must be a Python module, with a name "
            "made of letters, digits and underscores and ending in .py."
        )


def _put_on_path(file: Path, folder: Path) -> None:
    """Put ``folder``, the file's own and ``src`` beside it on ``sys.path``: the nearest first, ``src`` last."""
    for first in dict.fromkeys([str(file.parent), str(folder)]):
        if first in sys.path:
            sys.path.remove(first)
        sys.path.insert(0, first)
    beside = source_folder(file)
    if beside is not None and str(beside) not in sys.path:
        sys.path.append(str(beside))
    importlib.invalidate_caches()


def _check_name_is_free(file: Path, folder: Path, name: str) -> None:
    """Check that no other module has the file's name. Raises CannotLoad."""
    # The import would return that other module, in silence: one of the standard library, or another file of the user's.
    top = name.partition(".")[0]
    wanted = file if top == name else folder / top / "__init__.py"
    present = sys.modules.get(top)
    if present is not None and Path(getattr(present, "__file__", None) or "").absolute() != wanted:
        raise CannotLoad(
            f"{file} would be imported as {name!r}, and a module named {top!r} is loaded already, from "
            f"{getattr(present, '__file__', 'the interpreter itself')}. Rename "
            f"{'the file' if top == name else f'the folder {folder / top}'}."
        )


@dataclass(slots=True, eq=False)
class SideNotes(MetaPathFinder):
    """What a topology's import does beside it.

    ``missed``: names that it looked for and did not find. ``places``: folders that it put on ``sys.path``. ``sources``:
    what it read of the user's files, by absolute path; ``made``: those of them that were written after it began, at
    ``began_s`` (seconds since 1970). ``place``: the folder that the file is imported from, and its name there.
    ``load``: the spec of the module that it made. ``beside``: what the files that it did not read held when the last
    run was checked.
    """

    missed: set[str] = field(default_factory=set)
    places: dict[str, None] = field(default_factory=dict)
    sources: dict[str, bytes] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    began_s: float = 0.0
    place: tuple[Path, str] | None = None
    load: object = None
    beside: dict[str, bytes] | None = None

    def begin(self, module: ModuleType | None) -> None:
        """Forget the former load of a topology's module, unless it stands."""
        # Rule: what an import has read is what runs until the module is loaded again. A second run in one process
        # imports nothing, and forgot what the first had read: its workers took an edit that the process had not.
        if module is not None and getattr(module, "__spec__", None) is self.load:
            return
        noted = None if module is None else load_of(module)
        self.began_s = file_clock_s() if noted is None else noted.noted_s
        self.sources, self.made, self.beside, self.load = {}, set(), None, None

    def read(self, path: str, loader: importlib.machinery.SourceFileLoader, source: bytes) -> bytes:
        """Note what an import reads; return what it is to load."""
        # Rule: a script is imported a second time, under its own name, when it calls run: its text is then the one that
        # the program was started with. An edit meanwhile would be other code than the program's own.
        self.sources[path] = source = source_of_main(path) or source
        note_read(loader, source)
        if changed_s(path) >= self.began_s:
            self.made.add(path)
        return source

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Note a name that no other finder has found, and find nothing."""
        self.missed.add(fullname)


_side_notes: dict[Path, SideNotes] = {}


@contextlib.contextmanager
def _noted(file: Path, name: str, notes_sources: bool) -> Iterator[None]:
    """Note what an import of this file does beside it."""
    notes, before = side_notes(file), set(sys.path)
    notes.begin(sys.modules.get(name))

    def note_places() -> None:
        notes.places.update((path, None) for path in sys.path if isinstance(path, str) and path not in before)

    sys.meta_path.append(notes)
    try:
        with _sources_noted(file, notes, note_places) if notes_sources else contextlib.nullcontext():
            yield
        notes.load = getattr(sys.modules.get(name), "__spec__", None)
    finally:
        with contextlib.suppress(ValueError):  # the topology may have cleared the list
            sys.meta_path.remove(notes)
        note_places()


@contextlib.contextmanager
def _sources_noted(file: Path, notes: SideNotes, note_places: Callable[[], None]) -> Iterator[None]:
    """Note the source of each file of the user's that is loaded."""
    # Rule: the code of a run is what the check has imported, byte for byte, and not what stands in the file once the
    # import is over: it may take seconds, and an edit meanwhile gave the workers code that nobody had checked. Byte
    # code is passed over, as in the workers: it may be of another source of the same second and size.
    loader = importlib.machinery.SourceFileLoader
    get_data, path_stats = loader.get_data, loader.path_stats
    readers: dict[str, object] = {}
    roots, places = code_roots(file), len(notes.places)

    def is_code(own: importlib.machinery.SourceFileLoader, path: str) -> bool:
        nonlocal roots, places
        if path != own.path or not may_be_users(path):
            return False
        note_places()
        if len(notes.places) != places:
            roots, places = code_roots(file), len(notes.places)
        return is_users(Path(path), roots)

    def noted_data(own: importlib.machinery.SourceFileLoader, path: str) -> bytes:
        data = get_data(own, path)
        # Asked again by the same loader, for the text of a module that is loaded, it may be of an edit.
        if is_code(own, path) and readers.get(path) is not own:
            readers[path], data = own, notes.read(str(Path(path).absolute()), own, data)
        return data

    def no_stats(own: importlib.machinery.SourceFileLoader, path: str) -> Any:
        if is_code(own, path):
            raise OSError  # no time of change: then no byte code is looked for
        return path_stats(own, path)

    loader.get_data = noted_data  # type: ignore[method-assign,assignment]  # put back below
    loader.path_stats = no_stats  # type: ignore[method-assign,assignment]  # as above
    try:
        yield
    finally:
        # As they were; but what the topology, or a library of its, has put in their place stays.
        if loader.get_data is noted_data:
            loader.get_data = get_data  # type: ignore[method-assign]  # a method of its own before
        if loader.path_stats is no_stats:
            loader.path_stats = path_stats  # type: ignore[method-assign]  # as above


def changed_s(file: str) -> float:
    """Return when a file came to its place, or was written last; 0 where it is not there."""
    # A link in its path that was turned has brought it there, too. Times of change: that of the content can be set.
    path = Path(file).absolute()
    try:
        times = [path.stat().st_ctime, path.lstat().st_ctime]
        return max(times + [place.lstat().st_ctime for place in path.parents if place.is_symlink()])
    except OSError:
        return 0.0


def side_notes(file: Path) -> SideNotes:
    """Return what this process noted when it imported a topology's file."""
    return _side_notes.setdefault(file.absolute(), SideNotes())


def file_being_imported() -> Path | None:
    """Return the topology's file that this thread is importing, or None."""
    return _file_being_imported.get()


def _must_import(error: BaseException) -> str:
    """Say what a file that raised has to do."""
    also = "; what it imports must be installed or lie beside it" if isinstance(error, ImportError) else ""
    return f"A topology's file must import cleanly in every worker{also}."


def _place(error: BaseException, file: Path) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    here = [at for at, frame in enumerate(frames) if frame.filename == str(file)]
    if not here:
        return "while it was imported"
    roots = code_roots(file)
    # A module of the user's that this line imports has the line to look at.
    through = [frame for frame in frames[here[-1] + 1 :] if may_be_users(frame.filename)]
    through = [frame for frame in through if is_users(Path(frame.filename), roots)]
    by = f", through {through[-1].filename}:{through[-1].lineno}" if through else ""
    return f"line {frames[here[-1]].lineno}{by}"
