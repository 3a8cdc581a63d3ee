"""What every node store does, in memory and on a real ZooKeeper alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlet.coordination.node_store import (
    ANY_VERSION,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NodeStore,
    NodeStoreUnavailable,
    NodeTooBig,
    StoreState,
    VersionConflict,
    check_path,
)
from tests.memory_nodes import MemoryNodeStore, MemoryTree
from tests.patience import PATIENCE_S

Opener = Callable[[], NodeStore]


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.real)])
def opened(request: pytest.FixtureRequest, topic_name: Callable[[], str]) -> Iterator[Opener]:
    """Opens stores, each a session of its own, onto one fresh tree."""
    stores: list[NodeStore] = []
    if request.param == "memory":
        tree = MemoryTree()

        def make() -> NodeStore:
            return MemoryNodeStore(tree)
    else:
        from streamlet.coordination.zookeeper import ZooKeeperNodeStore

        hosts = f"{request.getfixturevalue('kafka39').zookeeper}/{topic_name()}"

        def make() -> NodeStore:
            return ZooKeeperNodeStore(hosts)

    def opener() -> NodeStore:
        stores.append(make())
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Opener) -> NodeStore:
    return opened()


def test_create_makes_the_path_and_reads_back(store: NodeStore) -> None:
    """Parents come with ``makepath``; data, version and children are what was written."""
    assert store.create("/a/b/c", b"data") == 0
    assert store.get("/a/b/c") == (b"data", 0)
    assert store.get("/a/b") == (b"", 0)
    assert store.exists("/a/b/c") == 0
    store.create("/a/b/a")
    assert store.children("/a/b") == ["a", "c"]
    assert store.children("/") == ["a"]


def test_a_missing_node_is_none_or_raises(store: NodeStore) -> None:
    """``get`` and ``exists`` say None; ``children``, ``set`` and ``delete`` raise ``NodeMissing`` with the
    path.
    """
    assert store.get("/none") is None
    assert store.exists("/none/below") is None
    for act in (
        lambda: store.children("/none"),
        lambda: store.set("/none", b"", ANY_VERSION),
        lambda: store.delete("/none"),
        lambda: store.create("/none/below", makepath=False),
    ):
        with pytest.raises(NodeMissing, match="/none"):
            act()


def test_a_fresh_read_answers_what_another_session_has_written(opened: Opener) -> None:
    one, other = opened(), opened()
    for number in range(20):
        one.create(f"/a/{number}", b"%d" % number)
        assert other.get(f"/a/{number}", fresh=True) == (b"%d" % number, 0)
        assert str(number) in other.children("/a", fresh=True)
    assert other.get("/none", fresh=True) is None
    with pytest.raises(NodeMissing, match="/none"):
        other.children("/none", fresh=True)


def test_create_twice_is_refused(store: NodeStore) -> None:
    """The second ``create`` raises and changes nothing."""
    store.create("/a", b"first")
    with pytest.raises(NodeExists, match="/a"):
        store.create("/a", b"second")
    assert store.get("/a") == (b"first", 0)


def test_set_is_conditional_on_the_version(opened: Opener) -> None:
    """Of two writers who read the same version one wins; the other raises ``VersionConflict`` and changes
    nothing.
    """
    one, other = opened(), opened()
    one.create("/offset", b"0")
    assert one.set("/offset", b"1", 0) == 1
    with pytest.raises(VersionConflict, match="/offset"):
        other.set("/offset", b"stale", 0)
    assert other.get("/offset") == (b"1", 1)
    assert other.set("/offset", b"2", ANY_VERSION) == 2


def test_an_asynchronous_set_gives_the_version_or_the_error_of_set(store: NodeStore) -> None:
    """``set_async`` gives the new version, or the same errors as ``set``, through the future."""
    store.create("/offset", b"0")
    futures = [store.set_async("/offset", str(version).encode(), version) for version in range(100)]
    assert [future.result(10) for future in futures] == list(range(1, 101))
    assert store.get("/offset") == (b"99", 100)
    with pytest.raises(VersionConflict):
        store.set_async("/offset", b"stale", 7).result(10)
    with pytest.raises(NodeMissing):
        store.set_async("/none", b"", 0).result(10)
    with pytest.raises(NodeTooBig):
        store.set_async("/offset", bytes(1_000_001), 100).result(10)
    with pytest.raises(ValueError):
        store.set_async("offset", b"", 100).result(10)


def test_delete_is_conditional_and_refuses_a_node_with_children(store: NodeStore) -> None:
    """Conditional too, and never of a node with children."""
    store.create("/a/b")
    with pytest.raises(NodeNotEmpty, match="/a"):
        store.delete("/a")
    with pytest.raises(VersionConflict):
        store.delete("/a/b", 3)
    store.delete("/a/b", 0)
    store.delete("/a")
    assert store.exists("/a") is None


def test_too_much_data_is_refused_before_it_is_sent(store: NodeStore) -> None:
    """A ZooKeeper would cut the connection without a word; the session stays whole."""
    with pytest.raises(NodeTooBig, match="1000001 bytes"):
        store.create("/big", bytes(1_000_001))
    store.create("/big", bytes(1_000_000))
    assert store.state is StoreState.CONNECTED


def test_each_store_has_its_session_and_a_closed_one_refuses(opened: Opener) -> None:
    """Each store has a session id of its own; a closed one is LOST and refuses; closing again is nothing."""
    one, other = opened(), opened()
    assert one.session_id != other.session_id
    one.create("/a")
    one.close()
    one.close()
    assert one.state is StoreState.LOST
    assert other.state is StoreState.CONNECTED
    with pytest.raises(NodeStoreUnavailable, match="closed"):
        one.get("/a")
    with pytest.raises(NodeStoreUnavailable):
        one.set_async("/a", b"", 0).result(10)
    assert other.get("/a") == (b"", 0)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/a/./b", "/..", "/a\0b", "/\x1f", "/\ud800"])
def test_malformed_paths_are_refused(path: str) -> None:
    """As ZooKeeper does, before anything is sent."""
    with pytest.raises(ValueError):
        check_path(path)


names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
acts = st.lists(
    st.one_of(
        st.tuples(st.just("create"), paths, st.booleans()),
        st.tuples(st.just("set"), paths, st.integers(-1, 3)),
        st.tuples(st.just("delete"), paths, st.integers(-1, 3)),
    ),
    max_size=30,
)


def carry_out(store: NodeStore, act: tuple[str, str, int]) -> object:
    """What one act gives: its value, or the kind of its error."""
    name, path, argument = act
    try:
        if name == "create":
            return store.create(path, b"x", makepath=bool(argument))
        if name == "set":
            return store.set(path, b"y", argument)
        return store.delete(path, argument)
    except (NodeExists, NodeMissing, NodeNotEmpty, VersionConflict) as error:
        return type(error)


@given(acts)
def test_memory_keeps_the_tree_whole(sequence: list[tuple[str, str, int]]) -> None:
    """Whatever is done, every node's parent is there, and children agree with existence."""
    tree = MemoryTree()
    store = MemoryNodeStore(tree)
    for act in sequence:
        carry_out(store, act)
        for path in tree.nodes:
            parent, _, name = path.rpartition("/")
            assert path == "/" or name in store.children(parent or "/")


