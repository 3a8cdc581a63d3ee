"""AddOffsetsToTxn: a transaction is about to store a group's offsets. Version 1 (broker 2.1), 3 (2.7)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, INT64, STRING, message, wire


@message
class AddOffsetsToTxnResponse:
    """0, or why the group was not added."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)


@message
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """To the transaction's coordinator."""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN
    versions: ClassVar[tuple[int, ...]] = (1, 3)
    flexible_since: ClassVar[int] = 3
    response_type: ClassVar[type[AddOffsetsToTxnResponse]] = AddOffsetsToTxnResponse

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)
