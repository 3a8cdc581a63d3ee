"""Descriptions of groups, and offsets that are changed from outside of them. Pure."""

from __future__ import annotations

import pytest

from streamlet.kafka import Broker, TopicPartition
from streamlet.kafka import broker_errors as e
from streamlet.kafka.admin import groups
from streamlet.kafka.client.group_requests import ConsumerGroupMetadata, OffsetAndMetadata, offset_commit_request
from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from streamlet.kafka.protocol.messages.offsets import OffsetDeleteResponse

BROKER = Broker(1, "h", 9092)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SUBSCRIPTION = bytes.fromhex("0001 00000002 000161 000162 ffffffff 00000000".replace(" ", ""))
ASSIGNMENT = bytes.fromhex("0000 00000001 000161 00000002 00000000 00000001 ffffffff".replace(" ", ""))


def described(state: str = "Stable", code: int = 0, assignment: bytes = ASSIGNMENT, protocol: str = "consumer"):  # type: ignore[no-untyped-def]
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/1", member_metadata=SUBSCRIPTION, member_assignment=assignment
    )
    row = DescribedGroup(
        error_code=code,
        group_id="g",
        group_state=state,
        protocol_type=protocol,
        protocol_data="range",
        members=(member,),
    )
    return groups.read_group_descriptions(DescribeGroupsResponse(groups=(row,)), BROKER)


def test_a_group_is_described_with_its_members_partitions() -> None:
    """Subscription and assignment are decoded for consumers, and left alone for others."""
    found = described().results["g"]
    assert (found.state, found.assignor, found.coordinator) == ("Stable", "range", BROKER)
    assert (found.members[0].topics, found.members[0].assignment) == (("a", "b"), (A0, A1))
    assert described(protocol="connect", assignment=b"xx").results["g"].members[0].assignment == ()
    assert described(assignment=b"").results["g"].members[0].assignment == ()


def test_a_group_that_is_not_there_is_an_error() -> None:
    """Whether the broker says so or calls it dead."""
    for answers in (described(state="Dead"), described(code=69)):
        assert isinstance(answers.errors["g"], e.GroupIdNotFound) and "'g'" in answers.errors["g"].message


@pytest.mark.parametrize("cut", range(1, len(ASSIGNMENT) - 4))
def test_an_assignment_that_is_cut_off_is_named(cut: int) -> None:
    """A named error of that group, never a crash."""
    assert "cannot be read" in described(assignment=ASSIGNMENT[:cut]).errors["g"].message


def test_an_array_that_claims_more_than_there_is_is_refused() -> None:
    """Before anything of its size is made."""
    with pytest.raises(MalformedFrame, match="array of"):
        groups.assigned_partitions(bytes.fromhex("00007fffffff"))


def test_an_error_of_the_group_is_each_partitions() -> None:
    """What was asked for is in the answer, one by one."""
    response = OffsetDeleteResponse(error_code=69, throttle_time_ms=0, topics=())
    assert set(groups.read_forgotten("g", (A0, B0), response).errors) == {A0, B0}
    request = groups.forget_request("g", (A0, A1, B0))
    assert [(row.name, len(row.partitions)) for row in request.topics] == [("a", 2), ("b", 1)]


def test_offsets_are_committed_from_outside_of_the_membership() -> None:
    """Generation -1 and no member."""
    request = offset_commit_request(ConsumerGroupMetadata("g"), {A0: OffsetAndMetadata(7, 3, "m")})
    assert (request.generation_id, request.member_id) == (-1, "")
    row = request.topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.committed_metadata) == (7, 3, "m")
