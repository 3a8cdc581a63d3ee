"""One module for each API: its request and response as field tables."""

from __future__ import annotations

from typing import Any

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from streamlet.kafka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from streamlet.kafka.protocol.messages.api_versions import ApiVersionsRequest
from streamlet.kafka.protocol.messages.create_partitions import CreatePartitionsRequest
from streamlet.kafka.protocol.messages.create_topics import CreateTopicsRequest
from streamlet.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from streamlet.kafka.protocol.messages.delete_records import DeleteRecordsRequest
from streamlet.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from streamlet.kafka.protocol.messages.describe_configs import DescribeConfigsRequest
from streamlet.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from streamlet.kafka.protocol.messages.end_txn import EndTxnRequest
from streamlet.kafka.protocol.messages.fetch import FetchRequest
from streamlet.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from streamlet.kafka.protocol.messages.heartbeat import HeartbeatRequest
from streamlet.kafka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from streamlet.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from streamlet.kafka.protocol.messages.join_group import JoinGroupRequest
from streamlet.kafka.protocol.messages.leave_group import LeaveGroupRequest
from streamlet.kafka.protocol.messages.list_groups import ListGroupsRequest
from streamlet.kafka.protocol.messages.list_offsets import ListOffsetsRequest
from streamlet.kafka.protocol.messages.metadata import MetadataRequest
from streamlet.kafka.protocol.messages.offset_commit import OffsetCommitRequest
from streamlet.kafka.protocol.messages.offset_delete import OffsetDeleteRequest
from streamlet.kafka.protocol.messages.offset_fetch import OffsetFetchRequest
from streamlet.kafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from streamlet.kafka.protocol.messages.produce import ProduceRequest
from streamlet.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from streamlet.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from streamlet.kafka.protocol.messages.sync_group import SyncGroupRequest
from streamlet.kafka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

REQUESTS: dict[ApiKey, type[Request[Any]]] = {
    kind.api_key: kind
    for kind in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        ApiVersionsRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteGroupsRequest,
        DeleteRecordsRequest,
        DeleteTopicsRequest,
        DescribeConfigsRequest,
        DescribeGroupsRequest,
        EndTxnRequest,
        FetchRequest,
        FindCoordinatorRequest,
        HeartbeatRequest,
        IncrementalAlterConfigsRequest,
        InitProducerIdRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        ListGroupsRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetDeleteRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
        ProduceRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
        SyncGroupRequest,
        TxnOffsetCommitRequest,
    )
}
"""Every request this client can make, by API."""
