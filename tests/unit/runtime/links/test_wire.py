"""Frames: what is whole and true comes through, everything else ends the link and moves nothing."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlet.components.columns import Columns
from streamlet.components.spout import FailureCause
from streamlet.runtime.links.wire import (
    MAX_DATA_FRAME,
    BadFrame,
    FrameReader,
    FrameWriter,
    data_payloads,
    decode_data,
    encode_data,
    pack,
    unpack,
)
from streamlet.runtime.tasks.emitter import Outgoing, Run
from streamlet.tracking.census import Answer, Ask
from streamlet.tracking.shared_roots import SharedRoots
from tests.seeds import seeds

KEY = b"k" * 32

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
values = st.recursive(scalars | st.binary(), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
edges = st.integers(0, 2**64 - 1)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A run as an outbox makes it."""
    size = draw(st.integers(1, 4))
    multi = draw(st.booleans())
    one = st.lists(edges, min_size=2, max_size=2) if multi else edges
    columns = [draw(st.lists(one, min_size=size, max_size=size)) for _ in range(2)]
    rows = draw(st.lists(st.lists(values, max_size=3), min_size=size, max_size=size))
    fields = draw(st.lists(st.lists(values, min_size=size, max_size=size), min_size=1, max_size=3))
    held = draw(st.sampled_from([rows, Columns(fields)]))
    return Run(draw(st.integers(1, 99)), draw(st.integers(1, 99)), draw(st.text(max_size=9)), multi, *columns, held)


naturals = st.integers(0, 2**63)
seconds = st.floats(0, 1e9)
counts = st.dictionaries(st.integers(0, 9), naturals, max_size=3)
loads = st.floats(0, 1)
asks = st.builds(Ask, naturals, *[st.lists(edges, max_size=3)] * 2, st.lists(loads, max_size=3))
held = st.lists(st.tuples(edges, st.integers(1, 9), seconds).map(list), max_size=3)
answers = st.builds(
    Answer,
    naturals,
    naturals,
    seconds,
    naturals,
    counts,
    counts,
    st.dictionaries(edges, naturals, max_size=3),
    held,
    loads,
)


causes = st.builds(FailureCause, st.text(max_size=3), st.just("ValueError"), st.text(max_size=9), st.booleans())


@st.composite
def outgoings(draw: st.DrawFn) -> Outgoing:
    """A turn's worth for one other worker."""
    acks = draw(st.dictionaries(edges, edges, max_size=5))
    fails, full = draw(st.lists(edges, max_size=3)), draw(st.none() | st.lists(st.integers(0, 99), max_size=3))
    census = draw(st.none() | asks), draw(st.none() | answers)
    told = {root: draw(causes) for root in fails[::2]}
    read = draw(st.none() | st.dictionaries(st.integers(0, 9), naturals, max_size=3))
    acked = list(acks), list(acks.values())
    return Outgoing(draw(st.lists(runs(), max_size=3)), *acked, fails, full, *census, told, read)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(outgoings())
def test_a_data_frame_comes_back_as_it_was(outgoing: Outgoing) -> None:
    """Columns, acks, failures, the high-water mark, a question and an answer, what was read."""
    incoming = decode_data(encode_data(outgoing))
    assert incoming.runs == outgoing.runs
    assert (incoming.roots, incoming.deltas) == (outgoing.roots, outgoing.deltas)
    assert (incoming.fails, incoming.full) == (outgoing.fails, outgoing.full)
    assert (incoming.ask, incoming.answer) == (outgoing.ask, outgoing.answer)
    assert incoming.read == outgoing.read


@given(outgoings(), st.integers(150, 400))
def test_what_is_too_long_for_one_frame_takes_several(outgoing: Outgoing, limit: int) -> None:
    """A peer closes the link at a frame beyond its limit; nothing is lost, moved or said twice on the way round it."""
    payloads, too_large = data_payloads(outgoing, limit)
    assert all(len(payload) <= limit for payload in payloads)
    parts = [decode_data(payload) for payload in payloads]
    assert all(len(encode_data(Outgoing([run]))) > limit and len(run.roots) == 1 for run in too_large)
    lost = [row(run, 0) for run in too_large]
    sent = [row(run, n) for part in parts for run in part.runs for n in range(len(run.roots))]
    wanted = [row(run, n) for run in outgoing.runs for n in range(len(run.roots))]
    assert [each for each in wanted if each not in lost] == [each for each in sent if each not in lost]
    assert len(sent) + len(lost) == len(wanted)
    assert [root for part in parts for root in part.roots] == outgoing.roots
    assert [delta for part in parts for delta in part.deltas] == outgoing.deltas
    assert [root for part in parts for root in part.fails] == outgoing.fails
    assert [part.full for part in parts if part.full is not None] == [outgoing.full] * (outgoing.full is not None)
    assert [part.read for part in parts if part.read is not None] == [outgoing.read] * (outgoing.read is not None)
    census = [part for part in parts if part.ask is not None or part.answer is not None]
    if census:
        assert census == [parts[-1]], "a question or an answer came before tuples or deltas of its turn"
        assert (census[0].ask, census[0].answer) == (outgoing.ask, outgoing.answer)
    elif outgoing.ask is not None or outgoing.answer is not None:
        assert len(encode_data(Outgoing(ask=outgoing.ask, answer=outgoing.answer))) > limit


