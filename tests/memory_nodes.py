"""A node store without a server, with faults on demand. Pure."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from dataclasses import dataclass, field

from streamlet.coordination import node_store
from streamlet.coordination.node_store import ANY_VERSION, NodeStoreError, NodeStoreUnavailable, StoreState, Watch
from streamlet.spouts.kafka.activity import NextPoll, Steps

_WHERE = "memory"


@dataclass(slots=True)
class MemoryTree:
    """What the server holds: path -> (data, version). Several stores, each a session, may share one."""

    nodes: dict[str, tuple[bytes, int]] = field(default_factory=lambda: {"/": (b"", 0)})
    sessions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    watches: dict[str, set[Watch]] = field(default_factory=dict)
    """By the path of a node whose data is watched, or by that path and a slash for its children."""

    def put(self, path: str, data: bytes, version: int) -> None:
        came = path not in self.nodes
        self.nodes[path] = (data, version)
        self._changed(path, came)

    def remove(self, path: str) -> None:
        if self.nodes.pop(path, None) is not None:
            self._changed(path, True)

    def _changed(self, path: str, children: bool) -> None:
        watched = [path, path.rpartition("/")[0] + "/"] if children else [path]
        for watch in [watch for each in watched for watch in self.watches.pop(each, ())]:
            watch(None)

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = (node[len(prefix) :] for node in self.nodes if node.startswith(prefix) and node != "/")
        return sorted(name for name in below if "/" not in name)


class Place:
    """A right to emit that is there, or not, as the test says."""

    def __init__(self) -> None:
        self.grant: object | None = object()

    def granted(self) -> Steps[object]:
        again = NextPoll()
        while (grant := self.grant) is None:
            yield again
        return grant


class MemoryNodeStore:
    """A ``NodeStore`` over a ``MemoryTree``, with faults on demand. One thread."""

    __slots__ = ("_closed", "_ephemeral", "_old", "_tree", "_waiting", "session_id", "session_timeout_s", "state")

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self._tree = MemoryTree() if tree is None else tree
        self.session_id: int | None = next(self._tree.sessions)
        self.state = StoreState.CONNECTED
        self._waiting: list[tuple[str, bytes, int, Future[int]]] = []
        self._closed = False
        self._ephemeral: set[str] = set()
        self._old: MemoryTree | None = None
        self.session_timeout_s = 10.0

    # -- faults

    def suspend(self) -> None:
        """Cut the connection: synchronous calls fail, asynchronous writes wait."""
        self.state = StoreState.SUSPENDED

    def resume(self) -> None:
        """Restore the connection, and carry out the writes that waited.

        The session is the same; after ``expire`` it is a new one.
        """
        if self.state is StoreState.LOST:
            self.session_id = next(self._tree.sessions)
        self.state = StoreState.CONNECTED
        self._old = None
        waiting, self._waiting = self._waiting, []
        for path, data, version, future in waiting:
            self._carry_out(path, data, version, future)

    def fall_behind(self) -> None:
        """Cut the server off from its leader: it answers what it has heard so far, and nothing that must be fresh.

        ``resume`` ends that. The session is the leader's to end: ``forget_session``.
        """
        self._old = MemoryTree(dict(self._tree.nodes))

    def forget_session(self) -> None:
        """Have the leader end the session; the client does not hear of it before ``resume``."""
        self._forget_ephemeral()

    def expire(self) -> None:
        """Lose the session, and the writes that waited; ``resume`` brings a new one."""
        self.state = StoreState.LOST
        self._forget_ephemeral()
        self._fail_waiting("its session has expired")

    # -- NodeStore

    def get(self, path: str, changed: Watch | None = None, *, fresh: bool = False) -> tuple[bytes, int] | None:
        tree = self._readable(path, fresh)
        if changed is not None and path in tree.nodes:
            tree.watches.setdefault(path, set()).add(changed)
        return tree.nodes.get(path)

    def exists(self, path: str) -> int | None:
        node = self.get(path)
        return None if node is None else node[1]

    def children(self, path: str, changed: Watch | None = None, *, fresh: bool = False) -> list[str]:
        tree = self._readable(path, fresh)
        if path not in tree.nodes:
            raise node_store.missing(path, _WHERE)
        if changed is not None:
            tree.watches.setdefault(f"{path}/", set()).add(changed)
        return tree.children(path)

    def create(self, path: str, data: bytes = b"", *, makepath: bool = True, ephemeral: bool = False) -> int:
        self._reach(path)
        node_store.check_size(path, data)
        if path in self._tree.nodes:
            raise node_store.exists_already(path, _WHERE)
        parts = path.split("/")
        for depth in range(2, len(parts)):
            parent = "/".join(parts[:depth])
            if parent not in self._tree.nodes:
                if not makepath:
                    raise node_store.missing(parent, _WHERE)
                self._tree.put(parent, b"", 0)
        if ephemeral:
            self._ephemeral.add(path)
        self._tree.put(path, data, 0)
        return 0

    def set(self, path: str, data: bytes, version: int) -> int:
        self._reach(path)
        node_store.check_size(path, data)
        old = self._tree.nodes.get(path)
        if old is None:
            raise node_store.missing(path, _WHERE)
        self._match(path, old[1], version)
        self._tree.put(path, data, old[1] + 1)
        return old[1] + 1

    def set_async(self, path: str, data: bytes, version: int) -> Future[int]:
        future: Future[int] = Future()
        # Only these wait: kazoo, too, keeps asynchronous writes over a lost connection and fails them when the session
        # is gone.
        if self.state is StoreState.SUSPENDED and not self._closed:
            self._waiting.append((path, data, version, future))
        else:
            self._carry_out(path, data, version, future)
        return future

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._reach(path)
        old = self._tree.nodes.get(path)
        if old is None:
            raise node_store.missing(path, _WHERE)
        self._match(path, old[1], version)
        if self._tree.children(path):
            raise node_store.not_empty(path, _WHERE)
        self._ephemeral.discard(path)
        self._tree.remove(path)

    def close(self) -> None:
        if not self._closed and self.state is not StoreState.LOST:
            self._forget_ephemeral()
        self._closed = True
        self.state = StoreState.LOST
        self._fail_waiting("it was closed")

    # -- inside

    def _readable(self, path: str, fresh: bool) -> MemoryTree:
        if self._old is None or fresh:
            self._reach(path)
            return self._tree
        node_store.check_path(path)
        return self._old

    def _reach(self, path: str) -> None:
        node_store.check_path(path)
        if self._old is not None:
            raise NodeStoreUnavailable(f"The node store in memory cannot be asked for {path}: it has no leader.")
        if self._closed or self.state is not StoreState.CONNECTED:
            state = "closed" if self._closed else self.state.value
            raise NodeStoreUnavailable(f"The node store in memory cannot be asked for {path}: it is {state}.")

    def _carry_out(self, path: str, data: bytes, version: int, future: Future[int]) -> None:
        try:
            future.set_result(self.set(path, data, version))
        except (NodeStoreError, ValueError) as error:
            future.set_exception(error)

    def _forget_ephemeral(self) -> None:
        gone, self._ephemeral = self._ephemeral, set()
        for path in gone:
            self._tree.remove(path)

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, []
        for path, _, _, future in waiting:
            future.set_exception(NodeStoreUnavailable(f"Node {path} in memory was not written: {why}."))

    @staticmethod
    def _match(path: str, found: int, expected: int) -> None:
        if expected not in (ANY_VERSION, found):
            raise node_store.conflict(path, _WHERE, expected)
