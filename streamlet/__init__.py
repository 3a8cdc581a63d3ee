"""Storm's model in pure Python, without Storm: the words a topology is written in."""
# ruff: noqa: E402 - the packages are looked for before anything imports them

from streamlet.base.early_interrupt import end_silently

end_silently()

from typing import TYPE_CHECKING, Never

from streamlet.base.packages import refuse_missing

refuse_missing()

from streamlet.backends.contract import RunResult, RunStatus, Stop
from streamlet.base.backoff import Backoff
from streamlet.base.errors import BadEmit, BadInput, NoRoom, SettingError, StreamletError, ValueCannotTravel
from streamlet.bolts.concurrent import AsyncBolt, ThreadedBolt
from streamlet.components.batch import Batch
from streamlet.components.batching import BatchingBolt, TicklessBatchingBolt
from streamlet.components.bolt import Bolt
from streamlet.components.context import TopologyContext
from streamlet.components.reliable_spout import ReliableSpout
from streamlet.components.spout import FailReason, Spout
from streamlet.components.tuples import Tuple
from streamlet.model.grouping import Grouping
from streamlet.model.pystorm_names import MODULE, missing
from streamlet.model.stream import Stream, StreamId
from streamlet.running import run
from streamlet.topology import Topology

__version__ = "0.1.0"

__all__ = [
    "AsyncBolt",
    "Backoff",
    "BadEmit",
    "BadInput",
    "Batch",
    "BatchingBolt",
    "Bolt",
    "FailReason",
    "Grouping",
    "NoRoom",
    "ReliableSpout",
    "RunResult",
    "RunStatus",
    "SettingError",
    "Spout",
    "Stop",
    "Stream",
    "StreamId",
    "StreamletError",
    "ThreadedBolt",
    "TicklessBatchingBolt",
    "Topology",
    "TopologyContext",
    "Tuple",
    "ValueCannotTravel",
    "run",
]

if not TYPE_CHECKING:  # with it a type checker would accept every name

    def __getattr__(name: str) -> Never:
        if name in MODULE:
            # An AttributeError would be replaced by the import system's own text, which names nothing of ours.
            raise ImportError(missing("streamlet", name, MODULE), name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
