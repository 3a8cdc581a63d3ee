"""What can go wrong with a development cluster. Each message is one paragraph: what, where, why, what to
do.
"""

from __future__ import annotations

from streamlet.base.errors import BadInput, StreamletError


class DevStackError(StreamletError):
    """Base: the development cluster could not do what was asked."""


class NotAsWanted(DevStackError, BadInput):
    """No cluster is up where one is needed, or another one than was asked for; nothing was started or ended."""

    exit_status = BadInput.exit_status


class JavaMissing(DevStackError):
    """There is no Java here, or it is too old for Kafka."""


class JarsUnavailable(DevStackError):
    """Kafka's jars are not in the cache and could not be fetched into it."""


class ClusterFailed(DevStackError):
    """A ZooKeeper or a broker did not start, or did not answer in time; carries the tail of its log."""


class ToolFailed(DevStackError):
    """One of Kafka's own tools ended with an error; carries what it said."""
