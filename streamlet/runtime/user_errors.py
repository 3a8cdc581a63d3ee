"""What users' components raise where the run cannot go on, as paragraphs that name component and place."""

from __future__ import annotations

import traceback

from streamlet.base.errors import StreamletError


class ComponentFailed(StreamletError):
    """A component could not start, or a spout raised: the topology cannot go on."""


def could_not_start(component: str, task_id: int, where: str, error: Exception) -> StreamletError:
    """A component's constructor or ``initialize`` raised; an error of ours speaks for itself."""
    if isinstance(error, StreamletError):
        return error
    return ComponentFailed(
        f"{component} (task {task_id}) raised {type(error).__name__} in {where}{_place(error)}: {error}. A component "
        "that cannot start stops the topology; no tuple of it was lost. The traceback is shown with --debug."
    )


def spout_failed(component: str, task_id: int, where: str, error: Exception) -> StreamletError:
    """A spout raised while it ran; an error of ours speaks for itself."""
    if isinstance(error, StreamletError):
        return error
    return ComponentFailed(
        f"The spout {component} (task {task_id}) raised {type(error).__name__} in {where}{_place(error)}: {error}. A "
        "spout that raises cannot say which of its messages are safe, so the topology stops; nothing acked is lost. "
        "Handle the error in the spout, or see the traceback with --debug."
    )


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
