"""``streamlet dlq``: the dead letters of a topology's KafkaSpouts, shown, replayed and deleted."""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from streamlet.base.errors import EXIT_FAILED, BadInput
from streamlet.base.printable import many, one_line
from streamlet.cli.interrupts import EndAsked, interrupts_to
from streamlet.cli.offsets import Chosen, choosing, draw
from streamlet.cli.record_format import plain
from streamlet.spouts.kafka.dead_letters.dead_letter import DeadLetter, users_headers
from streamlet.spouts.kafka.dead_letters.dead_letter_choice import (
    LetterFilter,
    LetterLog,
    ReplayPlan,
    parse_letter,
    parse_offsets_range,
    plan_purge,
    plan_replay,
    repeated,
)
from streamlet.spouts.kafka.dead_letters.dead_letter_topic import DeadLetterTopic, Replayed, name_of
from streamlet.spouts.kafka.spout_config import SpoutConfig

MOST_ROWS = 100
"""Letters that are listed where no --limit says otherwise."""

MOST_NAMES = 20
"""Values that are named where an option has another one."""

EVERY = LetterFilter()
"""Chooses every letter."""


def _say(text: str) -> None:
    click.echo(text, err=True)


@dataclass(frozen=True, slots=True)
class WantedLetters:
    """The letters that the options choose: of one topology, or of all that share its dead-letter topic."""

    letters: LetterFilter
    every_topology: bool

    def of(self, topology: str) -> LetterFilter:
        """Return the choice for a topology."""
        # Rule: one topology's command touches no other's letters unless asked to. Several may share a dead-letter
        # topic; a replay would write the other's records before its bolt is corrected, a purge would delete them.
        return self.letters if self.every_topology else replace(self.letters, topology=topology)

    def of_spout(self, config: SpoutConfig) -> WantedLetters:
        """Return the choice, of one spout's letters alone."""
        # Rule: a spout that is named narrows the choice. Several may share a dead-letter topic, and a purge meant for
        # one would delete the other's letters. A letter does not name its spout, but the topic that it read.
        return replace(self, letters=replace(self.letters, reads=config.choice().takes))

    def left_out(self, log: LetterLog, topology: str) -> int:
        """Return how many letters of other topologies the options would choose."""
        return sum(1 for one in log.letters if self.letters.takes(one)) - sum(
            1 for one in log.letters if self.of(topology).takes(one)
        )

    def unknown(self, log: LetterLog, topology: str) -> list[str]:
        """Return a sentence for each chosen value that no letter has."""
        # Rule: an option whose value no letter has is answered with those there are, in each form of output. Nothing
        # chosen by a misspelt name looks like nothing there, and a job would go on for ever without a letter.
        chosen = self.letters
        whose = f"No letter{'' if self.every_topology else f' of {topology}'} has the"
        spouts = replace(EVERY, topology=None if self.every_topology else topology, reads=chosen.reads)
        letters = [one for one in log.letters if spouts.takes(one)]
        of_topics = [one for one in letters if not chosen.topics or one.topic in chosen.topics]
        return [
            *_strangers(f"{whose} topic", chosen.topics, {one.topic for one in letters}),
            *_strangers(f"{whose} partition", chosen.partitions, {one.partition for one in of_topics}, alike=False),
            *_strangers(f"{whose} error", chosen.errors, {one.error for one in letters}),
            *_strangers(f"{whose} component", chosen.components, {one.component for one in letters}),
        ]


_Value = TypeVar("_Value", int, str)


def _strangers(told: str, given: Iterable[_Value], there: Collection[_Value], *, alike: bool = True) -> Iterator[str]:
    """Yield a sentence for each value that is not there; none where there is no value.

    ``alike``: it names one that looks like it, if one does.
    """
    names = [str(value) for value in sorted(there) if value != ""]
    for wrong in given:
        if wrong in there or not names:
            continue
        near = difflib.get_close_matches(str(wrong), names, n=1, cutoff=0.5) if alike else []
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        remedy = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names[:MOST_NAMES])}{more}."
        yield f"{told} {wrong!r}. {remedy}"


