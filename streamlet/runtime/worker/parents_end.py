"""Ends a worker whose coordinator died though its code holds the interpreter's lock: by the kernel, without Python.

The control thread ends an orphan in order, within seconds. It never runs while a C library holds the lock, and such a
call may last for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from typing import NoReturn

PR_SET_PDEATHSIG = 1
SIGSTKFLT = 16
"""A signal that nothing else sends. Its number is that of the seconds: see below."""

END_S = SIGSTKFLT
"""Seconds from the coordinator's death to the end of a worker that has not ended by itself."""

GONE_S = 1.0
"""Seconds between the end of a killed coordinator's channels and its own."""

LOOK_S = 0.02
"""Seconds between two looks at who the parent is."""


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


def is_gone(parent: int, seconds: float = GONE_S) -> bool:
    """Tell whether a former parent has ended; wait for that so long."""
    # A dying process closes its channels before its children get another parent.
    deadline = time.monotonic() + seconds
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return os.getppid() != parent


def end_group_after(parent: int, seconds: float) -> None:
    """Have a thread end this process's group so long after its parent."""

    def watch() -> None:
        while not is_gone(parent):
            pass
        time.sleep(seconds)
        end_with_group(1)

    with contextlib.suppress(RuntimeError):  # no thread can be had: the kernel ends this process
        threading.Thread(target=watch, name="parents-end", daemon=True).start()


def end_with_group(status: int) -> NoReturn:
    """End this process, and the group that it leads."""
    # Rule: a worker without a coordinator kills its own group as its last act. At any other end the coordinator kills
    # it. Without this, pools and programs that components had started stayed for ever.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(status)
