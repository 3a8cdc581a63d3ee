"""Text of users on a terminal: readable, and without power over it."""

from __future__ import annotations

import sys

import pytest

from streamlet.base.printable import many, one_line, printable


def test_plain_text_of_any_language_stays_as_it_is() -> None:
    text = "Zeile\twort\n\u4e2d\u6587 \u0440\u0443\u0441 caf\u00e9 \U0001f600"
    assert printable(text) is text or printable(text) == text
    assert printable(text, "utf-8") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\r\nover", "\\r\nover"),
        ("\x07\x00\x7f", r"\x07\x00\x7f"),
        ("\x9b5A", r"\x9b5A"),
        ("a\u202eb", r"a\u202eb"),
        ("line\u2028next", r"line\u2028next"),
        ("caf\udce9", r"caf\udce9"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, shown: str) -> None:
    """So is half a character of a file's name, which no stream could write."""
    assert printable(text) == shown
    printable(text, "utf-8").encode("utf-8")


def test_no_control_character_is_left_but_tab_and_line_end() -> None:
    every = "".join(map(chr, range(0x3000)))
    left = [char for char in printable(every) if not char.isprintable() and char not in "\t\n"]
    assert not [char for char in left if ord(char) < 0xA0 or char in "\u2028\u2029\u202a\u202b\u202c\u202d\u202e"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_an_encoding_lacks_is_written_as_python_does(encoding: str) -> None:
    shown = printable("caf\u00e9 \u4e2d", encoding)
    shown.encode(encoding)
    assert shown.endswith(r"\u4e2d")


def test_it_can_be_read_back_as_pythons_own_escape() -> None:
    assert printable("\x1b").encode().decode("unicode_escape") == "\x1b"
    assert sys.getdefaultencoding() == "utf-8"


def test_text_on_one_line_has_no_control_character() -> None:
    assert one_line("a\n\tb\r\x1b caf\u00e9") == "a\\n\\tb\\r\\x1b caf\u00e9"


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [many(number, "record") for number in (0, 1, 2, 1234)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,234 records",
    ]
    assert many(2, "worker process", "worker processes") == "2 worker processes"
