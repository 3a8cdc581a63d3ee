"""How long a test waits for something that must happen at all.

Nobody who passes waits that long: it is for a starved machine, where starting Spark alone has taken two
minutes.
A promise in seconds (a stop within 5 s) is asserted in seconds, where it is tested.
"""

from __future__ import annotations

PATIENCE_S = 240.0
