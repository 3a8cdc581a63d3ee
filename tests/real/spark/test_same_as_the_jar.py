"""Every documented option of Spark's own Kafka connector: what its jar makes of it, and what we do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Admin
from streamlet.kafka.admin import NewTopic
from streamlet.spark.options import Use
from tests.command_line import ROOT
from tests.patience import PATIENCE_S
from tests.real.spark.both_formats import (
    OURS,
    THEIRS,
    Formats,
    Outcome,
    at_once,
    cut,
    fill_plain,
    fill_transactional,
    produce,
)
from tests.real.spark.connector_options import (
    BATCH_READS,
    BATCH_WRITES,
    DOCUMENTED,
    SETTINGS,
    STREAM_READS,
    STREAM_WRITES,
    Job,
)
from tests.spark_connector import connector

pytestmark = pytest.mark.spark

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def jar() -> None:
    """The connector, which the session has, or the error that says why not."""
    connector()


@pytest.fixture(scope="module")
def topics(kafka4: DevCluster) -> Iterator[dict[str, str]]:
    """Topics that are only read, by their names in the tables."""
    prefix = f"jar{os.getpid()}"
    sizes = {"plain": 3, "stamped": 1, "transactional": 1, "cut": 1}
    names = {name: f"{prefix}-{name}" for name in sizes}
    forever = {"retention.ms": "-1"}  # the records are of 1970
    configs = {"stamped": {"message.timestamp.type": "LogAppendTime"}}
    with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
        admin.create_topics(
            [NewTopic(names[name], size, 1, configs=forever | configs.get(name, {})) for name, size in sizes.items()]
        )
    fill_plain(kafka4, names["plain"])
    produce(kafka4, names["stamped"], 6)
    produce(kafka4, names["cut"], 12)
    cut(kafka4, names["cut"], 0, 7)
    with_open = fill_transactional(kafka4, names["transactional"])
    yield {**names, "prefix": prefix}
    with_open.abort_transaction()


@pytest.fixture
def formats(jar: None, spark: Any, kafka4: DevCluster, topics: dict[str, str]) -> Formats:
    return Formats(spark, kafka4, topics)


def judge(job: Job, ours: Outcome, theirs: Outcome) -> None:
    """Hold two outcomes against what the table says of the job."""
    assert bool(theirs.refused) == job.theirs, theirs.refused or "the jar takes it"
    if job.ours:
        assert re.search(job.ours, ours.refused), ours.refused or "we take it"
    else:
        assert not ours.refused, ours.refused
        assert ours == (replace(theirs, tasks=ours.tasks) if job.other_tasks else theirs)


@pytest.mark.parametrize("job", BATCH_READS, ids=str)
def test_a_batch_is_read_like_the_jar_reads_it(formats: Formats, job: Job) -> None:
    def ours() -> Outcome:
        return formats.read(OURS, job.given) if job.in_spark else formats.refusal(Use.BATCH_READ, job.given)

    judge(job, *at_once(ours, lambda: formats.read(THEIRS, job.given)))


@pytest.mark.parametrize("job", STREAM_READS, ids=str)
def test_a_stream_is_read_like_the_jar_reads_it(formats: Formats, job: Job, tmp_path: Path) -> None:
    def ours() -> Outcome:
        if not job.in_spark:
            return formats.refusal(Use.STREAM_READ, job.given)
        return formats.stream(OURS, job.given, tmp_path / "ours")

    judge(job, *at_once(ours, lambda: formats.stream(THEIRS, job.given, tmp_path / "theirs")))


@pytest.mark.parametrize("job", BATCH_WRITES, ids=str)
def test_a_batch_is_written_like_the_jar_writes_it(
    formats: Formats, job: Job, kafka4: DevCluster, make_topic: MakeTopic
) -> None:
    def outcome(kind: str, sink: str) -> Outcome:
        into = replace(formats, names={**formats.names, "sink": sink})
        columns = [column.replace("$sink", sink) for column in job.columns]
        frame = formats.spark.range(0, 24, 1, 2).selectExpr(*columns)
        if kind == OURS and not job.in_spark:
            return into.refusal(Use.BATCH_WRITE, job.given, frame, job.mode)
        found = into.write(kind, frame, job.given, job.mode)
        return found if found.refused or job.ours else replace(found, rows=into.written(sink))

    ours, theirs = (make_topic(kafka4, partitions=3) for _ in range(2))
    judge(job, *at_once(lambda: outcome(OURS, ours), lambda: outcome(THEIRS, theirs)))


def test_a_schema_of_ones_own_is_refused_by_both(formats: Formats) -> None:
    given = {"subscribe": "$plain"}
    assert "is fixed" in formats.read(OURS, given, "value binary").refused
    assert formats.read(THEIRS, given, "value binary").refused


def test_the_jar_leaves_a_rest_below_the_least_size_of_a_batch_and_we_read_it(formats: Formats, tmp_path: Path) -> None:
    given = {"assign": '{"$plain":[0]}', "startingOffsets": "earliest"}
    given |= {"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "8"}
    ours, theirs = at_once(*(partial(formats.stream, kind, given, tmp_path / kind) for kind in (OURS, THEIRS)))
    assert ours.rows[:16] == theirs.rows
    assert len(ours.rows) == 20


# -- streams from run to run, and into topics ------------------------------------------------------------------------


def test_a_stream_goes_on_from_its_checkpoint_and_from_that_of_the_jar(
    formats: Formats, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Meanwhile a partition has come, which is read from its beginning."""
    topic = make_topic(kafka4)
    produce(kafka4, topic, 5)
    given = {"subscribe": topic, "startingOffsets": "earliest"}
    ways = {"ours": (OURS, OURS), "over": (THEIRS, OURS), "theirs": (THEIRS, THEIRS)}
    at_once(*(partial(formats.stream, first, given, tmp_path / folder) for folder, (first, _second) in ways.items()))
    produce(kafka4, topic, 3)
    with Admin(bootstrap_servers=kafka4.bootstrap_servers) as admin:
        admin.create_partitions({topic: 2})
    produce(kafka4, topic, 4, number=1)
    ours, over, theirs = at_once(
        *(partial(formats.stream, second, given, tmp_path / folder) for folder, (_first, second) in ways.items())
    )
    assert len(theirs.rows) == 7
    assert ours == over == theirs


