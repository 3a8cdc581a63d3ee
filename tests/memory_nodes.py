"""A node store without a server, with faults on demand. Pure."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from dataclasses import dataclass, field

from streamlet.coordination import node_store
from streamlet.coordination.node_store import ANY_VERSION, NodeStoreError, NodeStoreUnavailable, StoreState

_WHERE = "memory"


@dataclass(slots=True)
class MemoryTree:
    """What the server holds: path -> (data, version). Several stores, each a session, may share one."""

    nodes: dict[str, tuple[bytes, int]] = field(default_factory=lambda: {"/": (b"", 0)})
    sessions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = (node[len(prefix) :] for node in self.nodes if node.startswith(prefix) and node != "/")
        return sorted(name for name in below if "/" not in name)


class MemoryNodeStore:
    """A ``NodeStore`` over a ``MemoryTree``, with faults on demand. One thread."""

    __slots__ = ("_announced", "_closed", "_tree", "_waiting", "session_id", "state")

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self._tree = MemoryTree() if tree is None else tree
        self.session_id: int | None = next(self._tree.sessions)
        self.state = StoreState.CONNECTED
        self._waiting: list[tuple[str, bytes, int, Future[int]]] = []
        self._closed = False
        self._announced: dict[str, bytes] = {}

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
        for path, data in self._announced.items():
            self.announce(path, data)
        waiting, self._waiting = self._waiting, []
        for path, data, version, future in waiting:
            self._carry_out(path, data, version, future)

    def expire(self) -> None:
        """Lose the session, and the writes that waited; ``resume`` brings a new one."""
        self.state = StoreState.LOST
        self._forget_announced()
        self._fail_waiting("its session has expired")

    # -- NodeStore

    def get(self, path: str) -> tuple[bytes, int] | None:
        self._reach(path)
        return self._tree.nodes.get(path)

    def exists(self, path: str) -> int | None:
        node = self.get(path)
        return None if node is None else node[1]

    def children(self, path: str) -> list[str]:
        self._reach(path)
        if path not in self._tree.nodes:
            raise node_store.missing(path, _WHERE)
        return self._tree.children(path)

    def create(self, path: str, data: bytes = b"", *, makepath: bool = True) -> int:
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
                self._tree.nodes[parent] = (b"", 0)
        self._tree.nodes[path] = (data, 0)
        return 0

    def set(self, path: str, data: bytes, version: int) -> int:
        self._reach(path)
        node_store.check_size(path, data)
        old = self._tree.nodes.get(path)
        if old is None:
            raise node_store.missing(path, _WHERE)
        self._match(path, old[1], version)
        self._tree.nodes[path] = (data, old[1] + 1)
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

    def announce(self, path: str, data: bytes) -> None:
        self._announced[path] = data
        if self.state is StoreState.CONNECTED and path not in self._tree.nodes:
            self.create(path, data)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._reach(path)
        old = self._tree.nodes.get(path)
        if old is None:
            raise node_store.missing(path, _WHERE)
        self._match(path, old[1], version)
        if self._tree.children(path):
            raise node_store.not_empty(path, _WHERE)
        del self._tree.nodes[path]

    def close(self) -> None:
        if not self._closed and self.state is not StoreState.LOST:
            self._forget_announced()
        self._closed = True
        self.state = StoreState.LOST
        self._fail_waiting("it was closed")

    # -- inside

    def _reach(self, path: str) -> None:
        node_store.check_path(path)
        if self._closed or self.state is not StoreState.CONNECTED:
            state = "closed" if self._closed else self.state.value
            raise NodeStoreUnavailable(f"The node store in memory cannot be asked for {path}: it is {state}.")

    def _carry_out(self, path: str, data: bytes, version: int, future: Future[int]) -> None:
        try:
            future.set_result(self.set(path, data, version))
        except (NodeStoreError, ValueError) as error:
            future.set_exception(error)

    def _forget_announced(self) -> None:
        for path in self._announced:
            self._tree.nodes.pop(path, None)

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, []
        for path, _, _, future in waiting:
            future.set_exception(NodeStoreUnavailable(f"Node {path} in memory was not written: {why}."))

    @staticmethod
    def _match(path: str, found: int, expected: int) -> None:
        if expected not in (ANY_VERSION, found):
            raise node_store.conflict(path, _WHERE, expected)
