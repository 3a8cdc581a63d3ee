"""KafkaBolt: tuples as records of Kafka topics, acked when their records are acknowledged.

The other half of the bridge: it stands on ``streamlet.kafka`` and on ``streamlet.components``.
"""

from streamlet.bolts.kafka.bolt import KafkaBolt
from streamlet.bolts.kafka.bolt_config import KafkaBoltConfig

__all__ = ["KafkaBolt", "KafkaBoltConfig"]
