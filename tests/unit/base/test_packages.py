"""A Python that lacks what streamlet is compiled with, as on an executor that streamlet alone was sent to."""

from __future__ import annotations

import subprocess
import sys

from streamlet.base.packages import COMPILED

LACKING = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {missing!r} else found(name, *more)
import streamlet
"""


def test_a_python_without_compiled_packages_is_told_what_to_install() -> None:
    for missing in (COMPILED[1:2], COMPILED):
        done = subprocess.run(
            [sys.executable, "-c", LACKING.format(missing=missing)], check=False, capture_output=True, text=True
        )
        said = done.stderr.splitlines()[-1]
        assert said.startswith(f"ModuleNotFoundError: streamlet needs {', '.join(missing)}, which the Python")
        assert f"-m pip install {' '.join(COMPILED)}" in said
