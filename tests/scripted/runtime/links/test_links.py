"""Links over sockets whose other end the test holds: order, losses and their reasons, the last words of a peer."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from streamlet.runtime.links import links as links_module
from streamlet.runtime.links.dialing import Secured
from streamlet.runtime.links.handshake import DATA, Hello
from streamlet.runtime.links.link_account import LinkAccount
from streamlet.runtime.links.links import (
    CUT_BY_COORDINATOR,
    PEER_CLOSED,
    PEER_RESET,
    Departures,
    NoLinks,
    SocketLinks,
)
from streamlet.runtime.links.silence import LOOK_S, SILENT_S
from streamlet.runtime.links.wire import BadFrame, FrameReader, FrameWriter, decode_data, encode_data
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from tests.patience import PATIENCE_S

KEY = b"k" * 32
LIMIT = 1 << 20


class Peer:
    """The other end of one link."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(PATIENCE_S)
        self.writer, self.reader = FrameWriter(KEY), FrameReader(KEY, LIMIT)

    def say(self, *roots: int) -> None:
        """Send an ack delta for each root, a frame each."""
        for root in roots:
            self.sock.sendall(self.writer.frame(encode_data(Outgoing(roots=[root], deltas=[1]))))

    def heard(self) -> list[int]:
        """Return the roots of all frames until the other end has finished."""
        frames: list[bytes] = []
        while data := self.sock.recv(1 << 16):
            frames += self.reader.feed(data)
        return [root for frame in frames for root in decode_data(frame).roots]


class Rig:
    """Links with their selector, and what they reported."""

    def __init__(self) -> None:
        self.lost: list[tuple[int, int, int, str]] = []
        self.check: Callable[[Incoming], None] = lambda incoming: None
        self.links = SocketLinks(lambda *lost: self.lost.append(lost), lambda incoming: self.check(incoming))
        self.selector = selectors.DefaultSelector()
        self.links.attach(self.selector)
        self.peers: list[Peer] = []

    def link(self, worker: int, epoch: int = 1, version: int = 1, pair: tuple[socket.socket, ...] = ()) -> Peer:
        ours, theirs = pair or socket.socketpair()
        hello = Hello(DATA, b"r" * 16, worker, epoch, 0, version)
        self.peers.append(Peer(theirs))
        self.links.add(Secured(ours, hello, FrameWriter(KEY), FrameReader(KEY, LIMIT)), worker, epoch)
        return self.peers[-1]

    def turn(self) -> list[Incoming]:
        for key, _ in self.selector.select(0):
            key.data()
        return self.links.received()

    def turn_until(self, reached: Callable[[], bool]) -> list[Incoming]:
        got: list[Incoming] = []
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline
            got += self.turn()
        return got


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.links.close()
    made.selector.close()
    for peer in made.peers:
        peer.sock.close()


def acks(*roots: int) -> Outgoing:
    return Outgoing(roots=[*roots], deltas=[1] * len(roots))


def roots_of(got: list[Incoming]) -> list[int]:
    return [root for incoming in got for root in incoming.roots]


def tcp_pair() -> tuple[socket.socket, ...]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


def test_frames_arrive_in_order_and_bear_the_worker_of_the_handshake(rig: Rig) -> None:
    """Both are counted, for the question whether anything is under way."""
    one, two = rig.link(1), rig.link(2)
    one.say(10, 11, 12)
    two.say(20)
    got = rig.turn_until(lambda: rig.links.traffic()[1] == {1: 3, 2: 1}) + rig.links.received()
    assert [incoming.roots[0] for incoming in got if incoming.worker == 1] == [10, 11, 12]
    assert [incoming.roots[0] for incoming in got if incoming.worker == 2] == [20]
    rig.links.send(1, acks(5))
    assert rig.links.traffic() == ({1: 1, 2: 0}, {1: 3, 2: 1})


def test_a_send_without_a_link_sends_nothing_and_says_so(rig: Rig) -> None:
    assert rig.links.send(1, acks(5)) is None
    assert rig.links.send(1, Outgoing([Run(1, 2, "default", False, [1], [1], [["x"]])])) is None


