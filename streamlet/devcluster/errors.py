"""Errors of the development cluster."""

from __future__ import annotations

from streamlet.base.errors import BadInput, StreamletError


class DevStackError(StreamletError):
    """Base of all errors of the development cluster."""


class NotAsWanted(DevStackError, BadInput):
    """No cluster, or another one, is up. Nothing was started or ended."""


class JavaMissing(DevStackError):
    """There is no Java here, or it is too old for Kafka."""


class SparkMissing(DevStackError):
    """There is no Spark here to start servers of."""


class JarsUnavailable(DevStackError):
    """Kafka's jars are not cached and could not be fetched."""


class ClusterFailed(DevStackError):
    """A server did not start or answer in time. Carries the tail of its log."""


class ToolFailed(DevStackError):
    """One of Kafka's own tools ended with an error; carries what it said."""
