"""What users' components raise where the run cannot go on, as paragraphs that name component and place."""

from __future__ import annotations

import traceback

from streamlet.base.errors import StreamletError, ValueCannotTravel
from streamlet.runtime.wire import MAX_DATA_FRAME


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


def too_large(component: str, stream: str) -> StreamletError:
    """A component emitted a tuple for another worker that fits in no frame."""
    return ValueCannotTravel(
        f"{component} emitted a tuple on stream {stream!r} that is larger than the {MAX_DATA_FRAME >> 20} MiB which "
        "may travel to another worker at once. It was not sent, and its tree has failed. Emit the name of where the "
        "data lies, or its parts as tuples of their own."
    )


def exited(error: SystemExit) -> StreamletError:
    """A component ended the process that it shares with everything else."""
    return ComponentFailed(
        f"A component called sys.exit({error.code!r}){_place(error)}, in a run whose process is also yours. That stops "
        "the topology; what was not acked will be read again. Raise an exception to fail a tuple; a spout says by "
        "caught_up() that it has no more."
    )


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
