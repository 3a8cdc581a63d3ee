"""``streamlet run``: find the topology, check it, run it, show it, say how it ended."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from streamlet.backends.contract import Backend, RunRequest, Stop
from streamlet.backends.log_file import JSON, TEXT, Keeper
from streamlet.backends.log_file import log_file as log_file_of
from streamlet.base.errors import BadInput
from streamlet.base.open_files import flush_open_files
from streamlet.base.printable import printable
from streamlet.cli.alike_errors import FoldingView
from streamlet.cli.errors import explain
from streamlet.cli.interrupts import Interrupts, signals_to
from streamlet.cli.kept_view import KeptView
from streamlet.cli.metrics_file import MetricsFile
from streamlet.cli.options import given_in_file, given_on_line, logging_in_file
from streamlet.cli.output import OutputFailed, give_up_output, is_standard_output, leave, streams_apart
from streamlet.cli.show import JsonView, LastingView, PlainView, View, WrittenView
from streamlet.cli.target import TopologyTarget, debug_option, target_argument
from streamlet.cli.view_thread import ViewThread
from streamlet.model.topology import TopologySpec
from streamlet.running import BACKENDS, Given, OptionNames, check_choices, make_backend, make_request
from streamlet.runtime.worker.log_lines import logs_shown


class RunCommand(click.Command):
    """The command; with ``--json`` a wrong option is printed on stdout, too."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        # Looked for by hand: where an option is wrong, click has not parsed the others.
        as_json = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            if as_json:
                _refused_as_json(error)
            raise


def _refused_as_json(error: Exception) -> None:
    # Where it cannot be written, the paragraph on stderr is still to come.
    with contextlib.suppress(OutputFailed):
        JsonView().failed(error, explain(error)[1])


def _named_paths(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for value, (name, _, path) in zip(values, pairs, strict=True):
        if not name or not path:
            raise click.BadParameter(f"{value!r} is not NAME=PATH")
        if [one for one, _, _ in pairs].count(name) > 1:
            raise click.BadParameter(f"the name {name!r} is given twice")
    return {name: path for name, _, path in pairs}


@click.command(cls=RunCommand)
@target_argument
@click.option(
    "--backend", type=click.Choice(list(BACKENDS)), default="processes", show_default=True, help="Where tasks run."
)
@click.option("--master", metavar="URL", help="Spark's master.  [default: local-cluster[2,1,1024]]")
@click.option("--spark", metavar="URL", help="Short for --backend spark --master URL.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Packages that Spark's executors lack, from `streamlet pack`.",
)
@click.option(
    "--shared",
    multiple=True,
    callback=_named_paths,
    metavar="NAME=PATH",
    help="A file or folder that components read, as context.shared[NAME]. Repeatable.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="How many workers.  [default: one a core but one, at most one a task]"
)
@click.option("-c", "pairs", multiple=True, metavar="KEY=VALUE", help="A setting, or COMPONENT.NAME=VALUE. Repeatable.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings in TOML or JSON; -c wins.")
@click.option(
    "-t",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when the workers have run for so long; with --until-caught-up: at the latest, with exit status 1.",
)
@click.option("--until-caught-up", is_flag=True, help="Stop when all that was there at the start is done.")
@click.option(
    "--drain-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long the end waits for what is under way.  [default: 4, or as long as what waits takes]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout; the last is the result.")
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Keep the last status there, in Prometheus' text format.",
)
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append each line of the log to FILE, with its component, task, worker and epoch.",
)
@click.option("--log-format", type=click.Choice([TEXT, JSON]), help="The lines of FILE.  [default: text]")
@debug_option
def run(
    target: TopologyTarget,
    backend: str,
    master: str | None,
    spark: str | None,
    archive: Path | None,
    shared: dict[str, str],
    workers: int | None,
    pairs: tuple[str, ...],
    config: Path | None,
    seconds: float | None,
    until_caught_up: bool,
    drain_timeout: float | None,
    as_json: bool,
    metrics_file: Path | None,
    log_file: Path | None,
    log_format: str | None,
    debug: bool,
) -> int:
    """Run FILE's topology until caught up, out of time, or Ctrl-C.

    `streamlet check --settings [FILE]` lists what -c may set.
    """
    try:
        if spark is not None:
            backend, master = _of_spark(spark, master)
        _check_options(backend, master, workers, seconds)
        if archive is not None and backend != "spark":
            raise click.UsageError("--archive belongs to --backend spark.", click.get_current_context())
        topology = target.load()
        section = logging_in_file(config, topology) if config else None
        request = make_request(
            topology,
            [
                *_given_in_files(config, topology, shared),
                *_given_by_options(log_file, log_format, archive),
                *given_on_line(pairs),
            ],
            backend=backend,
            workers=workers,
            until_caught_up=until_caught_up,
            seconds=seconds,
            master=master,
            drain_timeout=drain_timeout,
            file=target.file.absolute(),
            attribute=target.attribute,
            quiet_stdout=as_json,
            keeps_log=section is not None,
        )
        made = make_backend(backend, debug)
        stop = Stop()
        lasting = LastingView(choose_view(as_json), stop.ask)
        shown = ViewThread(lasting, lambda: stop.asked, lambda: stop.killed, streams_apart())
        view: View = shown if metrics_file is None else MetricsFile(metrics_file, shown)
        keepers = _keepers(request, section, config, as_json)
        if keepers:
            view = KeptView(keepers, view, as_json)
    except Exception as error:
        if as_json:
            _refused_as_json(error)
        raise
    return _watched(made, request, stop, lasting, shown, view, debug)


