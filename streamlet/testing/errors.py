"""What can go wrong with a development cluster. Each message is one paragraph: what, where, why, what to
do.
"""

from __future__ import annotations

from streamlet.base.errors import StreamletError


class DevStackError(StreamletError):
    """Base: the development cluster could not do what was asked."""


class JavaMissing(DevStackError):
    """There is no Java here, or it is too old for Kafka."""


class JarsUnavailable(DevStackError):
    """Kafka's jars are not in the cache and could not be fetched into it."""


class ClusterFailed(DevStackError):
    """A ZooKeeper or a broker did not start, or did not answer in time; carries the tail of its log."""


class ToolFailed(DevStackError):
    """One of Kafka's own tools ended with an error; carries what it said."""