@pytest.mark.real
def test_memory_and_zookeeper_agree(kafka39: object, topic_name: Callable[[], str]) -> None:
    """Random acts have the same results on both, one by one."""
    import random

    from streamlet.coordination.zookeeper import ZooKeeperNodeStore

    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_acts = random.Random(seed)
    real = ZooKeeperNodeStore(f"{kafka39.zookeeper}/{topic_name()}")  # type: ignore[attr-defined]
    try:
        twin = MemoryNodeStore()
        for _ in range(500):
            path = "/" + "/".join(random_acts.choices("abc", k=random_acts.randint(1, 3)))
            kind = random_acts.choice(["create", "set", "delete"])
            argument = random_acts.randint(0, 1) if kind == "create" else random_acts.randint(-1, 2)
            act = (kind, path, argument)
            # Its chroot is not there before the first create; the twin's root always is.
            if kind == "create" and not argument and real.exists("/") is None:
                continue
            assert carry_out(real, act) == carry_out(twin, act), act
    finally:
        real.close()


def test_an_ephemeral_node_is_there_for_others_until_its_store_closes(opened: Opener) -> None:
    """With its parents, which stay."""
    mine, other = opened(), opened()
    assert mine.create("/a/owners/one", b"data", ephemeral=True) == 0
    until(lambda: other.exists("/a/owners") is not None and other.children("/a/owners") == ["one"])
    assert other.get("/a/owners/one") == (b"data", 0)
    with pytest.raises(NodeExists):
        mine.create("/a/owners/one", ephemeral=True)
    mine.close()
    until(lambda: other.children("/a/owners") == [])


def test_a_watch_tells_once_of_the_next_write_and_of_the_next_child(opened: Opener) -> None:
    """Asked for twice it tells once; a node that is written has no new child."""
    mine, other = opened(), opened()
    mine.create("/a")
    told: list[str] = []
    written, listed = (lambda _: told.append("written")), (lambda _: told.append("listed"))
    mine.get("/a", written), mine.get("/a", written), mine.children("/a", listed)
    other.set("/a", b"1", ANY_VERSION)
    until(lambda: told == ["written"])
    other.set("/a", b"2", ANY_VERSION)
    other.create("/a/b")
    until(lambda: told == ["written", "listed"])
    mine.children("/a", listed)
    other.delete("/a/b")
    until(lambda: told == ["written", "listed", "listed"])


def until(condition: Callable[[], bool]) -> None:
    """Wait for the condition, with a deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
