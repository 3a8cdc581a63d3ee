"""``streamlet offsets``: what a topology's KafkaSpouts have stored, shown, and changed while nothing runs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

from streamlet.base.errors import BadInput, StreamletError
from streamlet.base.printable import many
from streamlet.base.whole_file import write_whole
from streamlet.cli.options import given_settings
from streamlet.cli.target import TopologyTarget, debug_option, target_argument
from streamlet.coordination.ensemble import Ensemble
from streamlet.running import make_request
from streamlet.spouts.kafka import KafkaSpout, SpoutConfig
from streamlet.spouts.kafka.hosts import StaticHosts, ZkHosts
from streamlet.spouts.kafka.offset_tools.offset_changes import (
    Change,
    StoredEntry,
    Wish,
    changes,
    check_partitions,
    check_topic,
    export_document,
    moved,
    parse_offsets,
    parse_place,
    read_export,
)
from streamlet.spouts.kafka.offset_tools.stored_offsets import (
    OffsetPlace,
    SpoutOffsets,
    StillRunning,
    in_words,
    refuse_running,
)
from streamlet.spouts.kafka.partition import OffsetRange
from streamlet.spouts.kafka.spout_config import GroupOffsets, ZkOffsets


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options that every command has: a topology and its spouts."""

    target: TopologyTarget
    pairs: tuple[str, ...]
    config: Path | None
    component: str | None
    option: str
    """The option that names the spout."""

    def spouts(self) -> tuple[str, dict[str, SpoutConfig]]:
        """Return the topology's name, and its KafkaSpouts' settings with overrides. Raises BadInput."""
        topology = self.target.load()
        given = given_settings(self.config, self.pairs, topology)
        request = make_request(topology, given, backend="processes", file=self.target.file.absolute(), writes=False)
        found = {
            part.name: part.cls.with_overrides(part.kwargs, request.overrides.get(part.name, {}))["spout_config"]
            for part in topology.components
            if issubclass(part.cls, KafkaSpout)
        }
        if not found:
            raise BadInput(
                f"{topology.name} in {self.target} has no KafkaSpout, so it stores no offsets and no dead letters."
            )
        if self.component is None:
            return topology.name, found
        if self.component not in found:
            raise BadInput(
                f"{topology.name} in {self.target} has no KafkaSpout {self.component!r} ({self.option}). There are: "
                f"{', '.join(found)}."
            )
        return topology.name, {self.component: found[self.component]}

    @contextlib.contextmanager
    def one(self, topic: str | None) -> Iterator[SpoutOffsets]:
        """Open the one spout that is meant, and its topic. Raises BadInput where there are several."""
        topology, found = self.spouts()
        if len(found) > 1:
            raise BadInput(
                f"{topology} has {len(found)} KafkaSpouts, each with offsets of its own: say which one is meant with "
                f"--component, {' or '.join(found)}."
            )
        ((name, config),) = found.items()
        with SpoutOffsets(topology, name, config, _say, topic) as spout:
            if topic is None and len(spout.topics) > 1:
                raise BadInput(
                    f"{name} reads {config.choice()}, each with offsets of its own: say which one is meant with "
                    f"--topic, {' or '.join(spout.topics)}."
                )
            yield spout


def _say(text: str) -> None:
    click.echo(text, err=True)


