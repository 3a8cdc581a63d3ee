"""The prints of user code on Spark, and where a slot is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from streamlet.backends.spark.slot import SlotChannel, executor_id
from streamlet.runtime.links.wire import MAX_CONTROL_FRAME, FrameReader, FrameWriter
from streamlet.runtime.worker.channel import ControlChannel
from streamlet.runtime.worker.messages import Stopped


def test_the_last_line_comes_before_the_word_that_the_worker_has_stopped() -> None:
    """The coordinator hangs up after that word of the last worker."""
    here, there = socket.socketpair()
    with here, there:
        channel = SlotChannel(here, FrameWriter(b"key"), FrameReader(b"key", MAX_CONTROL_FRAME))
        channel.lines.write("the end")
        channel.send(Stopped([]))
        sent = ControlChannel(there, FrameWriter(b"key"), FrameReader(b"key", MAX_CONTROL_FRAME)).receive()
    assert [raw.get("text") for raw in sent] == ["the end", None]


def below(*words: str) -> str:
    """What a process says of itself below one that was started with these words."""
    inner = "import os; from streamlet.backends.spark.slot import executor_id; print(executor_id())"
    # Three of them, as JVM, daemon and worker are.
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {outer!r}])"
    return subprocess.check_output([sys.executable, "-c", program, *words], text=True).strip()


def test_a_slot_knows_the_executor_that_it_is_below() -> None:
    assert below("--driver-url", "spark://x@h:1", "--executor-id", "12", "--hostname", "h") == "12"
    assert below("org.apache.spark.deploy.SparkSubmit", "pyspark-shell") == "driver"
    assert below() == ""
    assert executor_id(os.getpid()) == "" and executor_id(1 << 30) == ""
