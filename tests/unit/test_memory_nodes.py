"""The faults of the store in memory are those of a real one."""

from __future__ import annotations

import pytest

from streamlet.coordination.node_store import NodeStoreUnavailable, StoreState, VersionConflict
from tests.memory_nodes import MemoryNodeStore


def test_suspended_writes_wait_in_order_and_are_carried_out() -> None:
    """While suspended, synchronous calls fail and asynchronous writes wait; resumption sends them."""
    store = MemoryNodeStore()
    store.create("/a")
    store.suspend()
    assert store.state is StoreState.SUSPENDED
    first, stale = store.set_async("/a", b"1", 0), store.set_async("/a", b"2", 0)
    assert not first.done()
    with pytest.raises(NodeStoreUnavailable, match="suspended"):
        store.get("/a")
    store.resume()
    assert first.result(0) == 1
    with pytest.raises(VersionConflict):
        stale.result(0)
    assert store.get("/a") == (b"1", 1)


def test_an_expired_session_fails_what_waited_and_comes_back_as_another() -> None:
    """Expiry is told by the state, by the failed writes, and afterwards by the session id."""
    store = MemoryNodeStore()
    store.create("/a")
    old = store.session_id
    store.suspend()
    waiting = store.set_async("/a", b"1", 0)
    store.expire()
    assert store.state is StoreState.LOST
    with pytest.raises(NodeStoreUnavailable, match="expired"):
        waiting.result(0)
    store.resume()
    assert store.session_id != old
    assert store.get("/a") == (b"", 0)


def test_close_fails_what_waited() -> None:
    """Nobody waits for ever on a future of a closed store."""
    store = MemoryNodeStore()
    store.create("/a")
    store.suspend()
    waiting = store.set_async("/a", b"1", 0)
    store.close()
    with pytest.raises(NodeStoreUnavailable, match="closed"):
        waiting.result(0)