EVERY_LETTER = WantedLetters(EVERY, every_topology=True)


def one_config(topology: str, found: Mapping[str, SpoutConfig]) -> SpoutConfig:
    """Return the settings of the one dead-letter topic that is meant. Raises BadInput.

    Of several spouts with one dead-letter topic on the same hosts any will do.
    """
    configs = {(one.hosts, one.dead_letter_topic): one for one in found.values() if one.dead_letter_topic}
    if not configs:
        raise BadInput(
            f"No KafkaSpout of {topology} has a dead_letter_topic, so there are no dead letters. Give one in its "
            'SpoutConfig, with on_poison="dead-letter".'
        )
    if len(configs) > 1:
        raise BadInput(
            f"{topology} has {len(configs)} dead-letter topics ({', '.join(name for _, name in configs)}): say which "
            f"one is meant with --spout, {' or '.join(found)}."
        )
    return next(iter(configs.values()))


@contextlib.contextmanager
def _opened(
    chosen: Chosen, wanted: WantedLetters = EVERY_LETTER
) -> Iterator[tuple[DeadLetterTopic, str, WantedLetters]]:
    """Open the one dead-letter topic that is meant. Raises BadInput.

    Yields the topology's name and the choice, too: of a spout that is named, its letters alone.
    """
    topology, found = chosen.spouts()
    if chosen.component is not None:
        wanted = wanted.of_spout(found[chosen.component])
    with DeadLetterTopic(one_config(topology, found), _say) as topic:
        yield topic, topology, wanted


topic_options = choosing("--spout", "The spout whose topic of dead letters is meant, and of its letters those alone.")


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose letters; the command gets them as ``wanted``."""

    @functools.wraps(command)
    def called(
        *given: Any,
        topics: tuple[str, ...],
        numbers: tuple[int, ...],
        offsets: str | None,
        errors: tuple[str, ...],
        components: tuple[str, ...],
        since: str | None,
        until: str | None,
        every_topology: bool,
        **options: Any,
    ) -> None:
        span = None if offsets is None else parse_offsets_range(offsets)
        letters = LetterFilter(topics, numbers, span, errors, components, _time_ms(since), _time_ms(until))
        command(*given, wanted=WantedLetters(letters, every_topology), **options)

    for option in (
        click.option("--all-topologies", "every_topology", is_flag=True,
                     help="Letters of other topologies that share the dead-letter topic, too."),
        click.option("--until", metavar="TIME", help="Given up before this time, with its zone."),
        click.option("--since", metavar="TIME", help="Given up at or after this time, with its zone."),
        click.option("--component", "components", multiple=True, metavar="NAME",
                     help="Failed by this bolt or spout. Repeatable."),
        click.option("--error", "errors", multiple=True, metavar="CLASS",
                     help="With this class of error. Repeatable."),
        click.option("--offsets", metavar="FIRST-LAST", help="Records with these offsets in their topic."),
        click.option("--partition", "numbers", type=click.IntRange(0), multiple=True,
                     help="Records of this partition of their topic. Repeatable."),
        click.option("--topic", "topics", multiple=True, metavar="TOPIC",
                     help="Records of this topic. Repeatable."),
    ):  # fmt: skip
        called = option(called)
    return called


_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
_yes_option = click.option("--yes", is_flag=True, help="Do it. Without this it is only shown what would be done.")


def _most_option(done: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    # Rule: what a command that changes something takes as a limit limits the change. Read as one of the listing,
    # `replay --limit 3 --yes` wrote all letters back before somebody had looked at three.
    return click.option(
        "--limit", type=click.IntRange(1), help=f"{done} at most so many of the chosen letters, the oldest; else all."
    )


@click.group(invoke_without_command=True)
@click.pass_context
def dlq(context: click.Context) -> None:
    """Show, replay and delete the dead letters of a topology's KafkaSpouts."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


