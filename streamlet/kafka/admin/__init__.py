"""Administration: topics, partitions, settings, records, groups, replicas, ACLs, users.

Reading order: ``model`` (data), ``errors``, ``call_rounds`` (one call: whom to ask, what to try again), then
``topics``, ``configs`` and ``groups`` (requests and how answers are read), ``replicas``, ``acls`` and ``scram_users``
(the same, with their data), and ``admin``.
"""

from typing import TYPE_CHECKING

from streamlet.kafka.admin.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from streamlet.kafka.admin.admin import Admin, AdminConfig
from streamlet.kafka.admin.errors import AdminError
from streamlet.kafka.admin.model import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
    TopicListing,
)
from streamlet.kafka.admin.replicas import ElectionType, LogDirDescription, PartitionReassignment, ReplicaInfo
from streamlet.kafka.admin.scram_users import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from streamlet.kafka.settings.foreign_names import answer_missing

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "Admin",
    "AdminConfig",
    "AdminError",
    "AlterConfig",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigSource",
    "CreatedTopic",
    "ElectionType",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "PartitionReassignment",
    "PatternType",
    "ReplicaInfo",
    "ResourceType",
    "ScramCredentialInfo",
    "TopicDescription",
    "TopicListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]

if not TYPE_CHECKING:  # with it a type checker would accept every name
    __getattr__ = answer_missing(__name__)
