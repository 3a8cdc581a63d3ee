"""Ends a worker whose coordinator died though its code holds the interpreter's lock: by the kernel, without Python.

The control thread ends an orphan in order, within seconds. It never runs while a C library holds the lock, and such a
call may last for ever.
"""

from __future__ import annotations

import ctypes
import sys

PR_SET_PDEATHSIG = 1
SIGSTKFLT = 16
"""A signal that nothing else sends. Its number is that of the seconds: see below."""

END_S = SIGSTKFLT
"""Seconds from the coordinator's death to the end of a worker that has not ended by itself."""


def end_after_parent() -> None:
    """Let this process end END_S after the thread that started it."""
    if not sys.platform.startswith("linux"):
        return
    # Rule: nothing on this way needs the interpreter's lock. The kernel sends a signal when the parent dies; its
    # handler is `alarm` of the C library itself, which takes the signal's number for seconds; and SIGALRM, which has no
    # handler here, ends the process. A SIGKILL at the parent's death would leave no time to clean up in order.
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(SIGSTKFLT, ctypes.cast(libc.alarm, ctypes.c_void_p))
    libc.prctl(PR_SET_PDEATHSIG, SIGSTKFLT)
