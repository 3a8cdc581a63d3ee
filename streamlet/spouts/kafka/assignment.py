"""Which partitions a task owns: fixed arithmetic, no group, no talk between tasks (SEEDMAP K3)."""

from __future__ import annotations

from streamlet.base.errors import BadInput
from streamlet.spouts.kafka.partition import GlobalPartitionInformation, Partition


class TaskIndexOutOfRange(BadInput):
    """A task's index is not below the number of tasks: nothing can be shared out."""


def calculate_partitions_for_task(
    info: GlobalPartitionInformation, total_tasks: int, task_index: int
) -> list[Partition]:
    """The partitions of task ``task_index`` (from 0) of ``total_tasks``, ordered by number.

    Discovered partitions go by *number* (p mod total == index): one that is missing from a look moves no other.
    A list written by hand goes by *position*, for it may name any few numbers. Either way the tasks' shares are
    disjoint and complete, and differ in size by at most one as long as the numbers have no hole.
    """
    if not 0 <= task_index < total_tasks:
        raise TaskIndexOutOfRange(
            f"Task index {task_index} of {total_tasks} tasks of the spout on topic {info.topic!r}: the index counts "
            "from 0 and must be less than the number of tasks. This is a fault of whoever started the task."
        )
    partitions = info.get_ordered_partitions()
    if info.by_position:
        return partitions[task_index::total_tasks]
    return [partition for partition in partitions if partition.number % total_tasks == task_index]


def describe_assignment(total_tasks: int, task_index: int, mine: list[Partition]) -> str:
    """The line each task logs about its share."""
    numbers = ", ".join(str(partition.number) for partition in mine) or "none"
    return f"task {task_index + 1} of {total_tasks} owns partitions: {numbers}"


def idle_tasks_warning(info: GlobalPartitionInformation, total_tasks: int) -> str | None:
    """A warning when tasks outnumber partitions, else None."""
    count = len(info.leaders)
    if total_tasks <= count:
        return None
    return (
        f"There are more tasks ({total_tasks}) than partitions of topic {info.topic!r} ({count}): "
        f"{total_tasks - count} of them will be idle. Lower par, or add partitions."
    )
