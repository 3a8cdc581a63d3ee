"""The facts in a master URL. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamlet.base.errors import BadInput

DEFAULT_MASTER = "local-cluster[2,1,1024]"

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_STANDALONE = re.compile(r"spark://(.+)")
_OTHER = re.compile(r"(yarn|k8s://.+)")


@dataclass(frozen=True, slots=True)
class Master:
    """A master's URL, taken apart.

    ``local``: every executor is on this machine and of this run only. ``executors`` and ``slots`` are known of local
    masters; ``addresses`` (host, port) of standalone ones. ``loopback``: a standalone one that only this machine
    reaches.
    """

    url: str
    local: bool
    executors: int | None = None
    slots: int | None = None
    addresses: tuple[tuple[str, int], ...] = ()

    @property
    def loopback(self) -> bool:
        return bool(self.addresses) and all(is_loopback(host) for host, _ in self.addresses)


def parse_master(url: str, cores: int) -> Master:
    """Take a master's URL apart; ``local[*]`` has ``cores``. Raises BadInput."""
    if found := _LOCAL_CLUSTER.fullmatch(url):
        executors, each = int(found[1]), int(found[2])
        return Master(url, True, executors, executors * each)
    if found := _LOCAL.fullmatch(url):
        slots = cores if found[1] == "*" else int(found[1] or 1)
        return Master(url, True, 1, slots)
    if found := _STANDALONE.fullmatch(url):
        pairs = [each.rpartition(":") for each in found[1].split(",")]
        if all(host and port.isdigit() for host, _, port in pairs):
            return Master(url, False, addresses=tuple((host.strip("[]"), int(port)) for host, _, port in pairs))
    elif _OTHER.fullmatch(url):
        return Master(url, False)
    if url.startswith("sc://"):
        raise BadInput(
            f"--master {url} is a server of Spark Connect. A topology's workers dial a coordinator in the "
            "driver, which Connect keeps away from this program: give the master itself, spark://HOST:PORT."
        )
    raise BadInput(
        f"--master {url!r} is not a Spark master. It is local-cluster[EXECUTORS,CORES,MIB] or local[CORES] on this "
        "machine, spark://HOST:PORT for a standalone cluster, yarn, or k8s://URL."
    )


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine's own, by its spelling."""
    return host in ("localhost", "::1") or host.startswith("127.")


def all_here(master: Master, driver: str | None, own: str) -> bool:
    """Tell whether every executor is on this machine.

    ``driver``: what spark.driver.host says; ``own``: what Spark would have chosen.
    """
    # A master on localhost may be a container's, whose port is passed on. Then somebody has set where its executors
    # find this driver, and they are elsewhere.
    return master.local or (master.loopback and (driver in (None, own) or is_loopback(str(driver))))


def cores_of(workers: int, each: str) -> int:
    """Return the cores for so many workers. ``each``: spark.task.cpus, which may be a fraction."""
    return math.ceil(workers * float(each))


def check_slots(master: Master, workers: int) -> None:
    """Refuse a local master with too few slots. Raises BadInput."""
    if master.slots is not None and master.slots < workers:
        raise BadInput(too_few_slots(master.url, workers, master.slots, 0))


def too_few_slots(url: str, workers: int, slots: int, busy: int, holders: str = "", ours: bool = True) -> str:
    """Return the paragraph for a run that would wait for ever.

    ``holders``: sentences about who has the cores; ``ours``: the session was started for the run.
    """
    occupied = f", {busy} of them occupied by other jobs" if busy else ""
    counted = f"{_count(slots, 'slot')}{occupied}"
    short = (
        f"The topology wants {workers} workers, each of which holds a task slot for as long as it runs, and the master "
        f"{url} has {counted}. The missing workers would wait for ever. {holders}{' ' if holders else ''}"
    )
    # Rule: tell a program that made the session what it does there. An option of the command line is not at hand, and a
    # session that stands keeps its master.
    if not ours:
        return f"{short}{_more_slots(url, workers, slots, busy)}"
    larger = f"--master 'local-cluster[{workers},1,1024]'" if url.startswith("local") else ""
    free = slots - busy
    if free > 0:
        fewer = f"Give --workers {free} (from Python: workers={free}){' or, here, ' if larger else ''}{larger}, or give"
    elif larger and not busy:
        fewer = f"Give {larger}, or give"
    else:
        fewer = f"Free some{' or, here, give ' if larger else ''}{larger}, or give"
    return f"{short}{fewer} the application more cores."


