"""What a Spark cluster on loopback is started with, without starting it."""

from __future__ import annotations

import http.server
import socket
import threading
from pathlib import Path

import pytest

from streamlet.devcluster import spark_servers
from streamlet.devcluster.errors import ClusterFailed, SparkMissing
from streamlet.devcluster.machine import free_ports
from streamlet.devcluster.spark_servers import SparkPorts, SparkServers, find_spark, page_of


def test_spark_servers_without_pyspark_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_servers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkMissing, match=r"needs pyspark.*pip install 'streamlet-storm\[spark\]'"):
        find_spark({})


def test_a_spark_home_without_spark_is_named(tmp_path: Path) -> None:
    with pytest.raises(SparkMissing, match=f"SPARK_HOME={tmp_path} holds no bin/spark-class"):
        find_spark({"SPARK_HOME": str(tmp_path)})


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"workers": []}' if self.path == "/json/" else b"<html>")

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_that_answers_is_told_from_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past a proxy of the environment."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert page_of("127.0.0.1", server.server_port) == {"workers": []}
        server.shutdown()
    assert page_of("127.0.0.1", server.server_port) is None


def test_a_page_that_is_no_http_server_counts_as_no_answer() -> None:
    """Another program may listen on the page's port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as client:
                client.recv(1000)
                client.sendall(b"SSH-2.0-x\r\n")

        threading.Thread(target=answer, daemon=True).start()
        assert page_of("127.0.0.1", server.getsockname()[1]) is None


def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A Spark whose servers run a script of the shell, with the command in ``$@``."""
    runner = tmp_path / "home" / "bin" / "spark-class"
    runner.parent.mkdir(parents=True)
    runner.write_text(f"#!/bin/sh\n{script}\n")
    runner.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))


def test_a_server_that_ends_at_once_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command, too: it listens on loopback only, and keeps its files below the cluster's folder."""
    fake_spark(tmp_path, monkeypatch, 'echo "$SPARK_LOCAL_IP $SPARK_WORKER_DIR $*"; echo "ERROR no room"; exit 3')
    ports = SparkPorts(tuple(free_ports(2)), tuple(free_ports(2)))
    with pytest.raises(ClusterFailed, match=r"Spark master ended before it was ready .*ERROR no room.*another process"):
        SparkServers(1, tmp_path / "spark", ports=ports).start()
    said = (tmp_path / "spark" / "spark-master" / "server.log").read_text()
    where = f"--host 127.0.0.1 --port {ports.servers[0]} --webui-port {ports.pages[0]}"
    folder = tmp_path / "spark" / "spark-master" / "work"
    assert said.startswith(f"127.0.0.1 {folder} org.apache.spark.deploy.master.Master {where}\n")


def test_a_server_takes_no_other_port_than_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would try the next sixteen; here it ends, and the error names both of its ports."""
    fake_spark(tmp_path, monkeypatch, 'echo "$SPARK_DAEMON_JAVA_OPTS"; exit 1')
    ports = SparkPorts(tuple(free_ports(2)), tuple(free_ports(2)))
    with pytest.raises(ClusterFailed, match=f"127.0.0.1:{ports.servers[0]}, page on {ports.pages[0]}"):
        SparkServers(1, tmp_path / "spark", ports=ports).start()
    said = (tmp_path / "spark" / "spark-master" / "server.log").read_text().split()
    assert "-Dspark.port.maxRetries=0" in said


def test_a_port_that_was_taken_meanwhile_is_tried_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ports are free to choose; each try begins anew."""
    fake_spark(tmp_path, monkeypatch, 'echo "ERROR java.net.BindException"; exit 1')
    tries: list[SparkPorts] = []

    def choose(workers: int) -> SparkPorts:
        tries.append(SparkPorts((1, 2), (3, 4)))
        return tries[-1]

    monkeypatch.setattr(spark_servers, "_choose", choose)
    with pytest.raises(ClusterFailed, match="BindException"):
        SparkServers(1, tmp_path / "spark").start()
    assert len(tries) == spark_servers.PORT_TRIES


def test_a_server_whose_pages_port_was_taken_comes_back_with_another_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own port stays, and who lives on keeps everything."""
    fake_spark(tmp_path, monkeypatch, "exec sleep 60")
    servers, pages = tuple(free_ports(2)), tuple(free_ports(2))
    asked: list[int] = []

    def page(host: str, port: int) -> dict[str, object]:
        asked.append(port)
        return {"status": "ALIVE", "workers": []}

    monkeypatch.setattr(spark_servers, "page_of", page)
    monkeypatch.setattr(spark_servers, "listens", lambda *_: True)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", pages[0])), socket.create_server(("127.0.0.1", pages[1])):
        spark = SparkServers(1, tmp_path / "spark", ports=SparkPorts(servers, pages), progress=said.append)
        spark.start(only=["Spark master"])
        spark.stop()
    assert spark.pages[0] not in pages and spark.pages[1] == pages[1]
    assert set(asked) == {spark.pages[0]}
    assert f"--port {servers[0]} --webui-port {spark.pages[0]}" in " ".join(spark.members[0].command)
    taken = f"port {pages[0]} is taken by another program: the page of Spark master is on {spark.pages[0]}"
    assert said == [taken, f"starting the Spark master on 127.0.0.1:{servers[0]}"]


def test_a_start_of_all_servers_forgets_the_old_ones_and_waits_for_a_master_that_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that recovers grants no executors for up to a minute."""
    fake_spark(tmp_path, monkeypatch, "exec sleep 60")
    ports = SparkPorts((1, 2), (3, 4))
    known = {"workers": [{"port": 2, "state": "ALIVE"}]}
    looks = [{"status": "RECOVERING", **known} for _ in range(5)]
    monkeypatch.setattr(spark_servers, "page_of", lambda *_: looks.pop() if looks else {"status": "ALIVE", **known})
    monkeypatch.setattr(spark_servers, "listens", lambda *_: True)
    left = tmp_path / "spark" / "spark-master" / "recovery" / "worker_1"
    left.parent.mkdir(parents=True)
    left.touch()
    with SparkServers(1, tmp_path / "spark", ports=ports) as spark:
        assert not looks
        assert not left.exists()
        spark.stop()
        left.parent.mkdir(exist_ok=True)
        left.touch()
        spark.start(only=["Spark master"])
        assert left.exists()