def row(run: Run, n: int) -> tuple[Any, ...]:
    """One tuple of a run, with where it comes from and goes to."""
    return run.target, run.source, run.stream, run.multi, run.roots[n], run.edges[n], run.values[n]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=300), max_size=6), st.randoms())
def test_frames_survive_any_slicing(payloads: list[bytes], rng: random.Random) -> None:
    """However the bytes are cut on the way."""
    writer, reader = FrameWriter(KEY), FrameReader(KEY, 1000)
    stream = b"".join(writer.frame(payload) for payload in payloads)
    got = []
    while stream:
        cut = rng.randint(1, len(stream))
        got += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert got == payloads


def test_a_large_frame_is_held_once_until_it_is_decoded() -> None:
    """A tuple of 16 MiB between small ones: beside the received bytes there is only the value made of them."""
    size = 16 << 20
    payloads = [encode_data(Outgoing([Run(1, 2, "s", False, [0], [0], [["x" * n]])])) for n in (10, size, 20)]
    writer, reader = FrameWriter(KEY), FrameReader(KEY, MAX_DATA_FRAME)
    stream = b"".join(map(writer.frame, payloads))
    lengths = []
    tracemalloc.start()
    for at in range(0, len(stream), 1 << 18):
        runs = [decode_data(payload).runs[0] for payload in reader.feed(memoryview(stream)[at : at + (1 << 18)])]
        lengths += [len(run.values[0][0]) for run in runs]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lengths == [10, size, 20] and peak < 2.5 * size


def test_a_large_frame_that_was_changed_is_refused() -> None:
    frame = bytearray(FrameWriter(KEY).frame(bytes(2 << 20)))
    frame[-1] ^= 1
    with pytest.raises(BadFrame, match="does not match"):
        FrameReader(KEY, MAX_DATA_FRAME).feed(frame)


def test_a_repeated_frame_is_refused() -> None:
    """A repeated ack delta would be a false ack, so a frame counts once."""
    frame = FrameWriter(KEY).frame(b"delta")
    reader = FrameReader(KEY, 1000)
    assert reader.feed(frame) == [b"delta"]
    with pytest.raises(BadFrame, match="tag does not match"):
        reader.feed(frame)


@pytest.mark.parametrize("order", [(1, 0), (0, 2), (0, 0, 1), (0, 2, 1), (1,)])
def test_a_frame_that_comes_early_late_or_behind_a_lost_one_is_refused(order: tuple[int, ...]) -> None:
    """At the first place where the order is not that of the writer, and nothing behind it is believed."""
    writer, reader = FrameWriter(KEY), FrameReader(KEY, 1000)
    frames = [writer.frame(b"delta %d" % number) for number in range(3)]
    right = next(at for at, number in enumerate((*order, -1)) if number != at)
    assert [reader.feed(frames[number]) for number in order[:right]] == [[b"delta %d" % n] for n in range(right)]
    for number in order[right:]:
        with pytest.raises(BadFrame, match="tag does not match"):
            reader.feed(frames[number])
    with pytest.raises(BadFrame, match="tag does not match"):
        reader.feed(frames[right])  # what was missing heals nothing


def test_a_frame_of_another_key_is_refused() -> None:
    """The two directions of a link, and any two links, do not understand each other."""
    with pytest.raises(BadFrame):
        FrameReader(b"o" * 32, 1000).feed(FrameWriter(KEY).frame(b"x"))


