"""Kafka's error codes as classes: each knows whether to try again and whether to refresh metadata first.

One line an error: name, code, what it means, flags (``RETRIABLE``: the same request may succeed later;
``STALE``: what we know of the cluster is out of date). Source: the protocol's own table (Java: ``Errors``).
"""

from __future__ import annotations

from streamlet.base.errors import StreamletError
from streamlet.kafka.errors import BrokerError, KafkaError

_TABLE: dict[int, type[BrokerError]] = {}
RETRIABLE = 1
STALE = 2


def _error(code: int, meaning: str, flags: int = 0, remedy: str = "") -> type[BrokerError]:
    members = {
        "__doc__": meaning,
        "__module__": __name__,
        "code": code,
        "remedy": remedy,
        "retriable": bool(flags & RETRIABLE),
        "stale_metadata": bool(flags & STALE),
    }
    kind: type[BrokerError] = type("", (BrokerError,), members)
    _TABLE[code] = kind
    return kind


_MOST_CODES = 500


def error_class(code: int) -> type[BrokerError] | None:
    """Return the class of an error code, None for 0."""
    if code == 0:
        return None
    kind = _TABLE.get(code)
    if kind is None:
        # An unknown code, of a newer broker, gets a class of its own, which is kept. A broker that makes up ever new
        # codes must not fill the memory: after a few hundred they all are UnknownServerError.
        if len(_TABLE) >= _MOST_CODES:
            return UnknownServerError
        meaning = f"The broker answers with code {code}, which is newer than this client."
        kind = _TABLE[code] = type("UnknownError", (BrokerError,), {"__doc__": meaning, "code": code})
    return kind


