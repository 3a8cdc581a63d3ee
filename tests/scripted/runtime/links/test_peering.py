"""One worker's side of every pair: whom it dials, which links it takes, and what it reports. Dials are the test's."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streamlet.base.backoff import Backoff
from streamlet.runtime.links import handshake, peering
from streamlet.runtime.links.dialing import LinkAddress
from streamlet.runtime.links.handshake import DATA, Hello, Refused
from streamlet.runtime.links.peering import DIAL_AGAIN, TELL_S, Peering
from tests.patience import PATIENCE_S

RUN = b"r" * 16


def at(worker: int) -> LinkAddress:
    return ("unix", f"w{worker}", 0)


class Links:
    """Remembers the links that it is given, as ``SocketLinks`` does."""

    def __init__(self) -> None:
        self.present: dict[int, tuple[int, int]] = {}
        """Worker -> epoch and version of its link."""

    def add(self, secured: Any, worker: int, epoch: int) -> None:
        self.present[worker] = epoch, secured.hello.version

    def drop(self, worker: int, epoch: int, version: int) -> None:
        if worker in self.present and self.present[worker][0] <= epoch and self.present[worker][1] < version:
            del self.present[worker]

    def epochs(self) -> dict[int, int]:
        return {worker: epoch for worker, (epoch, _) in self.present.items()}


class Rig:
    """Worker ``index`` of three; acts that it posts run when the test says so."""

    def __init__(self, index: int) -> None:
        self.links = Links()
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.dialled: queue.Queue[tuple[LinkAddress, Hello]] = queue.Queue()
        self.refusal: Exception | None = None
        self.linked: list[int] = []
        self.unlinked: list[tuple[int, str]] = []
        self.unfit: list[str] = []
        self.sockets: list[socket.socket] = []
        self.peering = Peering(
            Hello(DATA, RUN, index, 1, wanted=index),
            3,
            b"s" * 32,
            self.links,  # type: ignore[arg-type]  # as much of it as is asked for
            self.posted.put,
            self.linked.append,
            lambda worker, why: self.unlinked.append((worker, why)),
            self.unfit.append,
        )

    def secured(self, hello: Hello) -> Any:
        ours, theirs = socket.socketpair()
        self.sockets += [ours, theirs]
        return SimpleNamespace(sock=ours, hello=hello)

    def dial(self, address: LinkAddress, hello: Hello, secret: bytes, frame_limit: int, tls: object) -> Any:
        self.dialled.put((address, hello))
        if self.refusal is not None:
            raise self.refusal
        return self.secured(hello)

    def run_posted(self, count: int = 1) -> None:
        for _ in range(count):
            self.posted.get(timeout=PATIENCE_S)()

    def arrives(self, worker: int, epoch: int = 1, version: int = 1) -> Any:
        """A peer has dialled us and proved itself."""
        secured = self.secured(Hello(DATA, RUN, worker, epoch, self.peering.index, version))
        self.peering.add_secured(secured)
        self.run_posted()
        return secured


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Rig]]:
    made: list[Rig] = []

    def make(index: int) -> Rig:
        made.append(Rig(index))
        monkeypatch.setattr(peering, "dial", made[-1].dial)
        monkeypatch.setattr(peering, "DIAL_AGAIN", Backoff(initial=0.001, maximum=0.002))
        return made[-1]

    yield make
    for one in made:
        for sock in one.sockets:
            sock.close()


def book(*workers: int, **epochs: int) -> dict[int, tuple[int, LinkAddress]]:
    return {worker: (epochs.get(f"w{worker}", 1), at(worker)) for worker in workers}


def test_the_worker_with_the_higher_index_dials(rig: Callable[[int], Rig]) -> None:
    """Worker 1 dials 0 and waits for 2; when both links stand, that is reported once, with the book's version."""
    one = rig(1)
    one.peering.apply_book(3, book(0, 1, 2))
    one.run_posted()
    address, hello = one.dialled.get(timeout=PATIENCE_S)
    assert (address, hello) == (at(0), Hello(DATA, RUN, 1, 1, wanted=0, version=3))
    assert one.linked == [] and not one.peering.all_linked_by(3)
    one.arrives(2, version=3)
    assert one.linked == [3] and one.peering.all_linked_by(3) and not one.peering.all_linked_by(2)
    assert one.dialled.empty()
    one.arrives(2, version=4)
    assert one.linked == [3]


