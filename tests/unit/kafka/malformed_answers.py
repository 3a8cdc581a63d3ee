"""Answers of brokers for :mod:`tests.unit.kafka.malformed`: recorded ones, and how far each is followed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from streamlet.kafka.admin import configs, groups, topics
from streamlet.kafka.client import leader_requests
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import GroupOffsetCalls, find_coordinator
from streamlet.kafka.client.leader_requests import FetchPosition, FetchSettings, SessionPart
from streamlet.kafka.consumer.assignors.base import (
    decode_assignment,
    decode_subscription,
)
from streamlet.kafka.consumer.fetcher import CompletedFetch
from streamlet.kafka.fetch.fetch_session import FetchSession
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.metadata.metadata import Metadata
from streamlet.kafka.producer import batch_ledger as responses
from streamlet.kafka.protocol.messages.api_versions_and_sasl import ApiVersionsRequest, decode_api_versions
from streamlet.kafka.protocol.schema import ApiKey, Request, codec_of, decode_response, skip_tags
from streamlet.kafka.settings.client_config import ClientConfig
from tests.kafka_requests import REQUESTS
from tests.unit.kafka.malformed import MEMORY_CONSTANT, Decoder, Span, SpanReader
from tests.unit.kafka.malformed_records import UNPACKED_LIMIT, use_batches

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "protocol/golden/messages.json").read_text("utf-8"))
RECORDED = json.loads((HERE / "protocol/golden/answers.json").read_text("utf-8"))
BROKER = Broker(1, "127.0.0.1", 9092)


def answer_frames() -> dict[tuple[ApiKey, int], list[bytes]]:
    """Whole answers by API and version: what brokers sent, and kafka-python's bodies behind our header."""
    found: dict[tuple[ApiKey, int], list[bytes]] = {}
    for row in RECORDED["answers"]:
        found.setdefault((ApiKey[row["api"]], row["version"]), []).append(bytes.fromhex(row["frame"]))
    for row in GOLDEN:
        key, version = ApiKey[row["api"]], row["version"]
        kind = REQUESTS[key]
        if row["message"] == kind.response_type.__name__:
            tags = b"\0" if version >= kind.flexible_since and key is not ApiKey.API_VERSIONS else b""
            found.setdefault((key, version), []).append(b"\0\0\0\1" + tags + bytes.fromhex(row["body"]))
    return found


def answers() -> list[Decoder]:
    """One decoder for each answer in each version, followed into what reads it."""
    return [
        Decoder(
            f"{key.name} v{version}",
            frames,
            lambda frame, rng, key=key, version=version: read_answer(key, version, frame),  # type: ignore[misc]
            lambda frame, key=key, version=version: answer_spans(key, version, frame),  # type: ignore[misc]
            share=6.0 if key is ApiKey.FETCH else 3.0 if key is ApiKey.METADATA else 1.0,
            room=MEMORY_CONSTANT + 6 * UNPACKED_LIMIT if key is ApiKey.FETCH else MEMORY_CONSTANT,
        )
        for (key, version), frames in sorted(answer_frames().items())
    ]


def answer_spans(key: ApiKey, version: int, frame: bytes) -> list[Span]:
    """The fields of an answer."""
    kind = REQUESTS[key]
    flexible = version >= kind.flexible_since
    reader = SpanReader(frame)
    reader.take(4)
    if flexible and key is not ApiKey.API_VERSIONS:
        skip_tags(reader)
    codec_of(kind.response_type, version, flexible).decode(reader)
    return reader.spans[1:]


def read_answer(key: ApiKey, version: int, frame: bytes) -> None:
    """Decode, then do what the client does with such an answer."""
    kind = REQUESTS[key]
    request: Request[Any] = kind.__new__(kind)
    if isinstance(request, ApiVersionsRequest):
        decode_api_versions(request, version, frame).ranges()
        return
    answer = decode_response(request, version, frame)
    for read in READ.get(key, ()):
        read(answer)


class Answering:
    """What the reading functions need of a client: it has an answer at hand."""

    def __init__(self, answer: object) -> None:
        self._answer = answer
        self.metadata = Metadata()
        self.cluster = self.metadata.cluster
        self.config = ClientConfig("127.0.0.1:9092")

    def send(self, *_: object, **__: object) -> RequestFuture[Any]:
        future: RequestFuture[Any] = RequestFuture()
        future.complete(self._answer)
        return future


