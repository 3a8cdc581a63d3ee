"""Checks for everything that would make a run on Spark hang or fail later.

Every refusal is a BadInput. The checks on this machine come first, for a JVM takes seconds to start; then the executors
are asked.
"""

from __future__ import annotations

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
from streamlet.backends.spark.packing import COMPILED, Pack, requirements_of
from streamlet.base.errors import BadInput, WrongArgument
from streamlet.base.installed import release

OLDEST_JAVA = 17
OLDEST_PYSPARK = (4, 1)
REACH_S = 5.0
"""Seconds to reach an address, and to import the modules that are compiled."""
KILL_ON_IDLE = "spark.python.worker.killOnIdleTimeout"
IDLE_AFTER = "spark.python.worker.idleTimeoutSeconds"
DYNAMIC = "spark.dynamicAllocation.enabled"
INSTALL = "pip install 'streamlet-storm[spark]'"
LEAST_ADDRESS_SPACE_MIB = 256
"""Measured: a worker with little in its bolts runs within it. pyarrow, where a component imports it, wants 1.6 GiB."""
JVM_OVERHEAD_MIB, WORKER_MIB = 256, 160
"""Measured: what an executor's JVM uses beside its heap, and a Python worker with nothing in its bolts."""
NO_CONNECT = (
    "A topology's workers dial a coordinator in the driver, and a session of Spark Connect has no driver of its own: "
    "run topologies with a classic session."
)


def check_pyspark(version: str | None) -> None:
    """Check the driver's pyspark; None means not installed."""
    # Neither pyarrow nor pandas: slots are tasks of an RDD. What reads or makes DataFrames asks for them itself.
    if version is None:
        raise BadInput(f"--backend spark needs pyspark, which this Python does not have. Install it with: {INSTALL}")
    if release(version) < OLDEST_PYSPARK:
        raise BadInput(
            f"pyspark {version} is installed, and --backend spark needs {_dotted(OLDEST_PYSPARK)} or newer: older ones "
            f"cannot be told to leave a Python worker alone that reads no input. Upgrade with: {INSTALL}"
        )


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


def check_spark_home(environ: Mapping[str, str], pyspark: str) -> None:
    """Check the Spark that SPARK_HOME names. ``pyspark``: the version here."""
    # Rule: look at it before pyspark does, which starts whatever stands there: of another version, executors fail in
    # ways that name neither SPARK_HOME nor a version.
    home = environ.get("SPARK_HOME")
    if not home:
        return
    remedy = f"Unset SPARK_HOME, and pyspark takes its own Spark; or let it name a Spark {pyspark}."
    if not (Path(home) / "bin" / "spark-submit").is_file():
        raise BadInput(f"SPARK_HOME={home} holds no bin/spark-submit, and pyspark starts Spark from there. {remedy}")
    for jar in sorted((Path(home) / "jars").glob("spark-core_*.jar")):
        found = re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", jar.name)
        if found is not None and release(found[1]) != release(pyspark):
            raise BadInput(
                f"SPARK_HOME={home} is Spark {found[1]}, and this Python has pyspark {pyspark}, which would start it: "
                f"the two speak to each other in a form that may change between minor versions. {remedy}"
            )


def java_version(said: str) -> int | None:
    """Return the feature release in the output of ``java -version``. 17 for ``"17.0.15"``, 8 for ``"1.8.0_392"``."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def check_reachable(master: Master) -> None:
    """Check that a standalone master accepts a connection.

    Spark itself would try for a minute and then say little.
    """
    if refused := silent_addresses(master):
        raise BadInput(
            f"No Spark master answers at {refused}. Check that it runs and that this machine may reach "
            "it; its web page shows the right URL, which starts with spark://."
        )


def silent_addresses(master: Master) -> str:
    """Return a standalone master's addresses with errors where none answers; else nothing."""
    refused = []
    for host, port in master.addresses:
        try:
            socket.create_connection((host, port), REACH_S).close()
            return ""
        except OSError as error:
            refused.append(f"{f'[{host}]' if ':' in host else host}:{port} ({error.strerror or error})")
    return " or ".join(refused)