def test_an_older_book_changes_nothing(rig: Callable[[int], Rig]) -> None:
    one = rig(2)
    one.peering.apply_book(5, book(2))
    one.peering.apply_book(4, book(0, 1, 2))
    assert one.linked == [5] and one.dialled.empty() and one.posted.empty()


def test_a_replaced_peer_is_dialled_again(rig: Callable[[int], Rig]) -> None:
    """Its link of the old epoch is not enough."""
    one = rig(1)
    one.peering.apply_book(1, book(0, 1))
    one.run_posted()
    assert one.links.epochs() == {0: 1} and one.linked == [1]
    one.peering.gone(0, 1)
    one.peering.apply_book(2, book(0, 1, w0=2))
    one.run_posted()
    assert one.links.present == {0: (2, 2)} and one.linked == [1, 2]


def test_a_link_made_before_a_cut_is_closed_when_it_arrives_after_it(rig: Callable[[int], Rig]) -> None:
    """Kept, one end would count the pair as linked while the other has dropped it."""
    one = rig(0)
    one.peering.apply_book(1, book(0, 1))
    one.arrives(1, version=1)
    one.peering.cut((0, 1), 2)
    assert one.links.epochs() == {}
    late = one.arrives(1, version=1)
    assert late.sock.fileno() == -1 and one.links.epochs() == {}
    one.arrives(1, version=2)
    assert one.links.epochs() == {1: 1}


def test_a_cut_between_two_others_touches_no_link_of_ours(rig: Callable[[int], Rig]) -> None:
    one = rig(0)
    one.peering.apply_book(1, book(0, 1, 2))
    one.arrives(1)
    one.peering.cut((1, 2), 2)
    assert one.links.epochs() == {1: 1}


