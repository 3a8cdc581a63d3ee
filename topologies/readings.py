"""Temperatures of a few stations, averaged: a first taste of streamlet that needs no Java and no broker.

    streamlet run topologies/readings.py --until-caught-up

A spout makes readings, about 4 000 a second for five seconds. ``check`` stands for a service that is not always
there: it fails one reading in a hundred. Watch the column *failed*: the spout hears of each failure and sends
that reading again, until it is acked. ``average`` keeps a mean for each station, and always the same task gets the
same station (a fields grouping). ``report`` prints the means when the run ends: no reading is missing.

Try, too:

    streamlet graph topologies/readings.py --workers 2
    streamlet run topologies/readings.py -c readings.count=100000 -c readings.per.second=50000 --until-caught-up
    streamlet run topologies/readings.py -c readings.failing=0.5
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from streamlet import Bolt, Grouping, ReliableSpout, Topology, TopologyContext, Tuple

STATIONS = ("Aachen", "Bergen", "Cork", "Delft", "Evora")


class Readings(ReliableSpout):
    """Numbered readings at a steady rate. The task with index i of n makes every n-th of them."""

    outputs = ["number", "station", "celsius"]
    max_fails = None  # a reading is sent again until it is acked

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.clock = context.clock
        self.number, self.step = context.task_index, context.task_count
        self.count, self.per_second = conf["readings.count"], conf["readings.per.second"]
        self.random = random.Random(context.task_index)

    def activate(self) -> None:
        self.started = self.clock.monotonic()

    def next_tuple(self) -> None:
        due = (self.clock.monotonic() - self.started) * self.per_second
        if self.number < min(self.count, due):
            celsius = round(self.random.gauss(12.0, 6.0), 1)
            self.emit([self.number, self.random.choice(STATIONS), celsius], tup_id=self.number)
            self.number += self.step

    def caught_up(self) -> bool:
        return self.number >= self.count and not self.has_unfinished()


class Check(Bolt):
    """Passes readings on, and fails a share, like an unreliable service."""

    outputs = ["station", "celsius"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.failing = conf["readings.failing"]
        self.uniform = context.uniform or random.random

    def process(self, tup: Tuple) -> None:
        _, station, celsius = tup.values
        if self.uniform() < self.failing:
            self.fail(tup)
        else:
            self.emit([station, celsius])


class Average(Bolt):
    """The mean of each station. All readings of a station come to the same task."""

    outputs = ["station", "readings", "mean"]

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.sums: dict[str, tuple[int, float]] = {}

    def process(self, tup: Tuple) -> None:
        station, celsius = tup.values
        readings, total = self.sums.get(station, (0, 0.0))
        self.sums[station] = readings + 1, total + celsius
        self.emit([station, readings + 1, (total + celsius) / (readings + 1)])


class Report(Bolt):
    """Keeps the latest mean of each station; prints them at the end."""

    def initialize(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.latest: dict[str, tuple[int, float]] = {}

    def process(self, tup: Tuple) -> None:
        station, readings, mean = tup.values
        self.latest[station] = readings, mean

    def cleanup(self) -> None:
        for station, (readings, mean) in sorted(self.latest.items()):
            self.log(f"{station:<8}{readings:>7} readings, {mean:5.1f} °C on average")
        self.log(f"{sum(readings for readings, _ in self.latest.values())} readings in all")


class Weather(Topology):
    """readings -> check -> average -> report."""

    config = {
        "readings.count": 20_000,
        "readings.per.second": 4_000.0,
        "readings.failing": 0.01,
    }
    readings = Readings.spec()
    check = Check.spec(inputs=[readings], par=2)
    average = Average.spec(inputs={check: Grouping.fields("station")}, par=2)
    report = Report.spec(inputs={average: Grouping.GLOBAL})
