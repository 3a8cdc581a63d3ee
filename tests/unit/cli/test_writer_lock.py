"""The lock beside a file that one run may replace."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from streamlet.cli import writer_lock
from streamlet.cli.writer_lock import WriterLock


def test_a_lock_is_held_by_one_at_a_time_and_leaves_nothing(tmp_path: Path) -> None:
    """Each release takes the name away, and who had opened it by then must not hold a lock without a name."""
    holding: list[int] = []
    most, taken = [0], [0]
    guard = threading.Lock()

    def compete(number: int) -> None:
        for _ in range(300):
            lock = WriterLock(tmp_path / "m.prom")
            if lock.take(f"T{number}"):
                continue
            with guard:
                holding.append(number)
                most[0], taken[0] = max(most[0], len(holding)), taken[0] + 1
            with guard:
                holding.remove(number)
            lock.release()

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and taken[0] >= 1 and list(tmp_path.iterdir()) == []


def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    """It may outlive the run; and its end takes nothing from the run either."""
    lock, other = WriterLock(tmp_path / "m.prom"), WriterLock(tmp_path / "m.prom")
    assert lock.take("First") == ""
    ours, its = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        its.send(b"is there")
        its.recv(1)  # until its parent is through
        os._exit(0)
    its.close()
    try:
        assert ours.recv(8) == b"is there"
        assert f"topology First (process {os.getpid()} on " in other.take("Second")
        # As the kernel does it for a process that is killed: closed, the name is left.
        writer_lock._close(lock._descriptor)
        assert [entry.name for entry in tmp_path.iterdir()] == [".m.prom.lock"]
        assert other.take("Second") == "", "the child has it"
        other.release()
    finally:
        ours.close()
        os.waitpid(child, 0)


@pytest.mark.parametrize("name", ["none/m.prom", "n" * 250])
def test_where_nothing_can_be_locked_a_writer_goes_on(tmp_path: Path, name: str) -> None:
    """What is wrong with the place is said by the write itself."""
    locks = [WriterLock(tmp_path / name) for _ in range(2)]
    assert [lock.take("T") for lock in locks] == ["", ""]
    for lock in locks:
        lock.release()
