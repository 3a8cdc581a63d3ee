"""Handlers that user code replaces are put back, on the main thread, as long as the process needs them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from streamlet.base.termination_signals import keep, put_back

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_handler_that_was_replaced_is_put_back_and_named() -> None:
    came: list[int] = []
    undo = keep(lambda number, _: came.append(number), NUMBERS)
    assert put_back() == []
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert put_back() == ["SIGTERM"] and put_back() == []
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]
    undo()


def test_nothing_is_put_back_once_it_was_undone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    keep(lambda *_: None, NUMBERS)()
    assert signal.getsignal(signal.SIGTERM) is before
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert put_back() == [] and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_another_thread_puts_nothing_back() -> None:
    """Python lets the main thread alone change a handler."""
    undo = keep(lambda *_: None, NUMBERS)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(put_back()))
    thread.start()
    thread.join()
    assert found == [[]] and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert put_back() == ["SIGTERM"]
    undo()


def test_the_descriptor_is_put_back_after_a_loop_of_asyncio_had_it() -> None:
    """The loop leaves none behind, so that no signal would be heard of."""
    read, write = socket.socketpair()
    write.setblocking(False)
    undo = keep(lambda *_: None, NUMBERS, write.fileno())

    async def own() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)

    asyncio.run(own())
    assert signal.set_wakeup_fd(-1) == -1
    assert put_back() == ["SIGTERM"]
    os.kill(os.getpid(), signal.SIGTERM)
    read.settimeout(10)
    assert read.recv(1) == bytes([signal.SIGTERM])
    undo()
    assert signal.set_wakeup_fd(-1) == -1
    read.close()
    write.close()
