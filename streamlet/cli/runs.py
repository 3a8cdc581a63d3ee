"""``streamlet runs``: living runs, listed, shown, stopped, paused and resumed."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from streamlet.backends import run_commands
from streamlet.backends.contract import ComponentStatus, RunStatus
from streamlet.backends.living_runs import LivingRun, RunRefused, living_runs, the_run
from streamlet.base.errors import BadInput
from streamlet.base.printable import many, printable
from streamlet.cli.json_lines import json_text
from streamlet.cli.show import (
    Rates,
    aligned,
    component_lines,
    duration,
    hanging_lines,
    partition_lines,
    paused_line,
    place_lines,
    unreported,
)
from streamlet.cli.target import debug_option
from streamlet.model.paused import PausedPart
from streamlet.model.validate import nearest

RATE_S = 1.0
"""Seconds between two looks at a run, for its rates."""

LOOK_S = 0.1
"""Seconds between two looks whether a run is over."""

_json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
_run_argument = click.argument("wanted", metavar="RUN")


STORMS_COMMANDS = {
    "kill": "`streamlet runs stop`, which drains the run and ends it",
    "list": "`streamlet runs`, which lists the living ones",
    "ls": "`streamlet runs`, which lists the living ones",
    "stats": "`streamlet runs show`",
    "activate": "`streamlet runs resume`",
    "deactivate": "`streamlet runs pause`",
}
"""Names that Storm and streamparse have for commands about a topology."""


def _part_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a part; it gets them as ``part``."""

    @functools.wraps(command)
    def called(
        spout: str | None, topic: str | None, partition: int | None, **options: Any
    ) -> None:  # what click parsed
        for option, given in (("--spout", spout), ("--topic", topic)):
            if given == "":  # for a run it means all
                raise BadInput(f"{option} '' names nothing: give a name, or leave the option out for all.")
        command(part=PausedPart(spout or "", topic or "", -1 if partition is None else partition), **options)

    for option in (
        _run_argument,
        click.option("--spout", metavar="NAME", help="Only this spout; else all."),
        click.option("--topic", metavar="NAME", help="Only what the spout reads of this topic."),
        click.option(
            "--partition", type=click.IntRange(0), help="Only this partition, of --topic where there are several."
        ),
        _json_option,
        debug_option,
    ):
        called = option(called)
    return called


class _Group(click.Group):
    """Answers a command that is not there with others."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            there = f"There are: {', '.join(self.commands)}; `streamlet runs` alone lists runs."
            near = (
                f"Did you mean {STORMS_COMMANDS[name]}?"
                if name in STORMS_COMMANDS
                else nearest(name, self.commands, there)
            )
            raise click.UsageError(f"There is no command {name!r} of `streamlet runs`. {near}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, invoke_without_command=True)
@_json_option
@debug_option
@click.pass_context
def runs(context: click.Context, as_json: bool, debug: bool) -> None:
    """List your living runs here; show, stop, pause and resume one.

    RUN is the topology's name, or the beginning of the run's id.
    """
    if context.invoked_subcommand is not None:
        return
    found = living_runs()
    if as_json:
        for run in found:
            click.echo(json_text(_row(run)))
        return
    if not found:
        click.echo("No run of yours is under way here. (One with --backend inline is not listed.)", err=True)
        return
    heads = ("run", "topology", "since", "backend", "workers", "process")
    rows = [
        (run.id, run.topology, duration(time.time() - run.started_s), run.backend, str(run.workers), str(run.pid))
        for run in found
    ]
    for line in aligned([heads, *rows]):
        click.echo(printable(line))


def _row(run: LivingRun) -> dict[str, Any]:
    # Named one by one: the secret that commands need is never printed.
    names = ("run", "topology", "file", "backend", "workers", "pid", "started_s")
    return {name: getattr(run, name) for name in names}


@runs.command()
@_run_argument
@_json_option
@debug_option
def show(wanted: str, as_json: bool, debug: bool) -> None:
    """Show a run's components and partitions as they are now."""
    run = the_run(wanted, living_runs())
    content = run.ask(run_commands.ShowRun()).content
    if as_json:
        click.echo(json_text({**_row(run), **content}))
        return
    rates = Rates()
    rates.of(_status(content))
    time.sleep(RATE_S)
    status = _status(run.ask(run_commands.ShowRun()).content)
    silent = unreported(status)
    open_trees = f"not known how many trees open: {silent}" if silent else f"{many(status.pending, 'tree')} open"
    lines = [
        f"{run.topology} ({run.id}): {status.state} for {duration(status.elapsed_s)}, {open_trees}",
        *component_lines(status, rates.of(status)),
        *partition_lines(status.partitions),
        *place_lines(status),
        *hanging_lines(status),
        *paused_line(status),
    ]
    for line in lines:
        click.echo(printable(line))


@runs.command()
@_run_argument
@click.option("--no-wait", is_flag=True, help="Return at once, not when the run is over.")
@debug_option
def stop(wanted: str, no_wait: bool, debug: bool) -> None:
    """Drain a run and end it, as Ctrl-C does in its terminal."""
    run = the_run(wanted, living_runs())
    try:
        run.ask(run_commands.StopRun())
    except RunRefused:
        if any(other.run == run.run for other in living_runs()):
            raise
        click.echo(f"Run {run.id} of {run.topology} had ended by itself.", err=True)  # while it was being asked
        return
    click.echo(f"Run {run.id} of {run.topology} drains and ends.", err=True)
    while not no_wait and any(other.run == run.run for other in living_runs()):
        time.sleep(LOOK_S)
    if not no_wait:
        click.echo(f"Run {run.id} of {run.topology} is over; what came of it stands where it was started.", err=True)


@runs.command()
@_part_options
def pause(wanted: str, part: PausedPart, as_json: bool, debug: bool) -> None:
    """Let spouts emit nothing, neither new nor again, until they are resumed.

    Tuples under way are finished, and offsets committed. KafkaSpouts keep their partitions.
    """
    _change(wanted, run_commands.PauseParts(part), as_json)


@runs.command()
@_part_options
def resume(wanted: str, part: PausedPart, as_json: bool, debug: bool) -> None:
    """Let spouts go on that were paused."""
    _change(wanted, run_commands.ResumeParts(part), as_json)


def _change(wanted: str, command: run_commands.PauseParts | run_commands.ResumeParts, as_json: bool) -> None:
    run = the_run(wanted, living_runs())
    paused = run.ask(command).content.get("paused")
    if not isinstance(paused, list):
        raise RunRefused(f"Run {run.id} of {run.topology} did not say what is paused now.")
    if as_json:
        click.echo(json_text({"run": run.run, "topology": run.topology, "paused": paused}))
    else:
        click.echo(printable(f"{run.topology} ({run.id}), paused now: {', '.join(paused) or 'nothing'}."))


_T = TypeVar("_T")


def _status(content: Mapping[str, Any]) -> RunStatus:
    """Return a run's status as it was before it travelled."""
    components = tuple(_known(ComponentStatus, row) for row in content.get("components", ()))
    status = _known(RunStatus, {**content, "components": components})
    return dataclasses.replace(status, partitions=tuple(status.partitions))


def _known(cls: type[_T], row: Mapping[str, Any]) -> _T:
    # The run may be of another version: what this one does not know is left out.
    names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]  # both are dataclasses
    return cls(**{name: value for name, value in row.items() if name in names})