def test_a_length_is_not_believed() -> None:
    """2 GiB announced: refused at once, nothing allocated."""
    reader = FrameReader(KEY, MAX_DATA_FRAME)
    tracemalloc.start()
    with pytest.raises(BadFrame, match="limit"):
        reader.feed(struct.pack(">I", 2**31) + b"x" * 40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def recorded_payload() -> list[Any]:
    """A valid data frame, as plain lists: material for mutations."""
    run = Run(3, 1, "default", False, [5, 6], [7, 8], [["a"], ["b", 2]])
    many = Run(4, 1, "other", True, [[5, 6]], [[7, 8]], [[None]])
    answer = Answer(7, 3, 1.5, 2, {1: 4}, {1: 5}, {5: 2, 6: 1}, [[5, 2, 0.25]], 0.5)
    held = Run(4, 1, "third", False, [5, 6], [7, 8], Columns([["a", "b"], [1, None]]))
    causes = {9: FailureCause("bolt", "ValueError", "no", True)}
    everything = Outgoing([run, many, held], [1], [2], [9], [3], Ask(7, [1], [6], [0.25]), answer, causes, {3: 9})
    payload: list[Any] = unpack(encode_data(everything))
    decode_data(pack(payload))  # else every mutation of it would be refused for what is wrong with it
    return payload


BAD = [None, -1, 2**64 - 1, 1.5, "x", b"x", [], [None], {}, {"a": 1}, True, [[[]]], "default"]


def mutated(rng: random.Random) -> bytes:
    """A recorded frame with one field, at any depth, replaced."""
    payload = recorded_payload()
    node: Any = payload
    while True:
        at = rng.choice([*node] if isinstance(node, dict) else range(len(node)))
        if isinstance(node[at], (list, dict)) and node[at] and rng.random() < 0.8:
            node = node[at]
            continue
        node[at] = rng.choice(BAD)
        return pack(payload)


def decodes_or_is_refused(payload: bytes) -> bool:
    """The only two ways out; what decodes has shapes the loop can trust. True: it decoded."""
    try:
        incoming = decode_data(payload)
    except BadFrame:
        return False
    for run in incoming.runs:
        assert len(run.roots) == len(run.edges) == len(run.values)
        assert all(type(row) is list for row in run.values)
        flat = [x for column in (run.roots, run.edges) for x in column]
        flat = [x for item in flat for x in item] if run.multi else flat
        assert all(type(x) is int for x in flat)
    if incoming.ask is not None:
        assert all(type(x) is int for x in (incoming.ask.number, *incoming.ask.floors, *incoming.ask.bounds))
    if incoming.answer is not None:
        told = incoming.answer
        assert all(
            type(x) is int for x in (told.number, told.queued, told.slowest, *told.waiting, *told.waiting.values())
        )
        assert all(type(x) is int for counts in (told.sent, told.received) for pair in counts.items() for x in pair)
        assert all(type(root) is type(task) is int and since >= 0 for root, task, since in told.held)
        assert told.wait_s >= 0
    for root, cause in incoming.causes.items():
        assert type(root) is int
        assert [*map(type, cause)] == [str, str, str, bool]
    return True


@pytest.mark.parametrize("seed", seeds("wire"))
def test_5000_mutated_and_5000_random_frames_crash_nothing(seed: int) -> None:
    """Behind a valid tag: a peer with the secret and a bug."""
    rng = random.Random(seed)
    decoded = 0
    for _ in range(5000):
        decoded += decodes_or_is_refused(mutated(rng))
        decodes_or_is_refused(rng.randbytes(rng.randrange(200)))
    assert 100 < decoded < 4900, "mutations that all pass, or none, show nothing"


@pytest.mark.parametrize("seed", seeds("wire"))
def test_no_changed_byte_gets_past_the_tag(seed: int) -> None:
    """Without the secret, on the wire: 2 000 frames with one byte changed, none is delivered."""
    rng = random.Random(seed)
    for _ in range(2000):
        frame = bytearray(FrameWriter(KEY).frame(pack(recorded_payload())))
        at = rng.randrange(len(frame))
        frame[at] ^= 1 << rng.randrange(8)
        reader = FrameReader(KEY, MAX_DATA_FRAME)
        try:
            assert reader.feed(bytes(frame)) == []  # a longer length: it waits for the rest
        except BadFrame:
            pass


@settings(deadline=None)
@given(st.binary(max_size=500))
def test_unpack_gives_a_value_or_bad_frame(data: bytes) -> None:
    """Never another exception."""
    try:
        unpack(data)
    except BadFrame:
        pass


def test_nested_headers_reserve_no_memory() -> None:
    """A megabyte of nested array headers, each promising four billion items."""
    tracemalloc.start()
    with pytest.raises(BadFrame):
        unpack(b"\xdd\xff\xff\xff\xff" * 200_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


def test_surrogates_and_random_bytes_travel() -> None:
    """Any str a Python program can hold."""
    assert unpack(pack(["\ud800", os.urandom(9)]))[0] == "\ud800"


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {0: ["a"]},
        {0: ["a", "b"], 1: ["a"]},
        {1: ["a", "b"]},
        {"0": ["a", "b"]},
        {0: ["a", "b"], True: ["c", "d"]},
        {0: "ab"},
        {0: {"a": 1, "b": 2}},
        {0: None},
        {1: ["a", "b"], 0: ["a", "b"]},
    ],
)
def test_columns_that_are_no_rows_of_their_run_are_refused(columns: Any) -> None:
    with pytest.raises(BadFrame):
        decode_data(
            pack(
                [[[3, 1, "default", False, [1, 2], [1, 2], columns, True]], [], [], [], [], None, None, None, None, []]
            )
        )


