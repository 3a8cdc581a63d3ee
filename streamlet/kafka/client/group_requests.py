"""A group's coordinator and its stored offsets, for members and for outsiders (generation -1).

:class:`GroupOffsetCalls` remembers the coordinator and looks for it again when it has moved. Nothing is retried here: a
retriable error is left to the caller, at its next commit or by ``KafkaClient.wait_retrying``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from streamlet.base.errors import WrongArgument
from streamlet.kafka.broker_errors import CoordinatorNotAvailable, NotCoordinator, error_class
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.leader_requests import by_topic, partition_rows
from streamlet.kafka.errors import BrokerError, Disconnected, KafkaError
from streamlet.kafka.future import RequestFuture
from streamlet.kafka.metadata.cluster import UNKNOWN_EPOCH, Broker, TopicPartition
from streamlet.kafka.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from streamlet.kafka.protocol.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from streamlet.kafka.protocol.schema import Request

T = TypeVar("T")
U = TypeVar("U")

OUTSIDE_GENERATION = -1
SEARCH_LIMIT_S = 5.0
"""Seconds a member waits for one broker to name its coordinator: that one may hang, too."""
_LONGEST_TEXT = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The group and member that commits, also in a transaction (KIP-447).

    With a member the coordinator refuses the offsets of one that has lost its partitions; a bare group is an outsider
    (generation -1) and fences nobody.
    """

    group_id: str
    generation_id: int = OUTSIDE_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None

    @classmethod
    def of(cls, group: Any) -> ConsumerGroupMetadata:  # Any: whatever has a group_id
        """Return ours, made from a group id or another client's group metadata. Raises WrongArgument."""
        if isinstance(group, cls):
            return group
        if isinstance(group, str) and group:
            return cls(group)
        if not isinstance(getattr(group, "group_id", None), str) or not hasattr(group, "member_id"):
            raise WrongArgument(
                f"{group!r} is not a group: give consumer.group_metadata(), or the group's id as a str."
            )
        return cls(group.group_id, group.generation_id, group.member_id, getattr(group, "group_instance_id", None))


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The *next* offset to read, its leader epoch, and a text.

    ``leader_epoch`` is that of the record before the offset.
    """

    offset: int
    leader_epoch: int = UNKNOWN_EPOCH
    metadata: str = ""

    def __post_init__(self) -> None:
        # kafka-python has the same names in another order: what it calls OffsetAndMetadata(3, "text") is said here.
        if not isinstance(self.leader_epoch, int):
            raise WrongArgument(
                f"leader_epoch = {self.leader_epoch!r} must be a whole number. To store a text, write "
                f"OffsetAndMetadata({self.offset!r}, metadata={self.leader_epoch!r}): kafka-python's order (offset, "
                "metadata, leader_epoch) is not ours."
            )


def offset_rows(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:  # Any: what a user takes for offsets
    """Return offsets to store, given as ours, another client's, or numbers.

    Raises WrongArgument.
    """
    if not isinstance(offsets, Mapping):
        raise WrongArgument(f"{offsets!r} are not offsets: write {{TopicPartition(topic, number): offset}}.")
    return {TopicPartition.of(tp): _row(tp, row) for tp, row in offsets.items()}


def _row(tp: object, row: Any) -> OffsetAndMetadata:
    # Read by attribute, not by class: kafka-python's OffsetAndMetadata has the same names in another order.
    if isinstance(row, int) and not isinstance(row, bool):
        row = OffsetAndMetadata(row)
    offset, epoch, text = (getattr(row, name, None) for name in ("offset", "leader_epoch", "metadata"))
    epoch, text = UNKNOWN_EPOCH if epoch is None else epoch, text or ""
    if not isinstance(offset, int) or not 0 <= offset < 1 << 63 or type(text) is not str:
        raise _no_offset(tp, row)
    if not isinstance(epoch, int) or not UNKNOWN_EPOCH <= epoch < 1 << 31:
        raise _no_offset(tp, row)
    _check_text(tp, text)
    return OffsetAndMetadata(offset, epoch, text)


def _no_offset(tp: object, row: object) -> WrongArgument:
    return WrongArgument(
        f"{row!r} is not an offset to store for {tp}: write a number from 0 (the next offset to read), or "
        "OffsetAndMetadata(offset, leader_epoch, metadata)."
    )


def _check_text(tp: object, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as err:
        raise WrongArgument(f"The metadata of the offset for {tp} is not text that can be sent ({err}).") from err
    if size > _LONGEST_TEXT:
        raise WrongArgument(
            f"The metadata of the offset for {tp} has {size} bytes; Kafka's protocol takes {_LONGEST_TEXT}, and a "
            "broker 4096 unless its offset.metadata.max.bytes says more. Store a reference, and the rest elsewhere."
        )


def find_coordinator(client: KafkaClient, group_id: str, limit_s: float | None = None) -> RequestFuture[Broker]:
    """Ask for the group's coordinator.

    ``limit_s``: seconds for the answer; None: as for any request. Fails with CoordinatorNotAvailable (retriable) while
    there is none.
    """

    def read(response: FindCoordinatorResponse) -> Broker:
        fault = error_class(response.error_code)
        if fault is not None:
            raise fault(f"Looking for the coordinator of group {group_id!r}")
        # An answer without a usable address is no coordinator either: the search is repeated, as after that error.
        if response.node_id < 0 or not 0 < response.port < 1 << 16:
            raise CoordinatorNotAvailable(f"Looking for the coordinator of group {group_id!r}")
        return Broker(response.node_id, response.host, response.port)

    return client.send(FindCoordinatorRequest(key=group_id), timeout_s=limit_s).then(read)


def offset_commit_request(
    group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, by_epoch: bool = False
) -> OffsetCommitRequest:
    """Return a request to store offsets; ``by_epoch``: the generation is a member epoch (KIP-848).

    As an outsider's (generation -1) the coordinator refuses it while the group has members.
    """
    return OffsetCommitRequest(
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=by_topic(
            offsets,
            lambda number, row: OffsetCommitPartition(
                partition_index=number,
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                committed_metadata=row.metadata,
            ),
            lambda topic, rows: OffsetCommitTopic(name=topic, partitions=rows),
        ),
        by_epoch=by_epoch,
    )


def offset_fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    require_stable: bool = False,
    member: ConsumerGroupMetadata | None = None,
) -> OffsetFetchRequest:
    """Return a request for stored offsets; ``partitions`` None: all that the group has.

    ``member``: one with a member epoch, which the coordinator checks (KIP-848).
    """
    topics = None
    if partitions is not None:
        topics = by_topic(
            dict.fromkeys(partitions),
            lambda number, _: number,
            lambda topic, numbers: OffsetFetchTopic(name=topic, partition_indexes=numbers),
        )
    if member is not None:
        row = OffsetFetchGroup(
            group_id=group_id, member_id=member.member_id, member_epoch=member.generation_id, topics=topics
        )
        return OffsetFetchRequest(groups=(row,), require_stable=require_stable)
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)


class OffsetNotAnswered(BrokerError):
    """A coordinator's answer to a commit leaves a partition out."""

    retriable = True

    def __init__(self, what: str = "", remedy: str = "") -> None:
        KafkaError.__init__(self, f"{what}: the coordinator's answer does not speak of it. {remedy}".strip())