# -- looking


@dlq.command("list")
@topic_options
@filter_options
@click.option("--all", "replayed_too", is_flag=True, help="Letters that were replayed, too.")
@click.option("--limit", type=click.IntRange(1), default=MOST_ROWS, show_default=True, help="Most letters to list.")
@_json_option
def list_(chosen: Chosen, wanted: WantedLetters, replayed_too: bool, limit: int, as_json: bool) -> None:
    """List the dead letters that were not replayed."""
    with _opened(chosen, wanted) as (topic, topology, wanted):
        log = topic.read()
    takes = wanted.of(topology).takes
    found = [one for one in log.letters if takes(one) and (replayed_too or one.place not in log.replayed)]
    if as_json:
        told = {
            "topic": topic.topic,
            "letters": [_row(log, letter) for letter in found],
            "other_topologies": wanted.left_out(log, topology),
            "unknown": wanted.unknown(log, topology),
        }
        click.echo(json.dumps(told))
        return
    click.echo(f"{topic.topic}: {_letters(len(found))}")
    if found:
        _list(log, found, limit)
        _tell_repeated(found)
    _tell_others(wanted, log, topology)


@dlq.command()
@topic_options
@click.argument("letter", metavar="PARTITION:OFFSET")
@_json_option
def show(chosen: Chosen, letter: str, as_json: bool) -> None:
    """Show one dead letter whole: its story, key, value and headers."""
    place = parse_letter(letter)
    with _opened(chosen) as (topic, _, _):
        record = topic.find(place)
        log = topic.read()
    found = next((one for one in log.letters if one.place == place), None)
    if record is None or found is None:
        raise BadInput(
            f"There is no dead letter {letter} in topic {topic.topic!r}. `streamlet dlq list --all` shows those that "
            "there are."
        )
    told = {
        **_row(log, found),
        "key": plain(record.key),
        "value": plain(record.value),
        "headers": [[name, plain(value)] for name, value in users_headers(record.headers)],
    }
    if as_json:
        click.echo(json.dumps(told))
        return
    width = max(map(len, told))
    click.echo(line_of("letter", width, f"{name_of(found)} (partition {place[0]}, offset {place[1]} of {topic.topic})"))
    for name, value in told.items():
        if name not in ("letter", "place"):  # both say where it stands: told once, in words
            click.echo(line_of(name, width, dated(value) if name.endswith("_ms") else value))


def dated(at_ms: Any) -> object:
    """Return a time with its date, and as a number."""
    return f"{_time(at_ms)} ({at_ms})" if isinstance(at_ms, int) and at_ms >= 0 else at_ms


def line_of(name: str, width: int, value: object) -> str:
    """Return one line of a letter; nothing in it steers a terminal."""
    return f"{name.ljust(width)}  {one_line(value) if isinstance(value, str) else json.dumps(value)}"


# -- changing


@dlq.command()
@topic_options
@filter_options
@click.option("--to", metavar="TOPIC", help="Write the records there, and not to the topics they came from.")
@click.option("--max-replays", type=click.IntRange(1), default=3, show_default=True,
              help="Leave letters whose record was replayed so often.")  # fmt: skip
