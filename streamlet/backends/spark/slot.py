"""The body of a Spark task: dial the coordinator, be a worker, leave nothing behind. Imports no pyspark."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamlet.base.open_files import flush_open_files
from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import dial
from streamlet.runtime.links.handshake import Hello, Refused
from streamlet.runtime.links.tls import LinkSocket, LinkTls
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, FrameReader, FrameWriter
from streamlet.runtime.worker.channel import ControlChannel
from streamlet.runtime.worker.messages import Event, Failed, Message, Stopped, event_of
from streamlet.runtime.worker.printed_lines import PrintedLines
from streamlet.runtime.worker.worker import serve

LINGER_S = 3.0
"""Seconds to wait for the other end to close."""


def run_slot(
    unpacked: str,
    *,
    address: tuple[str, int],
    run_id: bytes,
    secret: bytes,
    worker: int,
    epoch: int,
    name: str,
    origin: str,
    folder: str | None,
    certificate: bytes = b"",
    shared: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Be a worker; return its exit status and how it ended. Called on the task's main thread."""
    hello = Hello(handshake.CONTROL, run_id, worker, epoch, wanted=0)
    try:
        tls = LinkTls(certificate) if certificate else None
        secured = dial(("tcp", *address), hello, secret, MAX_CONTROL_FRAME, tls)
    except (Refused, OSError) as error:
        return 1, f"could not join its coordinator at {address[0]} (port {address[1]}): {error}"
    channel = SlotChannel(secured.sock, secured.writer, secured.reader)
    channel.places = unpacked, origin
    if folder is not None:
        with contextlib.suppress(OSError):
            os.chdir(folder)  # relative paths mean what they mean to worker processes
    try:
        with channel.lines as lines, contextlib.redirect_stdout(lines):
            file = str(Path(unpacked) / name)
            private: dict[str, Any] = {"secret": secret, "certificate": certificate}
            here: dict[str, Any] = {"host": socket.gethostname(), "executor": executor_id()}
            status = serve(channel, shared, file=file, **here, **private)
            # As a worker process does at its end. This one lives on for other tasks, and files of objects that refer
            # to each other stay open in it.
            gc.unfreeze()
            for failed in flush_open_files():
                sys.stderr.write(f"Not everything could be written to a file that was left open, {failed}\n")
    finally:
        hang_up(channel.sock)
    return status, f"ended with status {status}"


def executor_id(first: int | None = None) -> str:
    """Return the number of the executor above this process, or above ``first``.

    "driver" of a local master; empty where the kernel does not say.
    """
    # Spark tells its Python workers everything but this. An executor is started with it, under every master.
    pid = os.getppid() if first is None else first
    found = ""
    with contextlib.suppress(OSError, ValueError, IndexError):  # hidden from this user, or gone
        while pid > 1:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--executor-id" in words:
                return words[words.index("--executor-id") + 1]
            if any(word.endswith("deploy.SparkSubmit") for word in words):
                found = "driver"
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def hang_up(sock: LinkSocket) -> None:
    """Close when the other end has closed."""
    # A close with unread bytes would reset the connection under our last words.
    deadline = time.monotonic() + LINGER_S
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while (left := deadline - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(1 << 16):
                break
    sock.close()


class SlotChannel(ControlChannel):
    """A channel that names the user's own files, not their copies here."""

    places = ("", "")

    def __init__(self, sock: LinkSocket, writer: FrameWriter, reader: FrameReader) -> None:
        super().__init__(sock, writer, reader)
        self.lines = PrintedLines(lambda line: self.try_send(event_of(line)))
        """What user code prints: nobody would read the standard output of an executor."""

    def send(self, message: Message) -> None:
        # The coordinator hangs up when it has this of all workers: what comes later it may not read.
        if isinstance(message, Stopped):
            self.lines.end_line()
        if isinstance(message, Failed):
            message = replace(message, message=self._renamed(message.message), trace=self._renamed(message.trace))
        elif isinstance(message, Event):
            message = replace(message, text=self._renamed(message.text), trace=self._renamed(message.trace))
        super().send(message)

    def _renamed(self, text: str) -> str:
        return text.replace(*self.places)