def choosing(option: str, meaning: str, *others: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of every command.

    The command gets them as ``Chosen``; ``option`` names the spout, and so do ``others``.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(
            target: TopologyTarget,
            spout: str | None,
            pairs: tuple[str, ...],
            config: Path | None,
            debug: bool,
            **options: Any,  # what click parsed for the command's own
        ) -> None:
            command(Chosen(target, pairs, config, spout, option), **options)

        for one in (
            debug_option,
            click.option("--config", type=click.Path(path_type=Path), metavar="FILE",
                         help="Settings in TOML or JSON; -c wins."),
            click.option("-c", "pairs", multiple=True, metavar="KEY=VALUE",
                         help="A setting, as `streamlet run` takes it."),
            click.option(*others, option, "spout", metavar="NAME", help=meaning),
            target_argument,
        ):  # fmt: skip
            called = one(called)
        return called

    return add


spout_options = choosing("--component", "The spout, where the topology has several.", "--spout")
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
_topic_option = click.option("--topic", metavar="NAME", help="The topic, where the spout reads several.")
_yes_option = click.option("--yes", is_flag=True, help="Do it. Without this the changes are only shown.")
_partition_option = click.option(
    "--partition", "numbers", type=click.IntRange(0), multiple=True, help="Only this partition. Repeatable."
)


@click.group(invoke_without_command=True)
@click.pass_context
def offsets(context: click.Context) -> None:
    """Show and change the stored offsets of a topology's KafkaSpouts."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


# -- looking


@offsets.command()
@spout_options
@_topic_option
@_json_option
def show(chosen: Chosen, topic: str | None, as_json: bool) -> None:
    """Show where each partition goes on, and its log's bounds."""
    topology, looks = _looks(chosen, topic)
    if as_json:
        click.echo(json.dumps({"topology": topology, "spouts": [look.row() for look in looks]}))
        return
    for look in looks:
        click.echo(look.heading())
        draw(
            ("partition", "offset", "first", "end", "lag", "epoch", "written by"),
            [
                (
                    number,
                    _cell(entry and entry.offset),
                    log.first,
                    log.end,
                    _cell(look.lag(number)),
                    *_written(entry),
                )
                for number, log, entry in look.rows()
            ],
        )
        look.remark()


@offsets.command()
@spout_options
@_topic_option
@_json_option
def lag(chosen: Chosen, topic: str | None, as_json: bool) -> None:
    """Count the records between the stored offsets and the ends."""
    topology, looks = _looks(chosen, topic)
    if as_json:
        told = [
            {
                "component": look.spout.component,
                "topic": look.spout.topic,
                "lag": look.total(),
                "partitions": {str(number): look.lag(number) for number in look.spout.partitions},
            }
            for look in looks
        ]
        click.echo(json.dumps({"topology": topology, "spouts": told}))
        return
    for look in looks:
        click.echo(look.heading())
        rows: list[Sequence[object]] = [
            (number, _cell(entry and entry.offset), log.end, _cell(look.lag(number)))
            for number, log, entry in look.rows()
        ]
        draw(("partition", "offset", "end", "lag"), [*rows, ("all", "", "", _cell(look.total()))])
        look.remark()


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a spout's offsets."""

    spout: SpoutOffsets
    logs: Mapping[int, OffsetRange]
    stored: Mapping[int, StoredEntry]
    running: Sequence[str]

    def rows(self) -> Iterator[tuple[int, OffsetRange, StoredEntry | None]]:
        for number in self.spout.partitions:
            yield number, self.logs[number], self.stored.get(number)

    def lag(self, number: int) -> int | None:
        """Return the records left in a partition; None where no stored offset counts."""
        entry, log = self.stored.get(number), self.logs[number]
        if entry is not None and entry.is_of_another(self.spout.topic_id):
            return None
        if entry is None:
            return 0 if log.first == log.end else None
        return max(0, log.end - entry.offset)

    def total(self) -> int | None:
        """Return the records left in all; None where one is not known."""
        # Rule: never a number that leaves partitions out: it would be taken for caught up.
        lags = [self.lag(number) for number in self.spout.partitions]
        return None if None in lags else sum(lag or 0 for lag in lags)

    def remark(self) -> None:
        """Say which stored offsets no run takes."""
        topic, topic_id = self.spout.topic, self.spout.topic_id
        numbers = [str(number) for number, entry in sorted(self.stored.items()) if entry.is_of_another(topic_id)]
        if numbers:
            click.echo(
                f"What is stored for partition {', '.join(numbers)} is of a topic {topic!r} that was deleted: a run "
                "refuses it. Go on with `streamlet offsets reset --to earliest`, or another place."
            )

    def heading(self) -> str:
        spout = self.spout
        state = f"running: {', '.join(self.running)}" if self.running else "not running"
        return f"{spout.component}: topic {spout.topic}, {spout.place.where}, {state}"

    def row(self) -> dict[str, Any]:
        spout = self.spout
        return {
            "component": spout.component,
            "topic": spout.topic,
            "topic_id": spout.topic_id,
            "id": spout.config.id,
            "hosts": _hosts(spout.config),
            "store": spout.place.where,
            "running": list(self.running),
            "partitions": [
                {
                    "partition": number,
                    "offset": entry and entry.offset,
                    "first": log.first,
                    "end": log.end,
                    "lag": self.lag(number),
                    "stop": entry and entry.stop and entry.stop.offset,
                    "leader_epoch": entry and entry.leader_epoch,
                    "owner_epoch": entry and entry.owner_epoch,
                    "topic_id": entry and entry.topic_id,
                    "written_by": entry and entry.written_by,
                }
                for number, log, entry in self.rows()
            ],
        }


def _looks(chosen: Chosen, topic: str | None) -> tuple[str, list[_Look]]:
    topology, found = chosen.spouts()
    looks = []
    for name, config in found.items():
        with SpoutOffsets(topology, name, config, _say, topic) as spouts:
            for spout in map(spouts.of, spouts.topics if topic is None else [topic]):
                # Offsets first: a run that commits between the two looks would otherwise be ahead of the end.
                stored = spout.place.read(spout.partitions)
                looks.append(_Look(spout, spout.logs(), stored, spout.place.running()))
    return topology, looks


def _hosts(config: SpoutConfig) -> str:
    hosts = config.hosts
    if isinstance(hosts, ZkHosts):
        return f"zk://{hosts.broker_zk_str}"
    brokers = sorted(set(hosts.brokers.values())) if isinstance(hosts, StaticHosts) else hosts.brokers
    return f"kafka://{','.join(map(str, brokers))}"


# -- changing


@offsets.command("set")
@spout_options
@click.argument("assignments", nargs=-1, required=True, metavar="PARTITION=OFFSET...")
@_topic_option
@_yes_option
@_json_option
def set_(chosen: Chosen, assignments: tuple[str, ...], topic: str | None, yes: bool, as_json: bool) -> None:
    """Set the next offset of some partitions."""
    wishes = {number: Wish(offset) for number, offset in parse_offsets(assignments).items()}
    with chosen.one(topic) as spout:
        _change(spout, wishes, spout.logs(), yes, as_json)


@offsets.command()
@spout_options
@click.option("--to", "to", metavar="PLACE", help="earliest, latest, an offset, or a time with its zone.")
@click.option("--by", "by", type=int, metavar="N", help="So many offsets further, or back (-100), within the log.")
@_topic_option
@_partition_option
@_yes_option
@_json_option
def reset(
    chosen: Chosen,
    to: str | None,
    by: int | None,
    topic: str | None,
    numbers: tuple[int, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Set partitions to a place: a time is that of the first record at or after it."""
    if (to is None) == (by is None):
        raise click.UsageError("Give one of --to and --by.", click.get_current_context())
    place = None if to is None else parse_place(to)
    with chosen.one(topic) as spout:
        check_partitions(spout.topic, numbers, spout.partitions)
        logs, wanted = spout.logs(), sorted(set(numbers)) or spout.partitions
        if place is not None:
            wishes: Mapping[int, Wish] = spout.find(place, wanted, logs)
        else:
            wishes = moved((spout.topic, spout.topic_id), wanted, by or 0, spout.place.read(wanted), logs)
        _change(spout, wishes, logs, yes, as_json)


@offsets.command("import")
@spout_options
@click.argument("file", type=click.Path(path_type=Path), metavar="EXPORT")
@_topic_option
@_partition_option
@_yes_option
@_json_option
def import_(chosen: Chosen, file: Path, topic: str | None, numbers: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Set the offsets that `streamlet offsets export` wrote."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"The export in {file} cannot be read: {why}.") from error
    exported = read_export(text, str(file))
    with chosen.one(topic) as spout:
        check_topic(str(file), (exported.topic, exported.topic_id), (spout.topic, spout.topic_id))
        _change(spout, _only(exported.wishes, numbers), spout.logs(), yes, as_json)


@offsets.command()
@spout_options
@click.option("--from", "source", metavar="PLACE", help="Copy from there to where the topology keeps its offsets.")
@click.option("--to", "goal", metavar="PLACE", help="Copy from where the topology keeps its offsets to there.")
@_topic_option
@_partition_option
@_yes_option
@_json_option
def copy(
    chosen: Chosen,
    source: str | None,
    goal: str | None,
    topic: str | None,
    numbers: tuple[int, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Copy offsets from or to another store or id.

    PLACE is group:NAME, or zk://HOST:PORT,.../ROOT/ID.
    """
    if (source is None) == (goal is None):
        raise click.UsageError("Give one of --from and --to.", click.get_current_context())
    with chosen.one(topic) as spout:
        other = _other_place(spout, (source if goal is None else goal) or "")
        begin, end = (other, spout.place) if goal is None else (spout.place, other)
        if begin.where == end.where:
            raise BadInput(f"Both places are {begin.where}: there is nothing to copy. Name another store or id.")
        found = begin.read(spout.partitions)
        if not found:
            raise BadInput(f"There are no offsets of topic {spout.topic!r} in {begin.where}. Correct the place.")
        for entry in found.values():
            check_topic(begin.where, (spout.topic, entry.topic_id), (spout.topic, spout.topic_id))
        wishes = {number: Wish(entry.offset, entry.leader_epoch, entry.stop) for number, entry in found.items()}
        tasks = begin.running()
        _change(spout, _only(wishes, numbers), spout.logs(), yes, as_json, end)
        if tasks:
            _say(
                f"A run reads from {begin.where} ({in_words(tasks)}) and goes on: the copy has its offsets of this "
                "moment."
            )


@offsets.command()
@spout_options
@_topic_option
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write there, and not to stdout.")  # fmt: skip
def export(chosen: Chosen, topic: str | None, output: Path | None) -> None:
    """Write the stored offsets as JSON, for `streamlet offsets import`."""
    with chosen.one(topic) as spout:
        stored = spout.place.read(spout.partitions)
        for entry in stored.values():
            check_topic(spout.place.where, (spout.topic, entry.topic_id), (spout.topic, spout.topic_id))
        about = {"component": spout.component, "id": spout.config.id, "store": spout.place.where}
        text = json.dumps(export_document(about, spout.topic, spout.topic_id, stored), indent=2)
    if output is None:
        click.echo(text)
        return
    try:
        _write_out(output, f"{text}\n".encode())
    except OSError as error:
        raise StreamletError(
            f"The export cannot be written to {output}: {error.strerror}. An earlier file there is as it was. Make "
            "room for the new one, or name another file."
        ) from error
    _say(f"{many(len(stored), 'offset')} of topic {spout.topic} written to {output}")


def _write_out(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; a device or a pipe in place. Raises OSError."""
    # Rule: the copy that is there goes when the new one is whole. It is what one goes back to; a full disk would leave
    # neither. A link stays, and so does who may read the file.
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        path.write_bytes(data)
        return

    def write(file: BinaryIO) -> None:
        if mode is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(mode))
        file.write(data)

    write_whole(path.resolve(), write)


def _only(wishes: Mapping[int, Wish], numbers: Sequence[int]) -> dict[int, Wish]:
    missing = sorted(set(numbers) - set(wishes))
    if missing:
        raise BadInput(f"No offset is given for partition {', '.join(map(str, missing))}. Leave it out.")
    return {number: wish for number, wish in wishes.items() if not numbers or number in numbers}


def _other_place(spout: SpoutOffsets, text: str) -> OffsetPlace:
    if text.startswith("group:") and text != "group:":
        return spout.place_of(GroupOffsets(text.removeprefix("group:")), "", "")
    servers, slash, path = text.removeprefix("zk://").partition("/")
    root, _, spout_id = path.strip("/").rpartition("/")
    if not text.startswith("zk://") or not servers or not slash or not root or not spout_id:
        raise BadInput(
            f"{text!r} is not a place of offsets: write group:NAME for a consumer group, or zk://HOST:PORT,.../ROOT/ID "
            "for ZooKeeper, where ROOT and ID are the zk_root and the id of a spout."
        )
    Ensemble.parse(text.removeprefix("zk://"))
    return spout.place_of(ZkOffsets(servers, _digest(spout.config)), f"/{root}", spout_id)


def _digest(config: SpoutConfig) -> tuple[str, str] | None:
    # Of the topology's own settings: a password is given neither on a command line nor in a place's name.
    chosen = config.offset_store if isinstance(config.offset_store, ZkOffsets) else config.hosts
    return chosen.digest if isinstance(chosen, (ZkOffsets, ZkHosts)) else None


def _change(
    spout: SpoutOffsets,
    wishes: Mapping[int, Wish],
    logs: Mapping[int, OffsetRange],
    yes: bool,
    as_json: bool,
    place: OffsetPlace | None = None,
) -> None:
    """Show what would change, and with ``yes`` do it."""
    place = place or spout.place
    # Rule: only what is written to has to be free of runs, and only where it is written. A look changes nothing, and
    # neither a copy nor an export changes the place that it comes from.
    tasks = place.running()
    if yes and tasks:
        raise StillRunning(place.where, tasks)
    check_partitions(spout.topic, wishes, logs)
    rows = changes(spout.topic, spout.topic_id, wishes, place.read(sorted(wishes)), logs)
    needed = [row for row in rows if row.needed]
    if not as_json:
        click.echo(f"{spout.component}: topic {spout.topic}, {place.where}")
        draw(
            ("partition", "from", "to", "difference"),
            [(row.partition, _cell(row.before and row.before.offset), row.after.offset, _signed(row)) for row in rows],
        )
        for row in rows:
            stop = row.after.stop
            if stop is not None:
                click.echo(f"Partition {row.partition} stops at offset {stop.offset}, with stop_offset as it was.")
    if yes and needed:
        refuse_running(place)
        place.write(needed, spout.topic_id)
    if as_json:
        click.echo(json.dumps(_changed(spout, place, rows, yes, tasks)))
    elif not needed:
        click.echo("Nothing to change.")
    elif yes:
        click.echo(f"{_partitions(len(needed))} written.")
    else:
        click.echo(f"{_partitions(len(needed))} would be written. {_what_yes_does(tasks)}")


def _what_yes_does(tasks: Sequence[str]) -> str:
    if not tasks:
        return "Nothing was changed: --yes does it."
    return (
        f"Nothing was changed. A run has these offsets ({in_words(tasks)}): stop it before --yes, which is refused "
        "while it reads."
    )


def _changed(
    spout: SpoutOffsets, place: OffsetPlace, rows: Sequence[Change], yes: bool, tasks: Sequence[str]
) -> dict[str, Any]:
    return {
        "component": spout.component,
        "topic": spout.topic,
        "store": place.where,
        "dry_run": not yes,
        "running": list(tasks),
        "changes": [
            {
                "partition": row.partition,
                "from": row.before and row.before.offset,
                "to": row.after.offset,
                "difference": row.difference,
                "stop": row.after.stop and row.after.stop.offset,
                "written": yes and row.needed,
            }
            for row in rows
        ],
    }


# -- tables


def _partitions(count: int) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"


def _signed(row: Change) -> str:
    return "none" if row.difference is None else f"{row.difference:+}" if row.difference else "0"


def _cell(value: object | None) -> object:
    return "none" if value is None else value


def _written(entry: StoredEntry | None) -> tuple[object, object]:
    if entry is None:
        return "none", ""
    return entry.leader_epoch if entry.leader_epoch >= 0 else "none", entry.written_by


def draw(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, its columns as wide as their longest cell."""
    cells = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    stroke = "─" if "utf" in (sys.stdout.encoding or "").lower() else "-"
    for line in (list(heads), [stroke * width for width in widths], *cells):
        click.echo("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
