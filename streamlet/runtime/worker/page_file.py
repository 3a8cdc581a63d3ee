"""The file of a page (``tasks.in_hand``): memory of a worker that is still there when its process is not."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from streamlet.runtime.tasks.in_hand import PAGE_BYTES


def make_page(path: str) -> mmap.mmap:
    """Make and map the file of a page. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Its blocks at once: on a full disk a write into the mapping of a file with holes is a SIGBUS, not an error.
        os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        return mmap.mmap(descriptor, PAGE_BYTES)
    except OSError:
        Path(path).unlink()
        raise
    finally:
        os.close(descriptor)


def map_page(path: str) -> mmap.mmap | None:
    """Map the page that somebody else made; None where it is not, as on another machine."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return mmap.mmap(descriptor, PAGE_BYTES)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
