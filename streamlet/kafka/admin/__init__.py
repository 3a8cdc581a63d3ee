"""Administration: topics, partitions, settings, records, groups.

Reading order: ``model`` (what is asked and told), ``errors``, then ``topics``, ``configs``, ``groups`` and
``positions`` (requests and answers), ``rounds`` (what is tried again), all pure; then ``calls`` (whom to ask),
``session``, ``topic_calls``, ``group_calls`` and ``admin``.
"""

from streamlet.kafka.admin.admin import Admin
from streamlet.kafka.admin.admin_config import AdminConfig
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

__all__ = [
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
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "ResourceType",
    "TopicDescription",
    "TopicListing",
]
