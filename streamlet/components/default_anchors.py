"""Makes emits that are anchored to the tuples at work where a call names no anchors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamlet.components.component import TaskPort
from streamlet.components.tuples import Tuple, TupleId


def anchored_emits(port: TaskPort, at_work: Callable[[], Sequence[Tuple]]) -> dict[str, Callable[..., Any]]:
    """Return ``emit`` and ``emit_many`` with ``at_work()`` for anchors that are None."""
    send, send_many = port.emit, port.emit_many

    def emit(
        tup: Sequence[Any],
        stream: str | None = None,
        anchors: Sequence[Tuple | TupleId] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        return send(tup, stream, at_work() if anchors is None else anchors, direct_task, need_task_ids)

    def emit_many(
        tuples: Iterable[Sequence[Any]], stream: str | None = None, anchors: Sequence[Tuple | TupleId] | None = None
    ) -> None:
        send_many(tuples, stream, at_work() if anchors is None else anchors)

    return {"emit": emit, "emit_many": emit_many}
