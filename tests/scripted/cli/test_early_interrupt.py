"""Ctrl-C in the moments in which the command is imported: nothing has begun, and nothing is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ROOT, Streamlet
from tests.faults.rig import wait_for

HOLD = """
import os, sys, time

class Hold:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("HOLD_IMPORT"):
            open(os.environ["HELD"], "w").close()
            time.sleep(600)

sys.meta_path.insert(0, Hold())
"""
SCRIPT = """
import sys
from streamlet.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.mark.parametrize("module", ["streamlet.backends.contract", "click", "streamlet.cli.run"])
@pytest.mark.parametrize("way", ["script", "module"])
def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_word(
    way: str,
    module: str,
    streamlet: Streamlet,
) -> None:
    hooks = streamlet.folder / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(HOLD)
    if way == "script":  # as pip writes it
        streamlet.command = [sys.executable, "-P", str(streamlet.write(SCRIPT, "streamlet"))]
    held = streamlet.folder / "held"
    process = streamlet.start(
        "run", "no.py", HOLD_IMPORT=module, HELD=str(held), PYTHONPATH=os.pathsep.join([str(hooks), str(ROOT)])
    )
    wait_for("the import", held.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("name", ["other.py", "streamlet"])
def test_other_programs_keep_their_keyboard_interrupt(name: str, tmp_path: Path) -> None:
    """Also one that only bears the command's name."""
    (tmp_path / name).write_text("import signal, streamlet\nprint(signal.getsignal(signal.SIGINT).__name__)\n")
    done = subprocess.run(
        [sys.executable, "-P", name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "default_int_handler\n"
