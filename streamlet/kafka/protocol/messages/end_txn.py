"""EndTxn: commit or abort. Version 1 (broker 2.1), 3 (2.7)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import BOOL, INT16, INT32, INT64, STRING, message, wire


@message
class EndTxnResponse:
    """0, or why the transaction did not end."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)


@message
class EndTxnRequest(Request[EndTxnResponse]):
    """To the transaction's coordinator. ``committed`` False aborts."""

    api_key: ClassVar[ApiKey] = ApiKey.END_TXN
    versions: ClassVar[tuple[int, ...]] = (1, 3)
    flexible_since: ClassVar[int] = 3
    response_type: ClassVar[type[EndTxnResponse]] = EndTxnResponse

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)
