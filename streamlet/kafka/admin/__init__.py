"""Administration: topics, partitions, settings, records, groups.

Reading order: ``model`` (data), ``errors``, ``call_rounds`` (one call: whom to ask, what to try again), then
``topics``, ``configs`` and ``groups`` (requests and how answers are read), and ``admin``.
"""

from typing import TYPE_CHECKING

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
from streamlet.kafka.settings.foreign_names import answer_missing

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

if not TYPE_CHECKING:  # with it a type checker would accept every name
    __getattr__ = answer_missing(__name__)
