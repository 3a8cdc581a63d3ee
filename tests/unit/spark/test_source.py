"""The plans of a stream's batches, from what the brokers answer."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from streamlet.base.errors import BadInput
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.spark import planning, source
from streamlet.spark.options import Use, read_options
from streamlet.spark.planning import DataLost, Logs, TaskRange
from streamlet.spark.source import KafkaDataSource, RefusedStream, StreamReader

A, B = ("a", 0), ("b", 0)
OLD, NEW = {"a": "id-1"}, {"a": "id-2"}


class Answers:
    """Brokers that answer one thing after another; the last one again and again."""

    def __init__(self, *answers: Logs | Exception) -> None:
        self._left = [*answers]

    def logs(self) -> Logs:
        answer = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(source, "_ASK_AGAIN_S", 0.0)
    yield


def reader(*answers: Logs | Exception, lossy: bool = False, timeout_ms: int = 60_000) -> StreamReader:
    options = {
        "kafka.bootstrap.servers": "localhost:1",
        "subscribePattern": ".",
        "kafka.default.api.timeout.ms": str(timeout_ms),
        "kafka.request.timeout.ms": "1",
        "failOnDataLoss": "false" if lossy else "true",
    }
    made = StreamReader(read_options(options, Use.STREAM_READ), None)
    made._kafka = Answers(*answers)  # type: ignore[assignment]
    return made


def planned(made: StreamReader, start: dict[str, Any]) -> list[TaskRange]:
    end = made.latestOffset(start, ReadAllAvailable())
    return [task.value for task in made.partitions(start, end) if task.value is not None]


def test_a_partition_that_one_answer_lacks_is_asked_for_again_before_the_plan() -> None:
    start = planning.to_json({A: 5, B: 7})
    for stale in (Logs({A: 9}), Logs({A: 9, B: 3}), UnknownTopicOrPartition("b")):
        assert planned(reader(stale, Logs({A: 9, B: 7})), start) == [TaskRange("a", 0, 5, 9)]
    ended = reader(Logs({A: 9}), Logs({A: 9, B: 8}))
    ended.prepareForTriggerAvailableNow()
    assert planned(ended, start) == [TaskRange("a", 0, 5, 9), TaskRange("b", 0, 7, 8)]


def test_a_partition_that_stays_away_fails_the_query_before_the_plan() -> None:
    start = planning.to_json({A: 5, B: 7})
    with pytest.raises(DataLost, match="b-0 of the query's offsets is no longer there"):
        reader(Logs({A: 9}), timeout_ms=2).latestOffset(start, ReadAllAvailable())
    with pytest.raises(UnknownTopicOrPartition):
        reader(UnknownTopicOrPartition("b"), timeout_ms=2).latestOffset(start, ReadAllAvailable())


def test_without_fail_on_data_loss_a_missing_partition_goes_on_where_it_was() -> None:
    start = planning.to_json({A: 5, B: 7})
    made = reader(Logs({A: 9}), Logs({A: 9, B: 8}), lossy=True)
    end = made.latestOffset(start, ReadAllAvailable())
    assert planning.from_json(end) == {A: 9, B: 7}
    assert planned(made, end) == [TaskRange("b", 0, 7, 8)]


@pytest.mark.parametrize("size", [50, 100, 250])
def test_a_topic_that_was_made_again_is_told_and_read_from_its_beginning(size: int) -> None:
    for start in (
        planning.batch_end(planning.to_json({A: 1}), {A: 100}, OLD),
        planning.initial({A: 100}, OLD),
    ):
        with pytest.raises(DataLost, match="Topic 'a' was deleted and made again: its id is id-2, and was id-1"):
            reader(Logs({A: size}, NEW)).latestOffset(start, ReadAllAvailable())
        assert planned(reader(Logs({A: size}, NEW), lossy=True), start) == [TaskRange("a", 0, 0, size)]


def test_one_answer_with_an_old_id_is_not_believed() -> None:
    """Of a broker that lags behind; the partition would be read from its beginning again."""
    start = planning.batch_end(planning.to_json({A: 5}), {A: 7}, NEW)
    stale = [Logs({A: 100}, OLD)] * (source._SURE_LOOKS - 1)
    for lossy in (False, True):
        assert planned(reader(*stale, Logs({A: 9}, NEW), lossy=lossy), start) == [TaskRange("a", 0, 7, 9)]


class ForgetfulAdmin:
    """Does not know the topic for so many questions."""

    def __init__(self, unknown: int) -> None:
        self.unknown, self.asked = unknown, 0

    def describe_topics(self, names: tuple[str, ...]) -> dict[str, Any]:
        self.asked += 1
        if self.asked <= self.unknown:
            raise UnknownTopicOrPartition(names[0])
        return dict.fromkeys(names, SimpleNamespace(partitions=(SimpleNamespace(partition=0),), topic_id="id-1"))


def test_a_topic_that_was_just_created_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    options = read_options({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}, Use.BATCH_READ)
    late = ForgetfulAdmin(2)
    monkeypatch.setattr(source, "Admin", lambda **_settings: late)
    assert source.Kafka(options).partitions() == [A]
    never = ForgetfulAdmin(99)
    monkeypatch.setattr(source, "Admin", lambda **_settings: never)
    with pytest.raises(UnknownTopicOrPartition):
        source.Kafka(options).partitions()
    assert never.asked == source._SURE_LOOKS


def test_a_checkpoint_without_ids_goes_on_and_has_them_from_the_next_batch_on() -> None:
    start = planning.to_json({A: 5})
    made = reader(Logs({A: 9}, OLD), Logs({A: 20}, NEW))
    end = made.latestOffset(start, ReadAllAvailable())
    assert planning.from_json(end) == {A: 9}
    with pytest.raises(DataLost, match="made again"):
        made.latestOffset(end, ReadAllAvailable())


def test_a_streams_wrong_option_is_told_by_the_first_call_and_the_reader_can_be_stopped() -> None:
    """Raised where the reader is made, Spark would tell that it has none to stop."""
    refused = KafkaDataSource({"nope": "1"})
    made = refused.streamReader(refused.schema())
    assert isinstance(made, RefusedStream)
    calls = [
        made.initialOffset,
        made.getDefaultReadLimit,
        lambda: made.latestOffset({}, ReadAllAvailable()),
        made.reportLatestOffset,
        made.prepareForTriggerAvailableNow,
        lambda: made.partitions({}, {}),
    ]
    for call in calls:
        with pytest.raises(BadInput, match="Unknown option 'nope'"):
            call()
    made.stop()
