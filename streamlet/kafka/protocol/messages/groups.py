"""FindCoordinator, the requests of a member, and those of an administrator."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)

GROUP = 0
TRANSACTION = 1


@message
class FindCoordinatorResponse:
    """The coordinator's id and address; -1 and "" with an error."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)


@request(ApiKey.FIND_COORDINATOR, versions=(2,), flexible_since=3)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """To any broker.

    ``key`` is the group id, or the transactional id with ``key_type`` TRANSACTION.
    """

    key: str = wire(STRING)
    key_type: int = wire(INT8, default=GROUP)


@message
class JoinGroupMember:
    """One member and its subscription, for the leader alone."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=5, nullable_since=5, ignorable=True)
    metadata: bytes = wire(BYTES)


@message
class JoinGroupResponse:
    """The new generation; ``members`` is empty but for the leader.

    ``skip_assignment``: a static leader came back, and the assignment stays as it is (KIP-814).
    """

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, default=None, since=7, nullable_since=7, ignorable=True)
    protocol_name: str | None = wire(STRING, default="", nullable_since=7)
    leader: str = wire(STRING, default="")
    skip_assignment: bool = wire(BOOL, default=False, since=9)
    member_id: str = wire(STRING, default="")
    members: tuple[JoinGroupMember, ...] = wire(Array(JoinGroupMember), default=())


@message
class JoinGroupProtocol:
    """An assignor's name and this member's subscription in its terms."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@request(ApiKey.JOIN_GROUP, versions=(3, 5, 9), flexible_since=6)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """To the group's coordinator, which answers when all members have joined.

    Or when the rebalance time-out is over.
    """

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=5, nullable_since=5)
    protocol_type: str = wire(STRING)
    protocols: tuple[JoinGroupProtocol, ...] = wire(Array(JoinGroupProtocol))
    reason: str | None = wire(STRING, default=None, since=8, nullable_since=8, ignorable=True)

    def usable_versions(self) -> tuple[int, ...]:
        """Return all versions, from 5 on for a static member (broker 2.3)."""
        return (5, 9) if self.group_instance_id is not None else self.versions


@message
class SyncGroupResponse:
    """One member's assignment, in bytes of the consumer protocol."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    assignment: bytes = wire(BYTES, default=b"")


@message
class SyncGroupAssignment:
    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@request(ApiKey.SYNC_GROUP, versions=(2, 3), flexible_since=4)
class SyncGroupRequest(Request[SyncGroupResponse]):
    """To the group's coordinator; ``assignments`` is empty for everyone but the leader."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=3, nullable_since=3)
    assignments: tuple[SyncGroupAssignment, ...] = wire(Array(SyncGroupAssignment), default=())


@message
class HeartbeatResponse:
    """The group's state as an error code: 0 while nothing has changed."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)


@request(ApiKey.HEARTBEAT, versions=(2, 3), flexible_since=4)
class HeartbeatRequest(Request[HeartbeatResponse]):
    """To the group's coordinator."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, default=None, since=3, nullable_since=3)


@message
class LeaveGroupResponse:
    """An error code: 0 when the member has left."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)


@request(ApiKey.LEAVE_GROUP, versions=(2,), flexible_since=4)
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """To the group's coordinator."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@message
class MemberTopicPartitions:
    """Partitions of one topic, which is named by its id."""

    topic_id: str | None = wire(UUID)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message
class MemberAssignment:
    """All partitions that a member may use now."""

    topic_partitions: tuple[MemberTopicPartitions, ...] = wire(Array(MemberTopicPartitions))


@message
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its partitions; ``assignment`` None: as before."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    member_id: str | None = wire(STRING, default=None, nullable_since=0)
    member_epoch: int = wire(INT32, default=0)
    heartbeat_interval_ms: int = wire(INT32, default=0)
    assignment: MemberAssignment | None = wire(MemberAssignment, default=None, nullable_since=0)


JOINING_EPOCH, LEAVING_EPOCH, AWAY_EPOCH = 0, -1, -2
"""Member epochs that join, leave, and leave for a time, as a static member does."""


@request(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_since=0)
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """To the group's coordinator (KIP-848). None and -1: not changed since the last one."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    instance_id: str | None = wire(STRING, default=None, nullable_since=0)
    rack_id: str | None = wire(STRING, default=None, nullable_since=0)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire(Array(STRING), default=None, nullable_since=0)
    subscribed_topic_regex: str | None = wire(STRING, default=None, since=1, nullable_since=1)
    server_assignor: str | None = wire(STRING, default=None, nullable_since=0)
    topic_partitions: tuple[MemberTopicPartitions, ...] | None = wire(
        Array(MemberTopicPartitions), default=None, nullable_since=0
    )

    def least_broker(self) -> str:
        return "4.0"


_NO_OPERATIONS = -(1 << 31)


@message
class DescribedGroupMember:
    """One member; subscription and assignment are bytes of the group's own protocol."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=4, default=None, nullable_since=4, ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@message
class DescribedGroup:
    """One group; before version 6 a missing one has the state "Dead"."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=6, default=None, nullable_since=6, ignorable=True)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: tuple[DescribedGroupMember, ...] = wire(Array(DescribedGroupMember))
    authorized_operations: int = wire(INT32, since=3, default=_NO_OPERATIONS, ignorable=True)


@message
class DescribeGroupsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))


@request(ApiKey.DESCRIBE_GROUPS, versions=(2, 4, 6), flexible_since=5)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """To the coordinator of all of these groups."""

    groups: tuple[str, ...] = wire(Array(STRING))
    include_authorized_operations: bool = wire(BOOL, since=3, default=False)


@message
class ListedGroup:
    """One group; state and type are "" from an old broker."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, default="", ignorable=True)
    group_type: str = wire(STRING, since=5, default="", ignorable=True)


@message
class ListGroupsResponse:
    """All groups of this coordinator that the caller may see."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    groups: tuple[ListedGroup, ...] = wire(Array(ListedGroup))


@request(ApiKey.LIST_GROUPS, versions=(2, 4, 5), flexible_since=3)
class ListGroupsRequest(Request[ListGroupsResponse]):
    """To every broker. An older broker knows no filters."""

    states_filter: tuple[str, ...] = wire(Array(STRING), since=4, default=())
    types_filter: tuple[str, ...] = wire(Array(STRING), since=5, default=())


@message
class DeletableGroupResult:
    """One group's outcome: 0 when it is deleted."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@message
class DeleteGroupsResponse:
    throttle_time_ms: int = wire(INT32)
    results: tuple[DeletableGroupResult, ...] = wire(Array(DeletableGroupResult))


@request(ApiKey.DELETE_GROUPS, versions=(1,), flexible_since=2)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """To the coordinator of all of these groups."""

    groups_names: tuple[str, ...] = wire(Array(STRING))
