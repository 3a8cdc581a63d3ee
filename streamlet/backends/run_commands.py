"""Commands to a living run, on the wire: show it, stop it, pause and resume parts of its spouts. Pure.

A command is a map ``{"t": name, field: value, ...}``; its answer has ``ok``, or ``refused`` with a paragraph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamlet.model.paused import PausedPart, around, paused_with, resumed


@dataclass(frozen=True, slots=True)
class ShowRun:
    """Asks for the run's status."""


@dataclass(frozen=True, slots=True)
class StopRun:
    """Asks the run to drain and end, as the first Ctrl-C does."""


@dataclass(frozen=True, slots=True)
class PauseParts:
    """Asks a part to emit nothing."""

    part: PausedPart


@dataclass(frozen=True, slots=True)
class ResumeParts:
    """Asks a part to go on."""

    part: PausedPart


Command = ShowRun | StopRun | PauseParts | ResumeParts
_NAMES: Mapping[type[Command], str] = {ShowRun: "show", StopRun: "stop", PauseParts: "pause", ResumeParts: "resume"}


class BadCommand(Exception):
    """What came is no command of this version, or cannot be done.

    The text is a sentence that stands behind a colon: it begins small.
    """


def encode(command: Command) -> dict[str, Any]:
    """Return a command as it travels."""
    part = getattr(command, "part", None)
    return {"t": _NAMES[type(command)], **({} if part is None else {"part": list(part)})}


def decode(raw: Any) -> Command:
    """Read and check a command. Raises BadCommand."""
    match raw:
        case {"t": "show"}:
            return ShowRun()
        case {"t": "stop"}:
            return StopRun()
        case {"t": "pause", "part": [str(spout), str(topic), int(partition)]}:
            return PauseParts(PausedPart(spout, topic, partition))
        case {"t": "resume", "part": [str(spout), str(topic), int(partition)]}:
            return ResumeParts(PausedPart(spout, topic, partition))
    raise BadCommand("it does not know such a command: is it of another version of streamlet?")


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """A run's answer: refused with a sentence, or done, with its content."""

    refused: str = ""
    """The sentence; it stands behind a colon, so it begins small."""
    content: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bad_input: bool = False
    """Whether it was refused for what the user named."""


def encode_answer(answer: RunAnswer) -> dict[str, Any]:
    """Return an answer as it travels."""
    return {"refused": answer.refused, "content": dict(answer.content), "bad_input": answer.bad_input}


def decode_answer(raw: Any) -> RunAnswer:
    """Read an answer. Raises BadCommand."""
    if not isinstance(raw, dict) or type(raw.get("refused")) is not str or type(raw.get("content")) is not dict:
        raise BadCommand("its answer is none that is known here: is it of another version of streamlet?")
    return RunAnswer(raw["refused"], raw["content"], raw.get("bad_input") is True)


def paused_after(
    command: PauseParts | ResumeParts,
    paused: Sequence[PausedPart],
    spouts: Sequence[str],
    read: Collection[tuple[Any, Any, Any]],
) -> list[PausedPart]:
    """Return all that is paused after a command. Raises BadCommand.

    ``spouts``: the run's; a part that names none means all of them. ``read``: spout, topic and partition of each that
    is read.
    """
    wanted = command.part
    if wanted.spout not in ("", *spouts):
        raise BadCommand(f"it has no spout {wanted.spout!r}. Its spouts are: {', '.join(spouts)}.")
    if (wanted.topic or wanted.partition >= 0) and not wanted.spout and len(spouts) > 1:
        raise BadCommand(f"it has {len(spouts)} spouts: name the one that is meant, {' or '.join(spouts)}.")
    after = list(paused)
    for spout in [wanted.spout] if wanted.spout else spouts:
        part = _with_topic(wanted._replace(spout=spout), after, read)
        if isinstance(command, PauseParts):
            _refuse_unread(part, read)
            after = paused_with(after, part)
            continue
        larger, before = around(after, part), after
        if larger is not None:
            raise BadCommand(f"{part} lies in {larger}, which is paused: resume that.")
        after = resumed(after, part)
        if wanted.spout and after == before:
            raise BadCommand(f"{part} is not paused. Paused are: {', '.join(map(str, before)) or 'no parts'}.")
    return after


def _with_topic(part: PausedPart, paused: Sequence[PausedPart], read: Collection[tuple[Any, Any, Any]]) -> PausedPart:
    # Paused parts too: the topic of one may be read no more, and is to be resumed.
    if part.topic or part.partition < 0:
        return part
    topics = {topic for spout, topic, _ in read if spout == part.spout and topic}
    topics |= {one.topic for one in paused if one.spout == part.spout and one.topic}
    if len(topics) != 1:
        reads = f"reads {len(topics)} topics: name the one that is meant" if topics else "reads no partitions"
        raise BadCommand(f"{part.spout} {reads}{', ' if topics else ''}{' or '.join(sorted(topics))}.")
    return part._replace(topic=topics.pop())


def _refuse_unread(part: PausedPart, read: Collection[tuple[Any, Any, Any]]) -> None:
    # Only for a pause: what is paused may be read no more, as after its topic was deleted, and can still be resumed.
    if part.topic and not any(spout == part.spout and part.holds(topic, number) for spout, topic, number in read):
        what = part.topic if part.partition < 0 else f"partition {part.partition} of {part.topic}"
        raise BadCommand(f"{part.spout} does not read {what}. `streamlet runs show` lists what is read.")
