"""The parent of one JVM: it lets the JVM live exactly as long as the process that asked for it.

Run as a script by ``streamlet.devcluster.jvm``: ``python -I -S keeper.py OWNER_PID MODE COMMAND...``;
imports only the standard library, starts in 20 ms.

Why a process between. PR_SET_PDEATHSIG fires when the *thread* that forked ends, so a cluster started from a
worker thread would die with that thread; and setting it needs code between fork and exec, unsafe in a process
with threads. A pipe that the owner holds open is inherited by whatever the owner forks, so it may outlive the
owner. The keeper has one thread, watches the owner through a pidfd (nobody inherits it, a recycled pid cannot
fool it) and sets PR_SET_PDEATHSIG on the JVM, so that the keeper's own death ends the JVM too.

Modes. ``owned``: the JVM's pid is said on standard output, what the JVM says goes to standard error.
``detachable``: the same without PR_SET_PDEATHSIG; a byte on standard input ends the keeper and leaves the JVM
running. ``tool``: the JVM has our standard input, output and error, and nothing is said.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1


def exec_jvm(command: list[str], keeper: int, mode: str) -> None:
    """Become the JVM, in the forked child. Never returns.

    It gets a session of its own; a server also gets no input and writes to its log.
    """
    # A session of its own: Ctrl-C goes to the whole foreground group of a terminal, and would end servers in any order
    # before their owner has said how.
    os.setsid()
    if mode != "detachable":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it died before the line above: no signal will come any more
            os._exit(1)
    if mode != "tool":
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
    try:
        os.execv(command[0], command)  # noqa: S606 - a list of arguments, no shell
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
        os._exit(127)


def keep(owner: int, mode: str, command: list[str]) -> int:
    """Start the JVM, and end it when the owner ends.

    Returns the JVM's exit status (128 + signal).
    """
    # Opened first and compared after: if the owner is still our parent, the descriptor is the owner's for good, even
    # if another process gets its number later.
    owner_fd = os.pidfd_open(owner)
    me = os.getpid()
    if os.getppid() != owner:
        return 1
    jvm = os.fork()
    if jvm == 0:
        exec_jvm(command, me, mode)
    jvm_fd = os.pidfd_open(jvm)
    if mode != "tool":
        os.write(1, b"%d\n" % jvm)
    watched = select.poll()
    for fd in (owner_fd, jvm_fd, *((0,) if mode == "detachable" else ())):
        watched.register(fd, select.POLLIN)
    ready = {fd for fd, _ in watched.poll()}
    if jvm_fd not in ready:
        # An end of file is no release: an owner that closes the pipe without its byte is ending, and takes the JVM
        # along.
        if owner_fd not in ready and os.read(0, 1):
            return 0  # released: the JVM now lives on its own
        signal.pidfd_send_signal(jvm_fd, signal.SIGKILL)
    _, status = os.waitpid(jvm, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
