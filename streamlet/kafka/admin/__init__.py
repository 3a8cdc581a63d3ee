"""Administration: topics, partitions, settings, records, groups.

Reading order: ``model`` (data), ``errors``, ``rounds`` (one call: whom to ask, what to try again), then ``topics``,
``configs`` and ``groups`` (requests and how answers are read), and ``admin``.
"""

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
