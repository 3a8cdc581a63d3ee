"""Checks for everything that would make a run on Spark hang or fail later.

Every refusal is a BadInput. The checks on this machine come first, for a JVM takes seconds to start; then the executors
are asked.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlet.backends.spark.masters import Master
from streamlet.base.errors import BadInput

OLDEST_JAVA = 17
OLDEST_PYSPARK = (4, 1)
REACH_S = 5.0
"""Seconds to reach an address, and to import the modules that are compiled."""
INSTALL = "pip install 'streamlet-storm[spark]'"
COMPILED = ("msgpack", "crc32c", "cramjam")
"""Modules that every worker imports and that cannot travel: they are not pure Python."""


def check_packages(versions: Mapping[str, str | None]) -> None:
    """Check the driver's pyspark, pyarrow and pandas; None means not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if versions[name] is None]
    if missing:
        raise BadInput(
            f"--backend spark needs {' and '.join(missing)}, which this Python does not have. Install what it needs "
            f"with: {INSTALL}"
        )
    pyspark, pandas = str(versions["pyspark"]), str(versions["pandas"])
    if _release(pyspark) < OLDEST_PYSPARK:
        raise BadInput(
            f"pyspark {pyspark} is installed, and --backend spark needs {_dotted(OLDEST_PYSPARK)} or newer: older ones "
            f"cannot be told to leave a Python worker alone that reads no input. Upgrade with: {INSTALL}"
        )
    if _release(pandas) >= (3,):
        raise BadInput(
            f"pandas {pandas} is installed, and pyspark {pyspark} does not support pandas 3 yet. Install an older one "
            "with: pip install 'pandas>=2.2,<3'"
        )


