"""Which values travel, how they arrive, and which of them are the same key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from streamlet.runtime.tasks.values import key_hash

ROOT = Path(__file__).parents[4]


def test_the_hash_is_the_same_in_every_process() -> None:
    """Unlike ``hash``: another interpreter with another PYTHONHASHSEED gives the same numbers, today's too."""
    code = (
        "from streamlet.runtime.tasks.values import key_hash\n"
        "print([key_hash([k]) for k in ['word', 1, 2.5, None, b'x', True, ['a', {'b': 1}]]])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert answers == {str([key_hash([k]) for k in ["word", 1, 2.5, None, b"x", True, ["a", {"b": 1}]]]) + "\n"}
