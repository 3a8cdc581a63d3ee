"""close() of each client ends in its time: nobody answers, half of the cluster is stopped, or all of it is dead; and
soon, without being given a time, when all is well.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streamlet.kafka import Admin, ClientConfig, Consumer, KafkaClient, KafkaError, Producer, TopicPartition
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest

CLOSE_S = 1.0
"""What close is given."""
LATE_S = 6.0
"""How much later it may return on a machine that has other things to do: far below every other time-out here."""
KINDS = ["client", "producer", "consumer", "member", "admin", "transaction"]


class Busy:
    """One client of each kind, with something under way, made while the servers were well or not."""

    def __init__(self, kind: str, servers: str, topic: str) -> None:
        self.kind = kind
        self.futures: list[Any] = []
        self.client = getattr(self, f"_{kind}")({"bootstrap_servers": servers, "request_timeout_ms": 20_000}, topic)

    def _client(self, settings: dict[str, Any], _topic: str) -> KafkaClient:
        return KafkaClient(ClientConfig.of(settings))

    def _producer(self, settings: dict[str, Any], _topic: str) -> Producer:
        return Producer(**settings, max_block_ms=500)

    def _transaction(self, settings: dict[str, Any], topic: str) -> Producer:
        return Producer(**settings, max_block_ms=500, transactional_id=f"{topic}-hangs")

    def _consumer(self, settings: dict[str, Any], topic: str) -> Consumer:
        consumer = Consumer(**settings, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        return consumer

    def _member(self, settings: dict[str, Any], topic: str) -> Consumer:
        return Consumer(topic, **settings, group_id=f"{topic}-g", auto_offset_reset="earliest")

    def _admin(self, settings: dict[str, Any], _topic: str) -> Admin:
        return Admin(**settings)

    def work(self, topic: str) -> None:
        """Begin something that needs an answer; whatever is known to fail may fail."""
        with contextlib.suppress(KafkaError):
            if self.kind == "client":
                self.futures.append(self.client.send(FindCoordinatorRequest(key="g")))
                self.client.poll(0.05)
            elif self.kind == "producer":
                self.futures += [self.client.send(topic, b"x", partition=number) for number in range(3)]
            elif self.kind == "transaction":
                if not self.futures:
                    self.client.init_transactions()
                    self.client.begin_transaction()
                self.futures += [self.client.send(topic, b"x", partition=number) for number in range(3)]
            elif self.kind == "admin":
                self.client.list_topics(timeout=0.3)
            else:
                for _ in range(4):
                    self.client.poll(50)

    def closes_in_time(self) -> None:
        """On a thread, so that one that hangs is seen as that; what was under way has an end."""
        failure: list[BaseException] = []

        def close() -> None:
            try:
                self.client.close(*(() if self.kind == "admin" else (CLOSE_S,)))  # an Admin has nothing to wait for
            except BaseException as err:  # told to the test's own thread
                failure.append(err)

        thread = threading.Thread(target=close, daemon=True)
        start = time.monotonic()
        thread.start()
        thread.join(CLOSE_S + LATE_S)
        assert not thread.is_alive(), (
            f"close() of a {self.kind} has not returned after {time.monotonic() - start:.1f} s"
        )
        assert not failure or isinstance(failure[0], KafkaError), failure
        for future in self.futures:
            assert future.done if self.kind == "client" else future.is_done


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that accepts, as often as is wanted, and never says a word."""
    accepted: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted.append(listener.accept()[0])

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for one in (listener, *accepted):
        one.close()


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_in_its_time_when_a_socket_accepts_and_never_answers(kind: str, mute: str) -> None:
    """From the first word on."""
    busy = Busy(kind, mute, "t")
    busy.work("t")
    busy.closes_in_time()


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_in_its_time_when_nobody_listens(kind: str) -> None:
    """Each connection is refused at once."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        server = f"127.0.0.1:{gone.getsockname()[1]}"
    busy = Busy(kind, server, "t")
    busy.work("t")
    busy.closes_in_time()
