"""The live table in a terminal. The only file that imports rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from streamlet.backends.contract import RunRequest, RunResult, RunStatus
from streamlet.base.log_line import LogLine
from streamlet.base.printable import many, printable
from streamlet.cli import show
from streamlet.model.spec import SPOUT
from streamlet.runtime.worker.log_lines import shown_text

REFRESH_A_SECOND = 4
STYLES = {"debug": "dim", "warning": "yellow", "warn": "yellow", "error": "red", "critical": "bold red"}
UNIMPORTANT = ("tasks", "timed out", "window", "wait ms", "per s", "p50 ms", "p99 ms", "emitted", "failed")
UNIMPORTANT_OF_PARTITIONS = ("position", "committed", "waits at", "behind")
"""What a narrow terminal goes without, first to last."""

LAST = ("acked",)
"""What the narrowest go without after that; then the columns from the right. Losses are seen longest."""

LEAST_NAME = 3
"""Cells that a name keeps."""

MOST_PARTITIONS = 16
"""Partitions shown: those with the largest lag. A table that scrolls away shows nothing."""

MOST_PLACES = 8
"""Executors shown."""


class TableView:
    """Draws the latest status in place, log lines above it.

    rich's own thread redraws, so a busy run still shows the notice of a Ctrl-C at once.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._status: RunStatus | None = None
        self._rated = show.Rates()
        self._rates: Mapping[str, float] = {}
        self._notice = ""
        self._over = False
        self._live = Live(
            get_renderable=self._draw,
            console=self._console,
            refresh_per_second=REFRESH_A_SECOND,
            # rich would put streams of its own before ours, and an error of standard output would lose its name
            # (output.py).
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def start(self, request: RunRequest, backend: str) -> None:
        self._console.print(self._text(show.heading(request, backend), "bold"))
        self._live.start()

    def on_status(self, status: RunStatus) -> None:
        # The rates first: rich's thread may draw between the two.
        self._rates = self._rated.of(status)
        self._status = status

    def on_event(self, line: LogLine) -> None:
        self.log(line)

    def log(self, line: LogLine) -> None:
        self._console.print(self._text(shown_text(line), STYLES.get(line.level, "")))

    def on_errors(self, line: LogLine | None, event: bool = False) -> bool:
        return False  # lines stand above the table

    def show_due(self, over: bool) -> None:
        pass

    def notice(self, text: str) -> None:
        self._notice = text

    def killed(self, exit_status: int, last: RunStatus | None) -> None:
        # Below the table as it stands; the cursor, which it hides, is shown again.
        show.say_last_words(show.killed(last or self._status), before="\r\n\x1b[?25h")

    def finish(self, result: RunResult, exit_status: int = 0) -> None:
        self.on_status(result.status)
        self._notice = ""
        self._over = True
        self._live.stop()
        late = result.reason == "time" and exit_status != 0
        style = "green" if result.drained and not result.unclosed and not late else "yellow"
        self._console.print(self._text(show.ending(result, exit_status), style))

    def failed(self, error: BaseException, exit_status: int) -> None:
        self._notice = ""

    def close(self) -> None:
        self._live.stop()

    def _text(self, text: str, style: str = "") -> Text:
        # On the run's thread and on rich's own: what a character raised would end the run, or the table.
        return Text(printable(text, self._console.encoding), style=style)

    def _draw(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._status is not None:
            parts += [self._components(self._status), *self._partitions(self._status)]
            parts += self._places(self._status)
            said = [*show.hanging_lines(self._status), *show.paused_line(self._status)]
            parts += [self._text(line, "yellow") for line in said]
            parts.append(Text("") if self._over else self._foot(self._status))
        if self._notice:
            parts.append(Text(self._notice, style="yellow"))
        return Group(*parts)

    def _components(self, status: RunStatus) -> RenderableType:
        heads, *rows = show.component_table(status, self._rates)
        styles = [
            {0: "bold" if row.kind == SPOUT else "", heads.index("failed"): "yellow" if row.failed else ""}
            for row in status.components
        ]
        table = self._table([heads, *rows], UNIMPORTANT, styles)
        metrics = [self._text(line, "dim") for line in show.metric_lines(status)]
        return Padding(Group(*table, *metrics), (1, 0, 0, 0))

    def _partitions(self, status: RunStatus) -> list[RenderableType]:
        rows = sorted(status.partitions, key=lambda row: -(row.get("lag") or 0))
        if not rows:
            return []
        shown = show.partition_table(rows[:MOST_PARTITIONS], show.of_several_spouts(rows))
        table = self._table(shown, UNIMPORTANT_OF_PARTITIONS)
        hidden = len(rows) - MOST_PARTITIONS
        more = [Text(f"and {hidden} more with less lag", style="dim")] if hidden > 0 else []
        return [Padding(Group(*table), (1, 0, 0, 0)), *more]

    def _places(self, status: RunStatus) -> list[RenderableType]:
        lines = show.place_lines(status)
        more = [f"and {len(lines) - MOST_PLACES} executors more"] if len(lines) > MOST_PLACES else []
        shown: list[RenderableType] = [self._text(line, "dim") for line in [*lines[:MOST_PLACES], *more]]
        return [Padding(Group(*shown), (1, 0, 0, 0))] if shown else []

    def _table(
        self, rows: Sequence[Sequence[str]], unimportant: Sequence[str], styles: Sequence[Mapping[int, str]] = ()
    ) -> list[Text]:
        """Return the lines of a table, its heads first; ``styles``: those of each row's cells."""
        # Rule: lines of our own. rich's table keeps no least width of a column: where all have no room it crops at the
        # right edge, and half of a number looks like a number.
        encoding = self._console.encoding
        shown = [[printable(cell, encoding) for cell in row] for row in rows]
        kept, widths, gap = laid_out(shown, unimportant, self._console.width)
        mark = "…" if printable("…", encoding) == "…" else "~"
        lines = []
        for number, row in enumerate(shown):
            line = Text(style="" if number else "dim", no_wrap=True, overflow="crop")
            line.append(shortened(row[0], widths[0], mark), styles[number - 1].get(0) if number and styles else None)
            for at, width in zip(kept[1:], widths[1:], strict=True):
                line.append(" " * (gap + width - cell_len(row[at])))
                line.append(row[at], styles[number - 1].get(at) if number and styles else None)
            lines.append(line)
        return lines

    def _foot(self, status: RunStatus) -> RenderableType:
        lost = sum(int(worker.get("epoch", 1)) - 1 for worker in status.workers)
        restarts = [many(lost, "worker restart")] if lost > 0 else []
        silent = show.unreported(status)
        trees = f"open trees not known: {silent}" if silent else f"{many(status.pending, 'tree')} open"
        return Padding(
            self._text(" · ".join([status.state, show.duration(status.elapsed_s), trees, *restarts]), "dim"),
            (1, 0, 0, 0),
        )


def fitting(widths: Sequence[int], gap: int, width: int, unimportant: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the columns that fit into ``width``, in order.

    The unimportant ones are left out, first to last.
    """
    kept = list(range(len(widths)))
    for name in unimportant:
        if sum(widths[at] for at in kept) + gap * (len(kept) - 1) <= width:
            break
        if name in names:
            kept.remove(list(names).index(name))
    return kept


def laid_out(rows: Sequence[Sequence[str]], unimportant: Sequence[str], width: int) -> tuple[list[int], list[int], int]:
    """Return the columns that fit, their widths, and their gap.

    In cells. A column goes rather than that a number is cut; only the first one, the name, is shortened.
    """
    heads = rows[0]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(heads))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= width else 1
    kept = fitting(widths, gap, width, unimportant, heads)
    # The number of a partition is not cut either: of a topic's name a letter and the mark stand before it.
    least = min(widths[0], max(LEAST_NAME, *(2 + cell_len(_tail(row[0])) for row in rows)))
    for name in (*LAST, *reversed(heads[1:])):
        if least + sum(gap + widths[at] for at in kept[1:]) <= width:
            break
        kept = [at for at in kept if not at or heads[at] != name]
    first = min(widths[0], max(1, width - sum(gap + widths[at] for at in kept[1:])))
    return kept, [first, *(widths[at] for at in kept[1:])], gap


def shortened(name: str, width: int, mark: str = "…") -> str:
    """Return a name in so many cells.

    A mark stands where some is missing: ``compo…``, and ``topic…/12`` of a partition.
    """
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    tail = _tail(name)
    room = width - 1 - cell_len(tail)
    if tail and room < 1:
        return set_cell_size(mark, width)
    return set_cell_size(set_cell_size(name.removesuffix(tail), room).rstrip() + mark + tail, width)


def _tail(name: str) -> str:
    """Return the slash and number at the end of a partition's name; empty for others."""
    _, slash, number = name.rpartition("/")
    return slash + number if number.isdigit() else ""