def asked(ask: Callable[[KafkaClient], RequestFuture[Any]]) -> Callable[[Any], object]:
    """A reading function from one that asks a client."""
    return lambda answer: ask(cast(KafkaClient, Answering(answer))).value


def stored_offsets(client: KafkaClient) -> GroupOffsetCalls:
    """A group's offsets whose coordinator is known."""
    group = GroupOffsetCalls(client, "g")
    group.coordinator = BROKER
    return group


def read_metadata(answer: Any) -> None:
    """Over what is known already, as a topic that is waited for."""
    metadata = Metadata()
    for row in answer.topics:
        if row.name is not None:
            metadata.add_topic(row.name)
    for _ in range(2):
        metadata.update(metadata.next_request(), answer, 0.0)
        for topic in metadata.cluster.topics:
            for part in metadata.cluster.partitions_for(topic):
                metadata.cluster.leader_for(part.topic_partition)


def read_fetch(answer: Any) -> None:
    """As an answer of a session about whatever it names, then every record of it."""
    names = {row.topic_id: f"id {row.topic_id}" for row in answer.topics if row.topic_id is not None}
    wanted = {
        TopicPartition(names.get(row.topic_id, row.topic), part.partition_index): FetchPosition(0)
        for row in answer.topics
        for part in row.partitions
    }
    session = FetchSession()
    ids = {topic: topic_id for topic_id, topic in names.items()}
    part = session.build(wanted, {tp.topic: ids.get(tp.topic) for tp in wanted})
    client = cast(KafkaClient, Answering(answer))
    settings = FetchSettings(decompressed_limit=UNPACKED_LIMIT)
    future = leader_requests.fetch_in_session(client, BROKER, SessionPart(wanted, wanted, part.topic_ids), settings)
    told = future.value
    if told.error is None:
        session.answered(told.session_id)
    else:
        session.refused(told.error)
    session.build(wanted, part.topic_ids)
    for fetched in told.partitions.values():
        completed = CompletedFetch(fetched, -1, 1)
        while not completed.exhausted:
            use_batches(chunk.batch for chunk in completed.take(100))


TP = TopicPartition("t", 0)
READ: dict[ApiKey, tuple[Callable[[Any], object], ...]] = {
    ApiKey.METADATA: (read_metadata, topics.read_descriptions, topics.read_listing),
    ApiKey.FETCH: (read_fetch,),
    ApiKey.PRODUCE: (responses.read_response, responses.endpoints),
    ApiKey.LIST_OFFSETS: (
        asked(lambda client: leader_requests.list_offsets(client, BROKER, {TP: -1})),
        topics.read_listed,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        asked(lambda client: leader_requests.offsets_for_leader_epoch(client, BROKER, {TP: (0, 0)})),
    ),
    ApiKey.FIND_COORDINATOR: (asked(lambda client: find_coordinator(client, "g")),),
    ApiKey.OFFSET_COMMIT: (
        asked(lambda client: stored_offsets(client).commit({})),
        lambda answer: groups.read_committed_offsets("g", answer),
    ),
    ApiKey.OFFSET_FETCH: (
        asked(lambda client: stored_offsets(client).fetch(None)),
        lambda answer: groups.read_offsets("g", answer),
    ),
    ApiKey.DESCRIBE_GROUPS: (lambda answer: groups.read_group_descriptions(answer, BROKER),),
    ApiKey.LIST_GROUPS: (lambda answer: groups.read_groups(answer, BROKER),),
    ApiKey.DELETE_GROUPS: (groups.read_deleted_groups,),
    ApiKey.OFFSET_DELETE: (lambda answer: groups.read_forgotten("g", [TP], answer),),
    ApiKey.CREATE_TOPICS: (lambda answer: topics.read_created(answer, 1),),
    ApiKey.DELETE_TOPICS: (topics.read_deleted,),
    ApiKey.CREATE_PARTITIONS: (topics.read_partitions,),
    ApiKey.DELETE_RECORDS: (topics.read_records_deleted,),
    ApiKey.DESCRIBE_CONFIGS: (configs.read_described,),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (configs.read_altered,),
    ApiKey.JOIN_GROUP: (lambda answer: [decode_subscription(row.metadata) for row in answer.members],),
    ApiKey.SYNC_GROUP: (lambda answer: decode_assignment(answer.assignment),),
}
"""What is done with an answer where more than its error code is looked at."""
