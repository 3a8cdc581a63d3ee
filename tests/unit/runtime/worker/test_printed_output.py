"""What is printed waits by whole lines and up to a bound; who prints does not."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlet.runtime.worker.printed_output import Outlet, WaitingLines
from tests.patience import PATIENCE_S


def read_all(lines: WaitingLines) -> bytes:
    out = b""
    while lines:
        out += lines.first()
        lines.wrote(len(lines.first()))
    return out


def test_what_finds_no_room_is_left_out_by_whole_lines_and_counted_at_its_place() -> None:
    lines = WaitingLines(most=10)
    for data in (b"one\ntwo\nth", b"ree\nfour\nfi", b"ve", b" and\nsix\n"):
        lines.put(data)
    assert (lines.left_out, lines.full) == (3, True)
    assert read_all(lines) == b"one\ntwo\nthree\n", "a line that stood there in part is ended"
    assert not lines.clear, "a print past those that wait would stand before the word about them"
    lines.put(b"seven\n")
    assert read_all(lines) == b"3 lines were left out here: nobody read them in time.\nseven\n"


def test_others_find_room_only_when_half_of_it_is_free() -> None:
    lines = WaitingLines(most=8)
    lines.put(b"one\ntwo\n")
    lines.put(b"three\n")
    lines.wrote(3)
    lines.put(b"four\n")
    assert lines.left_out == 2, "else there would be a word about each line"
    lines.wrote(2)
    lines.put(b"five\n")
    assert lines.left_out == 2 and read_all(lines).endswith(b"five\n")


def test_a_write_ends_with_a_line_where_more_wait() -> None:
    lines = WaitingLines()
    lines.put(b"x" * 4000 + b"\n" + b"y" * 4000 + b"\n")
    assert len(lines.first()) == 4001
    assert lines.unread == 2


class Pipe:
    def __init__(self) -> None:
        self.read, self.written = os.pipe()

    def close(self) -> None:
        os.close(self.read)


class Sockets(Pipe):
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.read, self.written = ours.detach(), theirs.detach()


class Terminal(Pipe):
    """One whose user has pressed Ctrl-S."""

    def __init__(self) -> None:
        self.read, self.written = pty.openpty()
        termios.tcflow(self.written, termios.TCOOFF)


def received(descriptor: int, size: int) -> bytes:
    out = b""
    while len(out) < size:
        out += os.read(descriptor, 1 << 16)
    return out


@pytest.mark.parametrize("kind", [Pipe, Sockets, Terminal])
def test_a_print_returns_though_nobody_reads_and_everything_comes_in_order(kind: Callable[[], Pipe]) -> None:
    output = kind()
    outlet = Outlet(output.written, "the standard output")
    lines = [f"line {number} {'x' * 90}".encode() for number in range(10_000)]
    began = time.monotonic()
    for line in lines:
        outlet.write(line + b"\n")
    assert time.monotonic() - began < PATIENCE_S / 4
    assert os.get_blocking(output.written), "others print there too"
    if isinstance(output, Terminal):
        termios.tcflow(output.written, termios.TCOON)
    end = b"\r\n" if isinstance(output, Terminal) else b"\n"
    want = end.join(lines) + end
    assert received(output.read, len(want)) == want
    outlet.finish(PATIENCE_S)


def test_what_a_reader_takes_is_there_at_once() -> None:
    """A worker that is killed in the next moment has printed it."""
    output = Pipe()
    Outlet(output.written, "the standard output").write(b"last words\n")
    os.set_blocking(output.read, False)
    assert os.read(output.read, 100) == b"last words\n"


def test_a_reader_who_is_slow_but_reads_gets_everything() -> None:
    output = Pipe()
    outlet = Outlet(output.written, "the standard output")
    got: list[bytes] = []
    size, piece = 12 << 20, 1 << 16

    def read() -> None:
        while sum(map(len, got)) < size:
            got.append(os.read(output.read, piece))
            time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    line = b"x" * 1023 + b"\n"
    for _ in range(size // len(line)):
        outlet.write(line)
    reader.join(PATIENCE_S)
    assert b"".join(got) == line * (size // len(line))


def test_lines_that_are_left_out_are_told_once_and_in_all_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    output = Pipe()
    outlet = Outlet(output.written, "the standard output")
    for _ in range(6 << 10):
        outlet.write(b"x" * 1023 + b"\n")
    deadline = time.monotonic() + PATIENCE_S
    while not caplog.messages:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    outlet.finish(0.1)
    outlet.finish(0.1)
    first, last = caplog.messages
    assert first.startswith("Nobody reads the standard output of this worker in time.")
    # 4 MiB wait, 64 KiB are in the pipe: not even these has anybody read, but they are written.
    assert (
        last == f"{(6 << 10) - 64 + 1:,} lines that components printed to the standard output were left out: nobody "
        "read them in time."
    )


def test_an_output_that_is_gone_raises_nothing() -> None:
    output = Pipe()
    outlet = Outlet(output.written, "the standard output")
    output.close()
    outlet.write(b"to nobody\n")
    outlet.finish(0.1)


def test_a_file_is_written_where_others_append(tmp_path: Path) -> None:
    path = tmp_path / "log"
    mine, theirs = (os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for _ in range(2))
    outlet = Outlet(mine, "the standard output")
    outlet.write(b"one\n")
    os.write(theirs, b"two\n")
    outlet.write(b"three\n")
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_a_forked_child_prints_by_itself() -> None:
    output = Pipe()
    outlet = Outlet(output.written, "the standard output")
    outlet.write(b"x" * (1 << 17) + b"\n")  # some of it waits
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            outlet.write(b"the child\n")
        os._exit(0)
    out = b""
    while not (out.endswith(b"\n") and b"the child\n" in out and len(out) == (1 << 17) + 11):
        out += os.read(output.read, 1 << 16)
    os.waitpid(child, 0)
    assert out.count(b"the child\n") == 1
