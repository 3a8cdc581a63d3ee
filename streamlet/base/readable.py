"""Asks whether a file or folder that a user names may be read, before anything relies on it."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def is_there(path: Path) -> bool:
    """Tell whether something is there; where nobody may look, nothing is."""
    try:
        return path.exists()
    except OSError:
        return False


def why_unreadable(path: Path) -> str:
    """Return why a path that may be there cannot be read; empty if nothing forbids it, or nothing is there."""
    # Rule: ask here before Path.exists, is_file or is_dir of a path that a user gave. They raise where a folder on the
    # way is closed, and the error would be called a bug of ours.
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(path, os.R_OK) else os.strerror(errno.EACCES)