@dataclass(slots=True, eq=False)
class GroupOffsetCalls:
    """One group's offsets over one client, with the search for its coordinator."""

    _client: KafkaClient
    group_id: str
    _purpose: str = ""
    """The connection it is kept apart for (:meth:`Broker.dedicated`)."""
    _by_epoch: bool = False
    """Whether a member's generation is a member epoch (KIP-848)."""
    coordinator: Broker | None = None
    _search: RequestFuture[Broker] | None = None

    @property
    def cluster_id(self) -> str | None:
        """The id of the group's cluster; None until a broker has named it."""
        return self._client.cluster.cluster_id

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: ConsumerGroupMetadata | None = None
    ) -> RequestFuture[dict[TopicPartition, type[BrokerError] | None]]:
        """Store offsets; the result has each partition's error, None for success. ``member`` None: as an outsider."""
        group = member or ConsumerGroupMetadata(self.group_id)

        def read(response: OffsetCommitResponse) -> dict[TopicPartition, type[BrokerError] | None]:
            # Rule: what the answer does not speak of is not stored. Taken for a success it would not be sent again.
            rows: dict[TopicPartition, type[BrokerError] | None] = dict.fromkeys(offsets, OffsetNotAnswered)
            rows |= {tp: error_class(row.error_code) for tp, row in partition_rows(response.topics)}
            # These errors stand in the rows of a commit's answer. The future succeeds, so `_forget_if_moved` does not
            # see them.
            if {NotCoordinator, CoordinatorNotAvailable} & set(rows.values()):
                self.coordinator = None
            return rows

        by_epoch = self._by_epoch and member is not None
        return self._ask(lambda: offset_commit_request(group, offsets, by_epoch=by_epoch), read)

    def fetch(
        self,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member: ConsumerGroupMetadata | None = None,
    ) -> RequestFuture[dict[TopicPartition, OffsetAndMetadata]]:
        """Ask for stored offsets.

        A partition without one is not in the result. ``partitions`` None: all the group has. ``require_stable``: fails
        with UnstableOffsetCommit (retriable) while an open transaction is about to change one of them (KIP-447).
        ``member``: see :func:`offset_fetch_request`.
        """
        request = offset_fetch_request(self.group_id, partitions, require_stable, member)

        def read(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
            answer = response.groups[0] if response.groups else response
            fault = error_class(answer.error_code)
            if fault is not None:
                raise fault(f"Reading the offsets of group {self.group_id!r}")
            found: dict[TopicPartition, OffsetAndMetadata] = {}
            for tp, row in partition_rows(answer.topics):
                fault = error_class(row.error_code)
                if fault is not None:
                    raise fault(f"Reading the offset of group {self.group_id!r} in {tp}")
                if row.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
            return found

        return self._ask(lambda: request, read)

    def _ask(self, make: Callable[[], Request[T]], read: Callable[[T], U]) -> RequestFuture[U]:
        """Send a request to the coordinator once it is found; return a future of ``read(answer)``."""
        answer: RequestFuture[T] = RequestFuture()
        result = answer.then(read).add_listener(self._forget_if_moved)
        if self.coordinator is not None:
            self._client.send(make(), self.coordinator).chain(answer)
            return result

        def found(search: RequestFuture[Broker]) -> None:
            self._search = None
            self.coordinator = search.value.dedicated(self._purpose)
            self._client.send(make(), self.coordinator).chain(answer)

        # One search for all that wait: two searches could be answered in the other order, and the commits after them
        # would reach the coordinator in the other order too.
        search = self._search = self._search or find_coordinator(self._client, self.group_id)
        search.settle(answer, found)
        return result

    def _forget_if_moved(self, done: RequestFuture[Any]) -> None:
        if isinstance(done.exception, (Disconnected, NotCoordinator, CoordinatorNotAvailable)):
            self.coordinator = None
