"""``streamlet``: the group of commands. A command's module is imported when the command is called, not before."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import click

from streamlet.base.early_interrupt import end_silently, raise_again
from streamlet.cli.errors import show
from streamlet.cli.output import end_output, forgive, give_up_output, name_output_errors, open_standard_streams

COMMANDS = {
    "run": ("streamlet.cli.run:run", "Run a topology until it has caught up, its time is over, or Ctrl-C."),
    "runs": ("streamlet.cli.runs:runs", "List living runs; show, stop, pause and resume one."),
    "check": ("streamlet.cli.check:check", "Say everything that is wrong with a topology, without running it."),
    "graph": ("streamlet.cli.graph:graph", "Draw a topology as text, DOT or Mermaid."),
    "offsets": ("streamlet.cli.offsets:offsets", "Show and change where KafkaSpouts go on."),
    "dlq": ("streamlet.cli.dlq:dlq", "Show, replay and delete the dead letters of KafkaSpouts."),
    "consume": ("streamlet.cli.consume:consume", "Show the records of a Kafka topic."),
    "pack": ("streamlet.cli.pack:pack", "Pack what Spark's executors lack into an archive."),
    "docs": ("streamlet.cli.docs:docs", "Show the pages of the documentation."),
    "dev": ("streamlet.cli.dev:dev", "Start, show and end a real ZooKeeper and Kafka on this machine."),
}
"""Name -> where the command is, and its line in the help."""


class LazyGroup(click.Group):
    """Knows its commands by name and one line of help; imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # Imported when it is called: help, completion and `--version` need neither rich nor a Kafka client.
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        raise_again()  # from here on there is somebody to show it, and a command that cleans up
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(COMMANDS)}."
            raise click.UsageError(f"There is no command {args[0]!r}. {remedy}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        try:
            installed = version("streamlet-storm")
        except PackageNotFoundError:
            installed = "of a source tree that is not installed"
        click.echo(f"streamlet {installed}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Its version."
)
@click.pass_context
def streamlet(ctx: click.Context) -> None:
    """Run Storm's model in pure Python: spouts, bolts, groupings and tracked tuple trees."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _status_of(arguments: list[str]) -> int:
    """Call a command; return its exit status."""
    try:
        # Not standalone: click would print errors in a form of its own and choose other exit statuses.
        answer = streamlet.main(arguments, prog_name="streamlet", standalone_mode=False)
    except SystemExit as ended:
        answer = ended.code
    return answer if isinstance(answer, int) else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    The status is 0, 2 (bad input), 1 (failed later), 130 or 143 (interrupted).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    if sys.platform == "win32":
        click.echo(
            "Error: streamlet needs Unix sockets and signals: it runs on Linux (WSL too), not Windows.", err=True
        )
        sys.exit(2)
    try:
        # The order counts. First the descriptors, for the next file that is opened takes the number of a closed one;
        # then the stream that names its errors, which wraps the one there is; the escaping belongs to that new stream.
        open_standard_streams()
        name_output_errors(alone=as_json)
        forgive(sys.stdout)
        status = _status_of(given)
        sys.stdout.flush()
    except BrokenPipeError:
        status = 1  # the reader of the output has gone (`| head`): nobody is left to tell
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge: whatever it is, the user gets a paragraph
        status = show(error, debug="--debug" in given)
    end_silently()
    give_up_output()
    if as_json:
        end_output()
    sys.exit(status)


if __name__ == "__main__":
    main()
