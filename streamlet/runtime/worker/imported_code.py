"""Which code a run is of: that which this process has imported, whatever stands in the files by now.

In a program that stays, as a notebook's kernel, a file may be edited long after its import, and between two runs.
Workers that import the edit would run other classes than the one whose ``run`` was called.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamlet.base.loaded_sources import file_of, load_of, note_file
from streamlet.runtime.worker.loading import code_roots, side_notes
from streamlet.runtime.worker.users_files import is_users


@dataclass(frozen=True, slots=True)
class ImportedCode:
    """The user's modules as they were imported."""

    sources: Mapping[str, bytes] = field(default_factory=dict)
    """By absolute path."""
    modules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name in ``sys.modules`` -> its file, and "package" or "module"."""
    edited: Sequence[str] = ()
    """Files that hold another text by now, or are gone."""
    mixable: str = ""
    """One of them that an edit came to, not the topology's own import; else empty."""
    former: Mapping[str, bytes] | None = None
    """With a mixable file: what files that nothing had imported held in the run before; None without such a run."""

    def text_of(self, path: str) -> bytes | None:
        """Return the text that belongs to this version; None where it is what stands in the file."""
        return self.sources.get(path, (self.former or {}).get(path))

    def told(self, path: str) -> str:
        """Say of an edited file that the run is of another version."""
        what = "changed" if Path(path).exists() else "removed"
        main = file_of(sys.modules.get("__main__"))
        names = [name for name, (file, _) in self.modules.items() if file == path and path != main]
        reload = f", or reload it (importlib.reload({names[0]})) and what imports it" if names else ""
        return (
            f"{path} was {what} after this process had imported it. The run is of the version that was imported. To "
            f"take the change, start the program again{reload} before the next run."
        )


def imported_code(file: Path) -> ImportedCode:
    """Return the code that this process has imported for a topology's file."""
    notes, roots = side_notes(file), code_roots(file)
    sources = dict(notes.sources)
    modules: dict[str, Sequence[str]] = {}
    for name, module in list(sys.modules.items()):
        path = file_of(module)
        if name == "__main__" or path is None or not is_users(Path(path), roots):
            continue
        load = load_of(module) or note_file(module)
        # A file that cannot be read was made by something that has none any more: every worker has to make it, too.
        if load is not None:
            modules[name] = path, "package" if hasattr(module, "__path__") else "module"
            sources[path] = load.source
    edited, mixable = [], ""
    for path, source in sources.items():
        there = _text_in(path)
        # What a topology writes when it is imported, each of its workers may write again, or remove.
        is_own = path in notes.made
        if there != source and not (there is None and is_own):
            edited.append(path)
            mixable = mixable or ("" if is_own or there is None else path)
    return ImportedCode(sources, modules, edited, mixable, notes.beside if mixable else None)


def _text_in(path: str) -> bytes | None:
    """Return what stands in a file; None where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
