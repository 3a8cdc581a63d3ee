"""Calls about the cluster, its topics, their settings and their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamlet.kafka.admin import configs, positions, topics
from streamlet.kafka.admin.calls import Anywhere, Ask, Deadline, ToBrokers, ToController, ToLeaders
from streamlet.kafka.admin.model import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
    TopicListing,
)
from streamlet.kafka.admin.session import Session
from streamlet.kafka.arguments import by_partition, mapping, names_of, offset_of
from streamlet.kafka.client.leader_requests import ListedOffset
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.protocol.messages.topics import HIGH_WATERMARK

SETTLE_S = 2.0
"""How long at most a creation waits for brokers to hear of it, beyond what the controller itself took."""


class TopicCalls(Session):
    """See :class:`~streamlet.kafka.admin.admin.Admin`."""

    # -- the cluster

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers, as one broker sees them now."""
        with self._call(timeout) as deadline:
            request = topics.metadata_request(())
            response = self._client.wait_retrying(lambda: self._client.send(request), deadline.left_s())
        brokers = {row.node_id: Broker(row.node_id, row.host, row.port, row.rack) for row in response.brokers}
        return ClusterDescription(response.cluster_id, brokers.get(response.controller_id), brokers)

    # -- topics

    def create_topics(
        self, new_topics: NewTopic | Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Make topics; when it returns every broker in reach knows them with their leaders (waited for 2 s at most).

        ``validate_only``: say what would happen, and make nothing. Errors: TopicAlreadyExists,
        InvalidReplicationFactor, InvalidPartitions, InvalidConfig, PolicyViolation, ...
        """
        wanted = topics.new_by_name(new_topics)
        with self._call(timeout) as deadline:

            def make(names: Iterable[str], _broker: Broker | None) -> Ask[str, CreatedTopic]:
                limit = self._calls.broker_timeout_ms(deadline)
                request = topics.create_request([wanted[name] for name in names], limit, validate_only)
                return Ask(request, lambda response: topics.read_created(response, len(self._client.cluster.brokers)))

            created = self._calls.run(wanted, ToController(self._client), make, deadline)
            if created.results and not validate_only:
                self._await_leaders(created.results, deadline)
        return created.value()

    def delete_topics(self, names: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics and their records. Brokers carry it out within moments."""
        wanted = names_of(names)
        with self._call(timeout) as deadline:

            def make(share: Iterable[str], _broker: Broker | None) -> Ask[str, None]:
                limit = self._calls.broker_timeout_ms(deadline)
                return Ask(topics.delete_request(share, limit), topics.read_deleted)

            self._calls.run(wanted, ToController(self._client), make, deadline).value()

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> dict[str, TopicListing]:
        """Every topic that we may see, by name; Kafka's own ones too when ``include_internal``."""
        with self._call(timeout) as deadline:
            request = topics.metadata_request(None)
            response = self._client.wait_retrying(lambda: self._client.send(request), deadline.left_s())
        found = topics.read_listing(response)
        return {name: row for name, row in found.items() if include_internal or not row.is_internal}

    def describe_topics(
        self, names: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Each topic's id and partitions. A topic that is not there is told at once."""
        wanted = names_of(names)
        with self._call(timeout) as deadline:

            def make(share: Iterable[str], _broker: Broker | None) -> Ask[str, TopicDescription]:
                return Ask(topics.metadata_request(share), topics.read_descriptions)

            return self._calls.run(wanted, Anywhere(), make, deadline).value()

    def create_partitions(
        self,
        new_partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Let topics grow to so many partitions in all. Keys then go to other partitions than before."""
        wanted = topics.totals_by_name(new_partitions)
        with self._call(timeout) as deadline:

            def make(share: Iterable[str], _broker: Broker | None) -> Ask[str, None]:
                rows = {name: wanted[name] for name in share}
                request = topics.partitions_request(rows, self._calls.broker_timeout_ms(deadline), validate_only)
                return Ask(request, topics.read_partitions)

            self._calls.run(wanted, ToController(self._client), make, deadline).value()

    # -- settings

    def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        names: str | Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of topics and brokers, by name, with where each comes from; only ``names`` when given."""
        wanted, keys = configs.resources_of(resources), None if names is None else names_of(names, "setting")
        with self._call(timeout) as deadline:

            def make(
                share: Iterable[ConfigResource], _broker: Broker | None
            ) -> Ask[ConfigResource, dict[str, ConfigEntry]]:
                return Ask(configs.describe_request(share, keys), configs.read_described)

            return self._calls.run(wanted, ToBrokers(self._client, configs.owner), make, deadline).value()

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, configs.Changes],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change what is named and leave the rest alone (KIP-339; Kafka 2.3 or later).

        A text sets, None goes back to the default, an :class:`AlterConfig` says more.
        """
        configs.resources_of(mapping(changes, "ConfigResource.topic('lines')", "{'retention.ms': '60000'}"))
        configs.alter_request(changes, validate_only)  # what cannot be sent is refused before anything is
        with self._call(timeout) as deadline:

            def make(share: Iterable[ConfigResource], _broker: Broker | None) -> Ask[ConfigResource, None]:
                rows = {resource: changes[resource] for resource in share}
                return Ask(configs.alter_request(rows, validate_only), configs.read_altered)

            self._calls.run(changes, ToBrokers(self._client, configs.owner), make, deadline).value()

    # -- partitions

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Where partitions begin ("earliest") and end ("latest"), or their first record at or after a time.

        The offset is -1 when no record is so late. Under "read_committed" the end lies before open transactions.
        """
        timestamps = {tp: positions.timestamp_of(spec) for tp, spec in by_partition(specs, '"latest"').items()}
        positions.offsets_request({}, isolation_level)
        with self._call(timeout) as deadline:
            return self._list_offsets(timestamps, isolation_level, deadline)

    def delete_records(
        self, before: Mapping[TopicPartition, int | str], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Drop the records below an offset, or all ("latest"); the first offset that is left, by partition."""
        offsets = {
            tp: HIGH_WATERMARK if spec == "latest" else offset_of(tp, spec, '"latest" for all records')
            for tp, spec in by_partition(before, "offset").items()
        }
        with self._call(timeout) as deadline:

            def make(share: Iterable[TopicPartition], _broker: Broker | None) -> Ask[TopicPartition, int]:
                rows = {tp: offsets[tp] for tp in share}
                request = positions.records_request(rows, self._calls.broker_timeout_ms(deadline))
                return Ask(request, positions.read_records_deleted)

            route = ToLeaders(self._client, "Deleting records of")
            return self._calls.run(offsets, route, make, deadline, final=()).value()

    # -- inside

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: str, deadline: Deadline
    ) -> dict[TopicPartition, ListedOffset]:
        def make(share: Iterable[TopicPartition], _broker: Broker | None) -> Ask[TopicPartition, ListedOffset]:
            rows = {tp: timestamps[tp] for tp in share}
            return Ask(positions.offsets_request(rows, isolation_level), positions.read_listed)

        route = ToLeaders(self._client, "Looking for offsets of")
        return self._calls.run(timestamps, route, make, deadline, final=()).value()

    def _await_leaders(self, names: Iterable[str], deadline: Deadline) -> None:
        """Until each broker knows the topics with all their leaders. They exist, whatever comes of it."""
        request = topics.metadata_request(names)
        limit = Deadline.after(min(deadline.left_s(), SETTLE_S), self._clock)
        unsure = dict(self._client.cluster.brokers)
        while unsure and limit.left_s() > 0:
            asked = {node_id: self._client.send(request, broker) for node_id, broker in unsure.items()}
            for node_id, future in asked.items():
                try:
                    told = topics.read_descriptions(self._client.wait(future, limit.left_s()))
                except KafkaError:
                    del unsure[node_id]  # what was asked for is done; this is a courtesy, and that broker is away
                    continue
                partitions = [part for row in told.results.values() for part in row.partitions]
                if not told.errors and all(part.leader >= 0 for part in partitions):
                    del unsure[node_id]
            pause = Deadline.after(min(0.02, limit.left_s()) if unsure else 0.0, self._clock)
            while pause.left_s() > 0:
                self._client.poll(pause.left_s())