def test_the_last_words_of_a_peer_are_read_before_its_loss_is_reported(rig: Rig) -> None:
    """The acks among them are true: unread, finished trees would be replayed."""
    peer = rig.link(1, epoch=4, version=9)
    peer.say(*range(50))
    peer.sock.close()
    read = roots_of(rig.turn_until(lambda: bool(rig.lost)))
    assert read + roots_of(rig.links.received()) == list(range(50))
    assert rig.lost == [(1, 4, 9, PEER_CLOSED)] and rig.links.epochs() == {}


def test_a_reset_is_reported_as_one_and_once(rig: Rig) -> None:
    ours, theirs = tcp_pair()
    rig.link(1, pair=(ours, theirs))
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    rig.turn_until(lambda: bool(rig.lost))
    assert rig.links.send(1, acks(1)) is None
    rig.turn()
    assert [why for *_, why in rig.lost] == [PEER_RESET]


def test_a_frame_that_must_not_come_ends_its_link_only(rig: Rig) -> None:
    """What came before it counts; the other link goes on."""

    def refuse(incoming: Incoming) -> None:
        if incoming.roots == [13]:
            raise BadFrame("A run goes where the plan has no route.")

    rig.check = refuse
    bad, good = rig.link(1), rig.link(2)
    bad.say(12, 13, 14)
    got = rig.turn_until(lambda: bool(rig.lost))
    assert rig.lost == [(1, 1, 1, "A run goes where the plan has no route.")]
    assert roots_of(got + rig.links.received()) == [12]
    good.say(20)
    assert roots_of(rig.turn_until(lambda: rig.links.traffic()[1] == {2: 1}) + rig.links.received()) == [20]


@pytest.mark.parametrize("later", [(2, 1), (1, 2)], ids=["epoch", "version"])
def test_the_later_link_of_a_pair_stands(rig: Rig, later: tuple[int, int]) -> None:
    """Whichever of two comes first: a late arrival of the earlier one is closed, and nothing is lost by it."""
    first = rig.link(1, 1, 1)
    second = rig.link(1, *later)
    assert rig.lost == [(1, 1, 1, "the peer has connected again")] and first.heard() == []
    late = rig.link(1, 1, 1)
    assert late.heard() == [] and len(rig.lost) == 1
    rig.links.send(1, acks(7))
    rig.links.finish(0.1)
    assert second.heard() == [7]


def test_a_cut_spares_links_of_a_later_version_or_epoch(rig: Rig) -> None:
    rig.link(1, epoch=2, version=5)
    rig.links.drop(1, 1, 9)
    rig.links.drop(1, 2, 5)
    rig.links.drop(3, 2, 9)
    assert rig.links.epochs() == {1: 2} and not rig.lost
    rig.links.drop(1, 2, 6)
    assert rig.links.epochs() == {} and rig.lost == [(1, 2, 5, CUT_BY_COORDINATOR)]


def test_a_peer_that_reads_late_gets_everything_in_order(rig: Rig) -> None:
    """A send waits for nobody: what the socket does not take is counted until it does."""
    peer = rig.link(1)
    filler = Outgoing([Run(1, 2, "default", False, [1], [1], [["x" * 100_000]])])
    while not rig.links.unsent_bytes():
        assert rig.links.send(1, filler) == []
    rig.links.send(1, acks(7, 8))
    assert rig.links.unsent_bytes()[1] > 0
    heard: list[int] = []
    reading = threading.Thread(target=lambda: heard.extend(peer.heard()))
    reading.start()
    rig.turn_until(lambda: not rig.links.unsent_bytes())
    rig.links.finish(0.1)
    reading.join(PATIENCE_S)
    assert heard == [7, 8]


def test_finish_writes_what_is_queued_and_reads_each_link_to_its_end(rig: Rig) -> None:
    """All workers do so at once; one that says nothing more costs the time that is given and no more."""
    speaks, silent = rig.link(1), rig.link(2)
    rig.links.send(1, acks(5))
    speaks.say(6)
    speaks.sock.shutdown(socket.SHUT_WR)
    began = time.monotonic()
    rig.links.finish(0.2)
    assert 0.2 <= time.monotonic() - began < 5
    assert roots_of(rig.links.received()) == [6]
    assert speaks.heard() == [5] and silent.heard() == []


