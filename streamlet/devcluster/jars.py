"""Kafka's jars in a cache that all clusters of a user share.

Each version is fetched once, by Maven or Ivy.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from streamlet.devcluster.errors import JarsUnavailable
from streamlet.devcluster.installation import Java, Progress, silent
from streamlet.devcluster.jvm import keeper_command

FETCH_TIMEOUT_S = 900.0
"""Seconds that Maven may take to fetch the jars."""


@dataclass(frozen=True, slots=True)
class Release:
    """One Kafka this module can run. ``coordinates`` are Maven's (group, artifact, version)."""

    kafka: str
    coordinates: tuple[tuple[str, str, str], ...]

    @property
    def key(self) -> str:
        """Its name in the cache: another set of jars around the same Kafka is another directory."""
        return f"{self.kafka}-{zlib.crc32(repr(self.coordinates).encode()):08x}"


def _release(kafka: str, *logging: tuple[str, str, str]) -> Release:
    ours = (("org.apache.kafka", "kafka_2.13", kafka), ("org.apache.kafka", "kafka-tools", kafka))
    return Release(kafka, ours + logging)


# Without a logging back end on the class path a broker logs nothing, and a failed start cannot be read. Log4j is of
# the version that Kafka 4.3 itself asks for: of two, Maven takes the nearest and Ivy the newest.
RELEASES: Mapping[str, Release] = {
    "3.9": _release("3.9.2", ("org.slf4j", "slf4j-reload4j", "1.7.36")),
    "4": _release(
        "4.3.1",
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        ("org.apache.logging.log4j", "log4j-core", "2.25.4"),
    ),
}


