"""The other decoders for :mod:`tests.unit.kafka.malformed`, and the list of them all."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

from streamlet.kafka.admin import groups
from streamlet.kafka.consumer.assignors.base import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from streamlet.kafka.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor, StickyUserData
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.net.sasl import Scram
from streamlet.kafka.net.selector import FrameBuffer
from streamlet.kafka.protocol.schema import INT16_LAYOUT, codec_of
from streamlet.spouts.kafka.chosen_topics import ChosenTopics
from streamlet.spouts.kafka.hosts import ZkBrokerReader
from streamlet.spouts.kafka.partition import Partition
from streamlet.spouts.kafka.stores import offset_store
from tests.memory_nodes import MemoryNodeStore, MemoryTree
from tests.unit.kafka.malformed import MEMORY_CONSTANT, Decoder, Span, SpanReader
from tests.unit.kafka.malformed_answers import RECORDED, answers
from tests.unit.kafka.malformed_records import (
    UNPACKED_LIMIT,
    batch_frames,
    batch_spans,
    packed_frames,
    read_records,
    unpack,
    with_length_and_checksum,
)


def plain_spans(kind: type, head: int) -> Callable[[bytes], list[Span]]:
    """Fields of a message in version 0 to 3 behind ``head`` bytes of version."""

    def spans(frame: bytes) -> list[Span]:
        reader = SpanReader(frame)
        version = reader.fixed(INT16_LAYOUT) if head else 0
        codec_of(kind, min(version, 3), False).decode(reader)
        return reader.spans

    return spans


def subscriptions() -> list[bytes]:
    ours = Subscription(("members", "t"), b"\0\1", (TopicPartition("members", 1),), 7, "rack").encode()
    return [*(bytes.fromhex(row["subscription"]) for row in RECORDED["members"]), ours]


def read_subscription(frame: bytes, _rng: random.Random) -> None:
    """As the leader does: with another member's, shared out by both sticky assignors."""
    groups.subscribed_topics(frame)
    rows = {"a": decode_subscription(frame), "b": Subscription(("members",), None, (TopicPartition("members", 0),), 3)}
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        shares = assignor.assign({"members": 3}, rows)
        assert len([tp for share in shares.values() for tp in share]) <= 3


def sticky_user_data() -> list[bytes]:
    found = [row for row in map(decode_subscription, subscriptions()[:-1]) if row.user_data]
    ours = StickyAssignor().user_data((TopicPartition("members", 1), TopicPartition("members", 2)), 5)
    assert ours is not None
    return [ours, *(row.user_data for row in found if row.user_data and len(row.user_data) > 12)]


def read_user_data(frame: bytes, rng: random.Random) -> None:
    rows = {name: Subscription(("members",), frame, generation_id=rng.randrange(9)) for name in "ab"}
    StickyAssignor().assign({"members": 3}, rows)


def read_assignment(frame: bytes, _rng: random.Random) -> None:
    decode_assignment(frame)
    groups.assigned_partitions(frame)


def scram_frames() -> list[bytes]:
    return [bytes.fromhex(said) for row in RECORDED["scram"] for said in row["said"]]


def text_spans(frame: bytes) -> list[Span]:
    """What stands between commas and equal signs; for JSON, between its quotes, colons and brackets too."""
    spans, start = [], 0
    for at, byte in enumerate(frame + b","):
        if byte in b',="{}[]:':
            if at > start:
                spans.append(Span(start, at, "bytes"))
            if at < len(frame):
                spans.append(Span(at, at + 1, "bytes"))
            start = at + 1
    return spans


def scram(frame: bytes, rng: random.Random) -> None:
    """As the first answer, or as the last after a true first one."""
    row = rng.choice(RECORDED["scram"])
    talk = Scram(row["mechanism"], row["user"], row["password"], row["nonce"])
    talk.first()
    if rng.random() < 0.5:
        talk.next(bytes.fromhex(row["said"][0]))
    talk.next(frame)


def node_texts() -> list[bytes]:
    return [text.encode() for text in RECORDED["nodes"].values()]


NODE_VALUES = [None, -1, 0, 1 << 70, 1.5, float("inf"), float("nan"), "x", "", "²", [], {}, [None], {"a": 1}, True]


def mutated_json(rng: random.Random, value: Any) -> Any:
    """One value at any depth replaced, a key renamed, or the whole thing nested in itself."""
    if rng.random() < 0.15 or not isinstance(value, (dict, list)) or not value:
        return rng.choice(NODE_VALUES)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        return [*value[:at], mutated_json(rng, value[at]), *value[at + 1 :]]
    key = rng.choice(list(value))
    changed = {k: v for k, v in value.items() if k != key}
    return changed | {rng.choice([key, key, key, "²", "-1", "9" * 5000, ""]): mutated_json(rng, value[key])}


