"""Tells whose a file is: the user's, a library's, or the interpreter's own."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Sequence
from pathlib import Path

_INSTALLED = tuple(
    Path(path).resolve()
    for path in {*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
)
_LIBRARIES = {"site-packages", "dist-packages"}
OWN = Path(__file__).resolve().parents[2]
"""Streamlet's own folder."""


def is_library(place: Path) -> bool:
    """Tell whether a folder holds installed packages, or is none."""
    real = place.resolve()
    return is_installed(real) or not real.is_dir()


def is_installed(real: Path) -> bool:
    """Tell whether a file without links is a library's, or streamlet's."""
    return any(real.is_relative_to(other) for other in (*_INSTALLED, OWN)) or not _LIBRARIES.isdisjoint(real.parts)


@functools.cache
def _is_interpreters(folder: str) -> bool:
    """Tell whether a folder is one of the interpreter's, or of streamlet."""
    places = Path(folder), Path(folder).resolve()
    return all(any(one.is_relative_to(other) for other in (*_INSTALLED, OWN)) for one in places)


def may_be_users(path: str) -> bool:
    """Tell whether a source file may be the user's, by its folder."""
    # Asked twice for each module of each library: so a thousand of them cost nothing.
    return path.endswith(".py") and (not _is_interpreters(path.rpartition("/")[0]) or Path(path).is_symlink())


def is_users(path: Path, roots: Sequence[Path]) -> bool:
    """Tell whether a file below the roots is the user's."""
    real = path.resolve()
    if any(real.is_relative_to(other) for other in (*_INSTALLED, OWN)):
        return False
    # What a link in the folder leads to is the user's, wherever it lies. A virtual environment in the folder, or behind
    # a link, is not: what is installed there is no more the user's than the interpreter.
    below = [one.relative_to(root) for one in (path.absolute(), real) for root in roots if one.is_relative_to(root)]
    behind = [] if any(real.is_relative_to(root) for root in roots) else [real]
    return bool(below) and all(_LIBRARIES.isdisjoint(one.parts) for one in (*below, *behind))
