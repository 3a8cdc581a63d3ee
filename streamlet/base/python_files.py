"""The Python files below a folder or of a package, for code that is compared or travels."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from streamlet.base.readable import is_there


def package_files(package: str) -> Iterator[tuple[Path, str]]:
    """Yield the Python files of a package, with names for a zip; no tests."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is imported by this very package"
    folder = Path(spec.origin).parent
    for path in python_files(folder):
        if "tests" not in path.relative_to(folder).parts:
            yield path, str(path.relative_to(folder.parent))


def python_files(folder: Path, most_folders: int | None = None, *, follow_links: bool = False) -> Iterator[Path]:
    """Yield the importable files below a folder, the nearest first.

    Those behind links to folders, where these are followed, come last.
    """
    waiting, linked = deque([folder]), deque[Path]()
    for _ in itertools.count() if most_folders is None else range(most_folders):
        if not waiting and not linked:
            return
        here = (waiting or linked).popleft()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:  # unreadable, or removed meanwhile
            continue
        for entry in entries:
            # Hidden folders, caches and virtual environments are nobody's modules.
            if entry.is_dir(follow_symlinks=False) or (follow_links and _leads_aside(entry)):
                below = here / entry.name
                # Rule: a folder that is closed holds nothing. Path.exists alone raises there, and one beside a
                # topology would refuse each of its runs.
                environment = is_there(below / "pyvenv.cfg")
                if below.name.isidentifier() and below.name != "__pycache__" and not environment:
                    (linked if entry.is_symlink() else waiting).append(below)
            # A hidden file, or a link to nowhere, is an editor's: nobody imports it.
            elif entry.name.endswith(".py") and not entry.name.startswith(".") and entry.is_file():
                yield here / entry.name


def _leads_aside(entry: os.DirEntry[str]) -> bool:
    """Tell whether a link leads to a folder not above itself."""
    # A link to a folder above itself would give the same files again, under ever longer names.
    try:
        return entry.is_dir() and not Path(entry.path).parent.resolve().is_relative_to(Path(entry.path).resolve())
    except (OSError, RuntimeError):  # a ring of links
        return False
