"""What a user sees of an error: one paragraph on stderr and an exit status. A traceback only with ``--debug``."""

from __future__ import annotations

import os
import sys
import textwrap
import traceback
from typing import IO

import click

from streamlet.base.errors import BAD_INPUT, EXIT_FAILED, INTERRUPTED, StreamletError, text_of
from streamlet.base.printable import printable

WIDEST = 100
"""Lines longer than this are tiring to read, however wide the terminal."""


def columns(stream: IO[str]) -> int | None:
    """Return how many columns text may use; None where the stream is no terminal."""
    try:
        # A pipe gets each paragraph as one line: grep and log collectors work by lines.
        return max(30, min(os.get_terminal_size(stream.fileno()).columns, WIDEST))
    except (OSError, ValueError):
        return None


def wrapped(text: str, width: int | None) -> str:
    """Wrap each line as a paragraph of at most ``width``; paths and addresses stay whole."""
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        # The problems of a topology are numbered: the second line of one begins below the text, not below the number.
        number = line.split(" ", 1)[0]
        hanging = " " * (len(number) + 1) if number.rstrip(".").isdigit() else ""
        lines += textwrap.wrap(
            line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def explain(error: BaseException) -> tuple[str, int]:
    """Return the paragraph for an error and its exit status."""
    if isinstance(error, StreamletError):
        return error.message, error.exit_status
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "streamlet"
        usage = error.format_message().rstrip()
        return f"{usage}{'' if usage.endswith(('.', '?')) else '.'} See `{command} --help`.", BAD_INPUT
    if isinstance(error, click.ClickException):
        return error.format_message(), BAD_INPUT
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return "Interrupted.", INTERRUPTED
    return (
        f"{type(error).__name__}: {text_of(error) or 'no message'}. This is a bug in streamlet, not in what you gave "
        "it. Run the same command with --debug and report the traceback that it shows.",
        EXIT_FAILED,
    )


def show(error: BaseException, debug: bool) -> int:
    """Print an error on stderr; the exit status."""
    text, status = explain(error)
    text = printable(text, sys.stderr.encoding)
    if debug:
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.write(getattr(error, "trace", ""))  # of the worker in which it happened
    label = click.style("Error:", fg="red", bold=True) if sys.stderr.isatty() else "Error:"
    # Wrapped with the bare label, which is what takes room; the coloured one is put in afterwards.
    click.echo(wrapped(f"Error: {text}", columns(sys.stderr)).replace("Error:", label, 1), err=True)
    return status