def check_connect(environ: Mapping[str, str]) -> None:
    """Refuse a process that is set to Spark Connect."""
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        if environ.get(name):
            raise BadInput(
                f"This process is set to Spark Connect ({name}={environ[name]}). {NO_CONNECT} Unset {name}, and start "
                "the program where the cluster's executors can reach it."
            )


def check_given(session: object) -> None:
    """Refuse all but a classic SparkSession. Imports no pyspark."""
    modules = [kind.__module__ for kind in type(session).__mro__]
    if any(module.startswith("pyspark.sql.connect") for module in modules):
        raise BadInput(
            f"SparkBackend was given a session of Spark Connect. {NO_CONNECT} Make one with "
            "SparkSession.builder.master(...), in a program that runs where the cluster's executors can reach it."
        )
    if not any(module == "pyspark.sql.session" for module in modules):
        raise WrongArgument(f"SparkBackend takes a pyspark.sql.SparkSession, and {session!r} is not one.")


def check_session(conf: Mapping[str, str], workers: int, pins_threads: bool = True) -> None:
    """Check the settings of a session that others may have made. ``pins_threads``: see ``Session``."""
    # Rule: a slot is one job group, and a group is a property of the JVM's thread. Where all threads of Python share
    # it, slots take each other's group, and the session keeps the last one.
    if not pins_threads:
        raise BadInput(
            "The Spark session was made with PYSPARK_PIN_THREAD=false: all threads of this program share one job group "
            "then, so workers could not be cancelled one by one, and later jobs of the session would bear a worker's "
            "group. Start the program without that variable."
        )
    if is_on(conf, "spark.speculation"):
        raise BadInput(
            "The Spark session has spark.speculation=true: Spark would start a second copy of a worker slot because "
            "its task never ends. Start the session with spark.speculation=false."
        )
    if is_on(conf, DYNAMIC):
        # Spark takes back executors without a task only: one that holds a worker never idles.
        most, slots = conf.get("spark.dynamicAllocation.maxExecutors"), slots_of_executor(conf)
        # An executor of a standalone cluster has all cores of its machine, unless a setting bounds them.
        known = "spark.executor.cores" in conf or not conf.get("spark.master", "").startswith("spark://")
        if known and most is not None and int(most) * slots < workers:
            raise BadInput(
                f"The topology wants {workers} workers, each of which holds a task slot for as long as it runs, and "
                f"spark.dynamicAllocation.maxExecutors={most} allows {int(most) * slots} slots ({slots} an executor). "
                f"Give --workers {max(1, int(most) * slots)}, or allow more executors."
            )
    if is_on(conf, KILL_ON_IDLE) and conf.get(IDLE_AFTER, "0") not in ("0", "0s"):
        raise BadInput(
            f"The Spark session has {KILL_ON_IDLE}=true: Spark would kill each worker after {conf[IDLE_AFTER]} s, "
            f"because its task reads no input. Start the session without it, or with {IDLE_AFTER}=0."
        )
    check_memory(conf)


TAKEN_BACK: Mapping[str, str] = {
    "spark.speculation": "Spark would start a second copy of a worker slot, whose task never ends",
    KILL_ON_IDLE: "Spark would kill workers, whose tasks read no input",
}
"""Settings that a session has off which is started for a run, and why."""


def taken_back_text(names: Sequence[str]) -> str:
    """Tell which settings of the user's files the run's session has off."""
    said = "; ".join(f"{name}=true ({TAKEN_BACK[name]})" for name in names)
    return (
        f"Spark's own configuration has {said}: the session of this run has {'it' if len(names) == 1 else 'them'} off."
    )


def is_on(conf: Mapping[str, str], name: str) -> bool:
    """Tell whether Spark takes a switch for on."""
    # Rule: as Spark, without regard to case. `str(True)`, which programs write, has a capital letter.
    return conf.get(name, "").strip().lower() == "true"


