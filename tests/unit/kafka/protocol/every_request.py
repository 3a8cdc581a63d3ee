"""Every request we have, in every version that we and a broker share, said to that broker in an order that makes sense.

Over bare sockets, with the bytes that ``encode_request`` gives: the client would only ever use the highest version. An
answer must decode to its last byte and hold no error.
"""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from streamlet.kafka.consumer.assignors.base import Subscription, encode_assignment
from streamlet.kafka.metadata.cluster import TopicPartition
from streamlet.kafka.net.sasl import SaslClient
from streamlet.kafka.protocol.messages import (
    acls,
    configs,
    fetch,
    groups,
    offsets,
    produce,
    replicas,
    scram_users,
    topics,
    transactions,
)
from streamlet.kafka.protocol.messages.api_versions_and_sasl import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from streamlet.kafka.protocol.messages.groups import (
    GROUP,
    TRANSACTION,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from streamlet.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from streamlet.kafka.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchTopic
from streamlet.kafka.protocol.messages.topics import DeleteTopicsRequest
from streamlet.kafka.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from streamlet.kafka.protocol.schema import (
    INT32_LAYOUT,
    ApiKey,
    Reader,
    Request,
    VersionRange,
    codec_of,
    encode_request,
    skip_tags,
)
from streamlet.kafka.records.compression import Compression
from tests.kafka_requests import REQUESTS
from tests.patience import PATIENCE_S
from tests.whole_batches import BatchFields, NewRecord, encode_batch

_PASSING = {3, 5, 14, 15, 16, 51}
"""No topic or leader yet, coordinator loads or is looked for, a transaction is being ended: said again."""
_UNSUPPORTED_VERSION, _MEMBER_ID_REQUIRED = 35, 79
_ELECTION_NOT_NEEDED, _RESOURCE_NOT_FOUND = 84, 91
_INTRODUCTION = ApiVersionsRequest(client_software_name="every-request", client_software_version="1.0")


class Exchange(NamedTuple):
    """One request that was answered; ``frame`` without its length."""

    request: Request[Any]
    version: int
    frame: bytes
    answer: Any


class Line:
    """One connection, one request at a time."""

    def __init__(self, server: str) -> None:
        host, port = server.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._number = 0

    def close(self) -> None:
        self._socket.close()

    def say(self, request: Request[Any], version: int) -> Exchange:
        """Raises EOFError when the broker hangs up (it does that to what it cannot read)."""
        self._number += 1
        self._socket.sendall(encode_request(request, version, self._number, "every-request"))
        frame = self._take(INT32_LAYOUT.unpack(self._take(4))[0])
        assert INT32_LAYOUT.unpack_from(frame)[0] == self._number
        return Exchange(request, version, frame, decoded_to_its_last_byte(type(request), version, frame))

    def _take(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise EOFError("the broker hung up")
            parts += part
        return bytes(parts)


def decoded_to_its_last_byte(kind: type[Request[Any]], version: int, frame: bytes) -> Any:
    """The answer in ``frame``, which must hold nothing else."""
    flexible = version >= kind.flexible_since
    reader = Reader(frame)
    reader.take(4)
    if flexible and kind.api_key is not ApiKey.API_VERSIONS:
        skip_tags(reader)
    answer = codec_of(kind.response_type, version, flexible).decode(reader)
    assert not reader.remaining, f"{reader.remaining} bytes behind {kind.api_key.name} v{version}"
    return answer


def errors_in(answer: Any) -> list[int]:
    """Every error code in a message, wherever it stands."""
    found: list[int] = []
    if isinstance(answer, tuple):
        return [code for row in answer for code in errors_in(row)]
    if not dataclasses.is_dataclass(answer):
        return found
    for spec in dataclasses.fields(answer):
        value = getattr(answer, spec.name)
        found += [value] if spec.name.endswith("error_code") and value else errors_in(value)
    return found


def shared_versions(offered: dict[ApiKey, VersionRange]) -> set[tuple[ApiKey, int]]:
    """What both sides speak."""
    return {
        (key, version)
        for key, kind in REQUESTS.items()
        for version in kind.versions
        if key in offered and offered[key].least <= version <= offered[key].most
    }


class Conversation:
    """Rounds over one broker, each with a topic, a group and a transaction of its own; ``heard`` collects."""

    def __init__(self, server: str, name: str) -> None:
        self._line = Line(server)
        self._server = server
        self._name = name
        self.heard: list[Exchange] = []
        self._round = 0
        first: ApiVersionsResponse = self._line.say(_INTRODUCTION, 3).answer
        assert not first.error_code
        self.offered = {ApiKey(key): row for key, row in first.ranges().items() if key in set(ApiKey)}

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def say_everything(self) -> None:
        """As many rounds as an API has versions; each takes the next version of every API."""
        rounds = max(len(kind.versions) for kind in REQUESTS.values())
        for self._round in range(rounds):
            self._topics()
            self._replicas()
            self._acls()
            self._users()
            self._transaction()
            self._member_with_epochs()
            self._reading()
            self._end()

    def _ask(self, request: Request[Any], beside: tuple[int, ...] = ()) -> Any:
        """The answer, without errors but those in ``beside``; what passes is said again."""
        usable = [v for k, v in sorted(shared_versions(self.offered)) if k is request.api_key]
        usable = [version for version in usable if version in request.usable_versions()]
        version = usable[min(self._round, len(usable) - 1)]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            exchange = self._line.say(request, version)
            codes = set(errors_in(exchange.answer)) - set(beside)
            if not codes & _PASSING or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert not codes, f"{request.api_key.name} v{version}: {exchange.answer}"
        self.heard.append(exchange)
        return exchange.answer

    @property
    def _topic(self) -> str:
        return f"{self._name}-{self._round}"

    _group = _topic

    def _topics(self) -> None:
        self._ask(_INTRODUCTION)
        new = topics.CreatableTopic(
            name=self._topic,
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=(topics.CreatableTopicConfig(name="retention.ms", value="-1"),),
        )
        self._ask(topics.CreateTopicsRequest(topics=(new,), timeout_ms=20_000))
        more = topics.CreatePartitionsTopic(name=self._topic, count=2, assignments=None)
        self._ask(topics.CreatePartitionsRequest(topics=(more,), timeout_ms=20_000, validate_only=False))
        asked = MetadataRequest(topics=(MetadataRequestTopic(name=self._topic),))
        deadline = time.monotonic() + PATIENCE_S
        while len((metadata := self._ask(asked)).topics[0].partitions) < 2:
            assert time.monotonic() < deadline
        self._topic_id = metadata.topics[0].topic_id
        self._ask(MetadataRequest(topics=()))
        change = configs.AlterableConfig(name="max.message.bytes", config_operation=0, value="2000000")
        row = configs.AlterConfigsResource(resource_type=configs.TOPIC, resource_name=self._topic, configs=(change,))
        self._ask(configs.IncrementalAlterConfigsRequest(resources=(row,), validate_only=False))
        keys = ("max.message.bytes", "retention.ms")
        wanted = configs.DescribeConfigsResource(
            resource_type=configs.TOPIC, resource_name=self._topic, configuration_keys=keys
        )
        self._ask(configs.DescribeConfigsRequest(resources=(wanted,), include_synonyms=True))

    def _replicas(self) -> None:
        kept = replicas.ReassignablePartition(partition_index=0, replicas=(0,))
        row = replicas.ReassignableTopic(name=self._topic, partitions=(kept,))
        self._ask(replicas.AlterPartitionReassignmentsRequest(timeout_ms=20_000, topics=(row,)))
        asked = replicas.ListPartitionReassignmentsTopics(name=self._topic, partition_indexes=(0,))
        self._ask(replicas.ListPartitionReassignmentsRequest(timeout_ms=20_000, topics=(asked,)))
        self._ask(replicas.ListPartitionReassignmentsRequest(timeout_ms=20_000, topics=None))
        elected = replicas.ElectionTopicPartitions(topic=self._topic, partitions=(0,))
        request = replicas.ElectLeadersRequest(election_type=0, topic_partitions=(elected,), timeout_ms=20_000)
        self._ask(request, (_ELECTION_NOT_NEEDED,))
        wanted = replicas.DescribableLogDirTopic(topic=self._topic, partitions=(0, 1))
        (directory,) = self._ask(replicas.DescribeLogDirsRequest(topics=(wanted,))).results
        assert {row.partition_index for row in directory.topics[0].partitions} == {0, 1}

    def _acls(self) -> None:
        # Prefixed with a name that no topic has: a rule for one denies it to all others.
        rule = {"resource_type": 2, "resource_name": f"{self._topic}-none", "principal": "User:alice", "host": "*"}
        rule |= {"operation": 3, "permission_type": 3}
        self._ask(acls.CreateAclsRequest(creations=(acls.AclCreation(**rule, resource_pattern_type=4),)))
        wanted = {"resource_type_filter": 2, "resource_name_filter": f"{self._topic}-none", "pattern_type_filter": 4}
        wanted |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self._ask(acls.DescribeAclsRequest(**wanted)).resources):
            assert time.monotonic() < deadline
        assert [row.principal for row in found[0].acls] == ["User:alice"]
        answer = self._ask(acls.DeleteAclsRequest(filters=(acls.DeleteAclsFilter(**wanted),)))
        assert len(answer.filter_results[0].matching_acls) == 1

    def _users(self) -> None:
        new = scram_users.ScramCredentialUpsertion(
            name=self._topic, mechanism=1, iterations=4096, salt=b"s" * 24, salted_password=b"p" * 32
        )
        self._ask(scram_users.AlterUserScramCredentialsRequest(upsertions=(new,)))
        asked = scram_users.DescribeUserScramCredentialsRequest(users=(scram_users.UserName(name=self._topic),))
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self._ask(asked, (_RESOURCE_NOT_FOUND,)).results[0].credential_infos):
            assert time.monotonic() < deadline
        assert [(row.mechanism, row.iterations) for row in found] == [(1, 4096)]
        gone = scram_users.ScramCredentialDeletion(name=self._topic, mechanism=1)
        self._ask(scram_users.AlterUserScramCredentialsRequest(deletions=(gone,)))

    def _transaction(self) -> None:
        name = self._topic
        self._ask(FindCoordinatorRequest(key=name, key_type=TRANSACTION))
        mine = self._ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
        self._ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        ids, epoch = mine.producer_id, mine.producer_epoch
        self._ask(
            transactions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=ids,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=(transactions.AddPartitionsToTxnTopic(name=name, partitions=(0,)),),
            )
        )
        self._produce(0, ids, epoch, name)
        self._produce(1, -1, -1, None)
        member, generation = self._join()
        self._ask(
            transactions.AddOffsetsToTxnRequest(
                transactional_id=name, producer_id=ids, producer_epoch=epoch, group_id=self._group
            )
        )
        row = transactions.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=2, committed_metadata="t"
        )
        request = transactions.TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=self._group,
            producer_id=ids,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member,
            topics=(transactions.TxnOffsetCommitRequestTopic(name=name, partitions=(row,)),),
        )
        self._ask(request)
        self._ask(EndTxnRequest(transactional_id=name, producer_id=ids, producer_epoch=epoch, committed=True))
        if (ApiKey.END_TXN, 5) in shared_versions(self.offered):
            self._transaction_of_version_2(request)
        stored = OffsetFetchTopic(name=name, partition_indexes=(0, 1))
        deadline = time.monotonic() + PATIENCE_S
        while True:  # the marker reaches the group's log a moment after the transaction has ended
            answer = self._ask(OffsetFetchRequest(group_id=self._group, topics=(stored,), require_stable=True), (88,))
            offsets = [one.committed_offset for one in answer.topics[0].partitions]
            if offsets == [2, 1]:
                break
            assert time.monotonic() < deadline, answer
        self._ask(OffsetFetchRequest(group_id=self._group, topics=None))
        self._ask(DescribeGroupsRequest(groups=(self._group,)))
        assert self._group in {row.group_id for row in self._ask(ListGroupsRequest()).groups}
        self._ask(LeaveGroupRequest(group_id=self._group, member_id=member))

    def _transaction_of_version_2(self, commit: transactions.TxnOffsetCommitRequest) -> None:
        """Announces nothing, and gets the next epoch, as often as it asks for the end."""
        name = f"{self._topic}-2"
        mine = self._ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
        ids, epoch = mine.producer_id, mine.producer_epoch
        self._produce(0, ids, epoch, name, version_2=True)
        who = {"transactional_id": name, "producer_id": ids, "producer_epoch": epoch, "version_2": True}
        self._ask(dataclasses.replace(commit, **who))
        for _ in range(2):
            answer = self._ask(EndTxnRequest(**who, committed=True))
            assert (answer.producer_id, answer.producer_epoch) == (ids, epoch + 1)

    def _produce(
        self, partition: int, ids: int, epoch: int, transactional_id: str | None, *, version_2: bool = False
    ) -> None:
        records = [NewRecord(b"v" * 50, b"k", 1_700_000_000_000, (("h", b"1"), ("n", None))), NewRecord(None, b"gone")]
        codec = Compression(1 + self._round)
        fields = BatchFields(
            0, codec, -1, ids, epoch, 0 if ids >= 0 else -1, transactional=transactional_id is not None
        )
        row = produce.ProducePartition(index=partition, records=encode_batch(records, fields))
        topic = produce.ProduceTopic(name=self._topic, partition_data=(row,))
        fixed = {"acks": -1, "timeout_ms": 10_000, "topic_data": (topic,)}
        self._ask(produce.ProduceRequest(transactional_id=transactional_id, version_2=version_2, **fixed))

    def _join(self) -> tuple[str, int]:
        self._ask(FindCoordinatorRequest(key=self._group, key_type=GROUP))
        protocol = groups.JoinGroupProtocol(name="range", metadata=Subscription((self._topic,)).encode())

        def join(member: str) -> Any:
            request = groups.JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=member,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            return self._ask(request, (_MEMBER_ID_REQUIRED,))

        joined = join("")
        if joined.error_code == _MEMBER_ID_REQUIRED:
            joined = join(joined.member_id)
        member, generation = joined.member_id, joined.generation_id
        assignment = encode_assignment([TopicPartition(self._topic, 0), TopicPartition(self._topic, 1)])
        given = SyncGroupAssignment(member_id=member, assignment=assignment)
        request = SyncGroupRequest(
            group_id=self._group, generation_id=generation, member_id=member, assignments=(given,)
        )
        assert self._ask(request).assignment == assignment
        self._ask(HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=member))
        row = offsets.OffsetCommitPartition(
            partition_index=1, committed_offset=1, committed_leader_epoch=0, committed_metadata="m"
        )
        commit = offsets.OffsetCommitRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=member,
            topics=(offsets.OffsetCommitTopic(name=self._topic, partitions=(row,)),),
        )
        self._ask(commit)
        if (ApiKey.OFFSET_COMMIT, 9) in shared_versions(self.offered):
            self._ask(dataclasses.replace(commit, by_epoch=True))
            self._fetch_by_epoch(self._group, None, -1)
        return member, generation

    def _fetch_by_epoch(self, group: str, member: str | None, epoch: int) -> None:
        stored = OffsetFetchTopic(name=self._topic, partition_indexes=(1,))
        row = offsets.OffsetFetchGroup(group_id=group, member_id=member, member_epoch=epoch, topics=(stored,))
        assert self._ask(OffsetFetchRequest(groups=(row,))).groups[0].topics[0].partitions[0].committed_offset == 1

    def _member_with_epochs(self) -> None:
        """A group of the newer protocol: a member joins, is given both partitions, commits, and leaves."""
        if ApiKey.CONSUMER_GROUP_HEARTBEAT not in self.offered:
            return
        group, member = f"{self._group}-epochs", "m" * 22
        self._ask(FindCoordinatorRequest(key=group, key_type=GROUP))

        def beat(epoch: int, **more: Any) -> Any:
            request = groups.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
            return self._ask(request, (_UNSUPPORTED_VERSION,))

        given = beat(0, rebalance_timeout_ms=10_000, subscribed_topic_names=(self._topic,), topic_partitions=())
        if given.error_code:  # a 3.9 offers the API and does not speak it
            return
        (row,) = given.assignment.topic_partitions
        assert sorted(row.partitions) == [0, 1]
        epoch = beat(given.member_epoch, topic_partitions=(row,)).member_epoch
        part = offsets.OffsetCommitPartition(partition_index=1, committed_offset=1)
        commit = offsets.OffsetCommitRequest(
            group_id=group,
            generation_id=epoch,
            member_id=member,
            topics=(offsets.OffsetCommitTopic(name=self._topic, partitions=(part,)),),
            by_epoch=True,
        )
        self._ask(commit)
        self._fetch_by_epoch(group, member, epoch)
        assert beat(groups.LEAVING_EPOCH).member_epoch == groups.LEAVING_EPOCH

    def _reading(self) -> None:
        earliest = fetch.ListOffsetsPartition(partition_index=1, timestamp=fetch.EARLIEST_TIMESTAMP)
        topic = fetch.ListOffsetsTopic(name=self._topic, partitions=(earliest,))
        self._ask(fetch.ListOffsetsRequest(isolation_level=1, topics=(topic,)))
        part = fetch.OffsetForLeaderPartition(partition=1, current_leader_epoch=0, leader_epoch=0)
        self._ask(
            fetch.OffsetForLeaderEpochRequest(
                topics=(fetch.OffsetForLeaderTopic(topic=self._topic, partitions=(part,)),)
            )
        )
        # A session: all of it, then what changed, then one partition forgotten.
        session = self._fetch(0, 0, (0, 1), ()).session_id
        assert session
        answer = self._fetch(session, 1, (1,), ())
        answer = self._fetch(session, 2, (), (0,))
        assert answer.session_id == session
        self._fetch(0, -1, (0,), ())

    def _fetch(self, session: int, epoch: int, send: tuple[int, ...], forget: tuple[int, ...]) -> Any:
        parts = tuple(
            fetch.FetchPartition(partition=number, fetch_offset=epoch if epoch > 0 else 0, partition_max_bytes=1 << 20)
            for number in send
        )
        topic = fetch.FetchTopic(topic=self._topic, topic_id=self._topic_id, partitions=parts)
        gone = fetch.ForgottenTopic(topic=self._topic, topic_id=self._topic_id, partitions=forget)
        request = fetch.FetchRequest(
            max_wait_ms=10,
            min_bytes=1,
            isolation_level=fetch.READ_COMMITTED,
            session_id=session,
            session_epoch=epoch,
            topics=(topic,) if send else (),
            forgotten_topics_data=(gone,) if forget else (),
        )
        return self._ask(request)

    def _end(self) -> None:
        rows = (offsets.OffsetDeleteRequestPartition(partition_index=1),)
        self._ask(
            offsets.OffsetDeleteRequest(
                group_id=self._group, topics=(offsets.OffsetDeleteRequestTopic(name=self._topic, partitions=rows),)
            )
        )
        self._ask(DeleteGroupsRequest(groups_names=(self._group,)))
        before = topics.DeleteRecordsPartition(partition_index=1, offset=1)
        topic = topics.DeleteRecordsTopic(name=self._topic, partitions=(before,))
        self._ask(topics.DeleteRecordsRequest(topics=(topic,), timeout_ms=10_000))
        self._ask(DeleteTopicsRequest(topic_names=(self._topic,), timeout_ms=20_000))


def log_in(server: str, version: int, client: SaslClient) -> Iterator[Exchange]:
    """A handshake and an authentication in ``version`` on a connection of its own."""
    line = Line(server)
    try:
        yield line.say(SaslHandshakeRequest(mechanism=client.mechanism), 1)
        token: bytes | None = client.first()
        while token is not None:
            exchange = line.say(SaslAuthenticateRequest(auth_bytes=token), version)
            assert not errors_in(exchange.answer), exchange.answer
            yield exchange
            token = client.next(exchange.answer.auth_bytes)
    finally:
        line.close()
