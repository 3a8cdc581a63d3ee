"""The links that a worker should have: the address book, dials, links that are no longer valid.

Of each pair the worker with the higher index dials. Every link bears the version of its dialer's address book. Both
workers of a pair may make a link before each knows of the other's, so the version decides, and only it: of two links of
a pair the later one stands (``SocketLinks.add``), and a pair that was cut by version N accepts no link made before N,
even one that arrives afterwards (``Peering._add``). Without versions the two ends could keep different links.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamlet.base.backoff import Backoff
from streamlet.base.chance import uniform
from streamlet.base.notices import Notices
from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import LinkAddress, Secured, dial
from streamlet.runtime.links.handshake import Hello, Refused
from streamlet.runtime.links.links import SocketLinks
from streamlet.runtime.links.wire import MAX_DATA_FRAME

if TYPE_CHECKING:
    from streamlet.runtime.links.tls import LinkTls

DIAL_AGAIN = Backoff(initial=0.05, maximum=0.5)
"""Seconds between two dials of one peer: from 0.05 up, with chance in them. Short: tuples wait for the link."""

THREADLESS_S = 10.0
"""Seconds without a thread for a dial after which a worker asks to be replaced."""

TELL_S = 1.0
"""Seconds between two reports of failed dials of one peer."""

logger = logging.getLogger("streamlet")

Post = Callable[[Callable[[], None]], None]
"""Runs something on the loop's thread, soon."""


