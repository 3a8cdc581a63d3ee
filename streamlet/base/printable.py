"""Text of users where a person reads it: nothing in it steers a terminal."""

from __future__ import annotations

import re

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What steers a terminal (all control characters but tab and line end, and what turns the direction of writing round),
and halves of characters, which no encoding has: Python puts them where bytes of a file's name are no text.
"""


MOST_TEXT = 2_000
"""Characters of a value, or of an error's text, in a line of the log."""

MOST_LINES = 200
"""Lines of a traceback in the log."""


def printable(text: str, encoding: str | None = None) -> str:
    """Escape control characters, and characters that ``encoding`` lacks, as Python does.

    >>> printable("caf\\udce9.txt\\x1b[2A")
    'caf\\\\udce9.txt\\\\x1b[2A'
    """
    # An error's text is data. Half a character of a file's name raises in `print`, and an escape sequence moves the
    # cursor of the live table: neither may end or garble a run.
    seen = UNSEEN.sub(_escaped, text)
    if encoding is None or seen.isascii():
        return seen
    return seen.encode(encoding, "backslashreplace").decode(encoding)


def one_line(text: str) -> str:
    """Escape control characters, line ends and tabs too.

    >>> one_line("no customer\\n red")
    'no customer\\\\n red'
    """
    # Rule: a reason of a bolt stands in one line of the log. A second line looks like another program's.
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def cut(text: str, most: int = MOST_TEXT) -> str:
    """Cut a text; say how much is left out.

    >>> cut("abcdef", 4)
    'abcd... (2 characters more)'
    """
    # Rule: what users put into a line is cut. One tuple with a value of a megabyte, failed again and again, fills the
    # log, and its disk.
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} characters more)"


def cut_lines(text: str, most: int = MOST_LINES) -> str:
    """Return a text of bounded lines, and of so many of them."""
    lines = text.split("\n")
    more = [f"... ({len(lines) - most:,} lines more)"] if len(lines) > most else []
    return "\n".join([*map(cut, lines[:most]), *more])


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode("ascii")


def many(number: int, noun: str, nouns: str | None = None) -> str:
    """Return a count with its noun.

    >>> many(1, "tree"), many(1234, "tree"), many(0, "worker process", "worker processes")
    ('1 tree', '1,234 trees', '0 worker processes')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {nouns or noun + 's'}"
