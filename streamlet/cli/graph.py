"""``streamlet graph``: a topology drawn."""

from __future__ import annotations

import sys

import click

from streamlet.cli.check import summary
from streamlet.cli.target import TopologyTarget, debug_option, target_argument
from streamlet.model import render
from streamlet.model.plan import make_plan
from streamlet.model.validate import checked


@click.command()
@target_argument
@click.option("--format", "kind", type=click.Choice(["text", "dot", "mermaid"]), default="text", show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Show, too, which worker of so many gets which task.")
@debug_option
def graph(target: TopologyTarget, kind: str, workers: int | None, debug: bool) -> None:
    """Draw the topology in FILE: components, streams, groupings, parallelism."""
    if kind != "text" and workers is not None:
        raise click.UsageError("--workers belongs to --format text.", click.get_current_context())
    topology = checked(target.load(), writes=False)
    if kind == "dot":
        click.echo(render.dot(topology), nl=False)
    elif kind == "mermaid":
        click.echo(render.mermaid(topology), nl=False)
    else:
        # A terminal or file without UTF-8 cannot hold the strokes: they would be escaped one by one.
        strokes = render.LINES if "utf" in (sys.stdout.encoding or "").lower() else render.ASCII
        click.echo(f"{topology.name}: {summary(topology)}\n")
        click.echo(render.text(topology, strokes), nl=False)
        if workers is not None:
            click.echo("\n" + render.placement(make_plan(topology, workers), strokes), nl=False)
