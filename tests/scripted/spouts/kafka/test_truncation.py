"""A log that was truncated and written again under a stored or a running position (KIP-320), by a scripted broker."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamlet.kafka.protocol.messages.fetch import (
    EpochEndOffsetPartition,
    EpochEndOffsetTopic,
    OffsetForLeaderEpochResponse,
)
from streamlet.kafka.protocol.messages.metadata import MetadataTopic
from streamlet.kafka.protocol.schema import ApiKey
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig, epoch_ends
from streamlet.spouts.kafka.errors import OffsetsLost
from tests.scripted.fake_cluster import FakeCluster, Log
from tests.spout_harness import read_all

TOPIC = "lines"
UNKNOWN_EPOCH, UNAUTHORIZED = 75, 31


class Lines(FakeCluster):
    """A cluster with one topic of one partition."""

    def __init__(self) -> None:
        super().__init__({TOPIC: 1})
        self.names_epochs = True
        self.looks_behind = 0
        """How many answers about the topic name the epoch before the present one."""

    def _topic(self, name: str) -> MetadataTopic:
        topic = super()._topic(name)
        (row,) = topic.partitions
        behind, self.looks_behind = self.looks_behind > 0, max(0, self.looks_behind - 1)
        epoch = row.leader_epoch - behind if self.names_epochs else -1
        return replace(topic, partitions=(replace(row, leader_epoch=epoch),))

    def append(self, *values: str) -> None:
        self.write(TOPIC, *values)

    def elect(self, keeps: int) -> None:
        self.log(TOPIC, 0).elect(keeps)

    def restore(self, *values: str) -> None:
        """Put another log in place, whose leader epochs begin with 0: an older copy of the cluster."""
        self.topics[TOPIC] = [Log()]
        self.append(*values)

    def kept(self) -> Any:
        """The commit of the spout called demo."""
        return self.committed["demo", TOPIC, 0]

    def epoch_errors(self, *codes: int) -> None:
        """Answer the next questions for the end of an epoch so."""
        rows = [EpochEndOffsetPartition(error_code=code, partition=0, leader_epoch=-1, end_offset=-1) for code in codes]
        scripts = [
            OffsetForLeaderEpochResponse(topics=(EpochEndOffsetTopic(topic=TOPIC, partitions=(row,)),)) for row in rows
        ]
        self.broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, *scripts, self.epoch_end)


@pytest.fixture
def log() -> Iterator[Lines]:
    with Lines() as lines:
        yield lines


@pytest.fixture
def spout(log: Lines, harness: Callable[..., Any]) -> Callable[..., Any]:
    def start(name: str = "demo", **settings: Any) -> Any:
        quick = {"state_update_interval_ms": 50, "fetch_max_wait_ms": 20, "start_timeout_ms": 5000, **settings}
        hosts = KafkaHosts(log.broker.address, refresh_freq_secs=1)
        return harness(SpoutConfig(hosts, TOPIC, id=name, **quick))

    return start


def test_a_stored_offset_is_kept_with_the_epoch_of_the_record_before_it(log: Lines, spout: Any) -> None:
    """Also by a run that has read nothing: what it found is what it leaves."""
    log.append("a", "b")
    log.elect(keeps=2)
    log.append("c")
    one = spout()
    assert read_all(one, 3) == ["a", "b", "c"]
    one.spout.close()
    for _ in range(2):
        kept = log.kept()
        assert (kept.committed_offset, kept.committed_leader_epoch) == (3, 1)
        assert json.loads(kept.committed_metadata)["leader_epoch"] == 1
        again = spout()
        again.turn()
        again.spout.close()


@pytest.mark.parametrize("running", [True, False])
def test_a_log_written_again_below_the_position_stops_the_spout_with_the_exact_range(
    log: Lines, spout: Any, running: bool
) -> None:
    """The position is inside the log again, so nothing is out of range: only the epochs tell."""
    log.append(*"abcdef")
    one = spout()
    read_all(one, 6)
    if not running:
        one.spout.close()
    log.elect(keeps=4)
    log.append(*"EFGH")
    with pytest.raises(OffsetsLost, match=r"partition 0: .* offset 6, .* from offset 4 on .* \[4, 5\] \(2 offsets\)"):
        one.until(lambda: False) if running else spout()
    assert log.kept().committed_offset == 6, "nothing was changed"


@pytest.mark.parametrize("running", [True, False])
def test_where_loss_is_accepted_what_was_written_again_is_read_and_the_loss_counted(
    log: Lines, spout: Any, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """From where the logs parted on: nobody has read what stands there now."""
    log.append(*"abcdef")
    one = spout(fail_on_data_loss=False)
    read_all(one, 6)
    if not running:
        one.spout.close()
    log.elect(keeps=4)
    log.append(*"EFGH")
    with caplog.at_level(logging.ERROR):
        one = one if running else spout(fail_on_data_loss=False)
        assert read_all(one, 4) == list("EFGH")
    assert "offsets [4, 5] (2 offsets) are lost, going on at 4" in caplog.text
    assert one.spout.lost_count() == one.status()["lost"] == 2


def test_an_election_that_lost_nothing_changes_nothing(log: Lines, spout: Any) -> None:
    """It is asked, and reading goes on: no record twice, none left out."""
    log.append(*"abc")
    one = spout()
    read_all(one, 3)
    log.elect(keeps=3)
    log.append(*"de")
    assert read_all(one, 2) == ["d", "e"]
    (asked,) = log.broker.seen(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    (row,) = asked.request.topics[0].partitions
    assert (row.leader_epoch, row.current_leader_epoch) == (0, 1)


def test_while_it_cannot_be_said_it_is_asked_again_and_nothing_is_read(log: Lines, spout: Any) -> None:
    """A leader that does not know yet that it is one."""
    log.append(*"abc")
    one = spout()
    read_all(one, 3)
    log.epoch_errors(*[UNKNOWN_EPOCH] * 3)
    log.elect(keeps=2)
    log.append(*"CDE")
    with pytest.raises(OffsetsLost, match=r"\[2, 2\] \(1 offset\)"):
        one.until(lambda: bool(one.tuples))
    assert len(log.broker.seen(ApiKey.OFFSET_FOR_LEADER_EPOCH)) > 3 and not one.tuples


def test_where_it_may_not_be_asked_reading_goes_on(log: Lines, spout: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As without the question; a warning says so."""
    log.append(*"abc")
    one = spout()
    read_all(one, 3)
    log.epoch_errors(UNAUTHORIZED)
    log.elect(keeps=3)
    log.append("d")
    with caplog.at_level(logging.WARNING):
        assert read_all(one, 1) == ["d"]
    assert "whether its log was truncated cannot be asked" in caplog.text


