"""One module for each API: its request and response as field tables."""

from __future__ import annotations

from typing import Any

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.messages.api_versions import ApiVersionsRequest
from streamlet.kafka.protocol.messages.fetch import FetchRequest
from streamlet.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from streamlet.kafka.protocol.messages.list_offsets import ListOffsetsRequest
from streamlet.kafka.protocol.messages.metadata import MetadataRequest
from streamlet.kafka.protocol.messages.offset_commit import OffsetCommitRequest
from streamlet.kafka.protocol.messages.offset_fetch import OffsetFetchRequest
from streamlet.kafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

REQUESTS: dict[ApiKey, type[Request[Any]]] = {
    kind.api_key: kind
    for kind in (
        ApiVersionsRequest,
        FetchRequest,
        FindCoordinatorRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
    )
}
"""Every request this client can make, by API."""
