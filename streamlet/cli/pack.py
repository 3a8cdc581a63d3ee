"""``streamlet pack``: an archive of packages for executors that have Python alone."""

from __future__ import annotations

import time
from pathlib import Path

import click

from streamlet.backends.spark.packing import make_pack, script_requirements, told
from streamlet.base.errors import BadInput
from streamlet.cli.target import TopologyTarget, optional_target


@click.command()
@optional_target
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="env.tar.gz",
    show_default=True,
    metavar="FILE",
    help="The archive.",
)
@click.option(
    "--requirement", "requirements", multiple=True, metavar="WHAT", help="A package, as pip takes it. Repeatable."
)
@click.option(
    "-r",
    "files",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="A file of requirements. Repeatable.",
)
def pack(target: TopologyTarget | None, output: Path, requirements: tuple[str, ...], files: tuple[Path, ...]) -> None:
    """Pack what Spark's executors lack into an archive, for `streamlet run --archive`.

    That is what every worker wants, what the `dependencies` in the `# /// script` block of the topology's file name,
    and what you add. pip gets it, in the versions that are installed here.
    """
    began = time.monotonic()
    for file in files:
        if not file.is_file():
            raise BadInput(f"There is no file {file}: -r names a file of requirements, --requirement a package.")
    named = [] if target is None else script_requirements(target.file)
    manifest = make_pack(output, [*named, *requirements], files)
    for name, version in manifest.packages.items():
        click.echo(f"  {name} {version}")
    size = output.stat().st_size
    click.echo(
        f"{told(output, manifest, size)} for Python {manifest.python} on {manifest.platform}, after "
        f"{time.monotonic() - began:.0f} s"
    )
    click.echo(f"streamlet run {target or 'FILE'} --spark URL --archive {output}")
