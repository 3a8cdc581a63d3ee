"""The administrator: topics, partitions, settings, records and groups of a cluster, one blocking call each."""

from __future__ import annotations

from streamlet.kafka.admin.group_calls import GroupCalls


class Admin(GroupCalls):
    """``with Admin(bootstrap_servers="127.0.0.1:9092") as admin: admin.create_topics(NewTopic("lines", 2, 1))``.

    Takes the settings of :class:`AdminConfig` by name. Making one does no I/O; the first call connects.

    Every call blocks for at most ``timeout`` seconds (default: ``default_api_timeout_ms``) and tries again what
    may succeed later (a controller, coordinator or leader that has moved, a lost connection). It returns what
    is known of each item, or raises one :class:`AdminError` that names each item that failed; what the others
    gave is in its ``results``. Cluster out of reach: BootstrapFailed. Wrong arguments: BadInput, and nothing
    is sent.

    Not thread-safe: one thread at a time; a second one is refused.
    """
