"""``streamlet run --backend spark``, from the outside: what it says, how it ends, and that nothing stays behind."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from tests.marked_processes import NUMBERED, REPOSITORY, Marked, streamlet
from tests.patience import PATIENCE_S


def refused(done: Marked) -> str:
    """The one paragraph of a refusal."""
    said, complaints = done.process.communicate(timeout=PATIENCE_S)
    assert done.process.returncode == 2, said + complaints
    assert "Traceback" not in said + complaints
    return " ".join(complaints.split())


def test_without_pyspark_one_paragraph_says_what_to_install(run: Callable[..., Marked], tmp_path: Path) -> None:
    """A Python whose import system and metadata know no pyspark."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m, sys\n"
        "sys.modules['pyspark'] = None\n"
        "real = m.version\n"
        "def version(name):\n"
        "    if name == 'pyspark':\n"
        "        raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version\n"
    )
    said = refused(run(environ={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}))
    assert "needs pyspark" in said
    assert "pip install 'streamlet-storm[spark]'" in said


def test_without_java_one_paragraph_says_what_to_install(run: Callable[..., Marked], tmp_path: Path) -> None:
    said = refused(run(environ={"PATH": str(tmp_path), "JAVA_HOME": ""}))
    assert "Spark needs Java 17" in said


def test_more_workers_than_slots_are_refused(run: Callable[..., Marked]) -> None:
    said = refused(run("--workers", "3", "--master", "local-cluster[2,1,1024]"))
    assert "wants 3 workers" in said
    assert "has 2 slots" in said


def test_a_master_that_does_not_answer_is_named(run: Callable[..., Marked]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert f"No Spark master answers at 127.0.0.1:{port}" in refused(run("--master", f"spark://127.0.0.1:{port}"))


def test_spark_with_a_url_stands_for_backend_and_master(run: Callable[..., Marked], tmp_path: Path) -> None:
    """And for nothing beside them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"spark://127.0.0.1:{listener.getsockname()[1]}"
    code = "import sys; del sys.argv[3:5]; from streamlet.cli.main import main; main()"  # without --backend spark
    said = refused(streamlet(["run", str(NUMBERED), "--backend", "spark", "--spark", url], {}, code, cwd=tmp_path))
    assert f"No Spark master answers at {url[8:]}" in said
    assert "leave these out" in refused(run("--spark", url, "--master", url))