def installed_versions() -> dict[str, str | None]:
    """Return their versions without importing them: pyspark takes half a second."""
    found: dict[str, str | None] = {}
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def check_java(environ: Mapping[str, str]) -> None:
    """Check the Java that Spark's own scripts will take.

    It is JAVA_HOME's if that is set, else the one on the PATH.
    """
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH", ""))
    remedy = (
        f"Spark needs Java {OLDEST_JAVA} or newer. Install one (`apt-get install default-jre-headless` on Debian and "
        "Ubuntu) or let JAVA_HOME name one."
    )
    if java is None:
        raise BadInput(f"There is no `java` on the PATH and JAVA_HOME is not set. {remedy}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        named = f", which JAVA_HOME={home} leads to," if home else ""
        raise BadInput(f"{java}{named} does not run ({error}). {remedy}") from None
    version = java_version(done.stderr + done.stdout)
    if version is None or version < OLDEST_JAVA:
        what = f"is Java {version}" if version else f"does not tell its version (exit status {done.returncode})"
        raise BadInput(f"{java} {what}. {remedy}")


def java_version(said: str) -> int | None:
    """Return the feature release in the output of ``java -version``. 17 for ``"17.0.15"``, 8 for ``"1.8.0_392"``."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def check_reachable(master: Master) -> None:
    """Check that a standalone master accepts a connection.

    Spark itself would try for a minute and then say little.
    """
    refused = []
    for host, port in master.addresses:
        try:
            socket.create_connection((host, port), REACH_S).close()
            return
        except OSError as error:
            refused.append(f"{host}:{port} ({error.strerror or error})")
    if refused:
        raise BadInput(
            f"No Spark master answers at {' or '.join(refused)}. Check that it runs and that this machine may reach "
            "it; its web page shows the right URL, which starts with spark://."
        )


def check_session(conf: Mapping[str, str]) -> None:
    """Check a session that somebody else has made."""
    if conf.get("spark.speculation", "false") == "true":
        raise BadInput(
            "The Spark session has spark.speculation=true: Spark would start a second copy of a worker slot because "
            "its task never ends. Start the session with spark.speculation=false."
        )


# -- on the executors ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PythonReport:
    """The report of one executor's Python.

    ``missing`` is module -> error; ``reach`` says why the driver cannot be reached.
    """

    host: str
    executable: str
    missing: Mapping[str, str]
    reach: str


def make_probe(address: tuple[str, int]) -> Callable[[Any], Any]:
    """Make the function that looks around on an executor. It imports nothing of streamlet, which is not there yet."""
    modules, timeout_s = COMPILED, REACH_S

    def probe(batches: Any) -> Any:
        import importlib
        import json
        import socket
        import sys

        import pyarrow

        for _ in batches:  # consumed, so that this Python worker stays and the next task finds it warm
            pass
        missing = {}
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - a broken build raises anything; it is reported
                missing[name] = f"{type(error).__name__}: {error}"
        reach = ""
        try:
            socket.create_connection(address, timeout_s).close()
        except OSError as error:
            reach = str(error)
        said = {"host": socket.gethostname(), "executable": sys.executable, "missing": missing, "reach": reach}
        yield pyarrow.RecordBatch.from_pydict({"said": [json.dumps(said)]})

    return probe


def read_reports(rows: Sequence[str]) -> list[PythonReport]:
    """Read the rows that the probes returned."""
    return [PythonReport(**json.loads(row)) for row in rows]


def judge(reports: Sequence[PythonReport], address: tuple[str, int]) -> None:
    """Refuse what an executor lacks, with host, Python and remedy."""
    for report in reports:
        if report.missing:
            names = ", ".join(report.missing)
            first = next(iter(report.missing.values()))
            raise BadInput(
                f"The Python of the executors on {report.host} ({report.executable}) cannot import {names} ({first}). "
                "streamlet itself travels there, compiled packages cannot. Install there: "
                f"{report.executable} -m pip install {_requirements(report.missing)}"
            )
        if report.reach:
            raise BadInput(
                f"An executor on {report.host} cannot reach the driver at {address[0]}:{address[1]} ({report.reach}). "
                "Workers dial their coordinator there: open the way, or set spark.driver.host to an address of this "
                "machine that the executors can reach."
            )


def _requirements(names: Mapping[str, str]) -> str:
    """Return the requirements of this installation for these modules."""
    wanted = {}
    try:
        lines = importlib.metadata.requires("streamlet-storm") or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        found = re.match(r"([A-Za-z0-9_.-]+)([^;]*)", line)
        if found and "extra ==" not in line:
            wanted[found[1].lower()] = found[0].strip().replace(" ", "")
    return " ".join(f"'{wanted.get(name, name)}'" for name in names)


def explain_probe(error: str) -> str:
    """Explain why the executors could not run even the probe."""
    versions = re.search(r"different version: ([\d.]+).{0,40}?than that in driver: ([\d.]+)", error, re.DOTALL)
    versions = versions or re.search(r"\(worker: ([\d.]+), driver: ([\d.]+)\)", error)
    if versions:
        return (
            f"The executors run Python {versions[1]} and this is Python {versions[2]}: PySpark cannot run with "
            "different minor versions. Let PYSPARK_PYTHON name a Python "
            f"{versions[2]} on the executors, or start streamlet with Python {versions[1]}."
        )
    if found := re.search(r"No module named '?([\w.]+)'?", error):
        return (
            f"The Python of the executors cannot import {found[1]}, which pyspark itself needs there. Install it "
            f"beside the executors' Python: python -m pip install {found[1]} (pandas: 'pandas>=2.2,<3'). Which Python "
            "they run, PYSPARK_PYTHON says."
        )
    return (
        f"Spark's executors could not run a first Python task: {error_line(error)} Check that PYSPARK_PYTHON "
        f"({os.environ.get('PYSPARK_PYTHON', 'not set: python3')}) is there on every executor."
    )


def error_line(error: str) -> str:
    """Return the line of a Java error that names its cause; at most 300 characters."""
    lines = [line.strip() for line in error.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    telling = [line for line in lines if re.search(r"(Error|Exception)\b.*: |^Caused by|Cannot run program", line)]
    line = (telling or lines or ["it says nothing."])[-1]
    return line[:300] + ("" if line.endswith(".") else ".")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
