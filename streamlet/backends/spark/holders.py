"""Says who has the cores that an application lacks, or why nobody gives it any."""

from __future__ import annotations

from collections.abc import Mapping

from streamlet.backends.spark import preflight
from streamlet.backends.spark.masters import holders_text, parse_master
from streamlet.backends.spark.spark_session import DRIVER_HOST, Executor, Session
from streamlet.runtime.supervision.worker_states import HeldUp


def holders(session: Session, executors: list[Executor], without: str = "\0") -> str:
    """Say who holds the missing cores, or why nobody gives any.

    Empty where nobody knows. ``without``: how the groups of the jobs begin that ask for these cores.
    """
    conf = session.conf()
    each = float(conf.get("spark.task.cpus", "1"))
    # Rule: tell executors that have too few cores for a task from those that do not report. Neither has a slot.
    if narrow := [found.cores for found in executors if 0 < found.cores < each]:
        return (
            f"A task wants {each:g} cores (spark.task.cpus), and executors of this application have {max(narrow)}: "
            "such an executor has no slot. Lower spark.task.cpus, or raise spark.executor.cores."
        )
    reported = slots_of(executors)[0] * each
    # Where Spark's own executors look for their driver, also where ours are told another address of this machine.
    own, most, driver = session.application_id(), conf.get("spark.cores.max"), conf.get(DRIVER_HOST, "")
    jobs, view = session.running_jobs(without), session.cluster()
    memory = conf.get("spark.executor.memory", "1g")
    said = holders_text(view, own, jobs, reported, most, driver or session.driver_host(), memory)
    silent = preflight.silent_addresses(parse_master(session.master, 1)) if view is None else ""
    if not silent:
        return said
    return (
        f"{said}{' ' if said else ''}The master does not answer at {silent}: while it is away the application keeps "
        "the executors that it has and gets no others. Start the master again. One that comes back without its state "
        "(spark.deploy.recoveryMode) does not know the application: start the run again then, with its session."
    )


def held_up(session: Session, groups: Mapping[tuple[int, int], str], without: str) -> HeldUp:
    """Return the slots that wait, and why.

    ``groups``: worker and epoch of each slot -> its job's group; ``without``: see ``holders``.
    """
    # Rule: ask Spark which slots have a task. One that has one is starting: cores are not what it lacks, and what the
    # master says of them would lead away from the component that imports for a minute.
    waiting = frozenset(slot for slot, group in groups.items() if session.waits(group))
    if not waiting:
        return HeldUp()
    executors = session.executors()
    why = holders(session, executors, without)
    if not why:
        why = f"Spark's application has {executors_text(executors)}: see what its cluster manager says of it."
    return HeldUp(waiting, f"waits for a task slot of {session.master}", why)


def executors_text(executors: list[Executor]) -> str:
    """Return the number of executors and of their slots in words."""
    parts = ((len(executors), "executor"), (slots_of(executors)[0], "task slot"))
    return " and ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in parts)


def slots_of(executors: list[Executor]) -> tuple[int, int]:
    """Return the numbers of all slots and of busy ones."""
    return sum(each.slots for each in executors), sum(each.busy for each in executors)
