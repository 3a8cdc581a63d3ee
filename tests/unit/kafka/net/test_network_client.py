"""The order of the stages of one poll, with a selector that tells of everything at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamlet.base.clock import ManualClock
from streamlet.kafka.errors import Disconnected, KafkaError, RequestTimedOut, TokenFailed, UnsupportedVersion
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import UNKNOWN_NODE, Address, Broker
from streamlet.kafka.metadata.metadata import Metadata
from streamlet.kafka.net import network_client
from streamlet.kafka.net.connection_states import ConnectionState, ConnectionStates
from streamlet.kafka.net.network_client import NetworkClient
from streamlet.kafka.net.selector import PollEvents
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.messages.produce import ProduceRequest
from streamlet.kafka.protocol.schema import VersionRange
from streamlet.kafka.settings.client_config import ClientConfig
from tests.kafka_requests import REQUESTS
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import Recorded, encode_response, parse_request

VERSIONS = {int(key): VersionRange(min(kind.versions), max(kind.versions)) for key, kind in REQUESTS.items()}
FOUND = FindCoordinatorResponse(error_code=0, node_id=1, host="h", port=1)
QUESTION = FindCoordinatorRequest(key="g")


class AllAtOnce:
    """A selector whose next poll takes ``lasts_s`` and has ``events``; notes what is sent when."""

    def __init__(self, _max_frame_bytes: int) -> None:
        self.open_ones: list[Address] = []
        self.sent: dict[Address, list[Recorded]] = {}
        self.steps: list[str] = []
        self.events = PollEvents()
        self.lasts_s = 0.0
        self.takes_all = True
        self.clock = ManualClock()

    def addresses(self) -> tuple[Address, ...]:
        return tuple(self.open_ones)

    def open(self, address: Address, _transport: object, _now_s: float) -> None:
        self.open_ones.append(address)

    def close(self, address: Address) -> None:
        self.open_ones.remove(address)

    def close_all(self) -> None:
        self.open_ones.clear()

    def send(self, address: Address, frame: bytes, _now_s: float) -> bool:
        recorded = parse_request(bytes(frame[4:]))
        assert recorded is not None
        self.sent.setdefault(address, []).append(recorded)
        self.steps.append(f"{recorded.api_key.name} to {address.host}")
        return self.takes_all

    def poll(self, _timeout_s: float, _now_s: float) -> PollEvents:
        self.steps.append("the selector's poll")
        self.clock.advance(self.lasts_s)
        events, self.events = self.events, PollEvents()
        for address in events.disconnected:
            self.close(address)
        return events

    def idle(self, _now_s: float, _idle_s: float) -> list[Address]:
        return []

    def holds_bytes(self) -> bool:
        return False

    def wakeup(self) -> None: ...


class Rig:
    """A network client over such a selector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *others: str) -> None:
        monkeypatch.setattr(network_client, "Selector", AllAtOnce)
        clock = ManualClock()
        self.asked = Broker(UNKNOWN_NODE, "bootstrap", 1)
        self.client = NetworkClient(
            ClientConfig.of({"bootstrap_servers": "bootstrap:1"}),
            Metadata(),
            (self.asked, *(Broker(UNKNOWN_NODE, name, 1) for name in others)),
            dial=lambda _target, _address: None,  # type: ignore[arg-type,return-value]
            resolve=lambda address: [(2, (address.host, address.port))],
            clock=clock,
            uniform=lambda: 0.0,
        )
        self.selector: Any = self.client._selector
        self.selector.clock = clock

    def connecting(self, name: str) -> Broker:
        broker = Broker(UNKNOWN_NODE, name, 1)
        self.client.connect(broker, self.client.now_s())
        return broker

    def ready(self, name: str) -> Broker:
        broker = self.connecting(name)
        self.client.states.connected(broker.address)
        self.client.states.versions_known(broker.address, VERSIONS)
        return broker

    def note_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Write down each stage of a poll among what is sent."""

        def noted(name: str, stage: Callable[..., None]) -> Callable[..., None]:
            def run(owner: object, *args: Any) -> None:
                about = f" {args[0].host}" if isinstance(args[0], Address) else ""
                self.selector.steps.append(name + about)
                stage(owner, *args)

            return run

        stages = ("_completed_sends", "_completed_receives", "_connection_lost", "_set_up", "_expire", "resolve")
        for kind, names in ((NetworkClient, stages), (ConnectionStates, ("connected",))):
            for name in names:
                monkeypatch.setattr(kind, name, noted(name.removeprefix("_"), getattr(kind, name)))

    def answer(self, broker: Broker, place: int = -1) -> None:
        """Let the next poll have the answer to a request."""
        recorded = self.selector.sent[broker.address][place]
        frame = bytearray(encode_response(recorded, FOUND)[4:])
        self.selector.events.completed_receives.append((broker.address, frame))


def test_m7_a_poll_asks_for_metadata_then_takes_sends_answers_losses_new_connections_time_outs_and_calls_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever order the events came in; the first listener finds everything of this poll done already."""
    rig = Rig(monkeypatch)
    client, selector = rig.client, rig.selector
    rig.ready("bootstrap")
    writing, answering, leaving, silent = (rig.ready(name) for name in ("writing", "answering", "leaving", "silent"))
    fresh = rig.connecting("fresh")
    heard: list[tuple[str, type[KafkaError] | None]] = []
    at_the_first: list[Any] = []

    def send(name: str, request: Any, broker: Broker, timeout_s: float | None = None) -> None:
        def listener(done: RequestFuture[Any]) -> None:
            if not heard:
                counts = [client.in_flight.count(one.address) for one in (writing, answering, leaving, silent, fresh)]
                at_the_first.append(
                    (counts, [client.states.get(one.address).state for one in (leaving, silent, fresh)])
                )
                at_the_first.append(list(selector.steps))
            heard.append((name, type(done.exception) if done.failed else None))

        future: RequestFuture[Any] = RequestFuture()
        client.send(request, broker, future, timeout_s)
        future.add_listener(listener)

    # Sent in another order than the stages have.
    send("timed out", QUESTION, silent, timeout_s=1.0)
    send("answered and then lost", QUESTION, leaving)
    send("lost", QUESTION, leaving)
    send("answered", QUESTION, answering)
    selector.takes_all = False
    send("written", ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=()), writing)
    selector.takes_all = True
    client.states.get(answering.address).versions = {}
    send("refused before the poll", QUESTION, answering)
    selector.steps.clear()
    rig.note_steps(monkeypatch)
    selector.lasts_s = 2.0
    selector.events.connected.append(fresh.address)
    selector.events.disconnected[leaving.address] = Disconnected("gone")
    rig.answer(leaving, 0)
    rig.answer(answering)
    selector.events.completed_sends.append(writing.address)

    client.poll(5.0)

    assert heard == [
        ("refused before the poll", UnsupportedVersion),
        ("written", None),
        ("answered and then lost", None),
        ("answered", None),
        ("lost", Disconnected),
        ("timed out", RequestTimedOut),
    ]
    (counts, states), steps = at_the_first
    assert counts == [0, 0, 0, 0, 1], "of the new connection: its first request is on its way"
    gone = ConnectionState.DISCONNECTED
    assert states == [gone, gone, ConnectionState.CHECKING_API_VERSIONS]
    assert steps == [
        "METADATA to bootstrap",
        "the selector's poll",
        "completed_sends",
        "completed_receives",
        "connection_lost leaving",
        "connected fresh",
        "set_up",
        "API_VERSIONS to fresh",
        "expire",
        "connection_lost silent",
        "resolve",
    ]


