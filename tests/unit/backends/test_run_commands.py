"""Commands to a living run: as they travel, and what they pause."""

from __future__ import annotations

import pytest

from streamlet.backends.run_commands import (
    BadCommand,
    Command,
    PauseParts,
    ResumeParts,
    RunAnswer,
    ShowRun,
    StopRun,
    decode,
    decode_answer,
    encode,
    encode_answer,
    paused_after,
)
from streamlet.model.paused import PausedPart
from streamlet.runtime.links.wire import pack, unpack

THIRD = PausedPart("lines", "clicks", 3)
READ = {("lines", "clicks", 3), ("lines", "clicks", 4), ("words", "others", 0)}


@pytest.mark.parametrize("command", [ShowRun(), StopRun(), PauseParts(THIRD), ResumeParts(PausedPart(""))])
def test_a_command_comes_as_it_was_sent(command: Command) -> None:
    assert decode(unpack(pack(encode(command)))) == command


@pytest.mark.parametrize(
    "raw", [None, [], {}, {"t": "explode"}, {"t": "pause"}, {"t": "pause", "part": ["a", "b"]}, {"t": ["show"]}]
)
def test_what_is_no_command_is_refused(raw: object) -> None:
    with pytest.raises(BadCommand, match="does not know such a command"):
        decode(raw)


@pytest.mark.parametrize("raw", [None, {}, {"refused": 1, "content": {}}, {"refused": "", "content": []}])
def test_what_is_no_answer_is_refused(raw: object) -> None:
    for answer in (RunAnswer("no", {"a": 1}), RunAnswer("no", bad_input=True)):
        assert decode_answer(unpack(pack(encode_answer(answer)))) == answer
    assert decode_answer({"refused": "no", "content": {}}) == RunAnswer("no"), "of a run of an earlier version"
    with pytest.raises(BadCommand, match="none that is known here"):
        decode_answer(raw)


def test_a_part_without_a_spout_means_every_spout() -> None:
    every = PauseParts(PausedPart(""))
    assert paused_after(every, [], ["lines", "words"], READ) == [PausedPart("lines"), PausedPart("words")]
    assert paused_after(ResumeParts(PausedPart("")), [THIRD], ["lines", "words"], READ) == []
    assert paused_after(PauseParts(PausedPart("", "clicks", 3)), [], ["lines"], READ) == [THIRD]


def test_a_partition_without_a_topic_is_of_the_only_one() -> None:
    """Also of one that is read no more, but paused."""
    third = PausedPart("", "", 3)
    assert paused_after(PauseParts(third), [], ["lines"], READ) == [THIRD]
    assert paused_after(ResumeParts(third), [THIRD], ["lines"], ()) == []
    for read, why in (
        ({*READ, ("lines", "more", 3)}, "2 topics: name the one that is meant, clicks or more"),
        ((), "no"),
    ):
        with pytest.raises(BadCommand, match=f"lines reads {why}"):
            paused_after(PauseParts(third), [], ["lines"], read)


def test_what_is_paused_can_be_resumed_though_it_is_read_no_more() -> None:
    """Its topic may have been deleted since."""
    assert paused_after(ResumeParts(THIRD), [THIRD, PausedPart("words")], ["lines", "words"], ()) == [
        PausedPart("words")
    ]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (PauseParts(PausedPart("line")), "no spout 'line'. Its spouts are: lines, words"),
        (PauseParts(PausedPart("", "clicks")), "2 spouts: name the one that is meant, lines or words"),
        (PauseParts(PausedPart("", "", 3)), "2 spouts: name the one that is meant, lines or words"),
        (PauseParts(PausedPart("lines", "click")), "lines does not read click. "),
        (PauseParts(PausedPart("lines", "others")), "lines does not read others. "),
        (PauseParts(PausedPart("lines", "clicks", 5)), "does not read partition 5 of clicks"),
        (ResumeParts(THIRD), "lines clicks/3 lies in lines, which is paused: resume that"),
        (ResumeParts(PausedPart("words")), "words is not paused. Paused are: lines."),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(command: PauseParts | ResumeParts, why: str) -> None:
    with pytest.raises(BadCommand, match=why):
        paused_after(command, [PausedPart("lines")], ["lines", "words"], READ)
