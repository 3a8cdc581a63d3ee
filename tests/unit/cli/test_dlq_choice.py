"""Which letters ``streamlet dlq`` means: of one topology, in the one dead-letter topic of its spouts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamlet.base.errors import BadInput
from streamlet.cli import dlq
from streamlet.cli.dlq import WantedLetters, one_config
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.dead_letters.dead_letter import Fault, GivenUp, RunStamp, headers_of
from streamlet.spouts.kafka.dead_letters.dead_letter_choice import LetterFilter, LetterLog, plan_purge, plan_replay
from streamlet.spouts.kafka.dead_letters.dead_letter_topic import RefusedLetter, Replayed
from streamlet.spouts.kafka.schemes.scheme import Record


def shared_log() -> LetterLog:
    """One letter each of the topologies Billing, Other, Billing."""
    log = LetterLog(ends={0: 3})
    for offset, topology in enumerate(("Billing", "Other", "Billing")):
        record = Record("lines", 0, offset, 5, None, b"v", [])
        stamp = RunStamp(topology, "run-1", "lines", "0.1.0", None)
        log.add((0, offset), headers_of(GivenUp(record, 0, 3, Fault("count", "E", "no")), stamp, 9))
    return log


def test_letters_of_other_topologies_are_left_out_and_counted_unless_all_are_wanted() -> None:
    log, own, every = shared_log(), WantedLetters(LetterFilter(), False), WantedLetters(LetterFilter(), True)
    assert [one.offset for one in plan_replay(log, own.of("Billing"), 3).chosen] == [0, 2]
    assert [one.offset for one in plan_replay(log, every.of("Billing"), 3).chosen] == [0, 1, 2]
    purged = plan_purge(log, own.of("Billing"), unreplayed=True)
    assert purged.before == {0: 1} and [(one.offset, behind) for one, behind in purged.stays] == [(2, 1)]
    assert (own.left_out(log, "Billing"), own.left_out(log, "Other"), every.left_out(log, "Other")) == (1, 2, 0)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"components": ["coumt"]}, "No letter of Billing has the component 'coumt'. Did you mean 'count'?"),
        ({"errors": ["KeyErr"]}, "No letter of Billing has the error 'KeyErr'. There are: E."),
        ({"errors": ["E"], "components": ["count"]}, None),
        ({"errors": [""]}, "No letter of Billing has the error ''. There are: E."),
        ({"topics": ["nope"]}, "No letter of Billing has the topic 'nope'. There are: lines."),
        ({"topics": ["line"]}, "No letter of Billing has the topic 'line'. Did you mean 'lines'?"),
        ({"partitions": [77]}, "No letter of Billing has the partition 77. There are: 0."),
        ({"topics": ["lines"], "partitions": [0]}, None),
    ],
)
def test_a_value_that_no_letter_has_is_answered_with_those_there_are(
    chosen: dict[str, list[Any]], said: str | None
) -> None:
    """Nothing chosen by a misspelt name looks like nothing there."""
    wanted = WantedLetters(LetterFilter(**chosen), False)
    assert wanted.unknown(shared_log(), "Billing") == ([] if said is None else [said])
    assert wanted.unknown(LetterLog(), "Billing") == []


def test_letters_without_an_error_are_chosen_by_an_empty_one() -> None:
    """Those that a bolt sent itself."""
    log = shared_log()
    record, stamp = Record("lines", 0, 3, 5, None, b"v", []), RunStamp("Billing", "run-1", "lines", "0.1.0", None)
    log.add((0, 3), headers_of(GivenUp(record, 0, 1, Fault("count", "", "not wanted")), stamp, 9))
    wanted = WantedLetters(LetterFilter(errors=[""]), False)
    assert wanted.unknown(log, "Billing") == []
    assert [one.offset for one in plan_replay(log, wanted.of("Billing"), 3).chosen] == [3]


def test_a_spout_that_is_named_narrows_the_choice_to_its_own_topic() -> None:
    """Two spouts share a dead-letter topic: a purge meant for one must leave the other's letters."""
    log, stamp = shared_log(), RunStamp("Billing", "run-1", "b", "0.1.0", None)
    log.add(
        (0, 3), headers_of(GivenUp(Record("other", 0, 3, 5, None, b"v", []), 0, 3, Fault("c", "E", "no")), stamp, 9)
    )
    found = {"a": config("h:1", "dead"), "b": replace(config("h:1", "dead"), topic="other")}
    wanted = WantedLetters(LetterFilter(), False)
    assert [one.offset for one in log.letters if wanted.of("Billing").takes(one)] == [0, 2, 3]
    for component, offsets in (("a", [0, 2]), ("b", [3])):
        chosen = wanted.of_spout(found[component]).of("Billing")
        assert [one.offset for one in log.letters if chosen.takes(one)] == offsets


