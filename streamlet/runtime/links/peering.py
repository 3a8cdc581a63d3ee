"""Which links a worker should have, and how they come to be: the address book, dials, and what is void."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable

from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import Secured, dial
from streamlet.runtime.links.handshake import Hello, Refused
from streamlet.runtime.links.links import SocketLinks
from streamlet.runtime.links.wire import MAX_DATA_FRAME
from streamlet.runtime.worker.channel import Message

DIAL_AGAIN_S = 0.05

TOLD_EACH = 20
"""Of so many dials in vain the first is told: about one a second."""

logger = logging.getLogger("streamlet")

Post = Callable[[Callable[[], None]], None]
"""Runs something on the loop's thread, soon."""


class Peering:
    """One worker's side of every pair. Methods are the loop's, but ``admits`` and ``welcomed``, which any thread calls.

    Of a pair the worker with the higher index dials. ``linked`` is told each version of the book by which every peer
    in it is linked; ``unlinked`` whom this one dials in vain, and why.
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
    ) -> None:
        self.index = me.worker
        self._me = me
        self._workers = workers
        self._secret = secret
        self._links = links
        self._post = post
        self._linked = linked
        self._unlinked = unlinked
        self._in_vain: dict[int, int] = {}
        self._book: Message = {"version": 0, "workers": {}}
        self._told = 0
        self._void_before: dict[int, int] = {}
        self._dialing: set[int] = set()

    # -- who comes ---------------------------------------------------------------------------------------------

    def admits(self, hello: Hello) -> None:
        """Whether a peer that has proved the secret may link. Raises Refused. Any thread."""
        if hello.kind != handshake.DATA or hello.run_id != self._me.run_id or hello.wanted != self.index:
            raise Refused("it wants another worker or run")
        if hello.worker >= self._workers or hello.worker == self.index:
            raise Refused(f"there is no other worker {hello.worker} in this run")
        known = self._book["workers"].get(hello.worker)
        if known is not None and hello.epoch < known[0]:
            raise Refused(f"it is epoch {hello.epoch} of worker {hello.worker}, which was replaced")

    def welcomed(self, secured: Secured) -> None:
        """A peer has dialled and proved itself. Any thread."""
        self._post(lambda: self._add(secured, secured.hello.worker, secured.hello.epoch))

    def _add(self, secured: Secured, worker: int, epoch: int) -> None:
        self._dialing.discard(worker)
        self._in_vain.pop(worker, None)
        if secured.hello.version < self._void_before.get(worker, 0):
            secured.sock.close()  # made before the pair was told to start anew
        else:
            self._links.add(secured, worker, epoch)
        self._dial_missing()
        self._check()

    # -- who is wanted -----------------------------------------------------------------------------------------

    def apply_book(self, book: Message) -> None:
        """A newer address book: worker -> epoch and address."""
        if book["version"] > self._book["version"]:
            self._book = book
            self._dial_missing()
            self._check()

    def gone(self, worker: int, epoch: int) -> None:
        """A worker is no more."""
        self._links.drop(worker, epoch, version=sys.maxsize)

    def cut(self, pair: list[int], version: int) -> None:
        """A pair lost its link: if it is one of ours, what was made by an older book than ``version`` is void."""
        if self.index in pair:
            (peer,) = (worker for worker in pair if worker != self.index)
            self._void_before[peer] = version
            self._links.drop(peer, sys.maxsize, version)

    def whole_by(self, version: int) -> bool:
        """Whether this is still the book's version and every peer in it is linked."""
        return version == self._book["version"] and self._all_linked()

    def _dial_missing(self) -> None:
        """One attempt at a time for each peer."""
        have = self._links.epochs()
        for worker, (epoch, kind, host, port) in self._book["workers"].items():
            if worker < self.index and have.get(worker) != epoch and worker not in self._dialing:
                self._dialing.add(worker)
                args = (worker, epoch, (kind, host, port), self._book["version"])
                threading.Thread(target=self._dial, args=args, name="dial", daemon=True).start()

    def _dial(self, worker: int, epoch: int, address: tuple[str, str, int], version: int) -> None:
        me = self._me
        hello = Hello(handshake.DATA, me.run_id, me.worker, me.epoch, worker, version)
        try:
            secured = dial(address, hello, self._secret, MAX_DATA_FRAME)
        except (Refused, OSError) as error:
            logger.debug("worker %d cannot reach worker %d yet: %s", self.index, worker, error)
            time.sleep(DIAL_AGAIN_S)
            why = str(error)  # the name is unbound when this block ends
            self._post(lambda: self._dial_again(worker, why))
            return
        self._post(lambda: self._add(secured, worker, epoch))

    def _dial_again(self, worker: int, why: str) -> None:
        self._dialing.discard(worker)
        tries = self._in_vain[worker] = self._in_vain.get(worker, 0) + 1
        if tries % TOLD_EACH == 1:
            self._unlinked(worker, why)
        self._dial_missing()

    def _check(self) -> None:
        version = self._book["version"]
        if version > self._told and self._all_linked():
            self._told = version
            self._linked(version)

    def _all_linked(self) -> bool:
        have = self._links.epochs()
        return all(
            worker == self.index or have.get(worker) == entry[0] for worker, entry in self._book["workers"].items()
        )
