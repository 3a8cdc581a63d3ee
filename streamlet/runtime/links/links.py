"""Links between workers: the contract, no links at all, links over sockets, and the way out over them.

A link is ordered, at most once, and never waits for a peer to read. Nothing is sent twice, on the old link or on a new
one: an ack delta that is applied twice is a false ack, for XORed in twice it hides a tuple that nobody processed. So
whatever a broken link held is lost, every tree that may have used it fails, and its spout replays it under a fresh
root.

Few tuples leave at once, in one frame a turn to each worker (``Departures``). One call may emit far more: its tuples
stay here, in the worker that made them, and leave in pieces, while the link is nearly empty and the receiving task is
not full. So a frame is hardly larger than a piece, and a worker is sent no more than a piece and what its socket holds
before it can say that it is full. Only tuples stay: acks, failures, marks and the census's questions leave at once,
since they make room.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol

from streamlet.runtime.links.dialing import Secured
from streamlet.runtime.links.link_account import LinkAccount
from streamlet.runtime.links.silence import SILENT_S, Silence, segments_in, silent_text
from streamlet.runtime.links.wire import BadFrame, data_payloads, decode_data
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run, SampledSizes

READ_BYTES = 1 << 18
"""Most bytes of one read of a link."""

READS_PER_TURN = 8
LAST_READS = 4096
"""Most reads of a link that has ended; a socket holds far less."""

FINISH_LOOK_S = 0.02
"""Seconds between two looks at links that can still be written to."""

LEAST_PIECE = 4096
"""Bytes that tuples of a piece may take at least: with a tuple a piece a link would be slow."""

NEARLY_EMPTY = 4
"""A link with no more unsent bytes than a piece divided by this is given the next piece."""

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time at all. ``close`` then resets the connection."""

PEER_CLOSED = "the peer closed it"
PEER_RESET = "the connection was reset"
CUT_BY_COORDINATOR = "the coordinator said so"
ENDED_ELSEWHERE = (PEER_CLOSED, PEER_RESET, CUT_BY_COORDINATOR)
"""Reasons of a link that was not ended at this end: the other end may know a better one."""

OnLinkLost = Callable[[int, int, int, str], None]
"""(worker, its epoch, version of the book that made the link, reason). Called after everything readable was read."""


Traffic = tuple[Mapping[int, int], Mapping[int, int]]
"""Two counts of frames by worker: sent, and received."""


class Links(Protocol):
    """Ordered, at most once, never blocking. All methods belong to the loop's thread.

    Whatever ``send`` takes is either delivered once or lost together with the link. Deliberately absent: how links come
    to be (the control thread brings them), and any waiting.
    """

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Register sockets in the loop's selector, with a callable as data."""

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        """Queue frames; return runs of one tuple each that fit in none.

        None without a link to that worker: nothing was sent and nothing will be.
        """

    def received(self) -> list[Incoming]:
        """Return frames that arrived since the last call, in order per link."""

    def unsent_bytes(self) -> dict[int, int]:
        """Return the bytes that wait for each worker, of those with any."""

    def finish(self, wait_s: float) -> None:
        """Send all queued bytes, then read every link to its end. All workers do so at once."""

    def traffic(self) -> Traffic:
        """Count frames sent and received over the present link of each worker."""

    def close(self) -> None:
        """Close all links. Never blocks."""


class NoLinks:
    """The whole topology is in this worker: nothing ever leaves it."""

    def attach(self, selector: selectors.BaseSelector) -> None:
        pass

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        raise AssertionError(f"a plan of one worker sent to worker {worker}")

    def received(self) -> list[Incoming]:
        return []

    def unsent_bytes(self) -> dict[int, int]:
        return {}

    def finish(self, wait_s: float) -> None:
        pass

    def traffic(self) -> Traffic:
        return {}, {}

    def close(self) -> None:
        pass


class _Link:
    """One authenticated socket to one worker of one epoch."""

    __slots__ = (
        "epoch", "out", "out_bytes", "received", "secured", "sent", "silence", "sock", "version", "worker", "writing"
    )  # fmt: skip

    def __init__(self, secured: Secured, worker: int, epoch: int) -> None:
        self.silence = Silence(time.monotonic())
        self.secured = secured
        self.sock = secured.sock
        self.sock.setblocking(False)
        self.worker = worker
        self.epoch = epoch
        self.version = secured.hello.version
        self.out: deque[memoryview] = deque()
        self.out_bytes = 0
        self.sent = 0
        self.received = 0
        self.writing = False


