"""The administrator: topics, settings, records, groups, replicas, ACLs and users, one blocking call each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Never, Self, TypeVar, Unpack

from streamlet.base.chance import uniform
from streamlet.base.clock import SystemClock
from streamlet.base.errors import BadInput
from streamlet.base.notices import told_if_slow
from streamlet.kafka.admin import acls, configs, groups, replicas, scram_users, topics
from streamlet.kafka.admin.acls import AclBinding, AclBindingFilter
from streamlet.kafka.admin.call_rounds import (
    AT_ONCE,
    AdminCall,
    Anywhere,
    Call,
    FindBrokers,
    ToBrokers,
    ToController,
    ToCoordinators,
)
from streamlet.kafka.admin.errors import Answers, admin_error, for_each
from streamlet.kafka.admin.model import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
    TopicListing,
)
from streamlet.kafka.admin.replicas import ElectionType, LogDirDescription, PartitionReassignment
from streamlet.kafka.admin.scram_users import ScramCredentialInfo, UserScramCredentialAlteration
from streamlet.kafka.admin.topics import ToLeaders
from streamlet.kafka.arguments import (
    by_name_only,
    by_partition,
    check_name,
    is_number,
    mapping,
    names_of,
    offset_of,
    partitions_of,
)
from streamlet.kafka.broker_errors import (
    EligibleLeadersNotAvailable,
    LeaderNotAvailable,
    PreferredLeaderNotAvailable,
)
from streamlet.kafka.client.client import KafkaClient
from streamlet.kafka.client.group_requests import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    offset_commit_request,
    offset_fetch_request,
)
from streamlet.kafka.client.leader_requests import ListedOffset
from streamlet.kafka.errors import ClientClosed, KafkaError
from streamlet.kafka.metadata.cluster import Broker, TopicPartition
from streamlet.kafka.protocol.messages.fetch import least_version
from streamlet.kafka.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from streamlet.kafka.protocol.messages.metadata import MetadataResponse
from streamlet.kafka.protocol.messages.topics import HIGH_WATERMARK, DeleteTopicsRequest
from streamlet.kafka.protocol.schema import Request
from streamlet.kafka.settings.client_config import ClientConfig, ClientSettings
from streamlet.kafka.settings.foreign_names import answers_foreign_calls

V = TypeVar("V")

_log = logging.getLogger(__name__)

TOLD_AFTER_S = 3.0
"""Seconds without a broker after which the log says so."""
SETTLE_S = 2.0
"""Seconds at most that a call waits for the brokers to know what it has changed."""


class AdminSettings(ClientSettings, total=False):
    """The names and types of :class:`AdminConfig`, for editors and type checkers."""

    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True)
class AdminConfig(ClientConfig):
    """The settings of :class:`Admin`; Kafka's names, Java's defaults."""

    default_api_timeout_ms: int = 60_000
    """Milliseconds that a call may take when it is given no ``timeout``."""

    CLIENT: ClassVar[str] = "Admin"
    LEAST: ClassVar[Mapping[str, int]] = {"default_api_timeout_ms": 1}


@answers_foreign_calls
class Admin:
    """The administrator of one cluster.

    ``with Admin(bootstrap_servers="127.0.0.1:9092") as admin: admin.create_topics(NewTopic("lines", 2, 1))``.
    Takes the settings of :class:`AdminConfig` by name. Making one does no I/O; the first call connects.

    Every call blocks for at most ``timeout`` seconds (default: ``default_api_timeout_ms``) and tries again what
    may succeed later (a controller, coordinator or leader that has moved, a lost connection). It returns what
    is known of each item, or raises one :class:`AdminError` that names each item that failed; what the others
    gave is in its ``results``. Cluster out of reach: BootstrapFailed. Wrong arguments: BadInput, and nothing
    is sent.

    Not thread-safe: one thread at a time; a second one is refused.
    """

    # Long: the calls of an administrator, a few lines each, and their docstrings. Requests and answers are in `topics`,
    # `groups` and `configs`, trying again in `call_rounds`.

    # Each call has the same three steps: the arguments are checked, `make` gives the request for the items of one
    # broker together with the reader of its answer, and `Call.run` asks until each item has its outcome.

    def __init__(self, *misplaced: Never, **settings: Unpack[AdminSettings]) -> None:
        by_name_only("Admin", misplaced)
        self.config = AdminConfig.of(settings)
        self._clock = SystemClock()
        self._client = KafkaClient(self.config, self._clock)
        self._retry = self.config.retry_backoff
        self._busy = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._client!r}>"

    def close(self) -> None:
        """Close the connections. Never waits; may be called twice."""
        self._closed = True
        self._client.close()

    # -- the cluster

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id, controller and brokers, by one broker's view."""
        with self._call(timeout) as call:
            response = call.ask(topics.metadata_request(()))
        brokers = topics.read_brokers(response)
        return ClusterDescription(response.cluster_id, brokers.get(response.controller_id), brokers)

    # -- topics

    def create_topics(
        self, new_topics: NewTopic | Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics, and wait until the brokers know them.

        When it returns, every broker in reach knows the topics with their leaders (waited for 2 s at most).
        ``validate_only``: say what would happen, and create nothing. Errors: TopicAlreadyExists,
        InvalidReplicationFactor, InvalidPartitions, InvalidConfig, PolicyViolation, ...
        """
        wanted = topics.new_by_name(new_topics)
        with self._call(timeout) as call:

            def make(names: Iterable[str], _broker: Broker | None) -> AdminCall[str, CreatedTopic]:
                rows = [wanted[name] for name in names]
                request = topics.create_request(rows, call.broker_timeout_ms(), validate_only)
                return AdminCall(
                    request, lambda response: topics.read_created(response, len(self._client.cluster.brokers))
                )

            created = call.run(wanted, ToController(), make)
            if created.results and not validate_only:
                self._await_brokers(call, created.results, topics.have_leaders)
        return created.value()

    def delete_topics(self, names: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics with their records, and wait until brokers forget them.

        When it returns, no broker in reach lists the topics any more (waited for 2 s at most).
        """
        wanted = names_of(names)
        with self._call(timeout) as call:

            def make(share: Iterable[str], _broker: Broker | None) -> AdminCall[str, None]:
                request = DeleteTopicsRequest(topic_names=tuple(share), timeout_ms=call.broker_timeout_ms())
                return AdminCall(request, topics.read_deleted)

            deleted = call.run(wanted, ToController(), make)
            if deleted.results:
                self._await_brokers(call, deleted.results, topics.are_gone)
        deleted.value()

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> dict[str, TopicListing]:
        """Return every visible topic by name; ``include_internal``: Kafka's own too."""
        with self._call(timeout) as call:
            found = topics.read_listing(call.ask(topics.metadata_request(None)))
        return {name: row for name, row in found.items() if include_internal or not row.is_internal}

    def describe_topics(
        self, names: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return each topic's id and partitions. Raises UnknownTopicOrPartition at once."""
        wanted = names_of(names)
        with self._call(timeout) as call:

            def make(share: Iterable[str], _broker: Broker | None) -> AdminCall[str, TopicDescription]:
                return AdminCall(topics.metadata_request(share), topics.read_descriptions)

            return call.run(wanted, Anywhere(), make).value()

    def create_partitions(
        self,
        new_partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Let topics grow, each to so many partitions in all.

        Keys then go to other partitions than before. When it returns, every broker in reach knows the new partitions
        with their leaders (waited for 2 s at most).
        """
        wanted = topics.totals_by_name(new_partitions)
        with self._call(timeout) as call:

            def make(share: Iterable[str], _broker: Broker | None) -> AdminCall[str, None]:
                rows = {name: wanted[name] for name in share}
                request = topics.partitions_request(rows, call.broker_timeout_ms(), validate_only)
                return AdminCall(request, topics.read_partitions)

            grown = call.run(wanted, ToController(), make)
            if grown.results and not validate_only:
                counts = {name: wanted[name].total for name in grown.results}
                self._await_brokers(call, counts, lambda told: topics.have_partitions(told, counts))
        grown.value()

    # -- settings

    def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        names: str | Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return settings of topics and brokers, by name, with their sources; ``names``: only these."""
        wanted, keys = configs.resources_of(resources), None if names is None else names_of(names, "setting")
        with self._call(timeout) as call:

            def make(
                share: Iterable[ConfigResource], _broker: Broker | None
            ) -> AdminCall[ConfigResource, dict[str, ConfigEntry]]:
                return AdminCall(configs.describe_request(share, keys), configs.read_described)

            return call.run(wanted, ToBrokers(configs.owner), make).value()

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, configs.Changes],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change the named settings, and no others (KIP-339; Kafka 2.3 or later).

        A text sets, None goes back to the default, an :class:`AlterConfig` says more.
        """
        configs.resources_of(mapping(changes, "ConfigResource.topic('lines')", "{'retention.ms': '60000'}"))
        configs.alter_request(changes, validate_only)  # refuses every wrong value before the first request is sent
        with self._call(timeout) as call:

            def make(share: Iterable[ConfigResource], _broker: Broker | None) -> AdminCall[ConfigResource, None]:
                rows = {resource: changes[resource] for resource in share}
                return AdminCall(configs.alter_request(rows, validate_only), configs.read_altered)

            call.run(changes, ToBrokers(configs.owner), make).value()

    # -- partitions

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the first offsets ("earliest"), the end ("latest"), or offsets by time.

        By time: the first record at or after it; the offset is -1 when no record is so late. "max_timestamp": the
        record with the latest time, -1 in an empty partition. Under "read_committed" the end lies before open
        transactions.
        """
        timestamps = {tp: topics.timestamp_of(spec) for tp, spec in by_partition(specs, '"latest"').items()}
        topics.offsets_request({}, isolation_level)  # refuses an unknown level
        with self._call(timeout) as call:
            return _list_offsets(call, timestamps, isolation_level)

    def delete_records(
        self, before: Mapping[TopicPartition, int | str], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset, or all ("latest"); return the first offsets left."""
        offsets = {
            tp: HIGH_WATERMARK if spec == "latest" else offset_of(tp, spec, '"latest" for all records')
            for tp, spec in by_partition(before, "offset").items()
        }
        with self._call(timeout) as call:

            def make(share: Iterable[TopicPartition], _broker: Broker | None) -> AdminCall[TopicPartition, int]:
                rows = {tp: offsets[tp] for tp in share}
                return AdminCall(topics.records_request(rows, call.broker_timeout_ms()), topics.read_records_deleted)

            return call.run(offsets, ToLeaders("Deleting records of"), make, final=()).value()

    # -- groups

    def list_groups(self, *, timeout: float | None = None) -> dict[str, GroupListing]:
        """Return every visible group by name. Raises AdminError, naming silent brokers."""
        with self._call(timeout) as call:

            def make(_share: Iterable[int], broker: Broker | None) -> AdminCall[int, dict[str, GroupListing]]:
                assert broker is not None
                return AdminCall(ListGroupsRequest(), lambda response: groups.read_groups(response, broker))

            lost = "Its groups have gone to other brokers: list them again."
            route: ToBrokers[int] = ToBrokers(lambda node_id: node_id, lost)
            told = call.run(self._client.cluster.brokers, route, make)
        found = {name: row for share in told.results.values() for name, row in share.items()}
        if told.errors:
            raise admin_error(told.errors, found)
        return dict(sorted(found.items()))

    def describe_groups(
        self, group_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Return state, assignor and members of classic groups. Raises GroupIdNotFound."""
        wanted = names_of(group_ids, "group")
        with self._call(timeout) as call:

            def make(share: Iterable[str], broker: Broker | None) -> AdminCall[str, GroupDescription]:
                assert broker is not None
                request = DescribeGroupsRequest(groups=tuple(share))
                return AdminCall(request, lambda response: groups.read_group_descriptions(response, broker))

            return call.run(wanted, _BY_GROUP, make).value()

    def delete_groups(self, group_ids: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups and their offsets. Raises NonEmptyGroup while one has members."""
        wanted = names_of(group_ids, "group")
        with self._call(timeout) as call:

            def make(share: Iterable[str], _broker: Broker | None) -> AdminCall[str, None]:
                return AdminCall(DeleteGroupsRequest(groups_names=tuple(share)), groups.read_deleted_groups)

            call.run(wanted, _BY_GROUP, make).value()

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the stored offsets of a group, in all partitions or these.

        A partition without an offset is left out; a group that does not exist has none.
        """
        check_name(group_id, "group")
        wanted = None if partitions is None else tuple(partitions_of(partitions))
        with self._call(timeout) as call:

            def make(_share: Iterable[str], _broker: Broker | None) -> AdminCall[str, Any]:
                request = offset_fetch_request(group_id, wanted)
                return AdminCall(request, lambda response: groups.read_offsets(group_id, response))

            told = call.run([group_id], _BY_GROUP, make).value()
        offsets: dict[TopicPartition, OffsetAndMetadata] = told[group_id].value()
        return offsets

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetSpec | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Set where a group without members continues; return the stored offsets.

        A number is the next offset to read; "earliest", "latest" or an aware datetime are looked up first (a time
        after the last record is the end). While the group has members the error is UnknownMemberId.
        """
        check_name(group_id, "group")
        given = by_partition(offsets, "offset")
        looked_up = {tp: topics.timestamp_of(spec) for tp, spec in given.items() if topics.is_place(spec)}
        outsider = ConsumerGroupMetadata(group_id)
        fixed = {tp: groups.offset_to_store(tp, spec) for tp, spec in given.items() if tp not in looked_up}
        with self._call(timeout) as call:
            stored = {**fixed, **_look_up(call, looked_up)}

            def make(share: Iterable[TopicPartition], _broker: Broker | None) -> AdminCall[TopicPartition, None]:
                request = offset_commit_request(outsider, {tp: stored[tp] for tp in share})
                return AdminCall(request, lambda response: groups.read_committed_offsets(group_id, response))

            route: ToCoordinators[TopicPartition] = ToCoordinators(lambda _tp: group_id)
            call.run(stored, route, make).value()
        return stored

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Delete a group's offsets in these partitions.

        Raises GroupSubscribedToTopic while members of the group read them.
        """
        check_name(group_id, "group")
        wanted = partitions_of(partitions)
        with self._call(timeout) as call:

            def make(share: Sequence[TopicPartition], _broker: Broker | None) -> AdminCall[TopicPartition, None]:
                request = groups.forget_request(group_id, share)
                return AdminCall(request, lambda response: groups.read_forgotten(group_id, share, response))

            route: ToCoordinators[TopicPartition] = ToCoordinators(lambda _tp: group_id)
            call.run(wanted, route, make).value()

    # -- replicas

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders, in these partitions or in all; return where that was needed.

        False: the partition had the right leader already. Of all partitions only those with a new leader are named.
        Errors: PreferredLeaderNotAvailable, EligibleLeadersNotAvailable.
        """
        kind = replicas.election_type_of(election_type)
        wanted = None if partitions is None else partitions_of(partitions)
        with self._call(timeout) as call:
            if wanted is None:
                request = replicas.election_request(kind, None, call.broker_timeout_ms())
                return _whole(call, "Electing leaders", ToController(), request, replicas.read_elected).value()

            def make(share: Sequence[TopicPartition], _broker: Broker | None) -> AdminCall[TopicPartition, bool]:
                request = replicas.election_request(kind, share, call.broker_timeout_ms())
                return AdminCall(request, lambda response: for_each(share, *replicas.read_elected(response)))

            return call.run(wanted, ToController(), make, final=_NO_LEADER).value()

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = None
    ) -> None:
        """Let partitions go to other brokers, the preferred leader first; None cancels.

        Returns when the copying has begun: list_partition_reassignments tells how far it is. Kafka 2.4 or later.
        """
        wanted = replicas.reassignments_of(reassignments)
        with self._call(timeout) as call:

            def make(share: Sequence[TopicPartition], _broker: Broker | None) -> AdminCall[TopicPartition, None]:
                request = replicas.reassign_request({tp: wanted[tp] for tp in share}, call.broker_timeout_ms())
                return AdminCall(request, lambda response: for_each(share, *replicas.read_reassigned(response)))

            call.run(wanted, ToController(), make).value()

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments under way, in these partitions or in all. Kafka 2.4 or later."""
        wanted = None if partitions is None else partitions_of(partitions)
        with self._call(timeout) as call:
            request = replicas.list_request(wanted, call.broker_timeout_ms())
            return _whole(call, "Listing reassignments", ToController(), request, replicas.read_reassignments)

    def describe_log_dirs(
        self,
        brokers: int | Iterable[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, dict[str, LogDirDescription]]:
        """Return the log directories of brokers, by id and path."""
        nodes = None if brokers is None else replicas.broker_ids(brokers)
        wanted = None if partitions is None else partitions_of(partitions)
        with self._call(timeout) as call:

            def make(share: Sequence[int], _broker: Broker | None) -> AdminCall[int, dict[str, LogDirDescription]]:
                request = replicas.log_dirs_request(wanted)
                return AdminCall(request, lambda response: replicas.read_log_dirs(share[0], response))

            route: ToBrokers[int] = ToBrokers(lambda node_id: node_id)
            asked = sorted(self._client.cluster.brokers) if nodes is None else nodes
            return call.run(asked, route, make).value()

    # -- ACLs and users

    def describe_acls(
        self, wanted: AclBindingFilter | None = None, *, timeout: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that fit, or all. Raises SecurityDisabled where brokers keep none."""
        (row,) = acls.filters_of(AclBindingFilter() if wanted is None else wanted)
        with self._call(timeout) as call:
            return _whole(call, "Describing ACLs", Anywhere(), acls.describe_request(row), acls.read_described)

    def create_acls(self, bindings: AclBinding | Iterable[AclBinding], *, timeout: float | None = None) -> None:
        """Create ACLs; one that exists stays as it is. Brokers hear of it within moments."""
        wanted = acls.bindings_of(bindings)
        with self._call(timeout) as call:

            def make(share: Sequence[AclBinding], _broker: Broker | None) -> AdminCall[AclBinding, None]:
                return AdminCall(acls.create_request(share), lambda response: acls.read_created(share, response))

            call.run(wanted, Anywhere(), make).value()

    def delete_acls(
        self,
        filters: AclBindingFilter | AclBinding | Iterable[AclBindingFilter | AclBinding],
        *,
        timeout: float | None = None,
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete all ACLs that fit one of the filters; return what each of them has deleted.

        Where some could not be deleted, the filter's own error is an AdminError: its ``errors`` has the rules that
        stayed, its ``results`` those that are gone.
        """
        wanted = acls.filters_of(filters)
        deleted: acls.Deleted = {}
        with self._call(timeout) as call:

            def make(
                share: Sequence[AclBindingFilter], _broker: Broker | None
            ) -> AdminCall[AclBindingFilter, list[AclBinding]]:
                return AdminCall(
                    acls.delete_request(share), lambda response: acls.read_deleted(share, response, deleted)
                )

            return call.run(wanted, Anywhere(), make).value()

    def describe_user_scram_credentials(
        self, users: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return how these users (or all) may log in with SCRAM.

        Raises ResourceNotFound for one who may not at all. Kafka 2.7 or later.
        """
        wanted = None if users is None else names_of(users, "user")
        with self._call(timeout) as call:
            if wanted is None:
                request = scram_users.describe_request(None)
                return _whole(call, "Describing users", Anywhere(), request, scram_users.read_described).value()

            def make(share: Sequence[str], _broker: Broker | None) -> AdminCall[str, tuple[ScramCredentialInfo, ...]]:
                request = scram_users.describe_request(share)
                return AdminCall(request, lambda response: for_each(share, *scram_users.read_described(response)))

            return call.run(wanted, Anywhere(), make).value()

    def alter_user_scram_credentials(
        self,
        alterations: UserScramCredentialAlteration | Iterable[UserScramCredentialAlteration],
        *,
        timeout: float | None = None,
    ) -> None:
        """Make users of SCRAM, change passwords, delete credentials. Kafka 2.7 or later.

        Brokers hear of it within moments. Raises ResourceNotFound where there is nothing to delete.
        """
        parts = scram_users.alterations_by_mechanism(alterations)
        told: Answers[UserScramCredentialAlteration, None] = Answers()
        with self._call(timeout) as call:

            def make(
                share: Sequence[UserScramCredentialAlteration], _broker: Broker | None
            ) -> AdminCall[UserScramCredentialAlteration, None]:
                request = scram_users.alter_request(share)
                return AdminCall(request, lambda response: scram_users.read_altered(share, response))

            # A request for each mechanism: brokers of 4.x refuse one that names a user twice.
            for part in parts:
                told.add(call.run(part, ToController(), make))
        told.value()

    # -- inside

    @contextmanager
    def _call(self, timeout: float | None) -> Iterator[Call]:
        """Begin one call: no other thread meanwhile, the cluster known, a deadline."""
        limit = self.config.default_api_timeout_ms / 1000 if timeout is None else timeout
        if not is_number(limit) or limit < 0:
            raise BadInput(f"timeout = {timeout!r} must be a number of seconds, not negative.")
        if self._closed:
            raise ClientClosed("This Admin is closed: make another.")
        # Refused, not queued: two threads in one client would read each other's answers, and a wait for the other's
        # call would come out of this call's time.
        if not self._busy.acquire(blocking=False):
            raise KafkaError("This Admin is at work for another thread: it is not thread-safe. Make one for each.")
        try:
            call = Call(self._client, self._clock, limit, self._retry, uniform)
            self._find_cluster(call)
            yield call
        finally:
            self._busy.release()

    def _find_cluster(self, call: Call) -> None:
        if self._client.cluster.brokers:
            return
        # A minute of silence looks like a program that hangs.
        left_s = call.left_s()
        telling = told_if_slow(
            TOLD_AFTER_S,
            lambda: _log.warning(
                "waits for a Kafka broker, at most %.0f s more. %s", left_s - TOLD_AFTER_S, self._client.connections()
            ),
        )
        with telling:
            self._client.bootstrap(left_s)

    def _await_brokers(self, call: Call, names: Iterable[str], known: Callable[[MetadataResponse], bool]) -> None:
        # The controller answers before the other brokers have heard of a change, and these would still tell of the
        # topics as they were. The change is made by now: no failure in here is raised.
        request = topics.metadata_request(names)
        ends_s = self._clock.monotonic() + min(call.left_s(), SETTLE_S)
        unsure = dict(self._client.cluster.brokers)
        while unsure and (left := ends_s - self._clock.monotonic()) > 0:
            asked = {node_id: self._client.send(request, broker) for node_id, broker in unsure.items()}
            for node_id, future in asked.items():
                try:
                    left = max(ends_s - self._clock.monotonic(), 0.0)
                    if known(self._client.wait(future, left)):
                        del unsure[node_id]
                except KafkaError:
                    del unsure[node_id]  # out of reach
            if unsure:
                call.pause(min(0.02, ends_s - self._clock.monotonic()))


_BY_GROUP: ToCoordinators[str] = ToCoordinators(lambda group_id: group_id)
_NO_LEADER = (*AT_ONCE, LeaderNotAvailable, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable)
"""Outcomes of an election: another try would find the same replicas."""


def _whole(
    call: Call,
    what: str,
    route: FindBrokers[str],
    request: Request[Any],
    read: Callable[[Any], tuple[V, KafkaError | None]],
) -> V:
    """Return the answer to one request that is not made of items; ``what`` names it in errors."""

    def make(_share: Sequence[str], _broker: Broker | None) -> AdminCall[str, V]:
        def read_one(response: Any) -> Answers[str, V]:
            value, fault = read(response)
            return Answers({what: value}) if fault is None else Answers({}, {what: fault})

        return AdminCall(request, read_one)

    return call.run([what], route, make).value()[what]


def _list_offsets(
    call: Call, timestamps: Mapping[TopicPartition, int], isolation_level: str
) -> dict[TopicPartition, ListedOffset]:
    def make(share: Iterable[TopicPartition], _broker: Broker | None) -> AdminCall[TopicPartition, ListedOffset]:
        return AdminCall(
            topics.offsets_request({tp: timestamps[tp] for tp in share}, isolation_level), topics.read_listed
        )

    # A request goes out in a version that knows all its places. Those that take a newer broker go by themselves, so
    # that an old one still answers for the others.
    told: Answers[TopicPartition, ListedOffset] = Answers()
    for version in sorted({least_version(timestamp) for timestamp in timestamps.values()}):
        share = [tp for tp, timestamp in timestamps.items() if least_version(timestamp) == version]
        told.add(call.run(share, ToLeaders("Looking for offsets of"), make, final=()))
    rows = told.value()
    return {tp: rows[tp] for tp in timestamps}


def _look_up(call: Call, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    # Two rounds, as a time after the last record has no offset: the end stands for it.
    found = _list_offsets(call, timestamps, "read_uncommitted")
    too_late = {tp: topics.timestamp_of("latest") for tp, row in found.items() if row.offset < 0}
    found.update(_list_offsets(call, too_late, "read_uncommitted"))
    return {tp: OffsetAndMetadata(row.offset) for tp, row in found.items()}
