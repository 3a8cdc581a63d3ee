"""The right to emit, with offsets in ZooKeeper: a node among the owners, kept by a thread of its own.

What the nodes mean is in ``owner_nodes.py``. Each *beat* reads the task's own node, as a quorum has it: the answer
says that its session lived when the request was sent, so nobody else is given the place for a session time-out from
then, and the gate (``emit_gate.py``) counts its lease from there. A watch makes the next beat come at once when another
run writes its name, or when a child that is waited for goes.

    no node --made--> waits for other runs' nodes --none left--> granted --another run's name--> asked to stop
                                                                    |                                 |
                                  node gone: the session was over --+      stopped, or lease over: node deleted, error
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable

from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.coordination.node_store import (
    NodeMissing,
    NodeStore,
    VersionConflict,
    missing,
)
from streamlet.spouts.kafka.errors import RunDeposed, TaskReplaced
from streamlet.spouts.kafka.ownership.emit_gate import BEAT_SHARE, EmitGate
from streamlet.spouts.kafka.ownership.owner_nodes import NewestRun, TaskNode, claimed, phrases

log = logging.getLogger(__name__)

LEAVE_S = 1.0
"""Seconds that the end waits for the thread."""


class Grant:
    """The right to emit, until the session or the run ends."""

    __slots__ = ()


class ZooKeeperOwner:
    """One task's node among the owners, and its right to emit. ``wake`` is called on the owner's thread."""

    def __init__(
        self,
        nodes: NodeStore,
        root: str,
        me: TaskNode,
        topics: str,
        servers: str,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._root = root
        self._owners = f"{root}/owners"
        self._path = f"{self._owners}/{me.name}"
        self._me = me
        self._words = me.words(uuid.uuid4().hex)
        self._topics = topics
        self._where = f"ZooKeeper {servers}, node {self._owners}"
        self._wake = wake
        self._clock = clock
        self._session_s = nodes.session_timeout_s
        self.granted_s = -float("inf")
        """When the last beat that was answered well was sent."""
        self.gate: EmitGate[Grant] = EmitGate(topics, f"ZooKeeper {servers}", self, self._session_s, self._look)
        self._placed = self._had_it = self._ending = False
        self._alone = False
        """Whether the nodes of this task's earlier epochs were deleted after our own was made."""
        self._newer: NewestRun | None = None
        """The run that came after ours."""
        self._waits_for: list[str] = []
        self._news = threading.Event()
        self._leave_by_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"streamlet-owner-{me.task}", daemon=True)

    def start(self) -> None:
        """Begin to keep the node; returns at once."""
        self._thread.start()

    def waiting_for(self) -> str:
        """Say why a start may wait for the right to emit."""
        whose = ", ".join(self._waits_for) or "what is there already is not known yet"
        return (
            f" Another run may still read the topic ({self._where}: {whose}). A run whose processes were all killed "
            f"keeps its place until its session is over, after session_timeout_ms={self._session_s * 1e3:.0f}; a spout "
            "that waits for a long call of a bolt is waited for as long."
        )

    def leave(self) -> None:
        """Emit no more and delete the node; returns at once."""
        if self._leave_by_s is None:  # so the tasks of a worker leave side by side
            self._leave_by_s = time.monotonic() + LEAVE_S
        self.gate.shut()
        self._ending = True
        self._news.set()

    def close(self) -> None:
        """Leave, and wait for it, ``LEAVE_S`` from its begin: the node goes with the session in any case."""
        self.leave()
        if self._leave_by_s is not None and self._thread.is_alive():
            self._thread.join(max(0.0, self._leave_by_s - time.monotonic()))

    def _look(self, _event: object = None) -> None:
        """Have the next beat come at once. Any thread."""
        self._news.set()

    # -- the owner's thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending and not self._is_over():
            self._news.wait(BEAT_SHARE * self._session_s)
            self._news.clear()
        if self._ending:
            self._give_up_node()

    def _is_over(self) -> bool:
        """Beat once; return whether the right to emit has ended for good."""
        try:
            return self.beat()
        except StreamletError as error:
            # What passes is tried again at the next beat: the lease says how long emitting may go on meanwhile.
            if error.retriable:
                return False
            self.gate.fail(error)
        except Exception as error:  # noqa: BLE001 - raised again in the spout: without this thread it would wait for ever
            self.gate.fail(error)
        self._wake()
        return True

    def _give_up_node(self) -> None:
        with contextlib.suppress(StreamletError):  # it goes with the session in any case
            there = self._nodes.get(self._path)
            if there is not None and there[0] == self._words:
                self._nodes.delete(self._path)

    def beat(self) -> bool:
        """Keep the node, and see whether the topic is still ours; return whether this task is deposed and has left.

        Blocks. Raises TaskReplaced and errors of the node store.
        """
        if self._newer is not None:
            return self._hand_over(self._newer)
        try:
            return self._keep_place()
        except NodeMissing:
            # Somebody deletes what we read. The next beat makes it again: here it could go on without end.
            return False

    def _keep_place(self) -> bool:
        sent_s = self._clock.monotonic()
        # Rule: the read that extends the lease is fresh. A server that is cut off from the others goes on answering
        # from its own memory, while they end the session and the next run begins.
        there = self._nodes.get(self._path, self._look, fresh=True)
        if there is not None and there[0] == self._words:
            self._placed = True  # also where the answer to the request that made it was lost
        else:
            sent_s = self._take_place(occupied=there is not None)
        if not self._alone:
            self._displace_predecessors()
        newest = self._newest()
        if newest.run != self._me.run:
            # From here on no beat counts: the lease ends even where the loop is in a bolt for minutes.
            self._newer = newest
            self.gate.ask_to_stop()
            self._wake()
            return self._hand_over(newest)
        if self.gate.grant is not None:
            self.granted_s = sent_s
        elif not self.gate.stopping:
            self._ask_for_grant(sent_s)
        return False

    def _ask_for_grant(self, sent_s: float) -> None:
        others = self._me.others(self._nodes.children(self._owners, self._look, fresh=True))
        if others:
            self._waits_for = phrases(self._nodes, self._root, others)
            return
        self.granted_s = sent_s
        self.gate.give(Grant())
        self._wake()

    def _take_place(self, *, occupied: bool) -> float:
        """Make our node; return when that was asked for (s). Raises TaskReplaced and errors of the node store."""
        if self._placed:
            # It went with its session, or another process has the place. Both may have another owner by now.
            self.granted_s = -float("inf")
            self.gate.withdraw()
            self.gate.ask_to_stop()
            self._wake()
        if occupied:
            if self._placed:
                raise TaskReplaced(self._topics, self._where, self._me.name)
            with contextlib.suppress(NodeMissing):
                self._nodes.delete(self._path)
        self._alone = False
        sent_s = self._clock.monotonic()
        self._nodes.create(self._path, self._words, ephemeral=True)
        self._placed = True
        self._nodes.get(self._path, self._look)  # for the watch
        return sent_s

    def _displace_predecessors(self) -> None:
        """Delete the nodes of this task's earlier epochs. Raises TaskReplaced, where there is a later one."""
        # Rule: only once our own node is there. A predecessor that lives finds its node gone, makes it again, and looks
        # here: it must see ours. In the other order it would take its place back beside us.
        names = self._nodes.children(self._owners)
        if self._me.is_replaced(names):
            with contextlib.suppress(NodeMissing):
                self._nodes.delete(self._path)
            raise TaskReplaced(self._topics, self._where, self._me.name)
        for name in self._me.predecessors(names):
            with contextlib.suppress(NodeMissing):
                self._nodes.delete(f"{self._owners}/{name}")
        self._alone = True

    def _newest(self) -> NewestRun:
        """Return the newest run; ours, where it has come now. Raises NodeMissing."""
        while True:
            found = self._nodes.get(self._owners, self._look)
            if found is None:
                raise missing(self._owners, self._where)
            newest = NewestRun.decode(found[0])
            claim = claimed(newest, self._me, had_it=self._had_it)
            if claim is None:
                assert newest is not None
                self._had_it = self._had_it or newest.run == self._me.run
                return newest
            with contextlib.suppress(VersionConflict):
                self._nodes.set(self._owners, claim.encode(), found[1])

    def _hand_over(self, newer: NewestRun) -> bool:
        """Delete our node once nothing can be emitted; return whether that is so."""
        if self.gate.stopping and self._clock.monotonic() < self.granted_s + self._session_s:
            return False
        with contextlib.suppress(NodeMissing):
            self._nodes.delete(self._path)
        self.gate.fail(RunDeposed(self._topics, self._where, self._me.run, (newer.run, newer.topology)))
        self._wake()
        return True
