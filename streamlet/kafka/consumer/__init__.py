"""The consumer: subscriptions, groups, positions, fetches and commits."""

from typing import TYPE_CHECKING

from streamlet.base.names_on_demand import loads_on_demand
from streamlet.kafka.settings.foreign_names import answer_missing

if TYPE_CHECKING:
    from streamlet.kafka.consumer.consumer import Consumer
    from streamlet.kafka.consumer.consumer_config import ConsumerConfig
    from streamlet.kafka.consumer.owned_partitions import ConsumerRebalanceListener
    from streamlet.kafka.consumer.positions import OffsetAndTimestamp
    from streamlet.kafka.consumer.records import ConsumerRecord, RecordColumns

# On demand, as in `streamlet.kafka`: a KafkaSpout stands on a group's membership, and on nothing else of this room.
_MODULES = {
    "Consumer": "consumer",
    "ConsumerConfig": "consumer_config",
    "ConsumerRebalanceListener": "owned_partitions",
    "ConsumerRecord": "records",
    "OffsetAndTimestamp": "positions",
    "RecordColumns": "records",
}

__all__ = [
    "Consumer",
    "ConsumerConfig",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "OffsetAndTimestamp",
    "RecordColumns",
]

if not TYPE_CHECKING:  # with it a type checker would accept every name
    __getattr__ = loads_on_demand(__name__, _MODULES, answer_missing(__name__))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
