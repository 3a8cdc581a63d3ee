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
    parts = (_excluded_text(executors), _others_text(session, executors, without))
    return " ".join(part for part in parts if part)


def _excluded_text(executors: list[Executor]) -> str:
    excluded = [each.id for each in executors if each.excluded]
    if not excluded:
        return ""
    names = f"executor{'' if len(excluded) == 1 else 's'} {', '.join(excluded)}"
    return (
        f"Spark has excluded {names} after failed tasks (spark.excludeOnFailure.*), and gives no task there for "
        "spark.excludeOnFailure.timeout, an hour unless it is set. The failed tasks' errors say what is wrong there."
    )


def _others_text(session: Session, executors: list[Executor], without: str) -> str:
    conf = session.conf()
    each = float(conf.get("spark.task.cpus", "1"))
    # Rule: tell executors that have too few cores for a task from those that do not report. Neither has a slot.
    if narrow := [found.cores for found in executors if 0 < found.cores < each]:
        return (
            f"A task wants {each:g} cores (spark.task.cpus), and executors of this application have {max(narrow)}: "
            "such an executor has no slot. Lower spark.task.cpus, or raise spark.executor.cores."
        )
    reported = sum(found.slots for found in executors) * each
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
    excluded = sum(each.excluded for each in executors)
    but = f" ({excluded} excluded by Spark)" if excluded else ""
    parts = ((len(executors), "executor", but), (slots_of(executors)[0], "task slot", ""))
    return " and ".join(f"{count} {name}{'' if count == 1 else 's'}{more}" for count, name, more in parts)


def slots_of(executors: list[Executor]) -> tuple[int, int]:
    """Return the numbers of all slots and of busy ones."""
    # Rule: leave out executors that Spark has excluded. It lists them with their slots and gives them no task: a run
    # would begin, and wait for its workers until it gives up.
    used = [each for each in executors if not each.excluded]
    return sum(each.slots for each in used), sum(each.busy for each in used)