def test_times_of_a_letter_have_their_dates() -> None:
    assert dlq.dated(1_769_853_600_123) == "2026-01-31T10:00:00Z (1769853600123)"
    assert dlq.dated(-1) == -1


def config(servers: str, letters: str) -> SpoutConfig:
    return SpoutConfig(KafkaHosts(servers), "lines", id="x", dead_letter_topic=letters)


def test_equal_topics_of_two_clusters_are_two_dead_letter_topics() -> None:
    here, there = config("a:1", "dead"), config("b:1", "dead")
    assert one_config("Billing", {"x": here, "y": config("a:1", "dead")}).hosts == here.hosts
    with pytest.raises(BadInput, match=r"has 2 dead-letter topics \(dead, dead\).*--spout, x or y"):
        one_config("Billing", {"x": here, "y": there})
    with pytest.raises(BadInput, match="No KafkaSpout of Billing"):
        one_config("Billing", {"x": SpoutConfig(KafkaHosts("a:1"), "lines", id="x")})


def test_headers_that_anybody_wrote_neither_break_a_listing_nor_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = LetterLog(ends={0: 1})
    own = {
        "topic": b"lines",
        "partition": b"0",
        "offset": b"7",
        "failed.at": b"9" * 18,
        "error.class": b"\x1b[2AE\nrow",
    }
    log.add((0, 0), [(f"streamlet.dlq.{name}", value) for name, value in own.items()])
    dlq._list(log, log.letters, 10)
    told = capsys.readouterr().out
    assert "\\x1b[2AE\\nrow" in told and "\x1b" not in told and "9" * 18 in told
    assert (
        dlq.line_of("key", 3, "a\x1b[2Jb") == "key  a\\x1b[2Jb"
        and dlq.line_of("key", 3, "a\nb") == "key  a\\nb"
        and dlq.line_of("n", 3, [1]) == "n    [1]"
    )


GIVEN_UP = GivenUp(Record("lines", 0, 100, 5, None, b"v", []), 0, 3, Fault("count", "E", "no"))
STAMP = RunStamp("Billing", "r", "lines", "0.1.0", None)


class FakeTopic:
    """A dead-letter topic with letters of the topology Billing, 35 unless others are given."""

    topic = "dead"

    def __init__(self) -> None:
        self.log = LetterLog(ends={0: 35})
        for offset in range(35):
            given_up = GIVEN_UP._replace(record=Record("lines", 0, 100 + offset, 5, None, b"v", []))
            self.log.add((0, offset), headers_of(given_up, STAMP, offset))
        self.replayed: list[int] = []
        self.refuses: list[int] = []
        self.purged: dict[int, int] = {}

    def read(self, *, whole: bool = False) -> LetterLog:
        return self.log

    def find(self, place: tuple[int, int]) -> Any:
        return type("Found", (), {"key": None, "value": b"v", "headers": []})

    def begin_replay(self) -> Any:
        return StringIO()  # it is closed, and that is all

    def check_targets(self, letters: Any, to: str | None) -> None:
        pass

    def replay(self, producer: Any, letters: Any, to: str | None, stopped: Any) -> Replayed:
        written = [letter for letter in letters if letter.place[1] not in self.refuses]
        self.replayed += [letter.place[1] for letter in written]
        refused = [RefusedLetter(letter, "too large") for letter in letters if letter not in written]
        return Replayed(written, [], refused, [])

    def purge(self, before: dict[int, int]) -> None:
        self.purged = before


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    made = FakeTopic()

    @contextlib.contextmanager
    def opened(chosen: Any, wanted: WantedLetters = dlq.EVERY_LETTER) -> Iterator[tuple[FakeTopic, str, WantedLetters]]:
        yield made, "Billing", wanted

    monkeypatch.setattr(dlq, "_opened", opened)
    return made