class SocketLinks:
    """All links of one worker, over sockets.

    Every method runs on the loop's thread. A link that fails is closed and reported once.
    """

    def __init__(self, lost: OnLinkLost, check: Callable[[Incoming], None]) -> None:
        """Make an empty set; ``check`` raises BadFrame for a frame this worker must not get."""
        self._check = check
        self._lost = lost
        self._links: dict[int, _Link] = {}
        self._selector: selectors.BaseSelector | None = None
        self._received: list[Incoming] = []

    def attach(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector

    # -- links come and go -------------------------------------------------------------------------------------

    def add(self, secured: Secured, worker: int, epoch: int) -> None:
        """Add a link, unless the present one is as late or later.

        A present link of a lower epoch or version is lost.
        """
        assert self._selector is not None
        present = self._links.get(worker)
        if present is not None:
            if (present.epoch, present.version) >= (epoch, secured.hello.version):
                secured.sock.close()
                return
            self._close(present, "the peer has connected again")
        link = self._links[worker] = _Link(secured, worker, epoch)
        self._selector.register(link.sock, selectors.EVENT_READ, lambda: self._ready(link))

    def drop(self, worker: int, epoch: int, version: int) -> None:
        """Close a worker's link up to an epoch and made before ``version``."""
        link = self._links.get(worker)
        if link is not None and link.epoch <= epoch and link.version < version:
            self._close(link, CUT_BY_COORDINATOR)

    def epochs(self) -> dict[int, int]:
        """Return worker -> epoch of every link."""
        return {worker: link.epoch for worker, link in self._links.items()}

    def cut_silent(self, now: float) -> None:
        """Cut every link whose other machine has sent nothing for SILENT_S. Called each LOOK_S."""
        for link in list(self._links.values()):
            try:
                silent_s = link.silence.note_segments(segments_in(link.sock), now)
            except OSError:  # broken: the reading side says how
                continue
            if silent_s >= SILENT_S:
                self._abort(link, silent_text(silent_s))

    def close(self) -> None:
        for link in self._links.values():
            link.sock.close()
        self._links.clear()

    def _abort(self, link: _Link, why: str) -> None:
        # With a reset, and what the kernel still held is dropped: sent when the network heals, it would reach a peer
        # that may not have missed us yet, as tuples of trees that have failed meanwhile.
        with contextlib.suppress(OSError):
            link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close(link, why)

    def _close(self, link: _Link, why: str) -> None:
        if self._links.get(link.worker) is not link:
            return
        # The acks among the last words of a dead peer are true: unread, finished trees would be replayed.
        self._read(link, LAST_READS)
        del self._links[link.worker]
        assert self._selector is not None
        self._selector.unregister(link.sock)
        link.sock.close()
        self._lost(link.worker, link.epoch, link.version, why)

    # -- reading -------------------------------------------------------------------------------------------------

    def received(self) -> list[Incoming]:
        taken, self._received = self._received, []
        return taken

    def _ready(self, link: _Link) -> None:
        if link.writing:
            self._write(link)
        if self._links.get(link.worker) is link:
            why = self._read(link)
            if why is not None:
                self._close(link, why)

    def _read(self, link: _Link, reads: int = READS_PER_TURN) -> str | None:
        """Read the bytes there are; return why the link has ended, or None."""
        # A bounded number of reads: a peer that sends as fast as we read must not keep the other links and the bolts
        # waiting.
        for _ in range(reads):
            try:
                data = link.sock.recv(READ_BYTES)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                return PEER_RESET
            except OSError as error:
                return f"the connection broke ({error.strerror or error})"
            if not data:
                return PEER_CLOSED
            try:
                for payload in link.secured.reader.feed(data):
                    incoming = decode_data(payload)
                    # Known from the handshake, which has proved who is at the other end, and not from the frame.
                    incoming.worker = link.worker
                    self._check(incoming)
                    self._received.append(incoming)
                    link.received += 1
            except BadFrame as error:
                return str(error)
            # Rule: exactly, and in TLS, which never fills a read, one read a turn. With any slack a backlog is read on
            # past what this worker may hold before its sender hears that it is full. Last words are read to their end.
            if len(data) < READ_BYTES and reads < LAST_READS:
                return None
        return None

    # -- writing -------------------------------------------------------------------------------------------------

    def send(self, worker: int, outgoing: Outgoing) -> list[Run] | None:
        link = self._links.get(worker)
        if link is None:
            return None
        payloads, too_large = data_payloads(outgoing)
        for payload in payloads:
            frame = link.secured.writer.frame(payload)
            link.out.append(memoryview(frame))
            link.out_bytes += len(frame)
        link.sent += len(payloads)
        if not link.writing:
            self._write(link)
        return too_large

    def _write(self, link: _Link) -> None:
        try:
            while link.out:
                # sendmsg takes a bounded number of buffers; a few are enough to save system calls
                sent = link.sock.sendmsg([link.out[i] for i in range(min(len(link.out), 16))])
                link.out_bytes -= sent
                while sent:
                    head = link.out[0]
                    if sent < len(head):
                        link.out[0] = head[sent:]
                        break
                    sent -= len(head)
                    link.out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            # Not closed here: the reading side does it, after the peer's last words, and knows the reason.
            link.out.clear()
            link.out_bytes = 0
            with contextlib.suppress(OSError):
                link.sock.shutdown(socket.SHUT_WR)
        self._watch(link)

    def _watch(self, link: _Link) -> None:
        writing = bool(link.out)
        if writing != link.writing and self._links.get(link.worker) is link:
            link.writing = writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
            assert self._selector is not None
            self._selector.modify(link.sock, events, lambda: self._ready(link))

    def finish(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        with selectors.PollSelector() as selector:  # needs no descriptor: a component may have left none
            open_links = set(self._links.values())
            for link in open_links:
                selector.register(link.sock, selectors.EVENT_READ)
            while open_links and time.monotonic() < deadline:
                for link in list(open_links):
                    self._write(link)
                    if not link.out:  # repeated in each round, which does no harm
                        with contextlib.suppress(OSError):
                            link.sock.shutdown(socket.SHUT_WR)
                    if self._read(link) is not None:
                        selector.unregister(link.sock)
                        open_links.discard(link)
                selector.select(min(FINISH_LOOK_S, max(0.0, deadline - time.monotonic())))

    def traffic(self) -> Traffic:
        links = self._links.items()
        return {worker: link.sent for worker, link in links}, {worker: link.received for worker, link in links}

    def unsent_bytes(self) -> dict[int, int]:
        return {worker: link.out_bytes for worker, link in self._links.items() if link.out_bytes}


class Departures:
    """One worker's traffic to the others. On the loop's thread.

    ``most_bytes`` is the mark of a link: a piece is half of it. ``unsendable`` is given the tuples without a link,
    ``too_large`` those that no frame can hold.
    """

    def __init__(
        self,
        links: Links,
        account: LinkAccount,
        most_bytes: int,
        unsendable: Callable[[list[Run]], object],
        too_large: Callable[[list[Run]], object],
    ) -> None:
        self._links = links
        self._account = account
        self._most_bytes = most_bytes
        self._piece_bytes = max(most_bytes // 2, LEAST_PIECE)
        self._unsendable, self._too_large = unsendable, too_large
        self._outgoing: dict[int, Outgoing] = {}
        self._bytes = 0
        """About what the tuples in ``_outgoing`` take."""
        self.sizes = SampledSizes()
        self._staying: dict[int, list[Run]] = {}
        """Worker -> tuples for it that stay."""
        self._without_link: set[int] = set()
        """Workers whose tuples stay because they have no link; these are untracked."""
        self.written_off: set[int] = set()
        """Workers that died and are not replaced."""
        self.undeliverable: Counter[int] = Counter()
        """Task -> untracked tuples for it that reach nobody: its worker is written off."""
        self.held: frozenset[int] = frozenset()
        """Tasks whose tuples stay though their worker has a link."""
        self.unsent: Mapping[int, int] = {}
        """Bytes in the links of workers that are slow to read."""
        self.clogged: frozenset[int] = frozenset()
        """Workers without a link, or with more unsent than the mark; from above it until half of it."""

    def __bool__(self) -> bool:
        """Tell whether the next ``send`` has something new."""
        return bool(self._outgoing)

    @property
    def waiting(self) -> bool:
        """Whether anything is here that has not been handed to the system."""
        return bool(self.unsent or self._staying)

    @property
    def are_many(self) -> bool:
        """Whether so much leaves that the turn is to end."""
        return self._bytes > self._most_bytes

    def to(self, worker: int) -> Outgoing:
        """Return what this turn sends to a worker."""
        outgoing = self._outgoing.get(worker)
        if outgoing is None:
            outgoing = self._outgoing[worker] = Outgoing()
        return outgoing

    def add(self, worker: int, runs: list[Run]) -> None:
        """Let tuples leave to a worker with this turn."""
        self.to(worker).runs.extend(runs)
        for run in runs:
            self._bytes += len(run.roots) * self.sizes.of((run.source, run.stream), run.values)

    def recount(self) -> None:
        """Measure every row that is here."""
        self._bytes = self.sizes.learn(chain.from_iterable(out.runs for out in self._outgoing.values()))
        self.sizes.learn(self.staying())

    def staying(self) -> Iterator[Run]:
        """Yield the tuples that stay here for now."""
        return chain.from_iterable(self._staying.values())

    def look(self) -> bool:
        """Look again at which links are clogged; tell whether that has changed."""
        if self.unsent:  # what was just written; nothing else would wake the loop when a link is empty again
            self.unsent = self._links.unsent_bytes()
        mark = self._most_bytes
        above = (w for w, size in self.unsent.items() if size > (mark // 2 if w in self.clogged else mark))
        before, self.clogged = self.clogged, frozenset(chain(above, self._without_link))
        return self.clogged != before

    def link_lost(self, worker: int) -> None:
        """Forget the tuples for a worker that belong to trees: these have failed, and come again."""
        if worker in self._staying:
            self._keep(worker, self._staying.pop(worker))

    def write_off(self, worker: int) -> None:
        """Count tuples for a worker that is dead for good; keep none."""
        self.written_off.add(worker)
        self._account.write_off(worker)
        self._without_link.discard(worker)
        self._keep(worker, self._staying.pop(worker, []))

    def send(self, full: Mapping[int, Collection[int]], links_stand: bool) -> bool:
        """Send what leaves with this turn; tell whether ``held`` has changed.

        ``full``: worker -> its tasks that hold too much.
        """
        for worker in self._staying:
            if links_stand or worker not in self._without_link:
                self.to(worker)
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, {}
            in_pieces = self._bytes > self._piece_bytes or bool(self._staying)
            self._bytes = 0
            for worker, out in outgoing.items():
                if worker in self.written_off:
                    self._keep(worker, out.runs)
                    continue
                if in_pieces:
                    self._send_pieces(worker, out, full.get(worker, ()))
                if out:
                    self._send(worker, out)
            self.unsent = self._links.unsent_bytes()
        elif self.unsent:
            self.unsent = self._links.unsent_bytes()
        if not self._staying and not self.held:
            return False
        linked = (runs for worker, runs in self._staying.items() if worker not in self._without_link)
        before, self.held = self.held, frozenset(run.target for run in chain.from_iterable(linked))
        return self.held != before

    def _send_pieces(self, worker: int, out: Outgoing, full: Collection[int]) -> None:
        """Send the tuples that have room, which were here before first; let the others stay."""
        runs, out.runs = self._staying.pop(worker, []) + out.runs, []
        self._without_link.discard(worker)
        while runs and self._links.unsent_bytes().get(worker, 0) <= self._piece_bytes // NEARLY_EMPTY:
            piece, runs = self._cut(runs, full)
            if not piece:
                break
            if not self._send(worker, Outgoing(piece)):
                self._keep(worker, runs)
                return
        if runs:
            self._staying[worker] = runs

    def _cut(self, runs: Sequence[Run], full: Collection[int]) -> tuple[list[Run], list[Run]]:
        """Return a piece for tasks that are not full, and the rest. Where any has room, the piece is not empty."""
        piece: list[Run] = []
        rest: list[Run] = []
        left = self._piece_bytes
        for at, run in enumerate(runs):
            if left <= 0:
                rest.extend(runs[at:])
                break
            if run.target in full:
                rest.append(run)
                continue
            count = len(run.roots)
            size = self.sizes.of((run.source, run.stream), run.values)
            fits = max(left // max(size, 1), 1)
            left -= min(fits, count) * size
            if fits < count:  # what comes after stays, too: between two tasks order holds
                left = 0
                # In halves: a rest that is copied for each piece is quadratic in one call's tuples, and an index into
                # the run would keep in memory what has left.
                halves = []
                while fits < count:
                    end = max(fits, count // 2)
                    halves.append(run.part(end, count))
                    run, count = run.part(0, end), end
                rest.extend(reversed(halves))
            piece.append(run)
        return piece, rest

    def _send(self, worker: int, out: Outgoing) -> bool:
        too_large = self._links.send(worker, out)
        if too_large is None:
            self._keep(worker, out.runs)
            return False
        self._too_large(too_large)
        if untracked := [run for run in out.runs if run.has_untracked]:
            self._account.sends(untracked, too_large)
        return True

    def _keep(self, worker: int, runs: list[Run]) -> None:
        """Fail the trees of tuples for a worker without a link; keep the untracked ones for its next link.

        Where it gets none any more, these are counted.
        """
        # A failed tree is replayed by its spout. Nobody replays what is untracked: sent nowhere, it would be gone.
        self._unsendable(runs)
        kept = [untracked for untracked in map(Run.untracked, runs) if untracked.roots]
        if worker in self.written_off:
            # Rule: not kept. A link that never comes would clog those that emit to it, and the drain would wait for
            # them; and without that wait nothing bounds what they emit.
            for run in kept:
                self.undeliverable[run.target] += len(run.roots)
        elif kept:
            self._staying.setdefault(worker, []).extend(kept)
            self._without_link.add(worker)
