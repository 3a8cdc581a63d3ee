"""``FILE[:TOPOLOGY]`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlet.cli.target import TopologyTarget, parse_target


@pytest.mark.parametrize(
    ("given", "file", "attribute"),
    [
        ("words.py", "words.py", None),
        ("words.py:Words", "words.py", "Words"),
        ("a:b/words.py", "a:b/words.py", None),
        ("a:b/words.py:Words", "a:b/words.py", "Words"),
        ("words.py:", "words.py:", None),
        ("words.py:1st", "words.py:1st", None),
        (":Words", ":Words", None),
    ],
)
def test_a_name_follows_the_last_colon_if_it_can_be_one(given: str, file: str, attribute: str | None) -> None:
    target = parse_target(given)
    assert target == TopologyTarget(Path(file), attribute)
    assert str(target) == given


def test_a_file_of_that_very_name_wins(tmp_path: Path) -> None:
    odd = tmp_path / "words.py:Words"
    odd.touch()
    assert parse_target(str(odd)) == TopologyTarget(odd)


def test_what_a_file_prints_when_imported_goes_beside_the_commands_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``streamlet check --json`` must stay JSON."""
    file = tmp_path / "printing_words.py"
    file.write_text(
        "from streamlet import Spout, Topology\n"
        "print('hello')\n"
        "class Lines(Spout):\n"
        "    outputs = ['line']\n"
        "    def next_tuple(self): pass\n"
        "class Words(Topology):\n"
        "    lines = Lines.spec()\n"
    )
    assert TopologyTarget(file, "Words").load().name == "Words"
    told = capsys.readouterr()
    assert told.out == "" and told.err == "hello\n"