def test_a_peer_that_does_not_answer_is_dialled_again_and_reported_now_and_then(
    rig: Callable[[int], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failed dial is reported, and then one a second; each dial waits for the one before."""
    one, now = rig(1), [0.0]
    monkeypatch.setattr(peering, "time", SimpleNamespace(sleep=time.sleep, monotonic=lambda: now[0]))
    one.refusal = Refused("it does not know this run's secret")
    one.peering.apply_book(1, book(0, 1))
    one.run_posted(20)
    told = (0, "it does not know this run's secret")
    assert one.unlinked == [told]
    now[0] = TELL_S
    one.run_posted(2)
    assert one.unlinked == [told, told]
    one.refusal = None
    while not one.links.epochs():
        one.run_posted()
    assert one.linked == [1]


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_b3_pauses_between_dials_grow_with_chance_in_them_and_begin_anew_with_a_link(
    rig: Callable[[int], Rig], monkeypatch: pytest.MonkeyPatch, chance: float
) -> None:
    """Workers that lost a peer together do not dial it together."""
    one, slept = rig(1), list[float]()
    monkeypatch.setattr(peering, "DIAL_AGAIN", DIAL_AGAIN)
    monkeypatch.setattr(peering, "uniform", lambda: chance)
    monkeypatch.setattr(peering, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    one.refusal = ConnectionRefusedError("refused")
    one.peering.apply_book(1, book(0, 1))
    one.run_posted(6)
    share = 0.8 + 0.4 * chance
    assert slept[:6] == pytest.approx([min(0.5, share * pause) for pause in (0.05, 0.1, 0.2, 0.4, 0.5, 0.5)])
    one.refusal = None
    while not one.links.epochs():
        one.run_posted()
    del slept[:]
    one.refusal = ConnectionResetError("reset")
    one.peering.cut((0, 1), 2)
    one.peering.apply_book(2, book(0, 1))
    one.run_posted()
    assert slept[0] == pytest.approx(share * 0.05)


def test_a_replaced_peer_is_dialled_at_once_though_the_pause_for_the_one_before_is_not_over(
    rig: Callable[[int], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, over = rig(1), threading.Event()
    monkeypatch.setattr(
        peering, "time", SimpleNamespace(sleep=lambda _: over.wait(PATIENCE_S), monotonic=time.monotonic)
    )
    one.refusal = ConnectionRefusedError("refused")
    one.peering.apply_book(1, book(0, 1))
    one.dialled.get(timeout=PATIENCE_S)
    one.refusal = None
    one.peering.apply_book(2, book(0, 1, w0=2))
    one.run_posted()
    assert one.links.epochs() == {0: 2} and one.linked == [2]
    over.set()
    one.run_posted()  # of the pause
    assert one.links.epochs() == {0: 2} and not one.unlinked and not one.peering._dialing


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (Hello(handshake.CONTROL, RUN, 2, 1, 0), "another worker or run"),
        (Hello(DATA, b"o" * 16, 2, 1, 0), "another worker or run"),
        (Hello(DATA, RUN, 2, 1, 1), "another worker or run"),
        (Hello(DATA, RUN, 3, 1, 0), "no other worker 3"),
        (Hello(DATA, RUN, 0, 1, 0), "no other worker 0"),
        (Hello(DATA, RUN, 2, 3, 0), "epoch 3 of worker 2, which was replaced"),
    ],
)
def test_a_peer_with_the_secret_that_is_not_expected_is_refused(
    rig: Callable[[int], Rig], hello: Hello, why: str
) -> None:
    one = rig(0)
    one.peering.apply_book(1, book(0, 2, w2=4))
    with pytest.raises(Refused, match=why):
        one.peering.check_hello(hello)


def test_a_peer_that_the_book_does_not_have_yet_is_let_in(rig: Callable[[int], Rig]) -> None:
    """It may have a newer book than we have; an epoch above the one that we know, too."""
    one = rig(0)
    one.peering.check_hello(Hello(DATA, RUN, 2, 1, 0))
    one.peering.apply_book(1, book(0, 2, w2=4))
    one.peering.check_hello(Hello(DATA, RUN, 2, 5, 0))


def test_all_the_living_are_linked_where_only_the_dead_are_missing(rig: Callable[[int], Rig]) -> None:
    """One that is neither dead nor in the book may still come."""
    one = rig(0)
    one.peering.apply_book(1, book(0, 1, 2))
    one.arrives(1)
    assert not one.peering.all_linked_but(())
    assert one.peering.all_linked_but({2}) and not one.peering.all_linked_but({1})
    one.peering.apply_book(2, book(0, 1))
    assert one.peering.all_linked_by(2) and not one.peering.all_linked_but(())
    one.peering.cut((0, 1), 3)
    assert not one.peering.all_linked_but({2})


def test_the_last_link_to_the_living_is_reported_though_another_peer_has_died_meanwhile(
    rig: Callable[[int], Rig],
) -> None:
    """While a run ends there is no newer book, and the worker waits for this word to go on."""
    one = rig(0)
    one.peering.apply_book(1, book(0, 1, 2))
    one.arrives(1)
    one.arrives(2)
    one.peering.cut((0, 1), 2)
    one.peering.apply_book(2, book(0, 1, 2))
    one.peering.gone(2, 1)
    assert one.linked == [1]
    one.arrives(1, version=2)
    assert one.linked == [1, 2] and one.peering.all_linked_but({2})
    one.peering.apply_book(3, book(0, 1, 2, w2=2))
    assert one.linked == [1, 2] and not one.peering.all_linked_by(3), "its replacement is waited for"
    one.arrives(2, epoch=2, version=3)
    assert one.linked == [1, 2, 3]


def test_a_peer_that_has_died_is_not_dialled_again(rig: Callable[[int], Rig]) -> None:
    one = rig(1)
    one.peering.apply_book(1, book(0, 1, 2))
    one.run_posted()
    assert one.dialled.get(timeout=PATIENCE_S)[0] == at(0)
    one.peering.gone(0, 1)
    one.arrives(2)
    assert one.links.epochs() == {2: 1} and one.linked == [1] and not one.peering._dialing


def test_a_worker_that_gets_no_thread_for_long_asks_to_be_replaced(
    rig: Callable[[int], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole run waits for its link, and it would wait for ever."""
    one = rig(1)
    monkeypatch.setattr(peering, "THREADLESS_S", 0.05)

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    one.peering.apply_book(1, book(0, 1))
    deadline = time.monotonic() + PATIENCE_S
    while not one.unfit:
        assert time.monotonic() < deadline
        one.run_posted()
    assert one.unfit[0].startswith("got no thread from the system for 0.05 s")
