"""Test one bolt or a whole topology in this process.

Lists go in; emitted tuples, acks, failures and errors come out. `streamlet docs testing` shows each in ten lines.
"""

from streamlet.base.clock import ManualClock
from streamlet.testing.bolt_tester import BoltTester
from streamlet.testing.tester import Emitted, KeptLetter, Raised
from streamlet.testing.topology_tester import TopologyTester

__all__ = ["BoltTester", "Emitted", "KeptLetter", "ManualClock", "Raised", "TopologyTester"]