def read_nodes(frame: bytes, rng: random.Random) -> None:
    """One node of three is ``frame``, or has a value changed; the other two are as Kafka wrote them."""
    tree = MemoryTree()
    nodes: dict[str, bytes] = {path: text.encode() for path, text in RECORDED["nodes"].items()}
    path = rng.choice(list(nodes))
    choice = rng.random()
    if choice < 0.5:
        nodes[path] = json.dumps(mutated_json(rng, json.loads(nodes[path]))).encode()
    elif choice < 0.52:
        nodes[path] = b'{"a":' * 100_000
    else:
        nodes[path] = frame
    for name, data in nodes.items():
        for end in range(1, len(name.split("/"))):
            tree.nodes.setdefault("/".join(name.split("/")[: end + 1]), (b"", 0))
        tree.nodes[name] = (data, 0)
    background = SimpleNamespace(run=done)
    reader = ZkBrokerReader(
        ChosenTopics(("members",)), MemoryNodeStore(tree), cast(Any, background), "/brokers", "zk:2181"
    )
    for _ in reader.get_current_brokers():
        pass


def done(work: Callable[[], Any]) -> Generator[Any, None, Any]:
    """What a background thread gives back, at once."""
    return work()
    yield


OFFSET_NODES = [
    offset_store.encode(
        offset_store.Owner("run-1", "words"), Partition("lines", 3), offset_store.CommitPosition(42, 5), 7, "id"
    ),
    b'{"topology":{"id":"a","name":"b"},"offset":9,"partition":3,"broker":{"host":"h","port":1},"topic":"lines"}',
]


def read_offset(frame: bytes, rng: random.Random) -> None:
    """The node of a partition's progress; what is none is told by NotAnOffset."""
    if rng.random() < 0.5:
        frame = json.dumps(mutated_json(rng, json.loads(rng.choice(OFFSET_NODES)))).encode()
    try:
        node = offset_store.decode(frame, Partition("lines", 3))
        assert 0 <= node.stored.offset < 1 << 63
    except offset_store.NotAnOffset as err:
        assert str(err)


def stream(frame: bytes, rng: random.Random) -> None:
    """A connection's bytes in pieces of any size."""
    buffer = FrameBuffer(1 << 20)
    while frame:
        room = buffer.get_buffer()
        size = min(len(room), len(frame), rng.choice([1, 3, 100, 1 << 20]))
        room[:size] = frame[:size]
        buffer.buffer_updated(size)
        frame = frame[size:]


def stream_frames() -> list[bytes]:
    frames = [bytes.fromhex(row["frame"]) for row in RECORDED["answers"][:40]]
    return [b"".join(len(one).to_bytes(4, "big") + one for one in frames[n : n + 3]) for n in range(0, 39, 3)]


def stream_spans(frame: bytes) -> list[Span]:
    spans, at = [], 0
    while at < len(frame):
        size = int.from_bytes(frame[at : at + 4], "big")
        spans += [Span(at, at + 4, "fixed"), Span(at + 4, at + 4 + size, "bytes")]
        at += 4 + size
    return spans


def everything() -> list[Decoder]:
    """All ways in."""
    batches = Decoder("record batches", batch_frames(), read_records, batch_spans, 30.0, with_length_and_checksum)
    batches.room += 6 * UNPACKED_LIMIT
    packed = Decoder("codecs", packed_frames(), unpack, lambda frame: [Span(1, len(frame), "bytes")], 6.0)
    packed.room += 6 * UNPACKED_LIMIT
    assignments = [bytes.fromhex(row["assignment"]) for row in RECORDED["members"]]
    return [
        *answers(),
        batches,
        packed,
        # A length within the limit is believed for one step of growth, 1 MiB, and its zeros.
        Decoder("streams", stream_frames(), stream, stream_spans, 4.0, room=MEMORY_CONSTANT + (2 << 20)),
        Decoder("subscriptions", subscriptions(), read_subscription, plain_spans(ConsumerProtocolSubscription, 2), 4.0),
        Decoder("assignments", assignments, read_assignment, plain_spans(ConsumerProtocolAssignment, 2), 4.0),
        Decoder("sticky user data", sticky_user_data(), read_user_data, plain_spans(StickyUserData, 0), 4.0),
        Decoder("SCRAM", scram_frames(), scram, text_spans, 0.5),
        Decoder("ZooKeeper nodes", node_texts(), read_nodes, text_spans, 5.0, room=4 << 20),
        Decoder("stored offsets", OFFSET_NODES, read_offset, text_spans, 5.0),
    ]
