"""The numbers of a run beside the program that runs it: a table in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from streamlet.backends.contract import RunStatus
from streamlet.cli.show import Rates, component_lines, partition_lines, place_lines, status_line


class LiveTable:
    """Show a run's numbers while it runs: ``topology.run(..., on_status=LiveTable())``.

    In a Jupyter notebook one table below the cell is replaced about once a second. Elsewhere a line is printed now and
    then, ever more rarely, and the table at the end. One object serves one run.
    """

    def __init__(self) -> None:
        self._rates = Rates()
        self._next_s = 1.0
        self._shown: Any = None

    def __call__(self, status: RunStatus) -> None:
        """Show one status."""
        tables = [*component_lines(status, self._rates.of(status)), *partition_lines(status.partitions)]
        text = "\n".join([status_line(status), *tables, *place_lines(status)])
        display = _display()
        if display is None:
            self._print(status, text)
        elif self._shown is None:
            # Text, not HTML: every front end shows it alike, and a name in it is nothing but a name.
            self._shown = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._shown.update({"text/plain": text}, raw=True)

    def _print(self, status: RunStatus, text: str) -> None:
        if status.state == "ended":
            _say(text)
        elif status.elapsed_s >= self._next_s:
            self._next_s = status.elapsed_s + min(30.0, max(1.0, status.elapsed_s / 2))
            _say(status_line(status))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _display() -> Any:
    """Return IPython's ``display`` in the kernel of a notebook, else None."""
    # Rule: never import IPython. Where it is not loaded, no notebook is there to show anything.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if ipython is None or not hasattr(shell, "kernel"):
        return None
    return ipython.display.display