def run(*arguments: str, status: int = 0) -> Result:
    done = CliRunner().invoke(dlq.dlq, [arguments[0], "billing.py", *arguments[1:]])
    assert done.exit_code == status, (done.output, done.exception)
    return done


@pytest.mark.parametrize(
    ("more", "told"),
    [(0, None), (1, "1 of them is the second letter of a record that"), (3, "3 of them repeat a record that has one")],
)
def test_letters_of_a_record_that_has_one_already_are_told_in_a_list_and_a_replay(
    topic: FakeTopic, more: int, told: str | None
) -> None:
    """A worker died between the letter and its commit: without a word a replay would double the record."""
    for offset in range(35, 35 + more):
        given_up = GIVEN_UP._replace(record=Record("lines", 0, 100 + offset - 35, 5, None, b"v", []))
        topic.log.add((0, offset), headers_of(given_up, STAMP, offset))
    listed, planned = run("list").stdout, run("replay").stdout
    for shown in (listed, planned):
        assert told in shown if told else "second letter" not in shown and "repeat a record" not in shown
    assert f"{35 + more} dead letters would be replayed" in planned


def test_a_limit_of_a_replay_limits_the_replay_itself(topic: FakeTopic) -> None:
    """It limited the rows that were listed: `--limit 3 --yes` replayed all 35."""
    planned = run("replay", "--limit", "3").stdout
    assert planned.startswith("dead: 3 of 35 dead letters\n") and "more" not in planned
    said = "3 of 35 dead letters would be replayed, the oldest: --limit leaves 32. Nothing was changed: --yes does it."
    assert planned.endswith(f"{said}\n")
    assert topic.replayed == []
    done = run("replay", "--limit", "3", "--yes").stdout
    assert done.endswith("3 of 35 dead letters replayed, the oldest: --limit leaves 32.\n")
    assert topic.replayed == [0, 1, 2]
    told = json.loads(run("replay", "--limit", "40", "--json").stdout)
    assert (len(told["letters"]), told["chosen"]) == (32, 32)
    told = json.loads(run("replay", "--limit", "2", "--json", "--yes").stdout)
    assert ([row["letter"] for row in told["letters"]], told["chosen"]) == (["0:3", "0:4"], 32)
    rest = run("replay", "--yes").stdout
    assert rest.endswith("30 dead letters replayed.\n") and topic.replayed == [*range(35)]


def test_without_a_limit_a_replay_lists_its_first_rows_and_replays_all(
    topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq, "MOST_ROWS", 4)
    planned = run("replay").stdout
    assert "and 31 more\n35 dead letters would be replayed. Nothing was changed: --yes does it.\n" in planned
    assert "and 2 more\n6 of 35 dead letters would be replayed, the oldest" in run("replay", "--limit", "6").stdout
    topic.refuses = [1]
    assert "2 of 35 dead letters replayed, the oldest: --limit leaves 32.\n1 dead letter was refused" in run(
        "replay", "--limit", "3", "--yes", status=1
    ).stdout  # fmt: skip