def test_a_worker_without_a_descriptor_finishes_its_links_too(rig: Rig) -> None:
    """Its component has left all of them open."""
    peer = rig.link(1)
    peer.say(7)
    peer.sock.shutdown(socket.SHUT_WR)
    taken: list[int] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        rig.links.finish(PATIENCE_S)
        assert [frame.roots for frame in rig.links.received()] == [[7]]
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_machine_that_sends_nothing_is_cut_off_with_a_reset(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel still holds is dropped: it would arrive as tuples of trees that have failed."""
    ours, theirs = tcp_pair()
    peer = rig.link(1, pair=(ours, theirs))
    monkeypatch.setattr(links_module, "segments_in", lambda sock: 42)
    now = time.monotonic()
    looks = int(SILENT_S / LOOK_S) + 1
    for look in range(looks):
        assert not rig.lost
        rig.links.cut_silent(now + look * LOOK_S)
    rig.links.cut_silent(now + looks * LOOK_S)
    ((worker, *_, why),) = rig.lost
    assert worker == 1 and "nothing has come from the other machine" in why
    with pytest.raises(ConnectionResetError):
        while peer.sock.recv(4096):
            pass


def test_a_plan_of_one_worker_has_nowhere_to_send() -> None:
    links = NoLinks()
    links.finish(0.0)
    assert links.received() == [] and links.unsent_bytes() == {} and links.traffic() == ({}, {})
    with pytest.raises(AssertionError, match="worker 1"):
        links.send(1, acks(5))


class CountedRows(list[list[int]]):
    """Rows that count how many were copied by slices of them, and of their slices."""

    copied = 0

    def __getitem__(self, at):  # type: ignore[no-untyped-def, override]
        taken = super().__getitem__(at)
        if isinstance(at, slice):
            CountedRows.copied += len(taken)
            return CountedRows(taken)
        return taken


class TakesEverything(NoLinks):
    def __init__(self) -> None:
        self.pieces: list[list[int]] = []

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        self.pieces.append([row[0] for run in outgoing.runs for row in run.values])
        return []


def test_a_call_of_very_many_tuples_leaves_in_order_and_each_is_copied_a_few_times_only() -> None:
    """In 1 000 pieces and more: a rest that is copied for each would be 500 copies of each row."""
    links = TakesEverything()
    departures = Departures(links, LinkAccount({}), 1 << 14, unsendable=lambda runs: None, too_large=lambda runs: None)
    count = 200_000
    rows = CountedRows([n] for n in range(count))
    departures.add(1, [Run(4, 3, "default", False, [0] * count, [0] * count, rows)])
    CountedRows.copied = 0
    departures.send({}, links_stand=True)
    assert [n for piece in links.pieces for n in piece] == [*range(count)]
    assert len(links.pieces) > 1000 and not departures.waiting
    assert CountedRows.copied < 20 * count


def test_rows_that_a_sample_took_for_small_leave_in_pieces_after_a_recount() -> None:
    """Else a frame has megabytes of them, and is there four times: as rows and as bytes, at both ends."""
    for recounts, pieces in ((False, 1), (True, 51)):
        links = TakesEverything()
        departures = Departures(
            links, LinkAccount({}), 1 << 16, unsendable=lambda runs: None, too_large=lambda runs: None
        )
        rows = [[""] if n % 2 else ["x" * 100_000] for n in range(1, 101)]
        departures.add(1, [Run(4, 3, "default", False, [0], [0], [[""]])])
        departures.add(1, [Run(4, 3, "default", False, [0] * 99, [0] * 99, rows[1:])])
        assert not departures.are_many
        if recounts:
            departures.recount()
            assert departures.are_many
        departures.send({}, links_stand=True)
        assert [text for piece in links.pieces for text in piece] == [text for (text,) in [[""], *rows[1:]]]
        assert len(links.pieces) >= pieces and (recounts or len(links.pieces) == 1)


def test_close_leaves_no_descriptor_open(rig: Rig) -> None:
    peer = rig.link(1)
    before = len(os.listdir("/proc/self/fd"))
    rig.links.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert peer.heard() == [] and not rig.lost, "nobody lost it: it was closed"