def _keepers(request: RunRequest, section: dict[str, Any] | None, config: Path | None, as_json: bool) -> list[Keeper]:
    """Return those who keep the lines of the run: a log file, the handlers of a section."""
    found: list[Keeper] = []
    kept = log_file_of(request.conf)
    if kept is not None:
        if as_json:
            _refuse_standard_output(Path(request.conf["streamlet.log.file"]))
        found.append(kept)
    if section is not None and config is not None:
        from streamlet.cli.logging_section import LoggingSection

        found.append(LoggingSection(section, config, request.conf["streamlet.log.repeats.secs"], as_json))
    return found


def _refuse_standard_output(log_file: Path) -> None:
    # Rule: with --json the last line of standard output is the result, whatever happens. A log on the same pipe wrote
    # its own lines between the objects, and behind them.
    with contextlib.suppress(OSError):  # a file that is not there yet is none
        if is_standard_output(log_file.stat()):
            raise BadInput(
                f"The log file {log_file} is standard output, where --json has its objects: the log's lines would "
                "stand between them. Name another file (/dev/stderr is one), or leave --log-file away: with --json "
                "each line of the log is an object of its own."
            )


def _given_by_options(log_file: Path | None, log_format: str | None, archive: Path | None) -> Given:
    given = (
        ("streamlet.log.file", log_file, "--log-file"),
        ("streamlet.log.format", log_format, "--log-format"),
        ("streamlet.spark.archive", archive, "--archive"),
    )
    return [one for one in given if one[1] is not None]


def _given_in_files(config: Path | None, topology: TopologySpec, shared: Mapping[str, str]) -> Given:
    """Return the settings of a file; beside its shared files, or the topology's, those of ``--shared``."""
    in_file = given_in_file(config, topology) if config else []
    own = {**topology.config, **{key: value for key, value, _ in in_file}}.get("streamlet.shared")
    own = own if isinstance(own, Mapping) else {}
    return [*in_file, *([("streamlet.shared", {**own, **shared}, "--shared")] if shared else [])]


ON_LINE = OptionNames("--master", "--workers", "-t", "--backend spark", "--backend inline")


def _of_spark(spark: str, master: str | None) -> tuple[str, str]:
    """Return backend and master of ``--spark URL``."""
    context = click.get_current_context()
    named = context.get_parameter_source("backend") is not click.core.ParameterSource.DEFAULT
    if master is not None or (named and context.params["backend"] != "spark"):
        raise click.UsageError("--spark URL stands for --backend spark --master URL: leave these out.", context)
    return "spark", spark


def _check_options(backend: str, master: str | None, workers: int | None, seconds: float | None) -> None:
    try:
        check_choices(ON_LINE, backend, workers, seconds, master)
    except BadInput as error:
        raise click.UsageError(error.message, click.get_current_context()) from None