def default_cache(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_CACHE_HOME/streamlet/jars``, by default below ``~/.cache``."""
    environ = os.environ if environ is None else environ
    root = environ.get("XDG_CACHE_HOME", "")
    # The XDG rules: a relative path there counts as not set.
    base = Path(root) if root.startswith("/") else Path.home() / ".cache"
    return base / "streamlet" / "jars"


def ensure_jars(
    release: Release,
    java: Java,
    progress: Progress = silent,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """Return the directory of the release's jars; fetch them first if needed (3-60 s).

    The directory appears whole, by a rename, or not at all; two processes that want it at once wait for
    one another on a lock file. Raises ``JarsUnavailable``.
    """
    environ = os.environ if environ is None else environ
    cache = default_cache(environ)
    wanted = cache / release.key
    if wanted.is_dir():
        return wanted
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / ".lock"):
            if not wanted.is_dir():
                _fetch_into(wanted, release, java, progress, environ)
    except OSError as error:
        raise JarsUnavailable(
            f"Kafka {release.kafka}'s jars cannot be stored in {cache}: {error.strerror or error}. Make room "
            "there (100 MB) or make it writable, or let XDG_CACHE_HOME name another directory."
        ) from error
    return wanted


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # One lock for the whole cache, not one a version: ~/.m2 is not made for two Mavens at once.
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_into(wanted: Path, release: Release, java: Java, progress: Progress, environ: Mapping[str, str]) -> None:
    """Fetch under a temporary name, check, rename.

    Called with the lock held, so every old temporary is stale.
    """
    # Of fetches that were killed. The lock is ours, so none of them is still being written.
    for stale in wanted.parent.glob(f".{release.key}.*"):
        shutil.rmtree(stale)
    partial = wanted.parent / f".{release.key}.{os.getpid()}"
    partial.mkdir()
    try:
        work, jars = partial / "work", partial / "jars"
        work.mkdir()
        jars.mkdir()
        fetcher, command = fetch_command(release, java, work, jars, environ)
        progress(f"fetching Kafka {release.kafka} with {fetcher} into {wanted} (once; 50 to 100 MB)")
        _run_fetch(fetcher, command, release)
        wanted_jars = [f"{artifact}-{version}.jar" for _, artifact, version in release.coordinates]
        missing = [name for name in wanted_jars if not (jars / name).is_file()]
        if missing:
            raise JarsUnavailable(
                f"{fetcher} said it fetched Kafka {release.kafka}, but {', '.join(missing)} did not arrive "
                f"in {jars}. Nothing was kept; try again."
            )
        # Renamed when whole: a directory of this name, found without the lock, has all of it.
        jars.rename(wanted)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_fetch(fetcher: str, command: list[str], release: Release) -> None:
    try:
        # Under a keeper: a Maven that outlived us would go on writing where the next one sweeps.
        done = subprocess.run(
            keeper_command("tool", command), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=FETCH_TIMEOUT_S, check=False,
        )  # fmt: skip
        why = f"ended with {done.returncode}" if done.returncode else ""
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        why = f"was not done after {FETCH_TIMEOUT_S:.0f} s"
        said = (error.stdout or b"").decode(errors="replace") if isinstance(error.stdout, bytes) else ""
    if why:
        raise JarsUnavailable(
            f"Kafka {release.kafka}'s jars could not be fetched: {fetcher} {why}. It said: {cause_of(said)} "
            f"{_remedy(said)} Then try again; nothing half-fetched was kept."
        )


def cause_of(said: str) -> str:
    """Return Maven's or Ivy's lines about its failure, three at most."""
    # Ivy lists first what it tried, then under ERRORS why that failed; the lines between are rules and headings.
    lines = [line.strip(" \t:=").strip() for line in said.splitlines()]
    lines = [line for line in dict.fromkeys(lines) if line and line not in ("problems summary", "WARNINGS", "ERRORS")]
    for words in (_CAUSES, r"ERROR|[Uu]nresolved|not found", ""):
        named = [line for line in lines if re.search(words, line)]
        if named:
            return " | ".join(f"{line:.300}" for line in named[:3]).rstrip(".") + "."
    return "nothing."


def _remedy(said: str) -> str:
    """Say what helps against the cause that ``said`` names."""
    if re.search(_UNTRUSTED, said):
        return (
            "Java does not know the authority that signed the server's certificate: import that into a trust store "
            "with `keytool`, and name it by JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE."
        )
    if re.search(_FULL, said):
        return "Make room on the disk of the cache and of the temporary folder."
    if re.search(_UNREACHED, said):
        return (
            "The host is not reached from here: check the network, name a proxy by JAVA_TOOL_OPTIONS="
            '"-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT", or a mirror in ~/.m2/settings.xml and use Maven.'
        )
    return "Check the network (Maven Central, or the mirror in ~/.m2/settings.xml) and the free room on the disk."


_UNTRUSTED = r"PKIX path|SSLHandshake|unable to find valid certification path"
_FULL = r"No space left|Disk quota exceeded"
_UNREACHED = (
    r"UnknownHost|Unknown host|ConnectException|Connection refused|Network is unreachable|timed out|No route to"
)
_CAUSES = "|".join((_UNTRUSTED, _FULL, _UNREACHED))


def fetch_command(
    release: Release, java: Java, work: Path, jars: Path, environ: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return who fetches, and how: Maven where there is ``mvn``, else Ivy by ``java``."""
    if mvn := shutil.which("mvn", path=environ.get("PATH", "")):
        pom = work / "pom.xml"
        pom.write_text(pom_text(release))
        return "Maven", [
            mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
            f"-DoutputDirectory={jars}", "-DincludeScope=runtime",
        ]  # fmt: skip
    ivy = find_ivy()
    if ivy is None:
        raise JarsUnavailable(
            f"Kafka {release.kafka}'s jars are not in the cache, and nothing here can fetch them: there is "
            "no `mvn` on the PATH and no Ivy jar in an installed pyspark, ~/.m2 or ~/.ivy2. Install Maven "
            "(`apt-get install maven`), or `pip install pyspark`, which brings Ivy."
        )
    (work / "ivy.xml").write_text(ivy_text(release))
    return "Ivy", [
        str(java.path), "-jar", str(ivy), "-cache", str(work / "ivy-cache"), "-ivy", str(work / "ivy.xml"),
        "-confs", "default", "-types", "jar", "bundle", "-warn",
        "-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip


def find_ivy() -> Path | None:
    """Return an Ivy jar from pyspark, Maven's cache or Ivy's cache."""
    places = []
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent.glob("jars/ivy-2*.jar"))
    places.append(Path.home().glob(".m2/repository/org/apache/ivy/ivy/*/ivy-2*.jar"))
    places.append(Path.home().glob(".ivy2*/cache/org.apache.ivy/ivy/jars/ivy-2*.jar"))
    return next((jar for place in places for jar in sorted(place, reverse=True)), None)


def pom_text(release: Release) -> str:
    """Return the smallest Maven project that depends on the release."""
    dependencies = "".join(
        f"<dependency><groupId>{escape(group)}</groupId><artifactId>{escape(artifact)}</artifactId>"
        f"<version>{escape(version)}</version></dependency>"
        for group, artifact, version in release.coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>streamlet</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def ivy_text(release: Release) -> str:
    """Return the same for Ivy.

    ``runtime(default)`` leaves out tests, sources and optional jars.
    """
    dependencies = "".join(
        f'<dependency org="{escape(group)}" name="{escape(artifact)}" rev="{escape(version)}" '
        'conf="default->runtime(default),master(default)"/>'
        for group, artifact, version in release.coordinates
    )
    return (
        '<ivy-module version="2.0"><info organisation="streamlet" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>\n"
    )