def test_m3_with_every_node_in_back_off_a_poll_waits_for_the_shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata is due all the while; it is asked for when the first node may be dialled again."""
    rig = Rig(monkeypatch, "second", "third")
    client, clock = rig.client, rig.selector.clock
    brokers = client.updater.reachable()
    for broker, tries in zip(brokers, (3, 1, 2), strict=True):
        for _ in range(tries):
            client.states.dial(broker.address, clock.monotonic(), lambda address: [(2, (address.host, 1))])
            client.states.lost(broker.address, clock.monotonic(), Disconnected("gone"))
    waits = [client.wait_s(broker, clock.monotonic()) for broker in brokers]
    assert 0 < waits[1] < waits[2] < waits[0]
    assert client.updater.is_due(clock.monotonic()) and client.next_wake_s(clock.monotonic()) == waits[1]
    client.poll(0.0)
    assert not rig.selector.open_ones
    clock.advance(waits[1])
    assert client.next_wake_s(clock.monotonic()) == 0.0
    client.poll(0.0)
    assert rig.selector.open_ones == [brokers[1].address]


def test_c8_a_listener_may_send_disconnect_and_wait_for_another_thread_for_none_finds_a_lock_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Completions wait for the end of the poll (``pending_completions``): its lists are not worked on any more."""
    rig = Rig(monkeypatch)
    client = rig.client
    rig.ready("bootstrap")
    first, second = rig.ready("first"), rig.ready("second")
    again: RequestFuture[Any] = RequestFuture()
    lost: RequestFuture[Any] = RequestFuture()
    looked = threading.Event()
    in_time: list[bool] = []

    def look() -> None:
        client.wakeup()
        looked.set()

    def listener(_done: RequestFuture[Any]) -> None:
        client.send(QUESTION, first, again)
        client.disconnect(second)
        threading.Thread(target=look, daemon=True).start()
        in_time.append(looked.wait(PATIENCE_S))

    future: RequestFuture[Any] = RequestFuture()
    client.send(QUESTION, first, future)
    client.send(QUESTION, second, lost)
    future.add_listener(listener)
    rig.answer(first)
    assert not client.pending_completions
    client.poll(5.0)
    assert future.succeeded and in_time == [True] and not again.done and not lost.done
    rig.answer(first)
    client.poll(5.0)
    assert again.succeeded and isinstance(lost.exception, Disconnected)
    unknown: RequestFuture[Any] = RequestFuture()
    client.states.get(first.address).versions = {}
    assert client.send(QUESTION, first, unknown) == -1
    assert len(client.pending_completions) == 1 and not unknown.done, "send() resolves nothing by itself"
    client.poll(0.0)
    assert unknown.failed and not client.pending_completions


@pytest.mark.parametrize("late", ["its setup", "a request"])
def test_a_connection_that_is_refused_and_late_in_one_poll_ends_once(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended twice, it would have died of a state that it cannot be in, and the client with it."""
    rig = Rig(monkeypatch)
    broker = rig.ready("bootstrap") if late == "a request" else rig.connecting("bootstrap")
    future: RequestFuture[Any] = RequestFuture()
    if late == "a request":
        rig.client.send(QUESTION, broker, future, timeout_s=1.0)
    rig.client._setups.refused[broker.address] = TokenFailed("no token")
    rig.selector.lasts_s = 3600.0
    for _ in range(3):
        rig.client.poll(0.0)
    assert rig.client.states.get(broker.address).state is ConnectionState.DISCONNECTED
    assert isinstance(rig.client.states.get(broker.address).last_error, TokenFailed)
    assert late != "a request" or isinstance(future.exception, Disconnected)
