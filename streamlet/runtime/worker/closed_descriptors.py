"""The end of a worker whose own descriptors user code closed: it has no channel left to say so."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection
from typing import NoReturn

STATUS = 113
"""Exit status of such a worker."""

HOW = "ended with descriptors closed that are streamlet's own (os.closerange does so)"


def is_closed(error: BaseException) -> bool:
    """Tell whether the kernel does not know a descriptor of ours."""
    # Outside of user code alone: what a component raises itself has become a failed tuple, or a ComponentFailed.
    return isinstance(error, OSError) and error.errno == errno.EBADF


def end(worker: int, epoch: int, components: Collection[str], shown: bool) -> NoReturn:
    """End this process at once; ``shown`` adds a line on standard error."""
    # Rule: no orderly close. It would meet the next closed descriptor, or one of the user's with that number; and it
    # would clear the page, which says on what the loop was at work.
    if shown:
        told = (
            f"Worker {worker} (epoch {epoch}) {HOW}. It has the code of {', '.join(sorted(components))}: that, or a "
            "library, closes by number what it has not opened.\n"
        )
        with contextlib.suppress(OSError):
            os.write(2, told.encode())
    os._exit(STATUS)
