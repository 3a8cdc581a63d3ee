"""A Spark application that comes and goes within a process."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from streamlet.backends.spark.masters import parse_master
from streamlet.backends.spark.spark_session import Cancelled, _Opening, active_session, open_session, wait_for_executors
from streamlet.base.environment import environment
from streamlet.base.errors import BadInput
from tests.marked_processes import NUMBERED, command_line, parent
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.spark


def test_a_process_can_have_one_after_the_other_and_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers, environment, files and the JVM; an active session is found and not stopped by whoever finds it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    handler, environ = signal.getsignal(signal.SIGINT), {**os.environ}
    assert active_session() is None
    for _ in range(2):
        session = open_session(parse_master("local[1]", 1), "test", debug=False, cancelled=lambda: False)
        try:
            found = active_session()
            assert found is not None
            assert (found.directory, found.master) == (None, "local[1]")
            found.close()
            assert session.lost() is None
            assert [executor.slots for executor in session.executors()] == [1]
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            session.close()
        assert session.process is not None
        assert session.process.poll() is not None
        assert list(tmp_path.iterdir()) == []
    assert _not_pysparks({**os.environ}) == _not_pysparks(environ)


def _not_pysparks(environ: dict[str, str]) -> dict[str, str]:
    """Without what pyspark writes there for itself, in this test or in an earlier one."""
    return {k: v for k, v in environ.items() if k not in {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}}


def test_a_worker_has_as_many_cores_as_spark_task_cpus_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor of two cores has one slot then: one worker runs, and two are refused with that number."""
    (tmp_path / "spark-defaults.conf").write_text("spark.task.cpus 2\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    session = open_session(parse_master("local-cluster[1,2,1024]", 1), "t", debug=False, cancelled=lambda: False)
    try:
        wait_for_executors(session, lambda found: len(found) == 1, PATIENCE_S, lambda: False)
        assert [executor.slots for executor in session.executors()] == [1]
        monkeypatch.syspath_prepend(str(NUMBERED.parent))
        numbered = importlib.import_module("numbered").Numbered
        assert numbered.run(backend="spark", workers=1, settings={"out": str(tmp_path)}).reason == "caught_up"
        with pytest.raises(BadInput, match=r"wants 2 workers.* has 1 slot"):
            numbered.run(backend="spark", workers=2, settings={"out": str(tmp_path)})
    finally:
        session.close()


def test_java_options_and_a_folder_of_the_users_file_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours stand before them, on JVMs that we start to be quick."""
    names = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
    options = [f"{name} -Dstreamlet.asked={name.split('.')[1]} -XX:TieredStopAtLevel=4" for name in names]
    (tmp_path / "spark-defaults.conf").write_text("\n".join([*options, f"spark.local.dir {tmp_path}/blocks", ""]))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    session = open_session(parse_master("local-cluster[1,1,1024]", 1), "t", debug=False, cancelled=lambda: False)
    try:
        wait_for_executors(session, lambda found: len(found) == 1, PATIENCE_S, lambda: False)
        assert session.process is not None
        (above,) = session.context.parallelize([None], 1).map(lambda _: os.getppid()).collect()
        for jvm, whose in ((session.process.pid, "driver"), (parent(above), "executor")):
            words = command_line(jvm)
            assert f"-Dstreamlet.asked={whose}" in words and "-XX:+UseSerialGC" in words, words
            assert [word for word in words if "Tiered" in word][-1].endswith("=4"), words
        assert any((tmp_path / "blocks").iterdir())
    finally:
        session.close()


def test_a_run_says_which_settings_of_the_users_file_it_takes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["spark.speculation", "spark.python.worker.killOnIdleTimeout"]
    (tmp_path / "spark-defaults.conf").write_text(f"{names[0]} True\n{names[1]} true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    session = open_session(parse_master("local[1]", 1), "t", debug=False, cancelled=lambda: False)
    try:
        assert session.taken_back == names
        assert [session.conf()[name] for name in names] == ["false", "false"]
    finally:
        session.close()


def test_one_that_nobody_wants_any_more_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Cancelled):
        open_session(parse_master("local[1]", 1), "test", debug=False, cancelled=lambda: True)
    assert list(tmp_path.iterdir()) == []
    assert active_session() is None


def test_an_environment_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLET_TEST_OLD", "old")
    with environment({"STREAMLET_TEST_OLD": "new", "STREAMLET_TEST_NEW": "1"}):
        assert (os.environ["STREAMLET_TEST_OLD"], os.environ["STREAMLET_TEST_NEW"]) == ("new", "1")
    assert os.environ["STREAMLET_TEST_OLD"] == "old"
    assert "STREAMLET_TEST_NEW" not in os.environ


def test_what_py4j_says_of_a_jvm_that_we_killed_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run that is given up while Spark starts ends without a traceback; other threads, and other ends, are heard."""
    opening = _Opening(parse_master("local[1]", 1), "t", tmp_path, None)

    def talk() -> None:
        root = logging.getLogger()
        root.addFilter(opening._is_news)
        logging.error("the JVM ended by itself")
        opening.abandoned.set()
        logging.error("Exception while sending command.")

    opening.thread = threading.Thread(target=talk)
    opening.thread.start()
    opening.thread.join()
    logging.error("somebody else")
    logging.getLogger().removeFilter(opening._is_news)
    assert [record.message for record in caplog.records] == ["the JVM ended by itself", "somebody else"]
