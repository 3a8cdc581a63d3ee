"""Storm's model in pure Python, without Storm: the words a topology is written in."""

from streamlet.backends.contract import RunResult, RunStatus, Stop
from streamlet.base.errors import BadInput, SettingError, StreamletError, ValueCannotTravel
from streamlet.components.bolt import Bolt
from streamlet.components.context import TopologyContext
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import FailReason, Spout
from streamlet.components.tuples import Tuple
from streamlet.model.grouping import Grouping
from streamlet.model.stream import Stream, StreamId
from streamlet.running import run
from streamlet.topology import Topology

__all__ = [
    "BadInput",
    "Bolt",
    "FailReason",
    "Grouping",
    "ReliableSpout",
    "RunResult",
    "RunStatus",
    "SettingError",
    "Spout",
    "Stop",
    "Stream",
    "StreamId",
    "StreamletError",
    "Topology",
    "TopologyContext",
    "Tuple",
    "ValueCannotTravel",
    "run",
]
