"""Error texts for unknown settings: another client's, renamed, or deliberately absent. Pure."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Never, TypeVar

from streamlet.base.errors import WrongArgument

T = TypeVar("T")

PAGE = "client-settings"
"""The page with every setting of every client; a test holds it against the code."""

_NEAREST = 3


def unknown(given: str, client: str, known: Collection[str], others: Mapping[str, Collection[str]]) -> str:
    """Return the paragraph for an unknown setting of the client.

    ``given`` as the user wrote it, with Kafka's dots; ``client`` is "" for any; ``known``: its names; ``others``: those
    of the other clients, by client.
    """
    name = given.replace(".", "_")
    whose = f"of the {client}" if client else "that every client has"
    owners = [other for other, names in others.items() if name in names]
    if owners:
        near = [own for own in [_COUNTERPARTS.get(name, "")] if own in known] or get_close_matches(name, known, 1, 0.8)
        instead = f"the one here is {near[0]}" if near else "leave it out here"
        return f"{given!r} is a setting of the {' and the '.join(owners)}, and none {whose}: {instead}."
    if name in _RENAMED:
        right, _, form = _RENAMED[name].partition(", ")
        owners = [] if right in known else [other for other, names in others.items() if right in names]
        note = f", and is a setting of the {' and the '.join(owners)}" if owners else ""
        return f"Unknown client setting {given!r}: it is called {right} here{note}{form and f' ({form})'}."
    if name in _ABSENT:
        return f"There is no setting {given!r}: {_ABSENT[name]}."
    near = get_close_matches(name, known, _NEAREST, 0.7) or get_close_matches(name, known, 1)
    if not near:
        lists = f"`streamlet docs {PAGE}` lists them all."
        return f"Unknown client setting {given!r}, and no name {whose} is like it: {lists}"
    nearest = f"the nearest one is {near[0]}" if len(near) == 1 else f"the nearest ones are {', '.join(near)}"
    return f"Unknown client setting {given!r}: {nearest}. `streamlet docs {PAGE}` lists them all."


_COUNTERPARTS = {
    "default_api_timeout_ms": "max_block_ms",
    "max_block_ms": "default_api_timeout_ms",
}
"""Settings of two clients with one meaning and unlike names."""

_RENAMED = {
    # TLS and SASL, in Java and librdkafka
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname, True or False",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_mechanisms": "sasl_mechanism",
    "oauth_cb": "sasl_oauth_token_provider",
    "https_ca_location": "sasl_oauthbearer_token_endpoint_cafile",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    # librdkafka, and Kafka 0.8
    "metadata_broker_list": "bootstrap_servers",
    "broker_list": "bootstrap_servers",
    "bootstrap_server": "bootstrap_servers",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "socket_timeout_ms": "request_timeout_ms",
    "socket_connection_timeout_ms": "socket_connection_setup_timeout_ms",
    "socket_send_buffer_bytes": "send_buffer_bytes",
    "socket_receive_buffer_bytes": "receive_buffer_bytes",
    "request_required_acks": "acks",
    "required_acks": "acks",
    "compression_codec": "compression_type",
    "queue_buffering_max_ms": "linger_ms",
    "queue_buffering_max_kbytes": "buffer_memory, in bytes",
    "message_max_bytes": "max_request_size",
    "message_timeout_ms": "delivery_timeout_ms",
    "message_send_max_retries": "retries",
    "max_retries": "retries",
    "retry_backoff": "retry_backoff_ms",
    "partitioner_class": "partitioner",
    "serializer_class": "value_serializer",
    "auto_commit_enable": "enable_auto_commit",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "rebalance_timeout_ms": "max_poll_interval_ms",
    "enable_incremental_fetch_sessions": "enable_fetch_sessions",
}
"""Names of Java, librdkafka, kafka-python or Kafka 0.8, and ours."""

_PEM = "certificates and keys are given as PEM files, ssl_cafile, ssl_certfile and ssl_keyfile"
_OWN_CONTEXT = "an ssl.SSLContext of your own has it: give that as ssl_context"
_AGREED = "versions are agreed on with each broker by itself; leave it out"
_SASL = (
    "SASL PLAIN, SCRAM and OAUTHBEARER are what there is, with sasl_mechanism, sasl_plain_username and "
    "sasl_plain_password, or sasl_oauth_token_provider or sasl_oauthbearer_token_endpoint_url"
)
_COUNTS = (
    "metrics() of a Producer or Consumer is a dict of counts, and everything else that is noticed goes to Python's "
    "logging"
)
_LOGGING = "what is noticed goes to Python's logging, under 'streamlet.kafka'; set the level there"
_PER_RECORD = "ask the future that send() gives: add_callback, add_errback, or get()"
_ARGUMENT = "a Consumer takes topics first, as in Consumer('lines', group_id='g'), and a Producer in send()"
_LEVEL = "a codec's own level is taken; choose the codec with compression_type"
_SOCKETS = "sockets are the client's own; send_buffer_bytes and receive_buffer_bytes are what can be set of them"
_ZOOKEEPER = "clients ask the brokers, not ZooKeeper: give bootstrap_servers"
_MODULE = "classes are not loaded by name; give the object itself to the setting that takes it"

_ABSENT = {
    "api_version": _AGREED,
    "api_version_request": _AGREED,
    "api_version_auto_timeout_ms": _AGREED,
    "api_version_fallback_ms": _AGREED,
    "broker_version_fallback": _AGREED,
    "ssl_truststore_location": _PEM,
    "ssl_truststore_password": _PEM,
    "ssl_truststore_type": _PEM,
    "ssl_keystore_location": _PEM,
    "ssl_keystore_password": _PEM,
    "ssl_keystore_type": _PEM,
    "ssl_crlfile": _OWN_CONTEXT,
    "ssl_ciphers": _OWN_CONTEXT,
    "ssl_cipher_suites": _OWN_CONTEXT,
    "ssl_ca_pem": _OWN_CONTEXT,
    "ssl_certificate_pem": _PEM,
    "ssl_key_pem": _PEM,
    "enable_ssl_certificate_verification": "a broker always has to prove who it is; ssl_cafile names its authority",
    "sasl_jaas_config": _SASL,
    "sasl_kerberos_service_name": _SASL,
    "sasl_kerberos_domain_name": _SASL,
    "sasl_kerberos_name": _SASL,
    "sasl_oauthbearer_config": _SASL,
    "sasl_oauthbearer_method": _SASL,
    "sasl_login_callback_handler_class": _SASL,
    "sasl_client_callback_handler_class": _SASL,
    "metric_reporters": _COUNTS,
    "metrics_enabled": _COUNTS,
    "metrics_num_samples": _COUNTS,
    "metrics_sample_window_ms": _COUNTS,
    "metrics_recording_level": _COUNTS,
    "enable_metrics_push": _COUNTS,
    "auto_include_jmx_reporter": _COUNTS,
    "statistics_interval_ms": _COUNTS,
    "stats_cb": _COUNTS,
    "error_cb": _LOGGING,
    "throttle_cb": _LOGGING,
    "log_cb": _LOGGING,
    "logger": _LOGGING,
    "log_level": _LOGGING,
    "debug": _LOGGING,
    "on_delivery": _PER_RECORD,
    "dr_cb": _PER_RECORD,
    "dr_msg_cb": _PER_RECORD,
    "delivery_report_only_error": _PER_RECORD,
    "on_commit": "give the callback to commit_async(offsets, callback)",
    "default_offset_commit_callback": "give the callback to commit_async(offsets, callback)",
    "topic": _ARGUMENT,
    "topics": _ARGUMENT,
    "interceptor_classes": "there are no interceptors; wrap the call, or the serializer",
    "security_providers": _MODULE,
    "config_providers": _MODULE,
    "compression_level": _LEVEL,
    "compression_gzip_level": _LEVEL,
    "compression_lz4_level": _LEVEL,
    "compression_zstd_level": _LEVEL,
    "selector": _SOCKETS,
    "kafka_client": _SOCKETS,
    "socket_options": _SOCKETS,
    "socket_keepalive_enable": _SOCKETS,
    "socket_nagle_disable": _SOCKETS,
    "sock_chunk_bytes": _SOCKETS,
    "sock_chunk_buffer_count": _SOCKETS,
    "broker_address_family": "every address that a host name has is tried in turn",
    "client_dns_lookup": "every address that a host name has is tried in turn",
    "proxy_url": "brokers are connected to directly",
    "socks5_proxy": "brokers are connected to directly",
    "zookeeper_connect": _ZOOKEEPER,
    "zookeeper_session_timeout_ms": _ZOOKEEPER,
    "offsets_storage": _ZOOKEEPER,
    "producer_type": "every send() is asynchronous; send(...).get() waits for one",
    "queue_buffering_max_messages": "what waits is bounded in bytes: buffer_memory",
    "batch_num_messages": "a batch is bounded in bytes: batch_size",
    "queued_min_messages": "fetches run ahead by themselves; fetch_max_bytes bounds each",
    "queued_max_messages_kbytes": "fetches run ahead by themselves; fetch_max_bytes bounds each",
    "block_on_buffer_full": "send() waits for room, at most max_block_ms",
    "enable_auto_offset_store": "positions move when records are handed out; use enable_auto_commit=False and commit()",
    "enable_partition_eof": "on_partition_end(callback) of a Consumer tells of each end",
    "partitioner_availability_timeout_ms": "see partition_failover for partitions without a living broker",
    "transaction_two_phase_commit_enable": "transactions that another system commits are not offered",
    "legacy_iterator": "an iteration and poll() may be mixed as they are; leave it out",
    "state_change_callback": _LOGGING,
    "key_deserializer_class": _MODULE,
    "value_deserializer_class": _MODULE,
}
"""Settings that only other clients have: the reason, and the way to the same end here."""


# -- names of classes and methods

GUIDE = "migrating-from-kafka-python"
"""The page with the differences from kafka-python."""

_DIFFERENCES = f"`streamlet docs {GUIDE}` lists the differences."

_CLASSES = {
    "KafkaProducer": "Producer",
    "KafkaConsumer": "Consumer",
    "KafkaAdminClient": "Admin",
    "AdminClient": "Admin",
}
"""Classes of kafka-python and confluent-kafka, and ours."""

_CONFIGS_SH = "there is no such call; Kafka's own kafka-configs.sh does it"

# These names are no aliases: results, units and rules differ, and a program that ran with the wrong ones would do
# something else in silence. The error names ours, and the page with the differences.
_METHODS: Mapping[str, Mapping[str, str]] = {
    "Admin": {
        "topics": "list_topics gives a TopicListing by name",
        "incremental_alter_configs": "alter_configs changes what is named and nothing else",
        "alter_replica_log_dirs": "there is no such call; Kafka's own kafka-reassign-partitions.sh does it",
        "perform_leader_election": "elect_leaders(ElectionType.PREFERRED, partitions) does it",
        "list_partition_offsets": 'list_offsets takes "earliest", "latest", "max_timestamp" and times',
        "describe_client_quotas": _CONFIGS_SH,
        "alter_client_quotas": _CONFIGS_SH,
        "bootstrap_connected": "the first call connects; list_topics(timeout=5) raises when no broker answers",
        "describe_consumer_groups": "describe_groups gives a GroupDescription by group",
        "list_consumer_groups": "list_groups gives a GroupListing by group",
        "list_consumer_group_offsets": "list_group_offsets gives an OffsetAndMetadata by partition",
        "alter_consumer_group_offsets": "alter_group_offsets sets where a group continues",
        "reset_group_offsets": 'alter_group_offsets takes "earliest", "latest" and times, too',
        "delete_consumer_groups": "delete_groups deletes groups and their offsets",
    },
    "Consumer": {
        "list_topics": "topics() gives the names, Admin.list_topics more",
        "enforce_rebalance": "the group decides when to rebalance; unsubscribe() and subscribe() join it again",
        "next_v2": "next() of an iteration over the consumer gives a record",
        "consume": "poll(timeout_ms, max_records) gives records by partition, an iteration one after another",
        "get_watermark_offsets": "beginning_offsets and end_offsets give both by partition",
        "store_offsets": "enable_auto_commit=False and commit(offsets) decide what is committed",
        "bootstrap_connected": "the first call connects; topics(timeout=5) raises when no broker answers",
    },
    "Producer": {
        "produce": "send(topic, value, key) takes a record and returns its future",
        "poll": "callbacks run by themselves, in the producer's thread; leave it out",
        "list_topics": "Admin.list_topics gives a TopicListing by name",
        "bootstrap_connected": "it connects by itself; partitions_for(topic) raises when no broker answers",
    },
}


_OTHERS = {
    "BrokerMetadata": "Admin.describe_cluster() has a streamlet.kafka.Broker by its id",
    "PartitionMetadata": "partitions_for(topic) and Admin.describe_topics() have a PartitionInfo each",
    "TopicMetadata": "Admin.describe_topics() has a TopicDescription by name",
    "MemberInformation": "Admin.describe_groups() has a MemberDescription each",
    "MemberState": "Admin.describe_groups() has a MemberDescription each",
    "GroupInformation": "Admin.describe_groups() has a GroupDescription by group",
    "ACL": "it is called streamlet.kafka.admin.AclBinding here",
    "ACLFilter": "it is called streamlet.kafka.admin.AclBindingFilter here",
    "ACLOperation": "it is called streamlet.kafka.admin.AclOperation here",
    "ACLPermissionType": "it is called streamlet.kafka.admin.AclPermissionType here",
    "ACLResourcePatternType": "it is called streamlet.kafka.admin.PatternType here",
    "ResourcePattern": "an AclBinding has the resource's type, name and pattern in itself",
    "ResourcePatternFilter": "an AclBindingFilter has the resource's type, name and pattern in itself",
    "ConfigResourceType": "it is called streamlet.kafka.admin.ResourceType here",
    "AlterConfigOp": "it is called streamlet.kafka.admin.ConfigOp here",
    "ConfigSourceType": "it is called streamlet.kafka.admin.ConfigSource here",
    "MemberToRemove": "there is no call that removes members of a group",
    "IsolationLevel": "isolation_level of a Consumer is 'read_committed' or 'read_uncommitted'",
    "Serializer": "value_serializer and key_serializer take any function of a value that returns bytes",
    "Deserializer": "value_deserializer and key_deserializer take any function of bytes",
    "DefaultSerializer": "bytes are sent as they are, and other values go through value_serializer",
    "JsonSerializer": "value_serializer takes any function, as lambda value: json.dumps(value).encode()",
    "AsyncConsumerRebalanceListener": "a ConsumerRebalanceListener's methods are called by poll(), in its thread",
    "BrokerConnection": "connections are the client's own",
}
"""Names of kafka-python beside its clients, and where ours are."""


def answer_missing(module: str) -> Callable[[str], Never]:
    """Return a module's ``__getattr__``, which answers other clients' names with ours."""

    def missing(name: str) -> Never:
        if name in _CLASSES:
            ours = f"streamlet.kafka.{_CLASSES[name]} takes the same settings"
        elif name in _OTHERS:
            ours = _OTHERS[name]
        else:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        # An AttributeError would be replaced by the import system's own text, which names nothing of ours.
        raise ImportError(f"{module} has no {name}: {ours}; {_DIFFERENCES}", name=module)

    return missing


def answers_foreign_calls(cls: type[T]) -> type[T]:
    """Let a client's class answer foreign names of methods and arguments."""

    # Rule: properties, and no __getattr__. With one, each attribute that a call reads takes twice as long or more.
    def answer(name: str, ours: str) -> property:
        def refuse(made: object) -> Never:
            text = f"{cls.__name__!r} object has no attribute {name!r}: {ours}. {_DIFFERENCES}"
            raise AttributeError(text, name=name, obj=made)

        return property(refuse)

    for name, ours in _METHODS[cls.__name__].items():
        setattr(cls, name, answer(name, ours))
    for name, method in list(vars(cls).items()):
        public = inspect.isfunction(method) and not name.startswith("_")
        if public and "timeout" in inspect.signature(method).parameters:
            setattr(cls, name, _refuse_milliseconds(cls.__name__, name, method))
    return cls


def _refuse_milliseconds(client: str, name: str, method: Callable[..., T]) -> Callable[..., T]:
    """Return a method that answers ``timeout_ms`` with its own ``timeout``."""

    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> T:
        if "timeout_ms" in kwargs:
            given = kwargs["timeout_ms"]
            example = f"{given / 1000:g}" if isinstance(given, (int, float)) else "1.5"
            raise WrongArgument(
                f"{client}.{name}: timeout_ms is not taken; times are in seconds, timeout={example}. {_DIFFERENCES}"
            )
        return method(*args, **kwargs)

    return call