def choose_view(as_json: bool) -> WrittenView:
    """Choose JSON if asked, a live table on a terminal, else lines."""
    if as_json:
        return JsonView()
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        # rich is imported only where a person looks on: a pipe or a container does not need it.
        from streamlet.cli.table import TableView

        return FoldingView(TableView())
    return FoldingView(PlainView())


def _watched(
    backend: Backend,
    request: RunRequest,
    stop: Stop,
    lasting: LastingView,
    shown: ViewThread,
    view: View,
    debug: bool,
) -> int:
    """Run and show; return the exit status.

    Raises the run's error, after the view has shown it; after a good run, the error of a view that broke.
    """
    interrupts, unwritten = Interrupts(stop, view.notice, view.killed), list[str]()
    # The handlers stand before anything starts and until the last table is drawn: Ctrl-C drains a Spark that is still
    # coming up, and raises no KeyboardInterrupt in the middle of the result.
    # Rule: with --json nothing but its view has standard output. A handler of the user's that prints would write
    # between the objects, and who reads those would stop there.
    quiet = contextlib.redirect_stdout(sys.stderr) if request.quiet_stdout else contextlib.nullcontext()
    with logs_shown(view.log, debug), signals_to(interrupts.came), quiet:
        try:
            view.start(request, backend.name)
            result = backend.run(request, view, stop)
            interrupts.give_way()
            status = _exit_status(result.reason, interrupts, request.until_caught_up)
            unwritten += _flushed(backend)
            interrupts.end(status or (1 if unwritten else 0), _unwritten_text(unwritten))
            view.finish(result, status)
            # After the run, which was asked to drain when the output broke.
            if lasting.lost is not None:
                status = _status_without_output(lasting.lost, interrupts)
        except Exception as error:
            interrupts.give_way()
            said, status = explain(error)
            unwritten += _flushed(backend)
            interrupts.end(status, f"Error: {said}\n{_unwritten_text(unwritten)}")
            view.failed(error, status)
            _close(view, shown, status, f"Error: {said}\n")
            raise
        else:
            _close(view, shown, status or (1 if unwritten else 0), _unwritten_text(unwritten))
        finally:
            interrupts.settle()
    if unwritten:
        click.echo(_unwritten_text(unwritten), err=True, nl=False)
    return status or (1 if unwritten else 0)


def _flushed(backend: Backend) -> list[str]:
    """Flush what a component in this process left open; return what could not be written."""
    # Rule: before the end waits for a reader. A signal may end the process there, past every clean-up, and all was done
    # with status 0 and an empty file. A worker does so at its own end.
    return flush_open_files() if backend.name == "inline" else []


def _unwritten_text(unwritten: list[str]) -> str:
    return "".join(
        f"Error: Not everything could be written to a file that was left open, {failed}\n" for failed in unwritten
    )


def _exit_status(reason: str, interrupts: Interrupts, until_caught_up: bool) -> int:
    """Return the exit status of a run that did not fail; ``until_caught_up``: it was to catch up."""
    # Rule: such a run ends with 0 only when it has caught up, whether the option asked for it, a setting, or spouts
    # that are all bounded. A cron job looks at the status alone.
    early = 1 if until_caught_up and reason in ("time", "interrupted") else 0
    return (interrupts.exit_status if reason == "interrupted" else None) or early


def _status_without_output(lost: Exception, interrupts: Interrupts) -> int:
    """Return the status of a run whose terminal was closed; raise ``lost`` of another."""
    # Rule: output that cannot be written once the terminal has gone is what SIGHUP has told, and no error of its own.
    # A run that had drained in order ended with 1, whose table says "failed".
    if not (isinstance(lost, OutputFailed) and lost.terminal_gone and interrupts.has_hung_up()):
        raise lost
    give_up_output()
    assert interrupts.exit_status is not None
    return interrupts.exit_status


def _close(view: View, shown: ViewThread, exit_status: int, said: str) -> None:
    view.close()
    if shown.stuck or (isinstance(view, KeptView) and view.stuck):
        # A thread stands in a write that will not return, with the lock of a stream: the interpreter's own end would
        # wait for it.
        leave(exit_status, lambda: os.write(2, printable(said).encode()))