def slots_of_executor(conf: Mapping[str, str]) -> int:
    """Return how many tasks an executor runs at once.

    That is 1 where no setting says it.
    """
    return max(1, int(float(conf.get("spark.executor.cores", "1")) / float(conf.get("spark.task.cpus", "1"))))


def check_memory(conf: Mapping[str, str]) -> None:
    """Refuse a limit of address space within which a worker cannot live."""
    name = "spark.executor.pyspark.memory"
    said = conf.get(name)
    if said is None:
        return
    cores = max(1, int(conf.get("spark.executor.cores", "1")))
    each = mebibytes(name, said) // cores
    if each < LEAST_ADDRESS_SPACE_MIB:
        raise BadInput(
            f"{name}={said} bounds each Python worker of an executor of {cores} "
            f"core{'' if cores == 1 else 's'} to {each} MiB of address space, and a worker of streamlet needs "
            f"{LEAST_ADDRESS_SPACE_MIB} MiB before it holds anything. Set it to at least "
            f"{LEAST_ADDRESS_SPACE_MIB * cores}m, or leave it out."
        )


def overhead_warning(master: str, conf: Mapping[str, str]) -> str | None:
    """Return a warning about a container with little memory for Python."""
    # Only these masters kill what uses more than it was given.
    if not master.startswith(("yarn", "k8s://")) or "spark.executor.pyspark.memory" in conf:
        return None
    memory = mebibytes("spark.executor.memory", conf.get("spark.executor.memory", "1g"))
    factor = float(conf.get("spark.executor.memoryOverheadFactor", "0.4" if master.startswith("k8s") else "0.1"))
    name = "spark.executor.memoryOverhead"
    said = conf.get(name)
    overhead = mebibytes(name, said) if said is not None else max(384, int(memory * factor))
    slots = slots_of_executor(conf)
    wanted = JVM_OVERHEAD_MIB + slots * WORKER_MIB
    if overhead >= wanted:
        return None
    return (
        f"An executor of {slots} slot{'' if slots == 1 else 's'} has {overhead} MiB beside its JVM's heap, which its "
        f"Python workers share, and is killed when they use more. They want {wanted} MiB and what your components "
        f"keep: set {name}={wanted}m or more."
    )