@pytest.mark.parametrize("lengths", [(1, 2, 2), (2, 1, 2), (2, 2, 1), (0, 0, 1)])
def test_columns_of_unequal_length_are_refused(lengths: tuple[int, int, int]) -> None:
    """The loop walks them side by side: a run that ends early would lose tuples, or raise there."""
    roots, edges, rows = ([cell] * length for cell, length in zip([1, 2, ["v"]], lengths, strict=True))
    with pytest.raises(BadFrame, match="lengths"):
        decode_data(
            pack([[[3, 1, "default", False, roots, edges, rows, True]], [], [], [], [], None, None, None, None, []])
        )


def test_trees_that_share_an_edge_travel_once_and_arrive_as_one_object() -> None:
    both, other = SharedRoots((5, 1 << 60)), SharedRoots((5, 7))
    first = Run(3, 1, "default", False, [both, both, 0, other, 9], [1, 2, 0, 3, 4], [["a"]] * 5)
    second = Run(4, 1, "default", False, [both], [5], [["b"]])
    (one, two) = decode_data(encode_data(Outgoing([first, second]))).runs
    got, again, untracked, third, plain = one.roots
    assert got is again is two.roots[0] and [*got.roots] == [5, 1 << 60]
    assert (untracked, [*third.roots], plain) == (0, [5, 7], 9)
    assert (one.edges, one.values) == (first.edges, first.values)


@pytest.mark.parametrize(
    "places", [None, [5], [[5]], [[]], [[5, 5]], [[5, "6"]], [[5, 0]], [[5, -1]], [[True, 5]], {}, [{}], [[5, 6.0]]]
)
def test_trees_that_could_not_share_an_edge_are_refused(places: Any) -> None:
    run = [3, 1, "default", False, [-1], [1], [["a"]], False]
    with pytest.raises(BadFrame):
        decode_data(pack([[run], [], [], [], [], None, None, None, None, places]))


def test_a_place_that_the_frame_does_not_have_is_refused() -> None:
    run = [3, 1, "default", False, [-2], [1], [["a"]], False]
    with pytest.raises(BadFrame, match="does not name"):
        decode_data(pack([[run], [], [], [], [], None, None, None, None, [[5, 6]]]))


def test_halves_of_a_run_name_their_trees_again() -> None:
    both = SharedRoots((5, 6))
    run = Run(3, 1, "default", False, [both] * 40, [0] * 39 + [8], [["x" * 50]] * 40)
    payloads, too_large = data_payloads(Outgoing([run]), 1000)
    runs = [run for payload in payloads for run in decode_data(payload).runs]
    assert len(payloads) > 2 and not too_large
    assert {(*root.roots,) for run in runs for root in run.roots} == {(5, 6)}
    assert [edge for run in runs for edge in run.edges] == [0] * 39 + [8]


def test_failures_are_sent_before_the_acks_of_their_turn_also_where_a_frame_is_split() -> None:
    """The ack of a block's last row completes its tree: before the failure of another row, that would be lost."""
    roots = [*range(1 << 50, (1 << 50) + 300)]
    payloads, _ = data_payloads(Outgoing([], roots, [7] * 300, roots[::-1]), 900)
    frames = [decode_data(payload) for payload in payloads]
    assert [root for frame in frames for root in frame.fails] == roots[::-1]
    assert [root for frame in frames for root in frame.roots] == roots
    with_acks = next(at for at, frame in enumerate(frames) if frame.roots)
    assert not any(frame.fails for frame in frames[with_acks:])


def test_what_bolts_said_travels_with_its_failures_also_where_a_frame_is_split() -> None:
    """And once for all trees that failed for one reason."""
    roots = [*range(1 << 50, (1 << 50) + 300)]
    same, own = FailureCause("bolt", "ValueError", "no" * 50), FailureCause("other", "", "not wanted", True)
    causes = {**dict.fromkeys(roots, same), roots[7]: own}
    assert len(encode_data(Outgoing(fails=roots, causes=causes))) < len(encode_data(Outgoing(fails=roots))) * 2 + 300
    payloads, _ = data_payloads(Outgoing([], roots, [7] * 300, roots, causes=causes), 900)
    frames = [decode_data(payload) for payload in payloads]
    assert {root: cause for frame in frames for root, cause in frame.causes.items()} == causes
    assert all(set(frame.causes) == set(frame.fails) for frame in frames)
