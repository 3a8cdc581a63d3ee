"""The waits of a start: what is waited for is said after a second, and what waiting cannot mend is said at once."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence

from streamlet.base.backoff import Backoff
from streamlet.base.clock import Clock
from streamlet.base.errors import StreamletError
from streamlet.base.port_probe import spoken_at
from streamlet.coordination import NodeStoreUnavailable
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.errors import BootstrapFailed, ForeignProtocol, HungUp
from streamlet.spouts.kafka.errors import NoZooKeeper
from streamlet.spouts.kafka.partition import Broker

log = logging.getLogger(__name__)

RETRY = Backoff(initial=0.1, maximum=0.5)

TOLD_AFTER_S = 1.0
"""Whoever waits longer than this wants to know what for."""

Say = Callable[[str], None]


def say_for(component: str, task_index: int) -> Say:
    """Where a task says what it waits for. All tasks of a spout wait for the same: the first one speaks for them."""

    def say(text: str) -> None:
        log.log(logging.DEBUG if task_index else logging.INFO, "%s: %s", component, text)

    return say


def living_brokers(
    read: Callable[[], dict[int, Broker]],
    deadline_s: float,
    clock: Clock,
    say: Say,
    pause: Callable[[float], None] = time.sleep,
) -> list[Broker]:
    """What ``read`` finds; tried again until the deadline while it raises what may pass: brokers that are not up yet,
    a ZooKeeper that has none to answer. Blocks. Raises what ``read`` does, the last of it at the deadline.
    """
    tell_at_s: float | None = clock.monotonic() + TOLD_AFTER_S
    for attempt in itertools.count(1):
        try:
            return sorted(read().values())
        except StreamletError as error:
            now = clock.monotonic()
            pause_s = RETRY.delay(attempt)
            if not error.retriable or now + pause_s > deadline_s:
                raise
            if tell_at_s is not None and now >= tell_at_s:
                tell_at_s = None
                say(f"waiting for a Kafka broker, for up to {deadline_s - now:.0f} s more. So far: {error.message}")
        pause(pause_s)
    raise AssertionError("unreachable")


def bootstrap(client: KafkaClient, brokers: Sequence[Broker], deadline_s: float, clock: Clock, say: Say) -> None:
    """The client's first metadata. Raises what ``KafkaClient.bootstrap`` does, and ForeignProtocol at once also for
    servers that hang up on a Kafka client without a word, as a ZooKeeper does.
    """
    left = max(0.1, deadline_s - clock.monotonic())
    try:
        if left > TOLD_AFTER_S:
            try:
                client.bootstrap(TOLD_AFTER_S)
                return
            except BootstrapFailed as error:
                _refuse_foreign(brokers)
                left = max(0.1, deadline_s - clock.monotonic())
                causes = "; ".join(f"{address}: {cause}" for address, cause in error.causes.items())
                say(f"waiting for a Kafka broker, for up to {left:.0f} s more. So far: {causes}")
        client.bootstrap(left)
    except (BootstrapFailed, HungUp, ForeignProtocol):
        _refuse_foreign(brokers)
        raise


def _refuse_foreign(brokers: Sequence[Broker]) -> None:
    """Raise when every address is found to speak another protocol. Of TLS the client itself says more."""
    spoken = [spoken_at(broker.host, broker.port) for broker in brokers]
    if not spoken or any(found in (None, "Kafka", "TLS") for found in spoken):
        return
    broker, found = brokers[0], spoken[0]
    remedy = "Check that it is the broker's own listener; its port is usually 9092."
    if found == "ZooKeeper":
        remedy = (
            f"Give a broker's address (its port is usually 9092), or let the spout find the brokers in this ZooKeeper: "
            f'ZkHosts("{broker}"), or zk://{broker} on the command line.'
        )
    raise ForeignProtocol(f"The port at {broker} does not speak Kafka's protocol: it speaks {found}. {remedy}")


def no_zookeeper(error: NodeStoreUnavailable, servers: str) -> NoZooKeeper:
    """The node store's paragraph; with the way out where it is a broker's address that was given."""
    if error.spoken != {"Kafka"}:
        return NoZooKeeper(error.message)
    addresses = servers.partition("/")[0]
    return NoZooKeeper(
        f"{error.message} Where a broker is what you have, let the spout ask it: "
        f'KafkaHosts("{addresses}"), or kafka://{addresses} on the command line.'
    )