class Peering:
    """One worker's side of every pair.

    All methods belong to the loop's thread, but ``check_hello`` and ``add_secured``, which any thread calls. ``linked``
    gets each version of the book whose peers are all linked; ``unlinked`` gets a peer that does not answer our dials,
    and the reason; ``unfit`` the reason why this worker will dial nobody.
    """

    def __init__(
        self,
        me: Hello,
        workers: int,
        secret: bytes,
        links: SocketLinks,
        post: Post,
        linked: Callable[[int], None],
        unlinked: Callable[[int, str], None],
        unfit: Callable[[str], None],
        tls: LinkTls | None = None,
    ) -> None:
        self.index = me.worker
        self._me = me
        self._workers = workers
        self._secret = secret
        self._links = links
        self._post = post
        self._linked = linked
        self._unlinked = unlinked
        self._unfit = unfit
        self._threadless_since: float | None = None
        self._tls = tls
        self._version = 0
        self._peers: Mapping[int, tuple[int, LinkAddress]] = {}
        """Worker -> epoch and address, of the present book. Replaced as a whole: ``check_hello`` reads it unlocked."""
        self._linked_by = 0
        """The last version that ``linked`` was given."""
        self._void_before: dict[int, int] = {}
        """Peer -> version of the book before which every link of the pair is void."""
        self._dead: dict[int, int] = {}
        """Peer -> its last epoch that has ended."""
        self._dialing: set[tuple[int, int]] = set()
        """Peers, with their epoch, that are being dialled, or wait for the pause after a dial."""
        self._failed_dials: dict[tuple[int, int], int] = {}
        """The same -> failed dials in a row."""
        self._reports: Notices[int] = Notices(TELL_S)

    # -- peers that dial us ------------------------------------------------------------------------------------

    def check_hello(self, hello: Hello) -> None:
        """Check that a peer that proved the secret may link. Raises Refused. Any thread."""
        if hello.kind != handshake.DATA or hello.run_id != self._me.run_id or hello.wanted != self.index:
            raise Refused("it wants another worker or run")
        if hello.worker >= self._workers or hello.worker == self.index:
            raise Refused(f"there is no other worker {hello.worker} in this run")
        known = self._peers.get(hello.worker)
        if known is not None and hello.epoch < known[0]:
            raise Refused(f"it is epoch {hello.epoch} of worker {hello.worker}, which was replaced")

    def add_secured(self, secured: Secured) -> None:
        """Add the link of a peer that dialled and proved itself. Any thread."""
        self._post(lambda: self._add(secured, secured.hello.worker, secured.hello.epoch))

    def _add(self, secured: Secured, worker: int, epoch: int) -> None:
        self._dialing.discard((worker, epoch))
        self._failed_dials.pop((worker, epoch), None)
        # A handshake takes its time: this link may have been void before it was added. Kept, one end would count the
        # pair as linked while the other has dropped it.
        if secured.hello.version < self._void_before.get(worker, 0):
            secured.sock.close()
        else:
            self._links.add(secured, worker, epoch)
        self._dial_missing()
        self._report_linked()

    # -- peers we dial -----------------------------------------------------------------------------------------

    def apply_book(self, version: int, peers: Mapping[int, tuple[int, LinkAddress]]) -> None:
        """Take a newer address book: worker -> epoch and address. Ignore an older one."""
        if version > self._version:
            self._version, self._peers = version, peers
            self._dial_missing()
            self._report_linked()

    def gone(self, worker: int, epoch: int) -> None:
        """Drop the link to a dead worker, and wait for none."""
        # Rule: who is dead is missing to nobody. While a run ends no newer book leaves it out; the word that the living
        # are linked again would never come.
        self._dead[worker] = max(epoch, self._dead.get(worker, epoch))
        self._links.drop(worker, epoch, version=sys.maxsize)
        self._report_linked()

    def cut(self, pair: Sequence[int], version: int) -> None:
        """Void the links that one of our pairs made before ``version``."""
        if self.index in pair:
            (peer,) = (worker for worker in pair if worker != self.index)
            self._void_before[peer] = version
            self._links.drop(peer, sys.maxsize, version)

    def all_linked_by(self, version: int) -> bool:
        """Tell whether this version is current and every peer in it linked."""
        return version == self._version and self._all_linked()

    def all_linked_but(self, gone: Collection[int]) -> bool:
        """Tell whether all other workers that are not gone are linked."""
        have, peers = self._links.epochs(), self._peers
        living = set(range(self._workers)) - {self.index, *gone}
        return all(worker in peers and have.get(worker) == peers[worker][0] for worker in living)

    def _dial_missing(self) -> None:
        """Dial each missing peer, with one attempt at a time."""
        have = self._links.epochs()
        for worker, (epoch, address) in self._living():
            # Of two workers the one with the higher index dials: if both did, each could close the connection that the
            # other has just kept.
            if worker < self.index and have.get(worker) != epoch and (worker, epoch) not in self._dialing:
                self._dialing.add((worker, epoch))
                # Rule: pauses grow, with chance in them. Workers that lost a peer together would else knock together,
                # and be turned away together, each twentieth of a second.
                pause_s = DIAL_AGAIN.delay(self._failed_dials.get((worker, epoch), 0) + 1, uniform)
                args = (worker, epoch, address, self._version, pause_s)
                try:
                    threading.Thread(target=self._dial, args=args, name="dial", daemon=True).start()
                    self._threadless_since = None
                except RuntimeError as error:
                    # The system gives no further thread. That may pass, so it is a dial that failed. The loop itself
                    # waits before the next one: without the link its spouts stand still.
                    time.sleep(DIAL_AGAIN.initial)
                    self._note_threadless(time.monotonic())
                    self._post(partial(self._dial_again, worker, epoch, str(error)))

    def _note_threadless(self, now: float) -> None:
        """Ask for a replacement after long without a thread."""
        # Rule: a process at its limit (of memory, of threads) does not come out of it by waiting, and the whole run
        # waits for its link. Its replacement begins with nothing.
        if self._threadless_since is None:
            self._threadless_since = now
        elif now - self._threadless_since >= THREADLESS_S:
            self._threadless_since = now  # asked again only after as long
            self._unfit(f"got no thread from the system for {THREADLESS_S:g} s, and could not dial its peers")

    def _dial(self, worker: int, epoch: int, address: LinkAddress, version: int, pause_s: float) -> None:
        me = self._me
        hello = Hello(handshake.DATA, me.run_id, me.worker, me.epoch, worker, version)
        try:
            secured = dial(address, hello, self._secret, MAX_DATA_FRAME, self._tls)
        except (Refused, OSError) as error:
            logger.debug("worker %d cannot reach worker %d yet: %s", self.index, worker, error)
            # Slept here, on the thread of the dial: the loop must not wait, and the peer may only be about to listen.
            time.sleep(pause_s)
            why = str(error)  # the name is unbound when this block ends
            self._post(lambda: self._dial_again(worker, epoch, why))
            return
        self._post(lambda: self._add(secured, worker, epoch))

    def _dial_again(self, worker: int, epoch: int, why: str) -> None:
        self._dialing.discard((worker, epoch))
        if self._peers.get(worker, (0,))[0] != epoch:
            self._failed_dials.pop((worker, epoch), None)  # replaced meanwhile
            return
        self._failed_dials[worker, epoch] = self._failed_dials.get((worker, epoch), 0) + 1
        if self._reports.due(worker, time.monotonic()) is not None:
            self._unlinked(worker, why)
        self._dial_missing()

    def _report_linked(self) -> None:
        if self._version > self._linked_by and self._all_linked():
            self._linked_by = self._version
            self._linked(self._version)

    def _all_linked(self) -> bool:
        have = self._links.epochs()
        return all(worker == self.index or have.get(worker) == epoch for worker, (epoch, _) in self._living())

    def _living(self) -> Iterator[tuple[int, tuple[int, LinkAddress]]]:
        """Yield the peers that have not died: with epoch and address."""
        return (peer for peer in self._peers.items() if self._dead.get(peer[0], -1) < peer[1][0])