def mebibytes(name: str, text: str) -> int:
    """Return a setting of memory, "512m" or "2g", in MiB.

    A bare number is MiB.
    """
    found = re.fullmatch(r"(\d+)\s*([kmgtp]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise BadInput(f"{name}={text} is not a size of memory that Spark knows: write 512m or 2g.")
    return int(int(found[1]) * {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1 << 20, "p": 1 << 30}[found[2]])


# -- on the executors ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PythonReport:
    """The report of one executor's Python. ``missing`` is module -> error; ``reach``: what keeps it from the driver."""

    host: str
    executable: str
    platform: str
    pyspark: str
    missing: Mapping[str, str]
    reach: str


def make_probe(
    address: tuple[str, int], packages: Callable[[], str] | None = None, shared: Callable[[], str] | None = None
) -> Callable[[Any], Any]:
    """Make the function that looks around on an executor. It imports nothing of streamlet, which is not there yet.

    ``packages`` and ``shared`` unpack archives there: slots find them unpacked.
    """
    modules, timeout_s = COMPILED, REACH_S

    def probe(rows: Any) -> Any:
        import importlib
        import json
        import socket
        import sys
        import sysconfig

        import pyspark

        before = list(sys.path)
        if shared is not None:
            shared()
        if packages is not None:
            sys.path.insert(0, packages())
        else:
            for _ in rows:  # consumed, so that this Python worker stays and the next task finds it warm
                pass
        missing = {}
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - a broken build raises anything; it is reported
                missing[name] = f"{type(error).__name__}: {error}"
        sys.path[:] = before
        reach = ""
        try:
            socket.create_connection(address, timeout_s).close()
        except OSError as error:
            reach = str(error)
        said = {"host": socket.gethostname(), "executable": sys.executable, "missing": missing, "reach": reach}
        yield json.dumps({**said, "platform": sysconfig.get_platform(), "pyspark": pyspark.__version__})

    return probe


def read_reports(rows: Sequence[str]) -> list[PythonReport]:
    """Read the rows that the probes returned."""
    return [PythonReport(**json.loads(row)) for row in rows]


def judge(reports: Sequence[PythonReport], address: tuple[str, int], pyspark: str, archive: Pack | None = None) -> None:
    """Refuse what an executor lacks, with host, Python and remedy. ``pyspark``: the driver's version."""
    for report in reports:
        _judge_versions(report, pyspark)
        if report.missing:
            raise BadInput(_without(report, archive))
        if report.reach:
            raise BadInput(
                f"An executor on {report.host} cannot reach the driver at {address[0]}:{address[1]} ({report.reach}). "
                "Workers dial their coordinator there: open the way, or set spark.driver.host to an address of this "
                "machine that the executors can reach."
            )


def _without(report: PythonReport, archive: Pack | None) -> str:
    """Return the paragraph about modules that an executor's Python cannot import."""
    names, first = ", ".join(report.missing), next(iter(report.missing.values()))
    who = f"The Python of the executors on {report.host} ({report.executable})"
    if archive is None:
        wanted = " ".join(f"'{one}'" for one in requirements_of(list(report.missing)))
        return (
            f"{who} cannot import {names} ({first}). streamlet itself travels there; compiled packages travel in an "
            "archive: `streamlet pack -o env.tar.gz` makes it, and --archive env.tar.gz takes it along. Or install "
            f"them there: {report.executable} -m pip install {wanted}"
        )
    packed = archive.manifest.platform
    if packed != report.platform:
        return (
            f"{archive.file} was packed on {packed}, and the executors on {report.host} are {report.platform}: {names} "
            f"cannot be imported there ({first}). Make the archive on a machine like theirs: streamlet pack -o "
            f"{archive.file.name}"
        )
    return (
        f"{who} cannot import {names} from {archive.file} ({first}). Its operating system may be older than the one "
        f"it was packed on: make the archive there, with streamlet pack -o {archive.file.name}, or install them there."
    )


def _judge_versions(report: PythonReport, pyspark: str) -> None:
    if release(report.pyspark) != release(pyspark):
        raise BadInput(
            f"The Python of the executors on {report.host} ({report.executable}) has pyspark {report.pyspark} and this "
            f"one has {pyspark}: the two speak to each other in a form that may change between minor versions. Install "
            f"the same on both sides: {report.executable} -m pip install 'pyspark=={pyspark}'"
        )


def explain_probe(error: str) -> str:
    """Explain why the executors could not run even the probe."""
    # Rule: first whether it was cancelled. Nothing is wrong with the executors then, and all that follows blames them.
    if "SPARK_JOB_CANCELLED" in error:
        return (
            f"The job that looks at the executors before a run was cancelled by somebody else: {error_line(error)} A "
            "thread of this program called cancelAllJobs(), or it was killed on Spark's web page. Start the run again."
        )
    versions = re.search(r"different version: ([\d.]+).{0,40}?than that in driver: ([\d.]+)", error, re.DOTALL)
    versions = versions or re.search(r"\(worker: ([\d.]+), driver: ([\d.]+)\)", error)
    if versions:
        return (
            f"The executors run Python {versions[1]} and this is Python {versions[2]}: PySpark cannot run with "
            "different minor versions. Let PYSPARK_PYTHON name a Python "
            f"{versions[2]} on the executors, or start streamlet with Python {versions[1]}."
        )
    if re.search(r"MemoryError|Cannot allocate memory|failed to map segment|std::bad_alloc", error):
        return (
            f"A Python worker of the executors had no memory to start with: {error_line(error)} Look at "
            "spark.executor.pyspark.memory, which bounds the address space of all Python workers of an executor "
            f"together ({LEAST_ADDRESS_SPACE_MIB} MiB each are wanted), and at spark.executor.memoryOverhead."
        )
    if unpacking := explain_unpacking(error):
        return unpacking
    if "InvalidClassException" in error:
        return (
            f"The executors run another version of Spark than this pyspark: {error_line(error)} Install the pyspark of "
            "the cluster's version here; its web page shows it at the top."
        )
    if found := re.search(r"No module named '?([\w.]+)'?", error):
        return (
            f"The Python of the executors cannot import {found[1]}, which pyspark itself needs there. Install it "
            f"beside the executors' Python: python -m pip install {found[1]}. Which Python they run, PYSPARK_PYTHON "
            "says."
        )
    return (
        f"Spark's executors could not run a first Python task: {error_line(error)} Check that PYSPARK_PYTHON "
        f"({os.environ.get('PYSPARK_PYTHON', 'not set: python3')}) is there on every executor."
    )


def explain_unpacking(error: str) -> str | None:
    """Explain why an executor could not unpack archives; None: something else failed."""
    found = re.search(r"no unpacking in (\S+) on (\S+): (.*)", error)
    if found is None:
        return None
    folder, host, why = found[1], found[2], found[3].rstrip(".")
    if "No space left" in why:
        remedy = (
            "It needs about three times their size there meanwhile: make room, or set spark.local.dir to another disk."
        )
    elif re.search(r"Permission denied|Read-only|No such file", why):
        remedy = "Let spark.local.dir name a folder that the executors' user may write to."
    else:
        remedy = "If the archive is whole here (`tar -tf` reads it), look at that machine's disk."
    return (
        f"An executor on {host} could not unpack what the run sends with --archive and --shared, in {folder}, a folder "
        f"of spark.local.dir: {why}. {remedy}"
    )


FOREIGN = "Too large frame"
"""What Spark says of an answer in another protocol than its own."""


def explain_start(error: str) -> str:
    """Explain why a session did not come up."""
    if FOREIGN in error:
        return (
            "a server answers there, and it is not a Spark master. Is it the master's web page? That page shows the "
            "right URL at its top: it starts with spark://, and its port is 7077 where nobody chose another."
        )
    if "All masters are unresponsive" in error:
        causes = re.findall(r"^Caused by: (.+)$", error, re.MULTILINE)
        why = f" ({causes[0]})" if causes else ""
        return (
            f"a server takes connections there, and in a minute it did not answer as a Spark master does{why}. Check "
            "that the port is the master's: its web page shows the right URL, which starts with spark://. Where the "
            "cluster has spark.authenticate=true, set it here, too, with the cluster's spark.authenticate.secret."
        )
    if "InvalidClassException" in error:
        return (
            f"the cluster runs another version of Spark than this pyspark ({error_line(error)}). Install the pyspark "
            "of the cluster's version here; its web page shows it at the top."
        )
    if re.search("Address already in use|Cannot assign requested address|UnresolvedAddress|UnknownHost", error):
        return (
            f"{error_line(error)} Look at spark.driver.host, spark.driver.bindAddress and SPARK_LOCAL_IP: each must be "
            "an address of this machine."
        )
    return error_line(error)


def error_line(error: str) -> str:
    """Return the line of a Java error that names its cause; at most 300 characters."""
    dropped = ("at ", "Suppressed: ")  # the latter only came along with the cause
    lines = [line.strip() for line in error.splitlines() if line.strip() and not line.lstrip().startswith(dropped)]
    wanted = r"(Error|Exception)\b.*: |^[: \w.]+(Error|Exception)$|^Caused by|Cannot run program"
    telling = [line for line in lines if re.search(wanted, line)]
    line = (telling or lines or ["it says nothing."])[-1].removeprefix(": ")  # py4j puts that before Java's words
    return line[:300] + ("" if line.endswith(".") else ".")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
