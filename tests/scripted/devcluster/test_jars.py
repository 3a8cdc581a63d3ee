"""The cache of jars: whole or not there, fetched once, and one paragraph for everything that can be in the way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from streamlet.devcluster import jars
from streamlet.devcluster.errors import JarsUnavailable
from streamlet.devcluster.installation import Java
from streamlet.devcluster.jars import RELEASES, Release, default_cache, ensure_jars, ivy_text, pom_text
from streamlet.devcluster.machine import ProcessIdentity
from tests.patience import PATIENCE_S

RELEASE = Release("1.2.3", (("group", "artifact", "1.2.3"), ("other", "thing", "4")))
JAVA = Java(Path("/none/java"), 17)
GOOD = 'touch "$out/artifact-1.2.3.jar" "$out/thing-4.jar"'


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def fake_maven(tmp_path: Path, body: str) -> Path:
    """An ``mvn`` whose body finds the output directory in ``$out``; each call leaves a line in the returned file."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    calls = tmp_path / "calls"
    mvn = tmp_path / "bin" / "mvn"
    find = 'for a in "$@"; do case "$a" in -DoutputDirectory=*) out="${a#*=}";; esac; done'
    mvn.write_text(f"#!/bin/sh\n{find}\necho called >> {calls}\n{body}\n")
    mvn.chmod(0o755)
    return calls


def test_fetched_once_and_kept(tmp_path: Path, environ: dict[str, str]) -> None:
    """The second call starts nothing; no temporary name is left."""
    calls = fake_maven(tmp_path, GOOD)
    said: list[str] = []
    for _ in range(2):
        directory = ensure_jars(RELEASE, JAVA, progress=said.append, environ=environ)
    assert directory == tmp_path / "cache" / "streamlet" / "jars" / RELEASE.key
    assert sorted(os.listdir(directory)) == ["artifact-1.2.3.jar", "thing-4.jar"]
    assert sorted(os.listdir(directory.parent)) == [".lock", RELEASE.key]
    assert calls.read_text() == "called\n"
    assert len(said) == 1 and "Kafka 1.2.3 with Maven" in said[0]