def test_a_limit_of_a_purge_limits_the_purge_itself(topic: FakeTopic) -> None:
    planned = run("purge", "--all", "--limit", "3").stdout
    assert "3 of 35 dead letters would be deleted, the oldest: --limit leaves 32. Nothing was changed" in planned
    assert topic.purged == {}
    done = run("purge", "--all", "--limit", "3", "--yes").stdout
    assert done.endswith("3 of 35 dead letters deleted, the oldest: --limit leaves 32.\n") and topic.purged == {0: 3}
    told = json.loads(run("purge", "--all", "--limit", "3", "--json").stdout)
    assert (len(told["letters"]), told["chosen"], told["before"]) == (3, 35, {"0": 3})


def test_a_record_that_is_no_letter_is_called_that_where_a_purge_stops_before_it(topic: FakeTopic) -> None:
    """No list shows it, and no option takes it: its place alone would be a riddle."""
    topic.log.ends[0] = 37
    topic.log.add((0, 35), [("x", b"y")])
    topic.log.add((0, 36), headers_of(GIVEN_UP, STAMP, 36))
    said = run("purge", "--all").stdout
    assert (
        "letter 0:36 stands behind the record at 0:35. That one is not a dead letter, and no purge deletes it." in said
    )
    assert "kafka-delete-records does, up to offset 36 of partition 0" in said


@pytest.mark.parametrize("command", ["list", "replay", "purge"])
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--topic", "nope", "No letter of Billing has the topic 'nope'. There are: lines."),
        ("--partition", "77", "No letter of Billing has the partition 77. There are: 0."),
        ("--component", "coun", "No letter of Billing has the component 'coun'. Did you mean 'count'?"),
    ],
)
def test_an_option_that_chooses_nothing_is_answered_in_words_and_in_json(
    topic: FakeTopic, command: str, option: str, value: str, said: str
) -> None:
    assert run(command, option, value).stdout.endswith(f"{said}\n")
    told = json.loads(run(command, option, value, "--json").stdout)
    assert (told["letters"], told["unknown"]) == ([], [said])
    assert json.loads(run(command, "--topic", "lines", "--json").stdout)["unknown"] == []


def test_of_a_spout_that_is_named_its_own_letters_tell_what_there_is() -> None:
    """Two spouts share a dead-letter topic: the other's records are none of this one's."""
    log, stamp = shared_log(), RunStamp("Billing", "run-1", "b", "0.1.0", None)
    for number in range(30):
        fault = GivenUp(Record("other", number, 3, 5, None, b"v", []), 0, 3, Fault("c", "E", "no"))
        log.add((0, 3 + number), headers_of(fault, stamp, 9))
    wanted = WantedLetters(LetterFilter(topics=["other"]), False).of_spout(config("h:1", "dead"))
    assert wanted.unknown(log, "Billing") == ["No letter of Billing has the topic 'other'. There are: lines."]
    many = WantedLetters(LetterFilter(partitions=[77]), False)
    named = ", ".join(map(str, range(20)))
    assert many.unknown(log, "Billing") == [
        f"No letter of Billing has the partition 77. There are: {named} and 10 more."
    ]
    of_lines = WantedLetters(LetterFilter(topics=["lines"], partitions=[7]), False)
    assert of_lines.unknown(log, "Billing") == ["No letter of Billing has the partition 7. There are: 0."]


def test_a_letter_is_shown_with_the_place_where_it_stands_in_words_and_once(topic: FakeTopic) -> None:
    """As `place [0, 7]` it looked like a thing of its own, beside the record's topic, partition and offset."""
    lines = [line.split(maxsplit=1) for line in run("show", "0:7").stdout.splitlines()]
    assert lines[0] == ["letter", "0:7 (partition 0, offset 7 of dead)"]
    assert "place" not in [name for name, *_ in lines]
    assert ["topic", "lines"] in lines and ["offset", "107"] in lines
    told = json.loads(run("show", "0:7", "--json").stdout)
    assert (told["letter"], told["place"]) == ("0:7", [0, 7])
