"""Readings of a DataFrame, changed by a bolt, into Parquet files; a worker dies in the middle, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlet import Bolt, Topology, TopologyContext, Tuple
from streamlet.bolts.dataframe import DataFrameSink
from streamlet.spouts.dataframe import DataFrameSpout


class Fahrenheit(Bolt):
    """Kills its own worker at the reading ``deadly``, once; never with a negative number."""

    outputs = ["number", "station", "fahrenheit"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.deadly, self.witness = conf["deadly"], conf["witness"]

    def process(self, tup: Tuple) -> None:
        number, station, celsius = tup.values
        if number == self.deadly and not Path(self.witness).exists():
            Path(self.witness).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.emit([number, station, celsius * 1.8 + 32])


class Stations(Topology):
    config = {"deadly": -1, "witness": ""}
    readings = DataFrameSpout.spec(path="readings", outputs=["number", "station", "celsius"], par=2)
    fahrenheit = Fahrenheit.spec(inputs=[readings], par=2)
    out = DataFrameSink.spec(
        inputs=[fahrenheit], path="out", schema="number bigint, station string, fahrenheit double", par=2
    )
