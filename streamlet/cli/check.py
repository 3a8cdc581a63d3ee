"""``streamlet check``: everything that is wrong with a topology, and the settings there are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from streamlet.backends.contract import RunRequest
from streamlet.base.errors import BadInput
from streamlet.cli.errors import columns, wrapped
from streamlet.cli.json_lines import json_text
from streamlet.cli.options import given_settings
from streamlet.cli.target import TopologyTarget, debug_option, optional_target
from streamlet.model.dataframe_plan import FREE, KEYED, SINGLE, plan_dataframes
from streamlet.model.delivery import is_exactly_once, not_covered
from streamlet.model.settings import SETTINGS
from streamlet.model.spec import SPOUT
from streamlet.model.topology import TopologySpec
from streamlet.model.validate import InvalidTopology, warnings_of
from streamlet.running import make_request


@click.command()
@optional_target
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, problems included.")
@click.option("--settings", is_flag=True, help="List the settings that -c takes: meaning and default.")
@click.option(
    "-c", "pairs", multiple=True, metavar="KEY=VALUE", help="A setting, as `streamlet run` takes it. Repeatable."
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings in TOML or JSON; -c wins.")
@click.option(
    "--for", "purpose", type=click.Choice(["dataframe"]), help="Say, too, what keeps its bolts off DataFrames."
)
@debug_option
def check(
    target: TopologyTarget | None,
    as_json: bool,
    settings: bool,
    pairs: tuple[str, ...],
    config: Path | None,
    purpose: str | None,
    debug: bool,
) -> None:
    """Say everything wrong with the topology in FILE, without running it.

    Exit status 2 if anything is.
    """
    # Long: each of the two questions, about a topology and about settings, alone or together, as text or as JSON.
    if target is None and not settings:
        raise click.UsageError("Give the FILE of a topology, or --settings.", click.get_current_context())
    if target is None and (pairs or config or purpose):
        raise click.UsageError("-c, --config and --for need the FILE of a topology.", click.get_current_context())
    topology = None
    if target is not None:
        if as_json and not settings:
            sys.exit(_check_as_json(target, pairs, config, purpose))
        request = _checked(target, pairs, config)
        topology = request.topology
        stages = _stages(request) if purpose else []
    if settings:
        _list_settings(topology, as_json)
    elif topology is not None:
        click.echo(f"{topology.name} in {target} is valid: {summary(topology)}.")
        for line in warnings_of(topology, exactly_once=is_exactly_once(request.conf)):
            click.echo(line)
        if is_exactly_once(request.conf):
            click.echo(not_covered(topology))
        for line in stages:
            click.echo(line)


def _stages(request: RunRequest) -> list[str]:
    """Return a line for each stage of a topology on DataFrames. Raises NotForDataFrames."""
    plan = plan_dataframes(request.topology, conf=request.conf, streaming=True)
    ways = {FREE: "wherever rows are", KEYED: "rows of a key together", SINGLE: "all rows in one place"}
    return ["On DataFrames:"] + [f"  {', '.join(stage.bolts)}: {ways[stage.kind]}" for stage in plan.stages]


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


def _checked(target: TopologyTarget, pairs: tuple[str, ...], config: Path | None) -> RunRequest:
    topology = target.load()
    given = given_settings(config, pairs, topology)
    return make_request(topology, given, backend="processes", file=target.file.absolute())


def _check_as_json(target: TopologyTarget, pairs: tuple[str, ...], config: Path | None, purpose: str | None) -> int:
    # Problems are the answer here and not a failure: a program that asked for JSON gets one object in every case.
    answer: dict[str, object] = {"file": str(target.file)}
    status = 0
    try:
        request = _checked(target, pairs, config)
        topology = request.topology
        if purpose:
            _stages(request)
        answer |= {"topology": topology.name, "valid": True, "tasks": task_count(topology), "problems": []}
        exactly_once = is_exactly_once(request.conf)
        answer["warnings"] = warnings_of(topology, exactly_once=exactly_once)
        if exactly_once:
            answer["exactly_once"] = not_covered(topology)
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
        click.echo(json_text(rows))
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
