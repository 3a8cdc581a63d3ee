"""The end of a worker that has lost its own descriptors: by its exit status, on Spark by a line as well."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from streamlet.runtime.worker import closed_descriptors
from tests.patience import PATIENCE_S

END = """
import sys
from streamlet.runtime.worker import closed_descriptors
closed_descriptors.end(1, 2, ["split", "count"], shown=sys.argv[1] == "shown")
"""


@pytest.mark.parametrize("shown", ["shown", "kept"])
def test_a_process_without_its_descriptors_ends_with_a_status_of_its_own(shown: str) -> None:
    command = [sys.executable, "-c", END, shown]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    line = f"Worker 1 (epoch 2) {closed_descriptors.HOW}. It has the code of count, split: that, or a library, closes"
    assert done.returncode == closed_descriptors.STATUS
    assert done.stderr.startswith(line) if shown == "shown" else not done.stderr


def test_only_a_descriptor_that_the_kernel_does_not_know_is_a_closed_one() -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as closed:
        os.fstat(1 << 20)
    assert closed_descriptors.is_closed(closed.value)
    assert not closed_descriptors.is_closed(OSError(errno.ENOSPC, "full"))
    assert not closed_descriptors.is_closed(ValueError("closed"))