def test_records_that_are_gone_between_two_runs_are_passed_over_by_both_where_the_options_say_so(
    formats: Formats, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kafka4)
    produce(kafka4, topic, 6)
    given = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": "false"}
    runs = [partial(formats.stream, kind, given, tmp_path / kind) for kind in (OURS, THEIRS)]
    assert not any(outcome.refused for outcome in at_once(*runs))
    produce(kafka4, topic, 6)
    cut(kafka4, topic, 0, 9)
    ours, theirs = at_once(*runs)
    assert len(theirs.rows) == 3
    assert ours == theirs


@pytest.mark.parametrize("job", STREAM_WRITES, ids=str)
def test_a_stream_is_written_like_the_jar_writes_it(
    formats: Formats, job: Job, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    def outcome(kind: str, sink: str) -> Outcome:
        into = replace(formats, names={**formats.names, "sink": sink})
        frame = stream_of(formats, "$plain").selectExpr(*(column.replace("$sink", sink) for column in job.columns))
        if kind == OURS and not job.in_spark:
            return into.refusal(Use.STREAM_WRITE, job.given, frame)
        found = into.write_stream(kind, frame, job.given, tmp_path / kind)
        return found if found.refused or job.ours else replace(found, rows=tuple(into.written(sink)))

    ours, theirs = (make_topic(kafka4, partitions=3) for _ in range(2))
    judge(job, *at_once(lambda: outcome(OURS, ours), lambda: outcome(THEIRS, theirs)))


def test_a_setting_without_transactions_ends_a_streaming_write_on_the_driver(
    formats: Formats, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    given = {"topic": make_topic(kafka4), "kafka.acks": "1"}
    said = formats.write_stream(OURS, stream_of(formats, "$plain"), given, tmp_path / "acks").refused
    assert "kafka.acks = 1 is not possible in writeStream" in said
    assert "Task " not in said, said
    assert not [*(tmp_path / "acks").glob("commits/*")]


def test_aggregates_are_written_whole_by_both_and_by_the_page_s_way_as_the_jar_writes_updates(
    formats: Formats, kafka4: DevCluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    formats.spark.conf.set("spark.sql.shuffle.partitions", "2")
    counts = stream_of(formats, "$plain").groupBy("value").count()
    rows = counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")
    refused = formats.write_stream(OURS, rows, {"topic": "t"}, tmp_path / "refused", "update").refused
    assert "does not support Update mode" in refused
    whole = {kind: make_topic(kafka4) for kind in (OURS, THEIRS)}
    updates = {kind: make_topic(kafka4) for kind in (OURS, THEIRS)}

    def ours() -> Outcome:
        as_the_page_says(rows, kafka4, updates[OURS], tmp_path / "page")
        return formats.write_stream(OURS, rows, {"topic": whole[OURS]}, tmp_path / "ours", "complete")

    def theirs() -> Outcome:
        done = formats.write_stream(THEIRS, rows, {"topic": updates[THEIRS]}, tmp_path / "updates", "update")
        more = formats.write_stream(THEIRS, rows, {"topic": whole[THEIRS]}, tmp_path / "theirs", "complete")
        return Outcome(done.refused + more.refused)

    assert [outcome.refused for outcome in at_once(ours, theirs)] == ["", ""]
    for sinks in (whole, updates):
        assert formats.written(sinks[OURS]) == formats.written(sinks[THEIRS])


def stream_of(formats: Formats, topic: str) -> Any:
    """A topic as a stream from its beginning."""
    given = formats.options({"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"})
    return formats.spark.readStream.format(OURS).options(**given).load()


def as_the_page_says(counts: Any, cluster: DevCluster, topic: str, checkpoint: Path) -> None:
    """Run the page's program that writes updates."""
    page = (ROOT / "docs" / "guide" / "spark-dataframes.md").read_text(encoding="utf-8")
    program = page.split("### Aggregates", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    program = program.replace("127.0.0.1:9092", cluster.bootstrap_servers).replace('"counts"', f'"{topic}"')
    names: dict[str, Any] = {"counts": counts}
    exec(program, names)
    query = names["query"].option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert query.exception() is None


# -- the list itself -------------------------------------------------------------------------------------------------


def test_every_documented_option_is_tried_in_each_job_that_it_is_for() -> None:
    for use, jobs in (
        (Use.BATCH_READ, BATCH_READS),
        (Use.STREAM_READ, STREAM_READS),
        (Use.BATCH_WRITE, BATCH_WRITES),
        (Use.STREAM_WRITE, STREAM_WRITES),
    ):
        tried = {name for job in jobs for name in job.given}
        assert {name for name, uses in DOCUMENTED.items() if use in uses} <= tried


def test_the_page_of_the_options_names_each_and_each_setting_of_sparks() -> None:
    page = (ROOT / "docs" / "reference" / "spark-options.md").read_text(encoding="utf-8")
    assert [name for name in (*DOCUMENTED, *SETTINGS) if f"`{name}`" not in page] == []


def test_the_jar_itself_looks_for_no_option_that_is_not_on_the_list(jar: None, spark: Any) -> None:
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    found = set()
    provider = loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider$")
    for each in provider.getDeclaredFields():
        if each.getType().getName() == "java.lang.String":
            each.setAccessible(True)
            found.add(str(each.get(provider.getField("MODULE$").get(None))))
    names = {name for name in found if re.fullmatch(r"[a-z]+(\.[a-z]+)?", name)}
    assert len(names) > 20
    assert names - {name.lower() for name in DOCUMENTED} == set()
