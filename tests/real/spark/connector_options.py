"""The documented options of Spark's own Kafka connector, and jobs with each: who takes it, who refuses it.

In values, ``$name`` is a topic (``test_same_as_the_jar.py`` fills them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlet.spark.options import Use

_BATCH, _STREAM = Use.BATCH_READ, Use.STREAM_READ
_READS = (_BATCH, _STREAM)
_WRITES = (Use.BATCH_WRITE, Use.STREAM_WRITE)
DOCUMENTED: Mapping[str, tuple[Use, ...]] = {
    "assign": _READS,
    "subscribe": _READS,
    "subscribePattern": _READS,
    "kafka.bootstrap.servers": (*_READS, *_WRITES),
    "startingTimestamp": _READS,
    "startingOffsetsByTimestamp": _READS,
    "startingOffsets": _READS,
    "startingOffsetsByTimestampStrategy": _READS,
    "endingTimestamp": (_BATCH,),
    "endingOffsetsByTimestamp": (_BATCH,),
    "endingOffsets": (_BATCH,),
    "failOnDataLoss": _READS,
    "kafkaConsumer.pollTimeoutMs": _READS,
    "fetchOffset.numRetries": _READS,
    "fetchOffset.retryIntervalMs": _READS,
    "maxOffsetsPerTrigger": (_STREAM,),
    "minOffsetsPerTrigger": (_STREAM,),
    "maxTriggerDelay": (_STREAM,),
    "minPartitions": _READS,
    "maxRecordsPerPartition": _READS,
    "groupIdPrefix": _READS,
    "kafka.group.id": _READS,
    "includeHeaders": (*_READS, *_WRITES),
    "topic": _WRITES,
    "kafka.partitioner.class": _WRITES,
    "kafka.auto.offset.reset": (_BATCH,),
    "kafka.key.deserializer": (_BATCH,),
    "kafka.value.deserializer": (_BATCH,),
    "kafka.key.serializer": _WRITES,
    "kafka.value.serializer": _WRITES,
    "kafka.enable.auto.commit": (_BATCH,),
    "kafka.interceptor.classes": (_BATCH,),
}
"""Each option that the connector's documentation names, and the jobs that it is for."""

SETTINGS = (
    "spark.kafka.consumer.cache.capacity",
    "spark.kafka.consumer.cache.timeout",
    "spark.kafka.consumer.cache.evictorThreadRunInterval",
    "spark.kafka.consumer.cache.jmx.enable",
    "spark.kafka.consumer.fetchedData.cache.timeout",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval",
    "spark.kafka.producer.cache.timeout",
    "spark.kafka.producer.cache.evictorThreadRunInterval",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching",
    "spark.kafka.clusters.*",
    "spark.security.credentials.kafka.enabled",
)
"""Each setting of Spark's own, not of one job, that it names."""


@dataclass(frozen=True, slots=True)
class Job:
    """Options of a job, for a write its columns, and what comes of it."""

    given: Mapping[str, str]
    ours: str = ""
    """Words of our refusal."""
    theirs: bool = False
    """Whether the jar refuses."""
    columns: tuple[str, ...] = ()
    mode: str | None = "append"
    in_spark: bool = True
    """Whether Spark itself must run ours, as all that is not refused by us."""
    other_tasks: bool = False
    """Whether ranges are cut into tasks otherwise than by the jar."""

    def __str__(self) -> str:
        shown = ",".join(f"{name}={value}" for name, value in self.given.items() if name != "subscribe")
        return f"{shown} {' '.join(self.columns)} {self.mode}"[:90] if self.columns else shown[:90] or "plain"


def same(given: Mapping[str, str], *columns: str) -> Job:
    """A job that both do, with one outcome."""
    return Job(given, columns=columns)


def same_rows(given: Mapping[str, str]) -> Job:
    """A read that both do, in tasks of their own."""
    return Job(given, other_tasks=True)


def both(words: str, given: Mapping[str, str], *columns: str, mode: str = "append") -> Job:
    """A job that both refuse."""
    return Job(given, words, True, columns, mode, in_spark=False)


def only_ours(words: str, given: Mapping[str, str], *columns: str) -> Job:
    """A job that we refuse, and the jar does."""
    return Job(given, words, columns=columns, in_spark=False)


_PLAIN = {"subscribe": "$plain"}
_TWO = {"assign": '{"$plain":[0,1]}'}
"""Without the partition that has no records."""

