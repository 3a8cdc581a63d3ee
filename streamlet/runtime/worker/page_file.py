"""The file of a page (``tasks.in_hand``) and of counts (``tasks.untracked_counts``).

It is memory of a worker that is still there when its process is not.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from streamlet.runtime.tasks.in_hand import PAGE_BYTES
from streamlet.runtime.tasks.untracked_counts import page_size


def make_page(path: str, tasks: int) -> mmap.mmap:
    """Make and map a page and the counts of so many tasks. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Its blocks at once: on a full disk a write into the mapping of a file with holes is a SIGBUS, not an error.
        os.posix_fallocate(descriptor, 0, page_size(tasks))
        return mmap.mmap(descriptor, page_size(tasks))
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
        page = mmap.mmap(descriptor, 0)
        return page if len(page) >= PAGE_BYTES else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
