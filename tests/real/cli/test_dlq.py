"""``streamlet dlq`` on a real broker: what a replay writes, what it never writes twice, and what a purge leaves."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamlet.devcluster import DevCluster
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.dead_letters.dead_letter import Fault, GivenUp, RunStamp, headers_of
from streamlet.spouts.kafka.dead_letters.dead_letter_choice import LetterFilter, plan_replay
from streamlet.spouts.kafka.dead_letters.dead_letter_topic import DeadLetterTopic, ReplayFailed
from streamlet.spouts.kafka.schemes.scheme import Record
from tests.command_line import ROOT, Streamlet, streamlet
from tests.patience import PATIENCE_S
from tests.read_back import Row, read_back

__all__ = ["streamlet"]

TOPOLOGY = ROOT / "tests" / "topologies" / "poison.py"
OWN = "streamlet.dlq."


@dataclass
class Site:
    """Numbers in a topic, a topology that finds some of them poison, and a topic for these."""

    streamlet: Streamlet
    cluster: DevCluster
    topic: str
    letters: str

    def environment(self, fixed: bool = False) -> dict[str, str]:
        names = ("SERVERS", "TOPIC", "LETTERS", "DONE", "FIXED")
        values = (self.cluster.bootstrap_servers, self.topic, self.letters, str(self.folder), "yes" if fixed else "")
        return {f"POISON_{name}": value for name, value in zip(names, values, strict=True)}

    @property
    def folder(self) -> Path:
        return self.streamlet.folder

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True})
        for number in range(count):
            producer.produce(self.topic, str(number), f"key {number}", headers=[("trace", b"\xff%d" % number)])
        assert producer.flush(30) == 0

    def write_letters(self, count: int, value: Callable[[int], bytes], topic: str | None = None) -> None:
        """Dead letters of records that are in no topic."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "enable.idempotence": True,
                "message.max.bytes": 2 << 20,
            }
        )
        for offset in range(count):
            given_up = GivenUp(
                Record(topic or self.topic, 0, offset, 5, None, b"x", []), 0, 3, Fault("count", "ValueError", "no")
            )
            headers = headers_of(given_up, RunStamp("Poison", "run-1", "numbers", "0.1.0", None), 9)
            producer.produce(self.letters, value(offset), headers=headers, partition=0)
            producer.poll(0)
        assert producer.flush(30) == 0

    def run(self, fixed: bool = False) -> None:
        done = self.streamlet("run", TOPOLOGY, "--until-caught-up", "--workers", "1", **self.environment(fixed))
        assert done.returncode == 0, done.stderr

    def dlq(self, command: str, *arguments: object) -> Any:
        """The command's object of JSON."""
        done = self.streamlet("dlq", command, TOPOLOGY, *arguments, "--json", **self.environment())
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def said(self, command: str, *arguments: object) -> str:
        done = self.streamlet("dlq", command, TOPOLOGY, *arguments, **self.environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def records(self, at_least: int) -> list[Row]:
        return read_back(self.cluster, self.topic, at_least)

    def done(self) -> list[int]:
        lines = [line for file in self.folder.glob("done.*") for line in file.read_text().split()]
        return sorted(map(int, lines))


@pytest.fixture
def site(kafka4: DevCluster, make_topic: Callable[..., str], streamlet: Streamlet) -> Site:
    made = Site(streamlet, kafka4, make_topic(kafka4, 2), make_topic(kafka4, 2))
    made.produce(400)
    return made


POISON = sorted({*range(13, 400, 100), *range(7, 400, 200), *range(99, 400, 200)})


def test_a_replay_after_the_fix_brings_every_record_to_its_end_and_empties_the_list(site: Site) -> None:
    site.run()
    assert site.done() == sorted({*range(400)} - {*POISON})
    letters = site.dlq("list")["letters"]
    values = [row.value for row in read_back(site.cluster, site.letters, len(POISON))]
    assert sorted(values) == sorted(b"%d" % number for number in POISON) and len(letters) == len(POISON)

    planned = site.dlq("replay")
    assert planned["dry_run"] and len(planned["letters"]) == len(POISON)
    assert len(site.records(400)) == 400, "nothing was written"
    replayed = site.dlq("replay", "--yes")
    assert [row["state"] for row in planned["letters"]] == ["open"] * len(POISON)
    assert [row["state"] for row in replayed["letters"]] == ["replayed"] * len(POISON)
    rows = site.records(400 + len(POISON))
    again = [row for row in rows if any(name == OWN + "replays" for name, _ in row.headers)]
    assert len(rows) == 400 + len(POISON) and sorted(int(row.value or b"") for row in again) == POISON
    for row in again:
        number = int(row.value or b"")
        first = next(one for one in rows if one.value == row.value and one is not row)
        assert (row.partition, row.key) == (first.partition, b"key %d" % number)
        own = {name: value for name, value in row.headers if name.startswith(OWN)}
        assert row.headers[0] == ("trace", b"\xff%d" % number) and len(row.headers) == 4
        assert own[OWN + "replays"] == b"1"
        assert own[OWN + "first.record"] == f"{site.topic}/{first.partition}/{first.offset}".encode()

    assert site.dlq("list")["letters"] == [] and len(site.dlq("list", "--all")["letters"]) == len(POISON)
    assert site.dlq("replay", "--yes")["letters"] == [], "each letter once"
    site.run(fixed=True)
    assert site.done() == [*range(400)]


def test_a_record_that_fails_again_keeps_its_history_and_does_not_circle_for_ever(site: Site) -> None:
    site.run()
    for round_ in range(1, 4):
        assert len(site.dlq("replay", "--yes", "--component", "refuse", "--max-replays", 2)["letters"]) == (
            4 if round_ < 3 else 0
        )
        site.run()
    refused = site.dlq("list", "--component", "refuse")["letters"]
    assert [letter["replays"] for letter in refused] == [2, 2, 2, 2]
    assert {letter["first_record"] for letter in refused} == {
        f"{site.topic}/{row.partition}/{row.offset}" for row in site.records(408) if len(row.headers) == 1
        and int(row.value or b"") % 100 == 13
    }  # fmt: skip
    assert all(letter["first_failed_at_ms"] < letter["failed_at_ms"] for letter in refused)
    said = site.said("replay", "--component", "refuse", "--max-replays", 2)
    assert "no letters to be replayed" in said
    assert "4 dead letters stay: replayed 2 times or more" in said


def test_filters_choose_show_tells_all_of_one_letter_and_other_topologies_are_left_out(site: Site) -> None:
    site.run()
    letters = site.dlq("list")["letters"]
    for option, value, chosen in (
        ("--component", "done", lambda row: row["component"] == "done"),
        ("--error", "ValueError", lambda row: row["error"] == "ValueError"),
        ("--partition", 1, lambda row: row["partition"] == 1),
        ("--offsets", "0-20", lambda row: row["offset"] <= 20),
        ("--topic", "other", lambda row: False),
        ("--until", "2020-01-01T00:00:00Z", lambda row: False),
        ("--since", "2020-01-01T00:00:00Z", lambda row: True),
    ):
        found = site.dlq("list", option, value)["letters"]
        assert [row["letter"] for row in found] == [row["letter"] for row in letters if chosen(row)], option  # type: ignore[no-untyped-call]
    one = next(row for row in letters if row["component"] == "done")
    shown = site.dlq("show", one["letter"])
    assert shown["text"].startswith("not wanted: ") and shown["key"] == f"key {shown['value']}"
    assert shown["headers"] == [["trace", {"base64": shown["headers"][0][1]["base64"]}]]
    assert (shown["code_version"], shown["topology"], shown["state"]) == ("poisoned", "Poison", "open")
    text = site.said("list", "--limit", 1)
    assert f"{len(POISON)} dead letters" in text and f"and {len(POISON) - 1} more" in text
    record, fault = Record("lines", 0, 7, 5, None, b"x", []), Fault("count", "ValueError", "no")
    headers = headers_of(GivenUp(record, 0, 3, fault), RunStamp("Other", "run-1", "lines", "0.1.0", None), 9)
    producer = Producer({"bootstrap.servers": site.cluster.bootstrap_servers, "enable.idempotence": True})
    producer.produce(site.letters, b"x", headers=headers)
    assert producer.flush(30) == 0
    own, every = site.dlq("list"), site.dlq("list", "--all-topologies")
    assert (len(own["letters"]), own["other_topologies"]) == (len(POISON), 1)
    assert (len(every["letters"]), every["other_topologies"]) == (len(POISON) + 1, 0)
    assert len(site.dlq("purge", "--all", "--yes")["letters"]) == len(POISON)
    assert [row["topology"] for row in site.dlq("list", "--all-topologies")["letters"]] == ["Other"]
    assert len(site.dlq("purge", "--all", "--all-topologies", "--yes")["letters"]) == 1
    assert site.dlq("list", "--all", "--all-topologies")["letters"] == []


def test_a_purge_deletes_what_was_replayed_and_names_what_stands_behind_others(
    site: Site, make_topic: Callable[..., str]
) -> None:
    site.run()
    letters = site.dlq("list")["letters"]
    late = next(row for row in reversed(letters) if not row["letter"].endswith(":0"))
    assert site.dlq("purge", "--yes")["letters"] == [], "open letters are kept"
    only = ("--partition", late["partition"], "--offsets", late["offset"])
    assert [row["letter"] for row in site.dlq("replay", "--yes", *only)["letters"]] == [late["letter"]]
    planned = site.dlq("purge")
    assert planned["letters"] == [] and [row["letter"] for row in planned["stays"]] == [late["letter"]]
    assert f"letter {planned['stays'][0]['letter']} stands behind" in site.said("purge")
    elsewhere = make_topic(site.cluster)
    said = site.said("replay", "--yes", "--to", elsewhere)
    assert f"{len(POISON) - 1} dead letters replayed." in said and " open" not in said
    assert len(read_back(site.cluster, elsewhere, len(POISON) - 1)) == len(POISON) - 1
    assert len(site.records(401)) == 401, "the first replay's, and none of this one"
    site.dlq("purge", "--yes", "--component", "refuse")
    left = site.dlq("list", "--all")["letters"]
    assert left and all(row["state"] == "replayed" for row in left), "what has another letter before it stays"
    site.dlq("purge", "--yes")
    assert site.dlq("list", "--all")["letters"] == []


def test_a_replay_that_ends_in_between_leaves_nothing_half_done(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the commit: the next command finds the same letters open, and readers of read_committed see no record."""
    site.run()
    settings = SpoutConfig(
        KafkaHosts(site.cluster.bootstrap_servers), site.topic, id=site.topic, dead_letter_topic=site.letters
    )
    with DeadLetterTopic(settings, print) as topic:
        early, first, letters, others = topic.begin_replay(), topic.begin_replay(), topic.read().letters, []
        commit = first.commit_transaction

        def as_another_command_begins() -> None:
            first.flush()
            others.append(topic.begin_replay())
            commit()

        monkeypatch.setattr(first, "commit_transaction", as_another_command_begins)
        for fenced in (early, first):
            with pytest.raises(ReplayFailed, match=r"early: another `streamlet dlq replay` .* 0 letters are replayed"):
                topic.replay(fenced, letters, None)
        log, (second,) = topic.read(), others
        assert plan_replay(log, LetterFilter(), 3).chosen == letters and not log.replayed
        assert topic.replay(second, letters, None).written == letters
        early.close(0)
        first.close(0)
        second.close()
        # Whole: a commit is answered before its markers are written.
        assert plan_replay(topic.read(whole=True), LetterFilter(), 3).chosen == []
    assert len(site.records(400 + len(POISON))) == 400 + len(POISON)


def test_a_letter_that_its_topic_refuses_is_named_and_holds_up_no_other(
    site: Site, make_topic: Callable[..., str]
) -> None:
    """Too large for the topic of today, in the middle of a transaction; the others of it are written."""
    # Made with the limit: a broker may take for a moment what a changed setting forbids.
    small = make_topic(site.cluster, configs={"retention.ms": "-1", "max.message.bytes": "50000"})
    site.write_letters(30, lambda offset: b"x" * (200_000 if offset == 7 else 100), small)
    why = f"'{small}' takes no record of 200000 bytes. Raise its max.message.bytes, or write it elsewhere with --to."
    done = site.streamlet("dlq", "replay", TOPOLOGY, "--yes", "--json", **site.environment())
    assert (done.returncode, done.stderr) == (1, "")
    told = json.loads(done.stdout)
    assert len(told["letters"]) == 29
    assert [(row["letter"], row["state"], row["why"]) for row in told["refused"]] == [("0:7", "open", why)]
    again = site.streamlet("dlq", "replay", TOPOLOGY, "--yes", **site.environment())
    assert (again.returncode, again.stderr) == (1, "")
    assert again.stdout.endswith(f"1 dead letter was refused, and stays:\nletter 0:7: {why}\n")
    assert len(read_back(site.cluster, small, 29)) == 29
    assert len(site.dlq("replay", "--yes", "--to", make_topic(site.cluster))["letters"]) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_replay_says_what_it_has_done_and_the_next_one_does_the_rest(
    site: Site, number: int, status: int
) -> None:
    count = 20_000
    site.write_letters(count, lambda offset: b"%d" % offset)
    process = site.streamlet.start("dlq", "replay", TOPOLOGY, "--yes", "--json", **site.environment())
    witness, deadline = Consumer({"bootstrap.servers": site.cluster.bootstrap_servers, "group.id": "-"}), PATIENCE_S
    began, until = witness.get_watermark_offsets(TopicPartition(site.topic, 0))[1], time.monotonic() + deadline
    while witness.get_watermark_offsets(TopicPartition(site.topic, 0))[1] == began:
        assert process.poll() is None and time.monotonic() < until
    witness.close()
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    told = json.loads(out)
    done = len(told["letters"])
    assert process.returncode == status and 0 < done < count and done + len(told["left"]) == count
    assert (
        err == f"Interrupted: {done} of {count} dead letters replayed and marked as such. Run it again for the rest.\n"
    )
    assert len(site.dlq("replay", "--yes")["letters"]) == count - done
    assert len(site.records(400 + count)) == 400 + count


def test_what_is_wrong_is_said_before_anything_is_written(site: Site) -> None:
    for arguments, said in (
        (("replay", TOPOLOGY, "--to", site.letters), "is the topic of the dead letters itself"),
        (("replay", TOPOLOGY, "--to", "nowhere", "--yes"), "'nowhere': it does not exist. Nothing was written"),
        (("list", TOPOLOGY, "--since", "yesterday"), "'yesterday' names no moment"),
        (("list", TOPOLOGY, "--offsets", "9-1"), "'9-1' names no range of offsets"),
        (("show", TOPOLOGY, "0"), "'0' names no dead letter"),
        (("show", TOPOLOGY, "0:99"), "There is no dead letter 0:99"),
        (("list", TOPOLOGY, "--spout", "lines"), "has no KafkaSpout 'lines' (--spout)"),
        (("list", TOPOLOGY, "-c", "numbers.dead_letter_topic=gone"), "The topic 'gone' does not exist"),
    ):
        done = site.streamlet("dlq", *arguments, **site.environment())
        assert (done.returncode, done.stdout) == (2, ""), done
        assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert len(site.records(400)) == 400
