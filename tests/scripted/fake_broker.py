"""A broker that does what a test says: real sockets on loopback, scripted answers, every request recorded.

It answers ApiVersions and Metadata by itself (naming itself as the only broker, and the topics it was given) and
anything else by the script: ``broker.on(ApiKey.FETCH, SILENCE)``. A script is an answer, an :class:`Act`, bytes to
send raw, or a function of the request that gives one of these; a list of them is used up one by one, and its last
one stays. What has no script is answered from ``defaults``, which a ``FakeCluster`` fills, or else by CLOSE.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any

from streamlet.kafka.errors import MalformedFrame
from streamlet.kafka.metadata.cluster import UNKNOWN_NODE, Broker
from streamlet.kafka.protocol.messages.api_versions_and_sasl import (
    ApiVersionsRange,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from streamlet.kafka.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from streamlet.kafka.protocol.schema import INT16_LAYOUT, INT32_LAYOUT, ApiKey, Reader, Request, codec_of, skip_tags
from tests.kafka_requests import REQUESTS


class Act(Enum):
    """Instead of an answer."""

    SILENCE = "never answer"
    CLOSE = "close the connection"


SILENCE = Act.SILENCE
CLOSE = Act.CLOSE

# A response message, raw bytes, an act, or a function of the request that gives one of them.
Script = Any

_DEFAULT_RANGES = {key: (min(kind.versions), max(kind.versions)) for key, kind in REQUESTS.items()}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came in."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    request: Request[Any]


@dataclass(slots=True)
class FakeBroker:
    """One scripted broker; a context manager. ``topics``: name -> number of partitions, all led by it.

    Any thread may read ``requests`` and change scripts; each connection is served by a thread of its own.
    """

    node_id: int = 1
    topics: Mapping[str, int] = field(default_factory=dict)
    ranges: dict[ApiKey, tuple[int, int]] = field(default_factory=lambda: dict(_DEFAULT_RANGES))
    features: dict[str, int] = field(default_factory=dict)
    """Finalized features by name; ``features_epoch`` rises with each change."""
    features_epoch: int = 0
    greeting: bytes = b""
    """Sent on every new connection before anything is read: for ports that are not Kafka's."""
    requests: list[Recorded] = field(default_factory=list)
    connections: int = 0
    defaults: dict[ApiKey, Script] = field(default_factory=dict)
    cluster: Any = None
    """The ``FakeCluster`` that it is part of."""
    _scripts: dict[ApiKey, list[Script]] = field(default_factory=dict)
    _listener: socket.socket | None = None
    _open: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _port: int = 0

    # -- what a test says

    def on(self, api_key: ApiKey, *scripts: Script) -> FakeBroker:
        """Answer this API by these scripts, one a request; the last one for all that follow."""
        self._scripts[api_key] = list(scripts)
        return self

    def seen(self, api_key: ApiKey) -> list[Recorded]:
        """The requests of one API, in order of arrival."""
        return [row for row in self.requests if row.api_key is api_key]

    @property
    def port(self) -> int:
        """The port; it stays the same over :meth:`stop` and :meth:`start`."""
        return self._port

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self._port}"

    @property
    def broker(self) -> Broker:
        """As the client would know it from an address alone."""
        return Broker(UNKNOWN_NODE, "127.0.0.1", self._port)

    def drop_connections(self) -> None:
        """Close every connection; new ones are still taken."""
        with self._lock:
            for connection in self._open:
                _shut(connection)

    def start(self) -> FakeBroker:
        """Listen."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        self._spawn(self._accept, self._listener)
        return self

    def stop(self) -> None:
        """Close the port and every connection, and wait for the threads."""
        if self._listener is not None:
            _shut(self._listener)
            self._listener.close()
            self._listener = None
        self.drop_connections()
        while self._threads:
            self._threads.pop().join(10)

    def __enter__(self) -> FakeBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- what it does by itself

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """The default answer: this broker, and the topics it was given."""
        names = list(self.topics) if request.topics is None else [row.name or "" for row in request.topics]
        return MetadataResponse(
            brokers=(MetadataBroker(node_id=self.node_id, host="127.0.0.1", port=self._port),),
            cluster_id="fake",
            controller_id=self.node_id,
            topics=tuple(self._topic(name) for name in names),
        )

    def _topic(self, name: str) -> MetadataTopic:
        if name not in self.topics:
            return MetadataTopic(error_code=3, name=name)
        partitions = [
            MetadataPartition(
                error_code=0, partition_index=number, leader_id=self.node_id, leader_epoch=0, replica_nodes=(1,)
            )
            for number in range(self.topics[name])
        ]
        return MetadataTopic(error_code=0, name=name, partitions=tuple(partitions))

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        rows = tuple(
            ApiVersionsRange(api_key=int(key), min_version=low, max_version=high)
            for key, (low, high) in self.ranges.items()
        )
        known = self.ranges.get(ApiKey.API_VERSIONS, (0, 0))
        return ApiVersionsResponse(
            error_code=0 if known[0] <= version <= known[1] else 35,
            api_keys=rows,
            finalized_features_epoch=self.features_epoch,
            finalized_features=tuple(
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=1)
                for name, level in self.features.items()
            ),
        )

    # -- sockets

    def _spawn(self, work: Callable[[socket.socket], None], sock: socket.socket) -> None:
        thread = threading.Thread(target=work, args=(sock,), daemon=True)
        thread.start()  # before it can be joined by stop()
        self._threads.append(thread)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _peer = listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.add(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self.greeting:
                connection.sendall(self.greeting)
            while (frame := _read_frame(connection)) is not None and self._answer(connection, frame):
                pass
        with self._lock:
            self._open.discard(connection)

    def _answer(self, connection: socket.socket, frame: bytes) -> bool:
        recorded = parse_request(frame)
        if recorded is None:
            return False
        self.requests.append(recorded)
        answer = self._script_for(recorded)
        if callable(answer):
            answer = answer(recorded.request)
        if answer is CLOSE:
            return False
        if answer is not SILENCE:
            connection.sendall(answer if isinstance(answer, bytes) else encode_response(recorded, answer))
        return True

    def _script_for(self, recorded: Recorded) -> Script:
        scripts = self._scripts.get(recorded.api_key)
        if scripts:
            return scripts.pop(0) if len(scripts) > 1 else scripts[0]
        if recorded.api_key in self.defaults:
            return self.defaults[recorded.api_key]
        if recorded.api_key is ApiKey.API_VERSIONS:
            return self._api_versions(recorded.version)
        if recorded.api_key is ApiKey.METADATA:
            return self.metadata
        return CLOSE


def parse_request(frame: bytes) -> Recorded | None:
    """A request from its frame (without the length); None when it is none of ours."""
    reader = Reader(frame)
    try:
        key = ApiKey(reader.fixed(INT16_LAYOUT))
        version, correlation_id = reader.fixed(INT16_LAYOUT), reader.fixed(INT32_LAYOUT)
        client_id = reader.text(reader.fixed(INT16_LAYOUT))
        kind = REQUESTS[key]
        flexible = version >= kind.flexible_since
        if flexible:
            skip_tags(reader)
        return Recorded(key, version, correlation_id, client_id, codec_of(kind, version, flexible).decode(reader))
    except (ValueError, KeyError, MalformedFrame):
        return None


def encode_response(recorded: Recorded, response: object) -> bytes:
    """The whole frame of an answer to ``recorded``."""
    kind = REQUESTS[recorded.api_key]
    version = recorded.version
    if isinstance(response, ApiVersionsResponse) and response.error_code == 35:
        version = 0  # what a broker does that does not know the version asked for
    flexible = version >= kind.flexible_since
    out = bytearray(INT32_LAYOUT.pack(recorded.correlation_id))
    if flexible and recorded.api_key is not ApiKey.API_VERSIONS:
        out.append(0)
    codec_of(kind.response_type, version, flexible).encode(response, out)
    return INT32_LAYOUT.pack(len(out)) + bytes(out)


def _read_frame(connection: socket.socket) -> bytes | None:
    head = _read_exactly(connection, 4)
    return None if head is None else _read_exactly(connection, INT32_LAYOUT.unpack(head)[0])


def _read_exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


__all__: Sequence[str] = ["CLOSE", "SILENCE", "Act", "FakeBroker", "Recorded", "encode_response", "parse_request"]
