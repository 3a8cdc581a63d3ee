"""TCP's own probes, with times that suit the user and not the kernel's two hours."""

from __future__ import annotations

import socket
import sys


def keep_alive(sock: socket.socket, idle_s: int, probes: int, answer_within_s: float | None = None) -> None:
    """Let the kernel probe an idle TCP connection; it ends without an answer.

    The first probe leaves after ``idle_s``; ``probes`` of them, the same time apart, may go unanswered.
    ``answer_within_s``: the longest that sent bytes may wait for the other kernel, a closed window included, so only
    for protocols whose peers read at once. Nothing happens to a socket that is not TCP.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform != "linux":
        return
    for option, value in ((socket.TCP_KEEPIDLE, idle_s), (socket.TCP_KEEPINTVL, idle_s), (socket.TCP_KEEPCNT, probes)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    if answer_within_s is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(answer_within_s * 1000))