BATCH_READS = (
    same(_PLAIN),
    same({"assign": '{"$plain":[0,2]}', "kafka.group.id": "mine", "groupIdPrefix": "mine"}),
    only_ours("UnknownTopicOrPartition", {"assign": '{"$plain":[0,9]}'}),
    both("assign and subscribe are given", {**_PLAIN, **_TWO}),
    both("none is given", {}),
    both("is not JSON", {"assign": "$plain"}),
    same({"subscribe": "$stamped, $plain,", "includeHeaders": "true"}),
    both("UnknownTopicOrPartition", {"subscribe": "no-such-topic"}),
    both("names no topic", {"subscribe": " , "}),
    same({"subscribePattern": "$prefix-(pl|st)"}),
    same({"subscribePattern": " no-topic-has-this "}),
    both("not a regular expression", {"subscribePattern": "("}),
    both("is empty", {"subscribePattern": " "}),
    both("kafka.bootstrap.servers is missing", {**_PLAIN, "kafka.bootstrap.servers": "left out"}),
    same({**_TWO, "startingTimestamp": "1003000", "startingOffsets": '{"nonsense":'}),
    both("has no record at or after", {**_PLAIN, "startingTimestamp": "1003000"}),
    same({**_PLAIN, "startingTimestamp": "1003000", "startingOffsetsByTimestampStrategy": "LATEST"}),
    both("'error' or 'latest'", {**_PLAIN, "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "none"}),
    both("a whole number", {**_PLAIN, "startingTimestamp": "yesterday"}),
    same({**_TWO, "startingOffsetsByTimestamp": '{"$plain":{"0":1007500,"1":1000000}}'}),
    both("does not name", {**_TWO, "startingOffsetsByTimestamp": '{"$plain":{"0":1007500}}'}),
    same({**_PLAIN, "startingOffsets": ' {"$plain":{"0":3,"1":-2,"2":-2}}'}),
    both("would read nothing", {**_PLAIN, "startingOffsets": "Latest"}),
    both("would read nothing", {**_TWO, "startingOffsets": '{"$plain":{"0":3,"1":-1}}'}),
    both("does not name", {**_TWO, "startingOffsets": '{"$plain":{"0":3}}'}),
    both("names", {**_TWO, "startingOffsets": '{"$plain":{"0":3,"1":0,"2":4}}'}),
    both("write earliest or latest", {**_TWO, "startingOffsets": "first"}),
    both("batch begins at offset", {**_TWO, "startingOffsets": '{"$plain":{"0":30,"1":0}}'}),
    both("batch begins at offset", {**_TWO, "startingOffsets": '{"$plain":{"0":30,"1":0}}', "failOnDataLoss": "false"}),
    same({**_TWO, "endingTimestamp": "1003000"}),
    same({**_PLAIN, "endingTimestamp": "99000000"}),
    same({**_TWO, "endingOffsetsByTimestamp": '{"$plain":{"0":1003000,"1":1}}'}),
    same({**_PLAIN, "endingOffsets": '{"$plain":{"0":3,"1":-1,"2":4}}'}),
    both("write latest", {**_PLAIN, "endingOffsets": "earliest"}),
    both("-1 for the latest", {**_TWO, "endingOffsets": '{"$plain":{"0":3,"1":-2}}'}),
    both(
        "batch begins at offset",
        {**_TWO, "startingOffsets": '{"$plain":{"0":9,"1":0}}', "endingOffsets": '{"$plain":{"0":3,"1":-1}}'},
    ),
    both(
        "batch begins at offset",
        {
            **_TWO,
            "startingOffsetsByTimestamp": '{"$plain":{"0":1009000,"1":0}}',
            "endingOffsetsByTimestamp": '{"$plain":{"0":1003000,"1":0}}',
        },
    ),
    both("are no longer there", {"subscribe": "$cut", "startingOffsets": '{"$cut":{"0":3}}'}),
    same({"subscribe": "$cut", "startingOffsets": '{"$cut":{"0":3}}', "failOnDataLoss": "false"}),
    both("true or false", {**_PLAIN, "failOnDataLoss": "perhaps"}),
    both(
        "pollTimeoutMs",
        {**_TWO, "endingOffsets": '{"$plain":{"0":30,"1":0}}', "kafkaConsumer.pollTimeoutMs": "300"},
    ),
    both("a whole number", {**_PLAIN, "kafkaConsumer.pollTimeoutMs": "soon"}),
    only_ours("kafka.default.api.timeout.ms", {**_PLAIN, "fetchOffset.numRetries": "3"}),
    only_ours("kafka.retry.backoff.ms", {**_PLAIN, "fetchOffset.retryIntervalMs": "10"}),
    only_ours("is an option of readStream", {**_PLAIN, "maxOffsetsPerTrigger": "3"}),
    only_ours("is an option of readStream", {**_PLAIN, "minOffsetsPerTrigger": "3"}),
    only_ours("is an option of readStream", {**_PLAIN, "maxTriggerDelay": "3s"}),
    same({**_PLAIN, "minPartitions": "7"}),
    same_rows({**_PLAIN, "maxRecordsPerPartition": "6"}),
    same_rows({**_PLAIN, "maxRecordsPerPartition": "9", "minPartitions": "6"}),
    both("minPartitions", {**_PLAIN, "minPartitions": "0"}),
    both("maxRecordsPerPartition", {**_PLAIN, "maxRecordsPerPartition": "none"}),
    both("includeHeaders", {**_PLAIN, "includeHeaders": "perhaps"}),
    same({"subscribe": "$transactional", "kafka.isolation.level": "read_committed"}),
    same({"subscribe": "$transactional", "kafka.isolation.level": "read_uncommitted"}),
    both("isolation.level", {**_PLAIN, "kafka.isolation.level": "read_all"}),
    same({**_PLAIN, "kafka.max.poll.records": "3", "KAFKA.Client.Id": "mine", "kafka.fetch.max.bytes": "100000"}),
    only_ours("no.such.setting", {**_PLAIN, "kafka.no.such.setting": "1"}),
    only_ours("startingoffset'.*nearest one is 'startingOffsets'", {**_PLAIN, "startingOffset": "earliest"}),
    both("kafka.auto.offset.reset", {**_PLAIN, "kafka.auto.offset.reset": "earliest"}),
    both("kafka.key.deserializer", {**_PLAIN, "kafka.key.deserializer": "org.example.Strings"}),
    both("kafka.value.deserializer", {**_PLAIN, "kafka.value.deserializer": "org.example.Strings"}),
    both("kafka.enable.auto.commit", {**_PLAIN, "kafka.enable.auto.commit": "true"}),
    both("kafka.interceptor.classes", {**_PLAIN, "kafka.interceptor.classes": "org.example.Audit"}),
)

STREAM_READS = (
    same(
        {
            **_PLAIN,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "7",
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafkaConsumer.pollTimeoutMs": "60000",
            "groupIdPrefix": "mine",
            "kafka.group.id": "mine",
        }
    ),
    same({**_PLAIN}),
    same({**_TWO, "startingTimestamp": "1003000", "startingOffsets": "latest", "minPartitions": "5"}),
    same(
        {
            "subscribePattern": "$prefix-pl",
            "startingOffsetsByTimestamp": '{"$plain":{"0":1007500,"1":1000000,"2":1000000}}',
            "startingOffsetsByTimestampStrategy": "latest",
            "maxRecordsPerPartition": "5",
        }
    ),
    same(
        {
            "subscribe": "$transactional",
            "startingOffsets": '{"$transactional":{"0":-2}}',
            "kafka.isolation.level": "read_committed",
            "minOffsetsPerTrigger": "1",
            "maxTriggerDelay": "1s",
        }
    ),
    both("are given", {**_PLAIN, **_TWO}),
    both("kafka.bootstrap.servers is missing", {**_PLAIN, "kafka.bootstrap.servers": "left out"}),
    both("endingOffsets", {**_PLAIN, "endingOffsets": "latest"}),
    both("endingOffsetsByTimestamp", {**_PLAIN, "endingOffsetsByTimestamp": '{"$plain":{"0":1}}'}),
    only_ours("endingTimestamp", {**_PLAIN, "endingTimestamp": "1"}),
    both("minOffsetsPerTrigger", {**_PLAIN, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}),
    both("maxOffsetsPerTrigger", {**_PLAIN, "maxOffsetsPerTrigger": "few"}),
    both("maxTriggerDelay", {**_PLAIN, "minOffsetsPerTrigger": "9", "maxTriggerDelay": "later"}),
    both("has no record at or after", {**_PLAIN, "startingTimestamp": "99000000"}),
    only_ours("kafka.default.api.timeout.ms", {**_PLAIN, "fetchOffset.numRetries": "3"}),
    only_ours("kafka.retry.backoff.ms", {**_PLAIN, "fetchOffset.retryIntervalMs": "10"}),
)

_KEY = "CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE concat('k', id) END AS key"
_VALUE = "CASE WHEN id % 4 > 0 THEN concat('v', id) END AS value"
_NUMBER = "CASE WHEN id % 2 = 0 THEN CAST(id % 3 AS INT) END AS partition"
_HEADERS = (
    "CASE WHEN id % 3 > 0 THEN array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY)), "
    "named_struct('key', 'h', 'value', CAST(NULL AS BINARY))) END AS headers"
)
_SINK = {"topic": "$sink"}

BATCH_WRITES = (
    same({**_SINK, "includeHeaders": "true"}, _KEY, _VALUE, _NUMBER, _HEADERS, "'elsewhere' AS topic", "id"),
    same(
        {"includeHeaders": "false", "kafka.acks": "1", "kafka.compression.type": "gzip"},
        "CAST(concat('k', id) AS BINARY) AS key",
        "CAST(concat('v', id) AS BINARY) AS value",
        "'$sink' AS topic",
        _HEADERS,
    ),
    same({"topic": " $sink "}, _VALUE),
    both("a column `value`", _SINK, "CAST(id AS STRING) AS line"),
    both("Where to write is not said", {}, _VALUE),
    both("null in its column `topic`", {}, _VALUE, "IF(id = 3, NULL, '$sink') AS topic"),
    both("names no topic", {"topic": ""}, _VALUE),
    both("`key` is bigint", _SINK, _VALUE, "id AS key"),
    both("`value` is bigint", _SINK, "id AS value"),
    both("`topic` is bigint", {}, _VALUE, "id AS topic"),
    both("`partition` is bigint", _SINK, _VALUE, "id AS partition"),
    both("`headers` is", _SINK, _VALUE, "array(named_struct('key', 'h', 'value', 'text')) AS headers"),
    both("artition", {**_SINK, "kafka.max.block.ms": "500"}, _VALUE, "IF(id = 3, 99, 0) AS partition"),
    both("kafka.bootstrap.servers is missing", {**_SINK, "kafka.bootstrap.servers": "left out"}, _VALUE),
    both("kafka.key.serializer", {**_SINK, "kafka.key.serializer": "org.example.Strings"}, _VALUE),
    both("kafka.value.serializer", {**_SINK, "kafka.value.serializer": "org.example.Strings"}, _VALUE),
    both("only appended", _SINK, _VALUE, mode="overwrite"),
    only_ours(
        "partitioner",
        {**_SINK, "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
        _VALUE,
    ),
    Job(_SINK, 'cannot be written in the "ErrorIfExists" mode', columns=(_VALUE,), mode=None),
)

_COLUMNS = ("key", "value", "headers", "partition")
"""Of ``$plain``, which a stream that is written reads."""

STREAM_WRITES = (
    same({"topic": " $sink ", "includeHeaders": "true", "kafka.acks": "all"}, *_COLUMNS),
    same(
        {"includeHeaders": "false", "groupIdPrefix": "mine", "kafka.compression.type": "gzip", "kafka.acks": "-1"},
        *("key", "value", "'$sink' AS topic", "headers", "partition"),
    ),
    both("a column `value`", _SINK, "key"),
    both("Where to write is not said", {}, "value"),
    both("names no topic", {"topic": ""}, "value"),
    both("kafka.bootstrap.servers is missing", {**_SINK, "kafka.bootstrap.servers": "left out"}, "value"),
    both("kafka.key.serializer", {**_SINK, "kafka.key.serializer": "org.example.Strings"}, "value"),
    both("kafka.value.serializer", {**_SINK, "kafka.value.serializer": "org.example.Strings"}, "value"),
    only_ours(
        "partitioner",
        {**_SINK, "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
        "value",
    ),
    only_ours("acks = 1 is not possible in writeStream", {**_SINK, "kafka.acks": "1"}, *_COLUMNS),
    only_ours("idempotence = false is not possible", {**_SINK, "kafka.enable.idempotence": "false"}, *_COLUMNS),
)
