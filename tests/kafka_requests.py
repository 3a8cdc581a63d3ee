"""Every request that the client sends, by its key."""

from __future__ import annotations

from typing import Any

from streamlet.kafka.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from streamlet.kafka.protocol.messages.api_versions_and_sasl import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from streamlet.kafka.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from streamlet.kafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from streamlet.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from streamlet.kafka.protocol.messages.metadata import MetadataRequest
from streamlet.kafka.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from streamlet.kafka.protocol.messages.produce import ProduceRequest
from streamlet.kafka.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from streamlet.kafka.protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from streamlet.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from streamlet.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from streamlet.kafka.protocol.schema import ApiKey, Request

REQUESTS: dict[ApiKey, type[Request[Any]]] = {
    kind.api_key: kind
    for kind in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        AlterPartitionReassignmentsRequest,
        AlterUserScramCredentialsRequest,
        ApiVersionsRequest,
        CreateAclsRequest,
        ConsumerGroupHeartbeatRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteAclsRequest,
        DeleteGroupsRequest,
        DeleteRecordsRequest,
        DeleteTopicsRequest,
        DescribeAclsRequest,
        DescribeConfigsRequest,
        DescribeGroupsRequest,
        DescribeLogDirsRequest,
        DescribeUserScramCredentialsRequest,
        ElectLeadersRequest,
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
        ListPartitionReassignmentsRequest,
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