# -- epochs that the leader does not know ------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_ends, "BEHIND_S", 0.3)


def read_in_epoch_1(log: Lines, spout: Any, **settings: Any) -> Any:
    log.append("a", "b")
    log.elect(keeps=2)
    log.append("c", "d")
    one = spout(**settings)
    assert read_all(one, 4) == list("abcd")
    return one


@pytest.mark.parametrize("running", [True, False])
def test_another_log_in_place_of_the_one_that_was_read_stops_the_spout(
    log: Lines, spout: Any, soon: None, running: bool
) -> None:
    """The position lies in it, so nothing is out of range; its leader epochs are too low."""
    one = read_in_epoch_1(log, spout)
    if not running:
        one.spout.close()
    log.restore(*"uvwxyz")
    with pytest.raises(OffsetsLost, match=r"partition 0: .* offset 4, but .* newer leader epoch .* another log"):
        one.until(lambda: False) if running else spout()
    assert log.kept().committed_offset == 4, "nothing was changed"


@pytest.mark.parametrize("running", [True, False])
def test_where_loss_is_accepted_another_log_is_read_from_its_start(
    log: Lines, spout: Any, soon: None, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one = read_in_epoch_1(log, spout, fail_on_data_loss=False)
    if not running:
        one.spout.close()
    log.restore(*"uvwxyz")
    one = one if running else spout(fail_on_data_loss=False)
    assert read_all(one, 6) == list("uvwxyz")
    assert "what was not read is lost" in caplog.text and "going on at 0" in caplog.text


def test_a_leader_that_keeps_no_epochs_stops_nobody(log: Lines, spout: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Its messages are of a format without epochs: nothing follows from its answer."""
    read_in_epoch_1(log, spout).spout.close()
    log.append("e")
    log.epoch_errors(0)
    assert read_all(spout(), 1) == ["e"]
    assert "keeps no leader epochs" in caplog.text


def test_a_cluster_that_names_no_epochs_stops_nobody(log: Lines, spout: Any, caplog: pytest.LogCaptureFixture) -> None:
    read_in_epoch_1(log, spout).spout.close()
    log.append("e")
    log.epoch_errors(0)
    log.names_epochs = False
    assert read_all(spout(), 1) == ["e"]
    assert "keeps no leader epochs" in caplog.text


def test_a_broker_that_knows_of_no_election_yet_is_not_believed(
    log: Lines, spout: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The offset was stored under a newer leader than it names: another look is taken, and none is lost."""
    read_in_epoch_1(log, spout).spout.close()
    log.append("e")
    log.looks_behind = 4
    one = spout()
    assert read_all(one, 1) == ["e"] and not log.looks_behind
    assert "lost" not in caplog.text
