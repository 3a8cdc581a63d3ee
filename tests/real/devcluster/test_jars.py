"""The cache of jars: whole or not there, fetched once, and one paragraph for everything that can be in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamlet.devcluster.installation import find_java
from streamlet.devcluster.jars import Release, ensure_jars


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_ivy_fetches_where_maven_is_missing(environ: dict[str, str]) -> None:
    """Run from a plain ``java``, with the Ivy that pyspark brought; dependencies come along."""
    small = Release("small", (("org.slf4j", "slf4j-reload4j", "1.7.36"),))
    directory = ensure_jars(small, find_java(), environ={**environ, "PATH": "/none"})
    assert sorted(os.listdir(directory)) == [
        "reload4j-1.2.19.jar",
        "slf4j-api-1.7.36.jar",
        "slf4j-reload4j-1.7.36.jar",
    ]