UnknownServerError = _error(-1, "The broker met an error it did not expect; its own log says more.")
OffsetOutOfRange = _error(1, "The offset is not (or no longer) in the partition's log.")
CorruptMessage = _error(2, "The broker found a record whose checksum does not fit.", RETRIABLE)
UnknownTopicOrPartition = _error(3, "The broker does not know this topic or partition.", RETRIABLE | STALE)
InvalidFetchSize = _error(4, "The fetch size is not valid.")
LeaderNotAvailable = _error(
    5, "The partition has no leader at the moment: an election is under way.", RETRIABLE | STALE
)
NotLeaderOrFollower = _error(6, "The broker no longer leads this partition.", RETRIABLE | STALE)
BrokerRequestTimedOut = _error(7, "The broker could not finish the request within the time it was given.", RETRIABLE)
BrokerNotAvailable = _error(8, "The broker is not available.")
ReplicaNotAvailable = _error(9, "The replica is not available on this broker.", RETRIABLE | STALE)
MessageTooLarge = _error(10, "The record or batch is larger than the broker or topic accepts.")
StaleControllerEpoch = _error(11, "The controller has moved to another broker.")
OffsetMetadataTooLarge = _error(12, "The metadata string beside the committed offset is too long.")
NetworkException = _error(13, "The broker lost the connection before it could answer.", RETRIABLE | STALE)
CoordinatorLoadInProgress = _error(14, "The group's coordinator is still loading its state.", RETRIABLE)
CoordinatorNotAvailable = _error(15, "The group has no coordinator at the moment.", RETRIABLE)
NotCoordinator = _error(16, "The broker is not the coordinator of this group.", RETRIABLE)
InvalidTopic = _error(17, "The name is not a valid topic name.")
RecordListTooLarge = _error(18, "The batch is larger than a segment of the log.")
NotEnoughReplicas = _error(19, "Fewer replicas are in sync than the topic demands.", RETRIABLE)
NotEnoughReplicasAfterAppend = _error(
    20, "The records were written, but to fewer replicas than the topic demands.", RETRIABLE
)
InvalidRequiredAcks = _error(21, "The number of acks asked for is not valid.")
IllegalGeneration = _error(22, "The generation of the group has moved on; this member is not of it.")
InconsistentGroupProtocol = _error(23, "The member's protocols do not fit those of the group.")
InvalidGroupId = _error(24, "The group id is not valid.")
UnknownMemberId = _error(25, "The group does not know this member.")
InvalidSessionTimeout = _error(
    26,
    "The session time-out is outside of what the broker allows.",
    remedy="Set session_timeout_ms to no less than the broker's group.min.session.timeout.ms (6000 unless changed) and "
    "no more than its group.max.session.timeout.ms (1800000), or change these at the broker.",
)
RebalanceInProgress = _error(27, "The group is rebalancing: join again.")
InvalidCommitOffsetSize = _error(28, "The commit is too large for the coordinator to store.")
TopicAuthorizationFailed = _error(29, "Not allowed to do this on the topic; an administrator must grant it.")
GroupAuthorizationFailed = _error(30, "Not allowed to use this group; an administrator must grant it.")
ClusterAuthorizationFailed = _error(31, "Not allowed to do this on the cluster; an administrator must grant it.")
InvalidTimestamp = _error(32, "The timestamp of the record is outside of what the broker allows.")
UnsupportedSaslMechanism = _error(33, "The broker does not offer this SASL mechanism.")
IllegalSaslState = _error(34, "The request is not valid in this state of the authentication.")
UnsupportedVersionByBroker = _error(35, "The broker does not support this version of the request.")
TopicAlreadyExists = _error(36, "A topic of this name exists.")
InvalidPartitions = _error(37, "The number of partitions is not valid.")
InvalidReplicationFactor = _error(38, "The replication factor is below 1 or above the number of brokers.")
InvalidReplicaAssignment = _error(39, "The assignment of replicas is not valid.")
InvalidConfig = _error(40, "A setting is not valid.")
NotController = _error(41, "The broker is not the controller.", RETRIABLE)
InvalidRequest = _error(42, "The broker refuses the request as malformed or contradictory; its log says more.")
UnsupportedForMessageFormat = _error(43, "The message format of the topic is too old for this request.")
PolicyViolation = _error(44, "A policy set by the administrator forbids this.")
OutOfOrderSequenceNumber = _error(45, "The sequence number of the batch does not follow the one before.")
DuplicateSequenceNumber = _error(46, "The broker has this batch already.")
InvalidProducerEpoch = _error(47, "The producer's epoch is older than the newest one.")
InvalidTransactionState = _error(48, "The transaction is not in a state that allows this.")
InvalidProducerIdMapping = _error(49, "The producer id does not belong to this transactional id.")
InvalidTransactionTimeout = _error(
    50, "transaction_timeout_ms is above the broker's transaction.max.timeout.ms (15 minutes unless set)."
)
ConcurrentTransactions = _error(51, "Another operation of this transaction is still under way.", RETRIABLE)
TransactionCoordinatorFenced = _error(52, "The transaction coordinator was replaced.")
TransactionalIdAuthorizationFailed = _error(53, "Not allowed to use this transactional id.")
SecurityDisabled = _error(54, "Security features are turned off on the broker.")
OperationNotAttempted = _error(55, "The broker did not try this, as another part of the request failed.")
KafkaStorageError = _error(56, "The broker cannot read or write its disk.", RETRIABLE | STALE)
LogDirNotFound = _error(57, "The broker does not have this log directory.")
SaslAuthenticationFailed = _error(58, "The broker refuses the user name, password or token.")
UnknownProducerId = _error(59, "The broker has no state of this producer.")
ReassignmentInProgress = _error(60, "A reassignment of partitions is under way.")
DelegationTokenAuthDisabled = _error(61, "Delegation tokens are turned off.")
DelegationTokenNotFound = _error(62, "The delegation token is not known.")
DelegationTokenOwnerMismatch = _error(63, "The delegation token belongs to another.")
DelegationTokenRequestNotAllowed = _error(64, "Delegation tokens cannot be used on this channel.")
DelegationTokenAuthorizationFailed = _error(65, "Not allowed to use delegation tokens.")
DelegationTokenExpired = _error(66, "The delegation token has expired.")
InvalidPrincipalType = _error(67, "The type of principal is not supported.")
NonEmptyGroup = _error(68, "The group still has members.")
GroupIdNotFound = _error(69, "The group does not exist.")
FetchSessionIdNotFound = _error(70, "The broker has forgotten the fetch session.", RETRIABLE)
InvalidFetchSessionEpoch = _error(71, "The epoch of the fetch session is not the expected one.", RETRIABLE)
ListenerNotFound = _error(72, "The leader has no listener of the kind that this connection uses.", RETRIABLE | STALE)
TopicDeletionDisabled = _error(73, "Deleting topics is turned off.")
FencedLeaderEpoch = _error(74, "The leader epoch in the request is older than the broker's.", RETRIABLE | STALE)
UnknownLeaderEpoch = _error(75, "The leader epoch in the request is newer than the broker's.", RETRIABLE)
UnsupportedCompressionType = _error(76, "The broker does not support this compression.")
StaleBrokerEpoch = _error(77, "The broker epoch has changed.")
OffsetNotAvailable = _error(78, "The leader has changed and cannot say yet how far the log reaches.", RETRIABLE)
MemberIdRequired = _error(79, "The group wants the member to join again with the id it was given.")
PreferredLeaderNotAvailable = _error(80, "The preferred leader is not available.", RETRIABLE | STALE)
GroupMaxSizeReached = _error(81, "The group has as many members as it may have.")
FencedInstanceId = _error(82, "Another member with the same static id has taken over.")
EligibleLeadersNotAvailable = _error(83, "No replica may become leader.", RETRIABLE | STALE)
ElectionNotNeeded = _error(84, "The partition has its leader already.", RETRIABLE | STALE)
NoReassignmentInProgress = _error(85, "No reassignment is under way.")
GroupSubscribedToTopic = _error(86, "The group still consumes the topic.")
InvalidRecord = _error(87, "The broker refuses a record as not valid.")
UnstableOffsetCommit = _error(88, "Offsets of an open transaction are not settled yet.", RETRIABLE)
ThrottlingQuotaExceeded = _error(89, "The quota is used up.", RETRIABLE)


