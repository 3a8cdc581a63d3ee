"""Plant known bugs one at a time and see whether the suite catches them: ``python -m tests.planted.plant``.

Each patch of ``bugs`` is applied to a copy of the tree, the fast tests of its room run there until the first fails, and
a table says which test caught it. First each room's tests must pass without a bug. Ends with 1 when a bug lives.
``--only TEXT`` takes those whose name holds it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.planted.bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]
LIMIT_S = 600.0
"""Seconds for the tests of one bug; a bug that makes them hang is caught, too."""


def planted(text: str, bug: Bug) -> str:
    """Return a file's text with the bug in it. Raises ValueError unless its place is there exactly once."""
    count = text.count(bug.old)
    if count != 1:
        raise ValueError(f"{bug.name!r}: its place stands {count} times in {bug.file}")
    return text.replace(bug.old, bug.new)


def catch(tree: Path, bug: Bug) -> str | None:
    """Run the tests of a bug's room; return the test that failed, or None."""
    fast = "not real and not spark and not faults"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", fast, *bug.tests]
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"(no end after {LIMIT_S:.0f} s)"
    if done.returncode == 1:
        failed = re.search(r"^(?:FAILED|ERROR) \S+?::(.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        return failed.group(1) if failed else "(one that pytest did not name)"
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{bug.name!r}: pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
    return None


def main() -> int:
    """Plant, run, restore, one bug after the other; print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted.plant", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of the names")
    only = parser.parse_args().only
    chosen = [bug for bug in BUGS if only in bug.name]
    if not chosen:
        parser.error(f"no bug has {only!r} in its name")
    lives = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as made:
        tree = Path(made) / "tree"
        for part in ("streamlet", "tests", "topologies", "docs"):
            shutil.copytree(ROOT / part, tree / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("setup.cfg", "pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, tree / name)
        for room in dict.fromkeys(bug.tests for bug in chosen):
            failed = catch(tree, Bug("none", "", "", "", room))
            if failed is not None:
                sys.exit(f"{failed} fails without a bug: no table. Run {' '.join(room)} by itself.")
        print("| bug | room | caught by | s |\n|---|---|---|---|", flush=True)
        for bug in chosen:
            file = tree / "streamlet" / bug.file
            sound = file.read_text(encoding="utf-8")
            file.write_text(planted(sound, bug), encoding="utf-8")
            began = time.monotonic()
            test = catch(tree, bug)
            file.write_text(sound, encoding="utf-8")
            lives += test is None
            caught = "**lives**" if test is None else f"`{test}`"
            print(f"| {bug.name} | `{bug.file}` | {caught} | {time.monotonic() - began:.0f} |", flush=True)
    return 1 if lives else 0


if __name__ == "__main__":
    sys.exit(main())
