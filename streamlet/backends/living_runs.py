"""The living runs of this user on this machine, and commands to them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlet.backends.command_listener import ANSWER_S, CARD, COMMAND_S, receive, send
from streamlet.backends.folders import living_folders
from streamlet.backends.run_commands import BadCommand, Command, RunAnswer, decode_answer, encode
from streamlet.base.errors import BadInput, StreamletError
from streamlet.runtime.links import dialing
from streamlet.runtime.links.handshake import CONTROL, Hello, Refused
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, BadFrame

MOST_CARD_BYTES = 1 << 16
"""Bytes of a card that are read: a larger one is none of ours."""

SHORT = 8
"""Digits of a run's id that are shown."""


class RunRefused(StreamletError):
    """A run that lives did not do what it was asked."""


@dataclass(frozen=True, slots=True)
class LivingRun:
    """A run of this user that is under way."""

    run: str
    topology: str
    file: str
    backend: str
    workers: int
    pid: int
    started_s: float
    """When it began, in seconds from 1970."""
    _socket: str
    _secret: bytes

    @property
    def id(self) -> str:
        """The digits that people call it by."""
        return self.run[:SHORT]

    def ask(self, command: Command) -> RunAnswer:
        """Send a command and return the answer. Blocks for seconds at most. Raises RunRefused, BadInput."""
        hello = Hello(CONTROL, bytes.fromhex(self.run), 0, 0, 0)
        try:
            secured = dialing.dial(("unix", f"\0{self._socket}", 0), hello, self._secret, MAX_CONTROL_FRAME)
            with secured.sock:
                send(secured, encode(command))
                answer = decode_answer(receive(secured, COMMAND_S + ANSWER_S))
        except (OSError, Refused, BadFrame, BadCommand) as error:
            raise RunRefused(
                f"Run {self.id} of {self.topology} (process {self.pid}) does not answer: {error or 'no time left'}. "
                "It may be about to end, or stopped: `streamlet runs` tells whether it still lives."
            ) from error
        if answer.refused:
            # Rule: what was given and cannot be is bad input, also where only the run knows that. A script tells by the
            # status whether to correct its arguments or to try again.
            kind = BadInput if answer.bad_input else RunRefused
            raise kind(f"Run {self.id} of {self.topology}: {answer.refused}")
        return answer


def living_runs() -> list[LivingRun]:
    """Return this user's living runs, oldest first.

    On worker processes and on Spark; those that began with this TMPDIR.
    """
    found = (_read_card(folder / CARD) for folder in living_folders())
    return sorted((run for run in found if run is not None), key=lambda run: run.started_s)


def the_run(wanted: str, runs: Sequence[LivingRun]) -> LivingRun:
    """Return the run of this name, or beginning of an id. Raises BadInput."""
    there = ", ".join(f"{run.id} ({run.topology})" for run in runs) or "none"
    # Rule: an empty name is the beginning of every id. A shell's variable that is not set gives it, and `runs stop`
    # would end the one run that lives.
    if not wanted:
        raise BadInput(
            f"RUN is empty, so it names no run: give a topology's name or the beginning of an id. There are: {there}."
        )
    named = [run for run in runs if run.topology == wanted] or [run for run in runs if run.run.startswith(wanted)]
    if len(named) == 1:
        return named[0]
    if named:
        several = ", ".join(f"{run.id} (process {run.pid})" for run in named)
        raise BadInput(f"{len(named)} living runs are called {wanted!r}: {several}. Name one by its id.")
    raise BadInput(
        f"No living run is called {wanted!r}. There are: {there}. A run is found by its topology's name or the "
        "beginning of its id, by the user who started it, on its machine, with the TMPDIR that it has."
    )


def _read_card(path: Path) -> LivingRun | None:
    try:
        with path.open("rb") as file:
            # Only a card of our own: another user's could name a socket of theirs.
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            return _run_of(json.loads(file.read(MOST_CARD_BYTES)))
    except (OSError, ValueError, KeyError, TypeError):  # not written yet, removed just now, or none of ours
        return None


def _run_of(card: dict[str, Any]) -> LivingRun:
    return LivingRun(
        run=str(card["run"]),
        topology=str(card["topology"]),
        file=str(card["file"]),
        backend=str(card["backend"]),
        workers=int(card["workers"]),
        pid=int(card["pid"]),
        started_s=float(card["started_s"]),
        _socket=str(card["socket"]),
        _secret=bytes.fromhex(card["secret"]),
    )
