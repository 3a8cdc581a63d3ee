"""Calls about groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamlet.kafka.admin import groups, positions
from streamlet.kafka.admin.calls import Ask, AtOnce, Deadline, ToBrokers, ToCoordinators
from streamlet.kafka.admin.errors import admin_error
from streamlet.kafka.admin.model import GroupDescription, GroupListing, OffsetSpec
from streamlet.kafka.admin.topic_calls import TopicCalls
from streamlet.kafka.arguments import by_partition, check_name, names_of, partitions_of
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import OffsetAndMetadata
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest


class GroupCalls(TopicCalls):
    """See :class:`~streamlet.kafka.admin.admin.Admin`; where offsets are to be looked up, topics' leaders are asked."""

    # -- groups

    def list_groups(self, *, timeout: float | None = None) -> dict[str, GroupListing]:
        """Every group that we may see, by name, of all brokers; AdminError names a broker that did not answer."""
        with self._call(timeout) as deadline:
            lost = "Its groups have gone to other brokers: list them again."

            def make(_share: Iterable[int], broker: Broker | None) -> Ask[int, dict[str, GroupListing]]:
                assert broker is not None
                return Ask(ListGroupsRequest(), lambda response: groups.read_groups(response, broker))

            route: ToBrokers[int] = ToBrokers(self._client, lambda node_id: node_id, lost)
            told = self._calls.run(self._client.cluster.brokers, route, make, deadline)
            found = {name: row for share in told.results.values() for name, row in sorted(share.items())}
        if told.errors:
            raise admin_error(told.errors, found)
        return dict(sorted(found.items()))

    def describe_groups(
        self, group_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """State, assignor and members of groups of the classic protocol; GroupIdNotFound for one that is not there."""
        wanted = names_of(group_ids, "group")
        with self._call(timeout) as deadline:

            def make(share: Iterable[str], broker: Broker | None) -> Ask[str, GroupDescription]:
                assert broker is not None
                request = DescribeGroupsRequest(groups=tuple(share))
                return Ask(request, lambda response: groups.read_group_descriptions(response, broker))

            return self._calls.run(wanted, by_name(self._client), make, deadline).value()

    def delete_groups(self, group_ids: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Forget groups and their offsets; NonEmptyGroup while one has members."""
        wanted = names_of(group_ids, "group")
        with self._call(timeout) as deadline:

            def make(share: Iterable[str], _broker: Broker | None) -> Ask[str, None]:
                return Ask(DeleteGroupsRequest(groups_names=tuple(share)), groups.read_deleted_groups)

            self._calls.run(wanted, by_name(self._client), make, deadline).value()

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has stored, of all partitions or of these.

        One without an offset is not in it; a group that is not there has none.
        """
        check_name(group_id, "group")
        wanted = None if partitions is None else tuple(partitions_of(partitions))
        with self._call(timeout) as deadline:

            def make(_share: Iterable[str], _broker: Broker | None) -> Ask[str, Any]:
                request = groups.fetch_request(group_id, wanted)
                return Ask(request, lambda response: groups.read_offsets(group_id, response))

            told = self._calls.run([group_id], by_name(self._client), make, deadline).value()
        offsets: dict[TopicPartition, OffsetAndMetadata] = told[group_id].value()
        return offsets

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetSpec | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Set (reset) where a group without members goes on; what was stored, by partition.

        A number is the next offset to read; "earliest", "latest" or an aware datetime are looked up first (a time
        after the last record is the end). While the group has members the error is UnknownMemberId.
        """
        check_name(group_id, "group")
        given = by_partition(offsets, "offset")
        looked_up = {tp: positions.timestamp_of(spec) for tp, spec in given.items() if positions.is_place(spec)}
        fixed = {tp: groups.offset_to_store(tp, spec) for tp, spec in given.items() if tp not in looked_up}
        with self._call(timeout) as deadline:
            stored = {**fixed, **self._look_up(looked_up, deadline)}

            def make(share: Iterable[TopicPartition], _broker: Broker | None) -> Ask[TopicPartition, None]:
                request = groups.commit_request(group_id, {tp: stored[tp] for tp in share})
                return Ask(request, lambda response: groups.read_committed_offsets(group_id, response))

            self._run_in_group(group_id, stored, make, deadline)
        return stored

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Forget where a group was in these partitions; GroupSubscribedToTopic while its members read them."""
        check_name(group_id, "group")
        wanted = tuple(partitions_of(partitions))
        with self._call(timeout) as deadline:

            def make(share: Iterable[TopicPartition], _broker: Broker | None) -> Ask[TopicPartition, None]:
                rows = tuple(share)
                request = groups.forget_request(group_id, rows)
                return Ask(request, lambda response: groups.read_forgotten(group_id, rows, response))

            self._run_in_group(group_id, wanted, make, deadline)

    # -- inside

    def _run_in_group(
        self,
        group_id: str,
        items: Iterable[TopicPartition],
        make: Callable[[Iterable[TopicPartition], Broker | None], Ask[TopicPartition, None]],
        deadline: Deadline,
    ) -> None:
        route: ToCoordinators[TopicPartition] = ToCoordinators(self._client, lambda _tp: group_id)
        self._calls.run(items, route, make, deadline, final=AtOnce).value()

    def _look_up(
        self, timestamps: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._list_offsets(timestamps, "read_uncommitted", deadline)
        too_late = {tp: positions.timestamp_of("latest") for tp, row in found.items() if row.offset < 0}
        found.update(self._list_offsets(too_late, "read_uncommitted", deadline))
        return {tp: OffsetAndMetadata(row.offset) for tp, row in found.items()}


def by_name(client: KafkaClient) -> ToCoordinators[str]:
    """The coordinators of groups."""
    return ToCoordinators(client, lambda group_id: group_id)