@_yes_option
@_most_option("Replay")
@_json_option
@click.pass_context
def replay(
    context: click.Context,
    chosen: Chosen,
    wanted: WantedLetters,
    to: str | None,
    max_replays: int,
    yes: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Write the records of dead letters back to their topics, once each."""
    end = EndAsked()
    with _opened(chosen, wanted) as (topic, topology, wanted), contextlib.ExitStack() as closing:
        if to == topic.topic:
            raise BadInput(f"--to {to} is the topic of the dead letters itself. Name another, or leave it out.")
        producer = None
        if yes:
            producer = topic.begin_replay()
            closing.callback(producer.close)
        log = topic.read(whole=yes)
        plan = plan_replay(log, wanted.of(topology), max_replays, limit)
        topic.check_targets(plan.chosen, to)
        replayed = Replayed(plan.chosen, [], [], [])
        if producer is not None:
            with interrupts_to(end.came):
                replayed = topic.replay(producer, plan.chosen, to, lambda: end.number is not None)
            log.mark(replayed.written)
    if as_json:
        told = {
            "topic": topic.topic,
            "dry_run": not yes,
            "to": to,
            "chosen": len(plan.chosen) + plan.later,
            "letters": [_row(log, letter) for letter in replayed.written],
            "missing": [_row(log, letter) for letter in replayed.missing],
            "refused": [{**_row(log, letter), "why": why} for letter, why in replayed.refused],
            "left": [_row(log, letter) for letter in replayed.left],
            "exhausted": [_row(log, letter) for letter in plan.exhausted],
            "other_topologies": wanted.left_out(log, topology),
            "unknown": wanted.unknown(log, topology),
        }
        click.echo(json.dumps(told))
    else:
        _tell_replay(topic.topic, log, plan, replayed, max_replays, yes)
        _tell_others(wanted, log, topology)
    if replayed.left:
        done, count = len(replayed.written), len(plan.chosen)
        _say(f"Interrupted: {done} of {_letters(count)} replayed and marked as such. Run it again for the rest.")
        context.exit(128 + (end.number or 0))
    if replayed.refused:
        context.exit(EXIT_FAILED)


def _tell_replay(topic: str, log: LetterLog, plan: ReplayPlan, replayed: Replayed, max_replays: int, yes: bool) -> None:
    _report(topic, log, replayed.written, (len(plan.chosen), plan.later), "replayed", yes)
    if replayed.refused:
        count = len(replayed.refused)
        click.echo(
            f"{_letters(count)} {'was' if count == 1 else 'were'} refused, and {'stays' if count == 1 else 'stay'}:"
        )
        for letter, why in replayed.refused[:MOST_ROWS]:
            click.echo(one_line(f"letter {name_of(letter)}: {why}"))
        if count > MOST_ROWS:
            click.echo(f"and {count - MOST_ROWS} more")
    if count := len(replayed.missing):
        click.echo(
            f"{_letters(count)} {'was' if count == 1 else 'were'} gone before {'it' if count == 1 else 'they'} could "
            "be read, deleted meanwhile by retention or by a purge:"
        )
        _list(log, replayed.missing, MOST_ROWS)
    if count := len(plan.exhausted):
        click.echo(
            f"{_letters(count)} {'stays' if count == 1 else 'stay'}: replayed {many(max_replays, 'time')} or more, and "
            f"still failing. --max-replays replays {'it' if count == 1 else 'them'} once more."
        )


@dlq.command()
@topic_options
@filter_options
@click.option("--all", "unreplayed", is_flag=True, help="Letters that were not replayed, too: they are lost then.")
@_yes_option
@_most_option("Delete")
@_json_option
def purge(chosen: Chosen, wanted: WantedLetters, unreplayed: bool, yes: bool, limit: int | None, as_json: bool) -> None:
    """Delete dead letters that were replayed."""
    with _opened(chosen, wanted) as (topic, topology, wanted):
        log = topic.read()
        plan = plan_purge(log, wanted.of(topology), unreplayed=unreplayed, most=limit)
        if yes:
            topic.purge(plan.before)
    if as_json:
        told = {
            "topic": topic.topic,
            "dry_run": not yes,
            "chosen": len(plan.deleted) + plan.later,
            "before": {str(partition): offset for partition, offset in plan.before.items()},
            "letters": [_row(log, letter) for letter in plan.deleted],
            "stays": [{**_row(log, letter), "behind": behind} for letter, behind in plan.stays],
            "other_topologies": wanted.left_out(log, topology),
            "unknown": wanted.unknown(log, topology),
        }
        click.echo(json.dumps(told))
        return
    _report(topic.topic, log, plan.deleted, (len(plan.deleted), plan.later), "deleted", yes)
    if plan.stays:
        first, behind = plan.stays[0]
        what = f"{first.place[0]}:{behind}, which stays."
        # Rule: say what a record is that nothing here deletes. No list shows it, and no option takes it.
        if (first.place[0], behind) in log.foreign:
            what = (
                f"the record at {first.place[0]}:{behind}. That one is not a dead letter, and no purge deletes it. "
                f"Kafka's own kafka-delete-records does, up to offset {behind + 1} of partition {first.place[0]}."
            )
        click.echo(
            f"{_letters(len(plan.stays))} cannot be deleted singly: Kafka deletes a partition from its beginning on, "
            f"and letter {name_of(first)} stands behind {what}"
        )
    _tell_others(wanted, log, topology)


def _tell_others(wanted: WantedLetters, log: LetterLog, topology: str) -> None:
    for sentence in wanted.unknown(log, topology):
        click.echo(one_line(sentence))
    if count := wanted.left_out(log, topology):
        click.echo(f"{_letters(count)} of other topologies left out: --all-topologies takes them, too.")


def _tell_repeated(letters: Sequence[DeadLetter]) -> None:
    # Rule: what at-least-once doubles is said where the letters are counted. A replay of 1,097 letters of 1,000 records
    # writes 97 of them twice, and nothing showed it.
    if count := repeated(letters):
        which = "1 of them is the second letter of a record" if count == 1 else f"{count} of them repeat a record"
        click.echo(
            f"{which} that has one already: its worker died, or its run was stopped, between the letter and its "
            "commit. A replay writes a record once for each of its letters."
        )


def _report(
    topic: str, log: LetterLog, letters: Sequence[DeadLetter], now_and_later: tuple[int, int], done: str, yes: bool
) -> None:
    now, later = now_and_later
    if not now:
        click.echo(f"{topic}: no letters to be {done}.")
        return
    chosen = now + later
    count = _letters(chosen) if len(letters) == chosen else f"{len(letters)} of {_letters(chosen)}"
    click.echo(f"{topic}: {count}")
    if letters:
        _list(log, letters, MOST_ROWS)
        _tell_repeated(letters)
    rest = f", the oldest: --limit leaves {later}" if later else ""
    if yes:
        click.echo(f"{count} {done}{rest}.")
    else:
        click.echo(f"{count} would be {done}{rest}. Nothing was changed: --yes does it.")


def _list(log: LetterLog, letters: Sequence[DeadLetter], limit: int) -> None:
    heads = ("letter", "record", "component", "error", "tries", "replays", "failed at", "state")
    draw(
        heads,
        [
            (
                name_of(letter),
                one_line(f"{letter.topic}/{letter.partition}/{letter.offset}"),
                one_line(letter.component) or "-",
                one_line(letter.error) or "-",
                letter.tries,
                letter.replays,
                _time(letter.failed_at_ms),
                log.state(letter),
            )
            for letter in letters[:limit]
        ],
    )
    if len(letters) > limit:
        click.echo(f"and {len(letters) - limit} more")


def _row(log: LetterLog, letter: DeadLetter) -> dict[str, Any]:
    return {"letter": name_of(letter), "state": log.state(letter), **letter._asdict(), "place": list(letter.place)}


def _letters(count: int) -> str:
    return f"{count} dead letter" if count == 1 else f"{count} dead letters"


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # a header may name a time that no calendar has
        return str(at_ms)


def _time_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise BadInput(f"{text!r} names no moment: write a time with its zone, as 2026-01-31T12:00:00+01:00.")
    return int(time.timestamp() * 1000)