def test_four_at_once_fetch_once(tmp_path: Path, environ: dict[str, str]) -> None:
    """The others wait for the lock and then find what they want."""
    calls = fake_maven(tmp_path, f"sleep 0.3; {GOOD}")
    threads = [
        threading.Thread(target=ensure_jars, args=(RELEASE, JAVA), kwargs={"environ": environ}) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls.read_text() == "called\n"


def test_a_failed_fetch_leaves_nothing_and_says_why(tmp_path: Path, environ: dict[str, str]) -> None:
    """With what Maven said; the next try starts afresh and also removes what a killed one left."""
    fake_maven(tmp_path, 'touch "$out/artifact-1.2.3.jar"; echo "[ERROR] No space left on device"; exit 1')
    cache = default_cache(environ)
    with pytest.raises(JarsUnavailable, match=r"No space left on device.*Make room on the disk") as caught:
        ensure_jars(RELEASE, JAVA, environ=environ)
    assert "\n" not in caught.value.message
    assert os.listdir(cache) == [".lock"]
    (cache / f".{RELEASE.key}.999").mkdir()
    fake_maven(tmp_path, GOOD)
    ensure_jars(RELEASE, JAVA, environ=environ)
    assert sorted(os.listdir(cache)) == [".lock", RELEASE.key]


def test_a_fetch_that_forgot_a_jar_is_not_believed(tmp_path: Path, environ: dict[str, str]) -> None:
    """Exit status 0 is not enough."""
    fake_maven(tmp_path, 'touch "$out/artifact-1.2.3.jar"')
    with pytest.raises(JarsUnavailable, match=r"thing-4\.jar did not arrive"):
        ensure_jars(RELEASE, JAVA, environ=environ)
    assert os.listdir(default_cache(environ)) == [".lock"]


def test_a_cache_that_cannot_be_written(tmp_path: Path, environ: dict[str, str]) -> None:
    """Named with the reason and the variable that moves it; jars that are there already are used all the same."""
    fake_maven(tmp_path, GOOD)
    (tmp_path / "cache").write_text("a file stands in the way")
    with pytest.raises(JarsUnavailable, match=r"Not a directory.*XDG_CACHE_HOME"):
        ensure_jars(RELEASE, JAVA, environ=environ)
    (tmp_path / "cache").unlink()
    directory = ensure_jars(RELEASE, JAVA, environ=environ)
    directory.parent.chmod(0o500)
    assert ensure_jars(RELEASE, JAVA, environ=environ) == directory
    directory.parent.chmod(0o700)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_disk_that_refuses_is_told_in_a_paragraph(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Read-only, full, not ours: one paragraph."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    fake_maven(tmp_path, GOOD)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(JarsUnavailable, match=os.strerror(number)):
        ensure_jars(RELEASE, JAVA, environ=environ)
    assert os.listdir(default_cache(environ)) == [".lock"]


def test_a_fetch_ends_with_whoever_wanted_it(tmp_path: Path, environ: dict[str, str]) -> None:
    """Killed without a word, it leaves nobody who writes where the next one sweeps."""
    told = tmp_path / "pid"
    fake_maven(tmp_path, f"echo $$ > {told}.new; mv {told}.new {told}; exec sleep {10 * PATIENCE_S}")
    body = (
        "import os\nfrom pathlib import Path\nfrom tests.scripted.devcluster.test_jars import JAVA, RELEASE\n"
        "from streamlet.devcluster.jars import ensure_jars\nensure_jars(RELEASE, JAVA, environ=dict(os.environ))"
    )
    root = str(Path(__file__).parents[3])
    with subprocess.Popen([sys.executable, "-c", body], env={**environ, "PYTHONPATH": root}, cwd=root) as owner:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not told.exists():
                assert owner.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            maven = ProcessIdentity.of(int(told.read_text()))
        finally:
            owner.kill()
    try:
        while maven.alive:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        maven.kill()


def test_without_maven_and_ivy_both_remedies_are_named(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both remedies are named."""
    monkeypatch.setattr(jars, "find_ivy", lambda: None)
    with pytest.raises(JarsUnavailable, match=r"apt-get install maven.*pip install pyspark"):
        ensure_jars(RELEASE, JAVA, environ={**environ, "PATH": "/none"})


def test_a_relative_cache_home_counts_as_not_set() -> None:
    """The XDG rule."""
    assert default_cache({"XDG_CACHE_HOME": "cache"}) == Path.home() / ".cache" / "streamlet" / "jars"


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_texts_are_xml_that_names_each_jar(release: Release) -> None:
    """For Maven and for Ivy."""
    versions = [version for _, _, version in release.coordinates]
    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    assert [e.text for e in ET.fromstring(pom_text(release)).findall(".//m:dependency/m:version", names)] == versions
    assert [e.get("rev") for e in ET.fromstring(ivy_text(release)).findall(".//dependency")] == versions


@pytest.mark.parametrize(
    ("said", "cause", "remedy"),
    [
        (
            "Server access error at url https://repo1/x.pom (javax.net.ssl.SSLHandshakeException: PKIX path building "
            "failed: unable to find valid certification path to requested target)",
            "PKIX path building failed",
            "keytool",
        ),
        (
            "Host repo1.maven.org not found. url=https://repo1 (java.net.UnknownHostException: repo1)",
            "UnknownHost",
            "proxy",
        ),
        ("java.io.IOException: No space left on device", "No space left on device", "Make room on the disk"),
        ("SERVER ERROR: Bad Gateway url=https://repo1/x.pom", "Bad Gateway", "Check the network"),
    ],
)
def test_why_ivy_failed_is_told_and_what_helps(
    tmp_path: Path, environ: dict[str, str], said: str, cause: str, remedy: str
) -> None:
    """Of Ivy's many lines the one with the cause, and not its headings."""
    report = f"""
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: org.apache.kafka#kafka_2.13;4.0.0
\t==== central: tried
\t  https://repo1/x.pom
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t::::::::::::::::::::::::::::::::::::::::::::::
:::: ERRORS
\t{said}
"""
    (tmp_path / "report").write_text(report)
    fake_maven(tmp_path, f"cat {tmp_path / 'report'}; exit 1")
    with pytest.raises(JarsUnavailable) as refused:
        ensure_jars(RELEASE, JAVA, environ=environ)
    text = str(refused.value)
    assert cause in text and remedy in text and "problems summary" not in text and "WARNINGS" not in text
