"""``streamlet check``: everything that is wrong with a topology, and the settings there are."""

from __future__ import annotations

import json
import sys

import click

from streamlet.base.errors import BadInput
from streamlet.cli.errors import columns, wrapped
from streamlet.cli.target import TopologyTarget, debug_option, optional_target
from streamlet.model.settings import SETTINGS
from streamlet.model.spec import SPOUT
from streamlet.model.topology import TopologySpec
from streamlet.model.validate import InvalidTopology, checked


@click.command()
@optional_target
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, problems included.")
@click.option("--settings", is_flag=True, help="List the settings that -c takes: meaning and default.")
@debug_option
def check(target: TopologyTarget | None, as_json: bool, settings: bool, debug: bool) -> None:
    """Say everything wrong with the topology in FILE, without running it.

    Exit status 2 if anything is.
    """
    if target is None and not settings:
        raise click.UsageError("Give the FILE of a topology, or --settings.", click.get_current_context())
    topology = None
    if target is not None:
        if as_json and not settings:
            sys.exit(_check_as_json(target))
        topology = checked(target.load())
    if settings:
        _list_settings(topology, as_json)
    elif topology is not None:
        click.echo(f"{topology.name} in {target} is valid: {summary(topology)}.")


def summary(topology: TopologySpec) -> str:
    """Return ``1 spout, 2 bolts, 5 tasks``."""
    spouts = sum(component.kind == SPOUT for component in topology.components)
    bolts = len(topology.components) - spouts
    return f"{_many(spouts, 'spout')}, {_many(bolts, 'bolt')}, {_many(task_count(topology), 'task')}"


def task_count(topology: TopologySpec) -> int:
    """Count the tasks of a valid topology."""
    return sum(component.par for component in topology.components)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _check_as_json(target: TopologyTarget) -> int:
    # Problems are the answer here and not a failure: a program that asked for JSON gets one object in every case.
    answer: dict[str, object] = {"file": str(target.file)}
    status = 0
    try:
        topology = checked(target.load())
        answer |= {"topology": topology.name, "valid": True, "tasks": task_count(topology), "problems": []}
    except InvalidTopology as error:
        status = error.exit_status
        problems = [{"component": p.component, "message": p.message, "remedy": p.remedy} for p in error.problems]
        answer |= {"valid": False, "problems": problems}
    except BadInput as error:
        status = error.exit_status
        answer |= {"valid": False, "problems": [{"component": None, "message": error.message, "remedy": None}]}
    click.echo(json.dumps(answer))
    return status


def _list_settings(topology: TopologySpec | None, as_json: bool) -> None:
    own = {key: value for key, value in (topology.config if topology else {}).items() if key not in SETTINGS}
    components = {c.name: sorted(c.cls.override_keys()) for c in topology.components} if topology else {}
    if as_json:
        rows = [{"key": s.key, "default": s.default, "meaning": s.meaning} for s in SETTINGS.values()]
        rows += [{"key": key, "default": value, "meaning": "the topology's own"} for key, value in own.items()]
        rows += [{"key": f"{name}.{key}"} for name, keys in components.items() for key in keys]
        click.echo(json.dumps(rows, default=str))
        return
    width = columns(sys.stdout)
    for setting in SETTINGS.values():
        _entry(setting.key, setting.default, setting.meaning, width)
    for key, value in own.items():
        _entry(key, value, f"{topology.name if topology else ''}'s own", width)
    for name, keys in components.items():
        if keys:
            click.echo(click.style(f"{name}.NAME=VALUE", bold=True))
            click.echo(wrapped(f"where NAME is {', '.join(keys)}", width and width - 4).replace("\n", "\n    "))


def _entry(key: str, default: object, meaning: str, width: int | None) -> None:
    shown = "none" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    click.echo(f"{click.style(key, bold=True)} = {shown}")
    click.echo("    " + wrapped(meaning, width and width - 4).replace("\n", "\n    "))
