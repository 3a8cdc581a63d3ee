"""Zips of Python files on their way to executors."""

from __future__ import annotations

import itertools
import os
import threading
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

_numbers = itertools.count()


def write_zip(files: Mapping[str, bytes], folder: Path, stem: str) -> Path:
    """Write files by name into a zip ``STEM-DIGEST.zip`` in ``folder``; return its path. Any thread.

    Its name tells the content: executors keep what they have under a name.
    """
    digest = 0
    for name in sorted(files):
        digest = zlib.crc32(files[name], zlib.crc32(name.encode(), digest))
    wanted = folder / f"{stem}-{digest:08x}.zip"
    if not wanted.exists():
        # Rule: a file of its own until it is whole: another thread may write the same zip, and would rename half of it.
        # Not mkstemp's, which nobody but this user may read, and an executor may be another user's.
        partial = folder / f".{wanted.name}.{os.getpid()}.{threading.get_ident()}.{next(_numbers)}"
        with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            # Python before 3.13 finds a package without __init__.py in a zip by the entry of its folder alone.
            for above in sorted({f"{above}/" for name in files for above in Path(name).parents[:-1]}):
                archive.writestr(above, b"")
            for name in sorted(files):
                archive.writestr(name, files[name])
        partial.replace(wanted)
    return wanted
