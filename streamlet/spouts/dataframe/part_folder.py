"""The folder of a DataFrame's parts, and the folder of markers of those that are done."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from streamlet.base.errors import BadInput, StreamletError
from streamlet.base.whole_file import write_whole
from streamlet.spouts.dataframe.parts import MANIFEST, Part, done_text, folder_problem, hidden, manifest_rows

MARKER = ".done"


class PartsUnreadable(BadInput):
    """A folder or a file cannot be read as parts."""


class ProgressNotKept(StreamletError):
    """A part is done, and its marker could not be written."""


def find_parts(folder: Path, component: str) -> tuple[list[Part], dict[str, int]]:
    """Return the parts in a folder, and their rows by its manifest.

    Raises PartsUnreadable.
    """
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries]
        text = _text_of(folder / MANIFEST)
        listed = None if text is None else manifest_rows(text)
        files = [name for name, is_folder in found if not is_folder]
        if problem := folder_problem(files, [name for name, is_folder in found if is_folder], listed):
            raise PartsUnreadable(_said(component, folder, problem))
        names = sorted(name for name in files if not hidden(name))
        return [_part(folder, name) for name in names], listed or {}
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PartsUnreadable(_said(component, folder, problem.rstrip("."))) from error


def _part(folder: Path, name: str) -> Part:
    status = (folder / name).stat()
    return Part(name, status.st_size, status.st_mtime_ns)


def _said(component: str, folder: Path, problem: str) -> str:
    return (
        f"{component} cannot read the parts of its DataFrame in {folder} on {socket.gethostname()}: {problem}. Every "
        "worker reads this folder, so it must be there under one path on all their machines, with the same files: a "
        "local one where all workers are on this machine, else one of a shared file system. In a program with a Spark "
        "session, streamlet.spark.write_parts(df, FOLDER) fills it."
    )


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


class DoneMarkers:
    """Keeps a file for each part that is done.

    In a folder of one component of one topology.
    """

    def __init__(self, progress: Path, topology: str, component: str) -> None:
        self._folder = progress / f"{topology}.{component}"
        self._component = component

    def read(self) -> dict[str, str]:
        """Return what the markers say, by part. Raises ProgressNotKept."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(MARKER) and not hidden(entry.name)]
            return {name.removesuffix(MARKER): (self._folder / name).read_text(encoding="utf-8") for name in names}
        except (OSError, ValueError) as error:
            raise ProgressNotKept(
                f"{self._component} cannot use {self._folder} on {socket.gethostname()} for the markers of parts that "
                f"are done: {error}. Give progress= a folder that it may write, which all workers share."
            ) from error

    def note(self, part: Part, rows: int) -> None:
        """Note for later starts that a part is done. Raises ProgressNotKept."""
        try:
            write_whole(self._folder / f"{part.name}{MARKER}", lambda file: file.write(done_text(part, rows).encode()))
        except OSError as error:
            raise ProgressNotKept(
                f"{self._component} could not note in {self._folder} that {part.name} is done: {error.strerror}. No "
                f"row is lost: all {rows} were processed, and the next run reads this part again. Make room there, or "
                "give progress= another folder."
            ) from error
