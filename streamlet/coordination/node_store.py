"""The port: a tree of small nodes, each with bytes and a version that counts its writes.

Raw words only: what a node means (an offset, an owner) is said by who uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import Protocol

from streamlet.base.errors import StreamletError

ANY_VERSION = -1
"""For a write that does not care what it overwrites."""

LARGEST_NODE = 1_000_000
"""Bytes. A ZooKeeper cuts the connection of who sends more than 1 MiB (``jute.maxbuffer``), without a
word.
"""


class NodeStoreError(StreamletError):
    """Base: a node store refused or could not be reached."""


class NodeStoreUnavailable(NodeStoreError):
    """No answer: not there, not a ZooKeeper, connection or session lost, or too slow.

    ``outcome_unknown``: the request was under way, so a write may have been carried out. Read again
    before repeating it. ``spoken``: the protocols that every address was found to speak instead, so that
    waiting would not help; else empty.
    """

    retriable = True

    def __init__(self, message: str, *, outcome_unknown: bool = False, spoken: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        self.spoken = spoken
        self.retriable = not spoken


class VersionConflict(NodeStoreError):
    """The node was written by somebody else since its version was read. Nothing was changed."""


class NodeMissing(NodeStoreError):
    """The node (or, for ``create(makepath=False)``, its parent) is not there."""


class NodeExists(NodeStoreError):
    """``create`` of a node that is there."""


class NodeNotEmpty(NodeStoreError):
    """``delete`` of a node that has children."""


class NodeTooBig(NodeStoreError):
    """More than ``LARGEST_NODE`` bytes."""


class AuthFailed(NodeStoreError):
    """The node's access list forbids this, or the credentials were refused."""


class StoreState(Enum):
    """The state of a connection to the store.

    CONNECTED: requests are answered. SUSPENDED: the connection is gone, the session may live; assume nothing, write
    nothing new. LOST: the session has expired; another waiting client may own our nodes by now. A store that has
    lost its session connects again with a new one: compare ``session_id`` to notice an expiry that came and went
    between two looks.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


Watch = Callable[[object], None]
"""Called on a thread of the store's own, so it must not block; also when the connection is lost. The same one given
twice for one node is called once. What it is given means nothing."""


class NodeStore(Protocol):
    """Paths are absolute (``/a/b``), without a trailing slash; a malformed one is a ``ValueError``.

    Every method but ``set_async`` may block up to the store's time-out and then raises
    ``NodeStoreUnavailable``. All may be called from any thread.
    """

    @property
    def state(self) -> StoreState:
        """As last heard; does no I/O."""

    @property
    def session_id(self) -> int | None:
        """Of the session, or None before there is one. Another one means that a session was lost."""

    @property
    def session_timeout_s(self) -> float:
        """Seconds of silence that the session outlives, at least."""

    def get(self, path: str, changed: Watch | None = None, *, fresh: bool = False) -> tuple[bytes, int] | None:
        """Return data and version, or None when the node is not there.

        ``changed`` is called once, when a node that is there is written or deleted next. ``fresh``: as a
        quorum had it after this call began; a server that is cut off from the quorum does not answer. Otherwise a
        server answers what it has heard so far.
        """

    def exists(self, path: str) -> int | None:
        """Return the node's version, or None when it is not there."""

    def children(self, path: str, changed: Watch | None = None, *, fresh: bool = False) -> list[str]:
        """Return the names (not paths) of the children, sorted. Raises ``NodeMissing``.

        ``changed`` is called once, when a child comes or goes next. ``fresh`` is as for ``get``.
        """

    def create(self, path: str, data: bytes = b"", *, makepath: bool = True, ephemeral: bool = False) -> int:
        """Make a node; returns its version (0). ``makepath`` makes missing parents, which last.

        It outlives the session unless it is ``ephemeral``.

        Raises ``NodeExists``, ``NodeMissing`` (a parent, without ``makepath``), ``NodeTooBig``.
        """

    def set(self, path: str, data: bytes, version: int) -> int:
        """Write if the version is still ``version``; returns the new one.

        Raises ``VersionConflict``, ``NodeMissing``, ``NodeTooBig``. ``ANY_VERSION`` writes regardless.
        """

    def set_async(self, path: str, data: bytes, version: int) -> Future[int]:
        """Set without blocking the caller: every failure, no connection included, is the future's.

        While the connection is suspended the write waits in order and is sent after reconnection.
        Callbacks of the future may run on the store's own thread: keep them short.
        """

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises ``NodeMissing``, ``NodeNotEmpty``, ``VersionConflict``."""

    def close(self) -> None:
        """End the session; futures still open fail. Bounded in time; may be repeated."""


# ZooKeeper's own rules, asked before anything is sent: memory and server refuse the same paths in the same words.
def check_path(path: str) -> str:
    """Return the path if ZooKeeper takes it. Raises ``ValueError``."""
    if path == "/":
        return path
    parts = path.split("/")
    if not path.startswith("/") or any(part in ("", ".", "..") for part in parts[1:]):
        raise ValueError(f"{path!r} is not a node path: write '/a/b', without '.', '..' and empty parts")
    if any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) <= 0xF8FF for char in path):
        raise ValueError(f"{path!r} is not a node path: it holds a control, surrogate or private character")
    return path


def check_size(path: str, data: bytes) -> None:
    """Check the size of a node's data. Raises ``NodeTooBig``."""
    if len(data) > LARGEST_NODE:
        raise NodeTooBig(
            f"Node {path} cannot hold {len(data)} bytes: {LARGEST_NODE} is the most a node store takes. "
            "Spread the data over several nodes."
        )


def missing(path: str, where: str) -> NodeMissing:
    """Return the error for a node that should be there."""
    return NodeMissing(f"Node {path} is not there in {where}. Create it first, or correct the path.")


def exists_already(path: str, where: str) -> NodeExists:
    """Return the error for a node that should not be there."""
    return NodeExists(f"Node {path} is there already in {where}. Read what it holds before writing.")


def not_empty(path: str, where: str) -> NodeNotEmpty:
    """Return the error for a delete that would orphan children."""
    return NodeNotEmpty(f"Node {path} in {where} has children and was not deleted. Delete those first.")


def conflict(path: str, where: str, expected: int) -> VersionConflict:
    """Return the error for a conditional write that came too late."""
    return VersionConflict(
        f"Node {path} in {where} was not written: its version is no longer {expected}, so somebody else has "
        "written it since it was read. If that was another run with the same id, stop one of the two; if this owner "
        "was replaced, it has to end."
    )
