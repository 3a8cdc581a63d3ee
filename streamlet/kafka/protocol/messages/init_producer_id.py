"""InitProducerId: the producer's id and epoch. Version 1 (broker 2.1), 3 (an epoch bump on request, 2.5), 4 (2.7)."""

from __future__ import annotations

from typing import ClassVar

from streamlet.kafka.protocol.api import ApiKey, Request
from streamlet.kafka.protocol.schema import INT16, INT32, INT64, STRING, message, wire

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@message
class InitProducerIdResponse:
    """The id and epoch to write with; -1 with an error."""

    throttle_time_ms: int = wire(INT32, default=0, ignorable=True)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=NO_PRODUCER_ID)
    producer_epoch: int = wire(INT16)


@message
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """To the transaction's coordinator, or to any broker without a transactional id.

    ``producer_id`` and ``producer_epoch`` ask for the next epoch of what is held already; a broker before 2.5
    gives a transactional id its next epoch in any case.
    """

    api_key: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID
    versions: ClassVar[tuple[int, ...]] = (1, 3, 4)
    flexible_since: ClassVar[int] = 2
    response_type: ClassVar[type[InitProducerIdResponse]] = InitProducerIdResponse

    transactional_id: str | None = wire(STRING, nullable_since=0)
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, default=NO_PRODUCER_ID, since=3, ignorable=True)
    producer_epoch: int = wire(INT16, default=NO_PRODUCER_EPOCH, since=3, ignorable=True)