def _more_slots(url: str, workers: int, slots: int, busy: int) -> str:
    """Say how a program gets slots in a session that it made."""
    fewer = f"Give workers={slots - busy}" if slots > busy else "Free some" if busy else ""
    make, wanted = f"{', or make' if fewer else 'Make'} the session with", workers + busy
    if url.startswith("local-cluster"):
        return f"{fewer}{make} more: .master('local-cluster[{wanted},1,1024]')."
    if url.startswith("local"):
        return f"{fewer}{make} more: .master('local[{wanted}]')."
    bound = "spark.cores.max" if url.startswith("spark://") else "spark.executor.instances"
    return (
        f"{fewer}{make} room for {wanted} slots of spark.task.cpus cores each: by .config('{bound}', ...), by another "
        ".master(...), or by .config('spark.dynamicAllocation.enabled', 'true'), which starts executors as workers "
        "need them."
    )


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """An application of a standalone cluster, as its master tells it."""

    id: str
    name: str
    user: str
    cores: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A standalone cluster, as its master tells it. Memory is the most that one worker has free, in MiB."""

    workers: int
    cores: int
    used: int
    memory_mib: int
    applications: tuple[SparkApplication, ...]


def holders_text(
    view: ClusterView | None,
    own: str,
    jobs: Sequence[str],
    reported: float,
    most: str | None,
    driver: str,
    memory: str = "1g",
) -> str:
    """Say who holds the cores, as sentences; empty where nobody knows.

    ``own``: this application's id; ``jobs``: descriptions of its running jobs; ``reported``: the cores of its executors
    that have reported to ``driver``, an address; ``most``: its spark.cores.max; ``memory``: its spark.executor.memory.
    """
    said = [f"This application runs {_list(jobs)}."] if jobs else []
    if view is None:
        return " ".join(said)
    if view.workers == 0:
        said.append("The cluster's master has no living worker: start one, or look why they do not find it.")
        return " ".join(said)
    # Rule: look whether the master knows this application. A master that came back without its state has free cores,
    # and gives the application none of them: what is said of memory or of others would be wrong.
    if all(app.id != own for app in view.applications):
        said.append(
            "The cluster's master does not know this application: it was started again without its state "
            "(spark.deploy.recoveryMode), and gives it no cores. Start the run again, with its session."
        )
        return " ".join(said)
    said.append(f"Of the cluster's {view.cores} cores on {_count(view.workers, 'worker')}, {view.used} are taken")
    others = [app for app in view.applications if app.id != own and app.cores]
    if others:
        said[-1] += ": " + ", ".join(
            f"{app.cores} by {app.name} of {app.user} ({app.id})" for app in sorted(others, key=lambda app: -app.cores)
        )
    said[-1] += "."
    mine = sum(app.cores for app in view.applications if app.id == own)
    if mine > reported:
        said.append(
            f"{_count(mine, 'core')} of them went to this application, and its executors have reported {reported:g}: "
            f"can they reach the driver at {driver}? If not, set spark.driver.host to an address of this machine that "
            "they can reach, and open the way."
        )
    elif most is not None and mine >= int(most):
        said.append(f"This application has the {_count(mine, 'core')} that it may have (spark.cores.max).")
    elif view.used < view.cores:
        said.append(
            f"The worker with the most memory left has {view.memory_mib} MiB, and an executor wants {memory} "
            "(spark.executor.memory) and what it needs beside that."
        )
    elif others:
        said.append("Cores come free when one of those ends, or with a further worker of Spark.")
    return " ".join(said)


def read_master_page(told: Mapping[str, Any]) -> ClusterView:
    """Read what a standalone master's page says as JSON. Raises KeyError or TypeError for anything else."""
    living = [worker for worker in told["workers"] if worker["state"] == "ALIVE"]
    return ClusterView(
        workers=len(living),
        cores=sum(int(worker["cores"]) for worker in living),
        used=sum(int(worker["coresused"]) for worker in living),
        memory_mib=max((int(worker["memoryfree"]) for worker in living), default=0),
        applications=tuple(
            SparkApplication(str(app["id"]), str(app["name"]), str(app["user"]), int(app["cores"]))
            for app in told["activeapps"]
        ),
    )


def _list(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
