"""Frames between workers that come twice, out of order, never, or by single bytes: a proxy does it to living links."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamlet.runtime.links.handshake import ANSWER_BYTES, HELLO_BYTES, PROOF_BYTES
from streamlet.runtime.links.wire import TAG_BYTES, decode_data
from tests.faults.acked_after_stored import ACKED_NUMBERS, check_acks, end, stored
from tests.faults.inside import CutProxy, Inside, Proxied
from tests.faults.rig import wait_for
from tests.patience import PATIENCE_S
from tests.seeds import seeds

ROUNDS = 6
Fault = Callable[[list[bytes]], list[bytes]]

FAULTS: dict[str, Fault] = {
    "twice": lambda frames: [frames[0], *frames],
    "out of order": lambda frames: frames[::-1],
    "never": lambda frames: frames[1:],
}
WELCOME_BYTES = 1


class FrameProxy(CutProxy):
    """Cuts what runs through it into frames, and lets a fault take two of one direction, the first with acks."""

    def __init__(self, path: str, target: str) -> None:
        self.fault: Fault | None = None
        self.happened = threading.Event()
        self._one = threading.Lock()
        super().__init__(path, target)

    def pump(self, source: socket.socket, sink: socket.socket, from_dialer: bool) -> None:
        head = HELLO_BYTES + PROOF_BYTES if from_dialer else ANSWER_BYTES + WELCOME_BYTES
        buffer, held, fault = b"", list[bytes](), None
        while data := source.recv(1 << 16):
            buffer += data
            if head:
                sink.sendall(buffer[:head])
                head, buffer = max(0, head - len(buffer)), buffer[head:]
            while len(buffer) >= 4 and len(buffer) >= (end := 4 + TAG_BYTES + int.from_bytes(buffer[:4], "big")):
                frame, buffer = buffer[:end], buffer[end:]
                fault = fault or self._taken(frame)
                if fault is None:
                    sink.sendall(frame)
                    continue
                held.append(frame)
                if len(held) == 2:
                    self.happened.set()
                    sink.sendall(b"".join(fault(held)))
                    held, fault = [], None

    def _taken(self, frame: bytes) -> Fault | None:
        """The fault that waits, where this frame has acks."""
        with self._one:
            if self.fault is None or not decode_data(frame[4 + TAG_BYTES :]).deltas:
                return None
            fault, self.fault = self.fault, None
            return fault


class FramesProxied(Proxied):
    kind = FrameProxy


@pytest.mark.parametrize("seed", seeds("frames"))
@pytest.mark.parametrize("name", FAULTS)
def test_b5_acks_that_come_twice_out_of_order_or_never_complete_no_tree_that_is_not_done(
    tmp_path: Path, name: str, seed: int
) -> None:
    """The link is closed for it, and its trees come again at once; no worker is replaced, no time-out is waited for."""
    rng = random.Random(seed)
    conf: dict[str, Any] = {"out": str(tmp_path), "numbers.per.second": 4000}
    with Inside(None, 3, FramesProxied, file=ACKED_NUMBERS, **conf) as run:
        for _ in range(ROUNDS):
            least = stored(tmp_path) + rng.randrange(500, 2500)
            wait_for("numbers to be stored", partial(_stored, tmp_path, least), told=run.told)
            # Both links of the worker of the spout run through the proxy before it, and all acks come home by them.
            proxy = run.coordinator.before[0]
            links = proxy.links()
            proxy.happened.clear()
            proxy.fault = FAULTS[name]
            assert proxy.happened.wait(PATIENCE_S), run.told()
            wait_for("the pair to link again", partial(_more_links, proxy, links), told=run.told)
        end(tmp_path)
        result = run.finish()
    assert result.reason == "caught_up"
    assert any("tag does not match: it was changed, repeated" in text for text in run.observer.texts)
    assert [worker["epoch"] for worker in result.status.workers] == [1, 1, 1]
    (numbers,) = (row for row in result.status.components if row.name == "numbers")
    assert numbers.failed > 0 == numbers.timed_out
    check_acks(tmp_path)


class SlicingProxy(CutProxy):
    """Hands on one byte at a time, or a few: no frame arrives whole, nor alone."""

    def pump(self, source: socket.socket, sink: socket.socket, from_dialer: bool) -> None:
        rng = random.Random(self.path)
        while data := source.recv(1 << 16):
            while data:
                cut = rng.choice((1, 1, 1, 2, 3, 50))
                sink.sendall(data[:cut])
                data = data[cut:]


class Sliced(Proxied):
    kind = SlicingProxy


def test_b4_links_that_bring_single_bytes_cut_no_link_and_lose_nothing(tmp_path: Path) -> None:
    """The handshakes, too."""
    conf: dict[str, Any] = {"out": str(tmp_path), "numbers.per.second": 4000}
    with Inside(None, 3, Sliced, file=ACKED_NUMBERS, **conf) as run:
        wait_for("numbers to be stored", partial(_stored, tmp_path, 5000), told=run.told)
        end(tmp_path)
        result = run.finish()
    assert result.reason == "caught_up"
    assert not [text for text in run.observer.texts if "lost its link" in text]
    assert run.coordinator.before[0].links() == 2, "one with each other worker"
    assert [row.failed for row in result.status.components] == [0, 0, 0]
    check_acks(tmp_path)


def _stored(out: Path, least: int) -> bool:
    return stored(out) >= least


def _more_links(proxy: CutProxy, than: int) -> bool:
    return proxy.links() > than