# A class and no row: users write it in annotations, too. It is the producer's own error as well: one name is one class,
# or an `except` would catch one of the two.
class ProducerFenced(BrokerError):
    """A newer producer with the same transactional id has taken over."""

    code = 90
    remedy = (
        "Or the transaction outlived its time-out, and the broker ended it. Close this producer: only one producer may "
        "use a transactional id."
    )


_TABLE[90] = ProducerFenced
ResourceNotFound = _error(91, "The resource does not exist.")
DuplicateResource = _error(92, "The resource exists already.")
UnacceptableCredential = _error(93, "The credential does not meet the rules.")
InconsistentVoterSet = _error(94, "The set of voters differs.")
InvalidUpdateVersion = _error(95, "The version of the update is not valid.")
FeatureUpdateFailed = _error(96, "The features could not be updated.")
PrincipalDeserializationFailure = _error(97, "The forwarded principal could not be read.")
SnapshotNotFound = _error(98, "The snapshot does not exist.")
SnapshotPositionOutOfRange = _error(99, "The position is outside of the snapshot.")
UnknownTopicId = _error(
    100, "The broker does not know this topic id: the topic was deleted or created again.", RETRIABLE | STALE
)
DuplicateBrokerRegistration = _error(101, "A broker with this id is registered already.")
BrokerIdNotRegistered = _error(102, "No broker with this id is registered.")
InconsistentTopicId = _error(
    103, "The topic id is not the one in the log: the topic was deleted and created again.", RETRIABLE | STALE
)
InconsistentClusterId = _error(104, "The cluster id is not this cluster's.")
TransactionalIdNotFound = _error(105, "The transactional id is not known.")
FetchSessionTopicIdError = _error(106, "Topic ids and topic names were mixed in one fetch session.", RETRIABLE)
IneligibleReplica = _error(107, "The replica may not join those in sync.")
NewLeaderElected = _error(108, "The leader has changed the partition and given up leading it.")
OffsetMovedToTieredStorage = _error(109, "The offset lies in tiered storage.")
FencedMemberEpoch = _error(110, "The epoch of the member is not the coordinator's: join again.")
UnreleasedInstanceId = _error(111, "The static id is still held by another member.")
UnsupportedAssignor = _error(112, "The assignor is not supported by the group.")
StaleMemberEpoch = _error(113, "The epoch of the member is old: try again with the new one.")
MismatchedEndpointType = _error(114, "The request was sent to an endpoint of the wrong kind.")
UnsupportedEndpointType = _error(115, "This kind of endpoint is not supported yet.")
UnknownControllerId = _error(116, "The controller id is not known.")
UnknownSubscriptionId = _error(117, "The telemetry subscription is not known.")
TelemetryTooLarge = _error(118, "The telemetry is too large.")
InvalidRegistration = _error(119, "The registration of the broker is not valid.")
TransactionAbortable = _error(120, "The transaction must be aborted, then begun again.")
InvalidRecordState = _error(121, "The record is in a state that does not allow this.")
ShareSessionNotFound = _error(122, "The broker has forgotten the share session.", RETRIABLE)
InvalidShareSessionEpoch = _error(123, "The epoch of the share session is not the expected one.", RETRIABLE)
FencedStateEpoch = _error(124, "The share coordinator's state has a newer epoch.")
InvalidVoterKey = _error(125, "The voter key does not fit the receiving replica.")
DuplicateVoter = _error(126, "The voter is one of the set already.")
VoterNotFound = _error(127, "The voter is not one of the set.")
InvalidRegularExpression = _error(128, "The regular expression is not valid.")
RebootstrapRequired = _error(129, "The broker asks to start again from the bootstrap addresses.")
StreamsInvalidTopology = _error(130, "The Streams topology is not valid.")
StreamsInvalidTopologyEpoch = _error(131, "The Streams topology's epoch is not valid.")
StreamsTopologyFenced = _error(132, "The Streams topology's epoch is outdated.")
ShareSessionLimitReached = _error(133, "The broker holds as many share sessions as it may.", RETRIABLE)

# Each class takes the name of its row. Texts of errors show it, and pickles find the class by it.
_named = {kind: name for name, kind in globals().items() if isinstance(kind, type)}
for _kind in _TABLE.values():
    _kind.__name__ = _kind.__qualname__ = _named[_kind]
del _kind, _named


def may_pass(error: StreamletError | type[StreamletError]) -> bool:
    """Return whether time may mend an error of a read."""
    # Rule: an error that the broker did not expect passes, too, where something is read: a look into tiered storage
    # that failed, a broker that is shutting down. Of a write nobody knows what became, so there it ends the call.
    kind = error if isinstance(error, type) else type(error)
    return error.retriable or issubclass(kind, UnknownServerError)


def forces_update(error: type[KafkaError]) -> bool:
    """Return whether a partition's error asks for new metadata."""
    # An unauthorised topic is no stale metadata. But an update shows at once, by the topic's own error, that the topic
    # may be read or written no more (or may again), and the next call fails by name instead of a whole request.
    return error.stale_metadata or issubclass(error, TopicAuthorizationFailed)
