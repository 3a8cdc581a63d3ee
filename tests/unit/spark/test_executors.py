"""What a session's Python workers are asked for, and what is said of those that lack it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import cloudpickle

from streamlet.base.errors import BadInput
from streamlet.spark import executors
from streamlet.spark.applying.packed_rows import PackedRows
from streamlet.spark.executors import ALWAYS, KEYED_STREAMS, PACKAGES, Found, PackagesMissing, check_workers, require
from streamlet.spark.source import BatchReader
from tests.command_line import ROOT


class Context:
    """A context as far as it is asked."""

    master = "local[2]"
    _python_includes: tuple[str, ...] = ()

    def __init__(self, python: Path | str) -> None:
        self.pythonExec = str(python)


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_sent_to", lambda context: "")


def bare_python(folder: Path) -> Path:
    """A Python without any installed package, that notes each start."""
    made = folder / "bare-python"
    made.write_text(f'#!/bin/sh\necho started >> "{folder}/starts"\nexec "{sys.executable}" -S "$@"\n')
    made.chmod(0o755)
    return made


def test_a_python_of_this_machine_is_refused_with_all_that_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        check_workers(Context(bare_python(tmp_path)), ALWAYS)
    told = str(caught.value)
    assert "cannot import msgpack, crc32c, cramjam, pyarrow, numpy. " in told
    assert "-m pip install 'msgpack>=1.2.4' 'crc32c>=2.7' 'cramjam>=2.9' 'pyarrow>=18' numpy. Or" in told
    assert "\n" not in told


def test_a_context_is_asked_until_nothing_is_missing_and_then_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(bare_python(tmp_path))
    for _ in range(2):  # what was installed meanwhile is seen
        with pytest.raises(BadInput):
            check_workers(context, ALWAYS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    check_workers(context, ALWAYS)
    check_workers(context, KEYED_STREAMS)
    assert (tmp_path / "starts").read_text().split() == ["started"] * 3


def test_pandas_is_wanted_by_keyed_streams_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_of_executors", lambda context: [Found("far", "/usr/bin/python3", ["pandas"])])
    context = Context(sys.executable)
    check_workers(context, ALWAYS)
    with pytest.raises(
        BadInput, match=r"on far run /usr/bin/python3, which cannot import pandas\. .*'pandas>=2\.2,<3'"
    ):
        check_workers(context, KEYED_STREAMS)


def test_one_executor_that_lacks_a_package_is_found_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Found("one", "/usr/bin/python3", []), Found("two", "/opt/python", ["numpy"])]
    monkeypatch.setattr(executors, "_of_executors", lambda context: answers)
    with pytest.raises(BadInput, match="on two run /opt/python, which cannot import numpy"):
        check_workers(Context(sys.executable), ALWAYS)


def test_a_python_that_does_not_start_and_executors_that_fail_are_left_to_spark(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for python in (broken, tmp_path / "not-there"):
        check_workers(Context(python), ALWAYS)
    far = Context(sys.executable)
    far.master = "spark://far:7077"  # and no method that a job needs
    check_workers(far, ALWAYS)


def test_executors_that_do_not_answer_hold_nobody_up_and_their_job_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors, "_ANSWER_S", 2.0)
    cancelled = threading.Event()
    groups: list[str] = []

    def wait(group: str, *more: object, **named: object) -> None:
        groups.append(group)
        cancelled.wait(60)

    def cancel(group: str) -> None:
        assert groups == [group]
        cancelled.set()

    far = Context(sys.executable)
    far.master = "spark://far:7077"
    far.__dict__ |= {"setJobGroup": wait, "cancelJobGroup": cancel}
    check_workers(far, ALWAYS)
    assert cancelled.is_set()
    check_workers(far, ALWAYS)
    assert len(groups) == 1


def test_the_question_travels_without_streamlet(tmp_path: Path) -> None:
    pickled = tmp_path / "probe"
    pickled.write_bytes(cloudpickle.dumps(executors._probe(["json", "no_such_package"])))
    code = f"import sys, pickle; print(*pickle.load(open({str(pickled)!r}, 'rb'))([None]), 'streamlet' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert '["no_such_package"]] False' in done.stdout


def test_an_executor_that_was_not_asked_tells_all_that_is_missing_in_one_paragraph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PackagesMissing, match="which cannot import pyarrow, numpy"):
        require("pyarrow", "numpy")
    reader = BatchReader(SimpleNamespace(), None)  # type: ignore[arg-type]  # it is not looked at
    for act in (lambda: reader.read(SimpleNamespace(value=1)), lambda: PackedRows(1, None)([])):
        with pytest.raises(PackagesMissing, match="numpy"):
            list(act())


def test_pip_is_asked_for_what_setup_cfg_asks_for() -> None:
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert [line for name, line in PACKAGES.items() if name != "numpy" and f"\n    {line}\n" not in setup] == []
