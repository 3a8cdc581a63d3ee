"""The facts in a master URL. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    masters; ``addresses`` (host, port) of standalone ones.
    """

    url: str
    local: bool
    executors: int | None = None
    slots: int | None = None
    addresses: tuple[tuple[str, int], ...] = ()


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
            return Master(url, False, addresses=tuple((host, int(port)) for host, _, port in pairs))
    elif _OTHER.fullmatch(url):
        return Master(url, False)
    raise BadInput(
        f"--master {url!r} is not a Spark master. It is local-cluster[EXECUTORS,CORES,MIB] or local[CORES] on this "
        "machine, spark://HOST:PORT for a standalone cluster, yarn, or k8s://URL."
    )


def check_slots(master: Master, workers: int) -> None:
    """Refuse a local master with too few slots. Raises BadInput."""
    if master.slots is not None and master.slots < workers:
        raise BadInput(too_few_slots(master.url, workers, master.slots, 0))


def too_few_slots(url: str, workers: int, slots: int, busy: int) -> str:
    """Return the paragraph for a run that would wait for ever."""
    occupied = f", {busy} of them occupied by other jobs" if busy else ""
    larger = f" or, here, --master 'local-cluster[{workers},1,1024]'" if url.startswith("local") else ""
    return (
        f"The topology wants {workers} workers, each of which holds a task slot for as long as it runs, and the master "
        f"{url} has {slots} slots{occupied}. The missing workers would wait for ever. Give --workers "
        f"{max(1, slots - busy)}{larger}, or give the application more cores."
    )
