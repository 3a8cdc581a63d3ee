"""Where a living run takes commands: a socket of its own, for this user on this machine.

Who wants to command a run must read its card: a file of mode 0600 in the run's folder of mode 0700, with the name of
the socket and a secret. Both ends prove that secret before anything else is read. It opens nothing but this socket: the
links between workers have another.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from streamlet.backends.folders import recreate_if_swept
from streamlet.backends.run_commands import BadCommand, Command, RunAnswer, decode, encode_answer
from streamlet.runtime.links.dialing import Secured
from streamlet.runtime.links.handshake import CONTROL, Hello, Refused
from streamlet.runtime.links.server import LinkServer, new_socket_name
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, BadFrame, pack, unpack

CARD = "run.json"
"""Name of the card in a run's folder."""

COMMAND_S = 5.0
"""Seconds that somebody who has proved the secret may take for a command."""

ANSWER_S = 10.0
"""Seconds that the run may take for an answer."""

LAST_WORDS_S = 0.5
"""Seconds for the answers to those who ask at the end of the run."""

OVER = RunAnswer("the run is over.")


class CommandListener:
    """Takes commands; each has a thread until it is answered.

    The run's thread calls ``serve`` when ``fileno`` is readable, and ``waiting`` after ``wake`` was called, which other
    threads do.
    """

    def __init__(self, folder: Path, run_id: bytes, about: Mapping[str, Any], wake: Callable[[], None]) -> None:
        """Listen, and write the card. Raises OSError."""
        self._run_id = run_id
        self._wake = wake
        self._card_path = folder / CARD
        self._commands: queue.SimpleQueue[tuple[Command, Future[RunAnswer]]] = queue.SimpleQueue()
        self._over = False
        self._conversing: set[Secured] = set()
        """Who has proved the secret and is not answered yet. Changed by their threads: each step is one of a set's."""
        secret, name = secrets.token_bytes(32), new_socket_name(run_id, 0, 0)
        self._server = LinkServer(("unix", name, 0), secret, self._check_hello, self._converse, MAX_CONTROL_FRAME)
        self._card = {**about, "run": run_id.hex(), "socket": name[1:], "secret": secret.hex()}
        try:
            self._write_card()
        except OSError:
            self._server.close()
            raise
        self.fileno = self._server.fileno
        self.serve = self._server.serve

    def _write_card(self) -> None:
        # Written beside and renamed: who lists the runs reads it whole or not at all. Never into a file that is there:
        # in a folder that was swept, another user may have put one.
        aside = self._card_path.with_suffix(".new")
        aside.unlink(missing_ok=True)
        made = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as file:
            json.dump(self._card, file)
        aside.rename(self._card_path)

    def keep_card(self) -> None:
        """Write the card again where it, or its folder, was swept."""
        # No room, or a folder that is somebody else's by now: the run goes on, and is not listed.
        with contextlib.suppress(OSError):
            recreate_if_swept(self._card_path.parent)
            if not self._card_path.exists():
                self._write_card()

    def waiting(self) -> Iterator[tuple[Command, Future[RunAnswer]]]:
        """Yield the commands that came, each with the place for its answer."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._commands.get_nowait()

    def close(self) -> None:
        """Refuse what waits, and listen no more."""
        self._over = True
        asked = [answer for _, answer in self.waiting()]
        for answer in asked:
            answer.set_result(OVER)
        # Rule: first the answers. Closing the server cuts the connections on which they travel.
        deadline = time.monotonic() + LAST_WORDS_S
        while self._conversing and time.monotonic() < deadline:
            time.sleep(0.01)
        self._server.close()

    # -- the threads of commands -----------------------------------------------------------------------------------

    def _check_hello(self, hello: Hello) -> None:
        if hello.kind != CONTROL or hello.run_id != self._run_id:
            raise Refused("it wants another run")

    def _converse(self, secured: Secured) -> None:
        self._conversing.add(secured)
        try:
            with secured.sock, contextlib.suppress(OSError, BadFrame):  # who asked has gone, or is none of ours
                try:
                    answer = self._answer(decode(receive(secured, COMMAND_S)))
                except BadCommand as error:
                    answer = RunAnswer(str(error))
                send(secured, encode_answer(answer))
        finally:
            self._conversing.discard(secured)

    def _answer(self, command: Command) -> RunAnswer:
        answer: Future[RunAnswer] = Future()
        self._commands.put((command, answer))
        self._wake()
        # Looked at after the command is in the queue: one that comes beside `close` is answered by one of the two.
        if self._over:
            return OVER
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            return RunAnswer(f"the run did not answer within {ANSWER_S:.0f} s; it may do it later. Ask again.")


def send(secured: Secured, message: Mapping[str, Any]) -> None:
    """Send one message. Raises OSError."""
    secured.sock.sendall(secured.writer.frame(pack(dict(message), default=str)))


def receive(secured: Secured, limit_s: float) -> Any:
    """Return one message. Raises OSError, BadFrame."""
    deadline = time.monotonic() + limit_s
    while True:
        secured.sock.settimeout(max(0.001, deadline - time.monotonic()))
        data = secured.sock.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the other end hung up")
        for payload in secured.reader.feed(data):
            return unpack(payload)
