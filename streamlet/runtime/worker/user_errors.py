"""What users' components raise where the run cannot go on, as paragraphs that name component and place."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import streamlet
from streamlet.base.errors import StreamletError, ValueCannotTravel, said
from streamlet.runtime.links.wire import MAX_DATA_FRAME

Defined = Callable[..., Any] | None
"""What of the user's was called: a function, or a class whose constructor it was."""

_OURS = str(Path(streamlet.__file__).parent)
_TUP = re.compile(r"\bemit(_anywhere)?\(\) got an unexpected keyword argument 'tup'$")
_CALLERS = str(Path(__file__).parents[1])


class ComponentFailed(StreamletError):
    """A component could not start, or a spout raised: the topology cannot go on."""


def could_not_start(
    component: str, task_id: int, where: str, error: Exception, defined: Defined = None
) -> StreamletError:
    """A component's constructor or ``initialize`` raised; an error of ours speaks for itself."""
    if isinstance(error, StreamletError):
        return error
    return ComponentFailed(
        f"{component} (task {task_id}) raised {type(error).__name__} in {where}{_place(error, defined)}: "
        f"{said(error)}. {remedy(error)}A component that cannot start stops the topology; no tuple of it was lost. "
        "The traceback is shown with --debug."
    )


def spout_failed(component: str, task_id: int, where: str, error: Exception, defined: Defined = None) -> StreamletError:
    """A spout raised while it ran; an error of ours speaks for itself."""
    if isinstance(error, StreamletError):
        return error
    return ComponentFailed(
        f"The spout {component} (task {task_id}) raised {type(error).__name__} in {where}{_place(error, defined)}: "
        f"{said(error)}. {remedy(error)}A spout that raises cannot say which of its messages are safe, so the topology "
        "stops; nothing acked is lost. Handle the error in the spout, or see the traceback with --debug."
    )


def remedy(error: BaseException) -> str:
    """What to write instead, as a sentence, where the error is of code that was written for pystorm; else empty."""
    if isinstance(error, TypeError) and _TUP.search(said(error)):
        return "pystorm's emit(tup=[...]) is emit([...]) here: the list of values comes first, without a name. "
    return ""


def too_large(component: str, stream: str) -> StreamletError:
    """A component emitted a tuple for another worker that fits in no frame."""
    return ValueCannotTravel(
        f"{component} emitted a tuple on stream {stream!r} that is larger than the {MAX_DATA_FRAME >> 20} MiB which "
        "may travel to another worker at once. It was not sent, and its tree has failed. Emit the name of where the "
        "data lies, or its parts as tuples of their own."
    )


def exited(error: BaseException, components: Mapping[int, str]) -> StreamletError:
    """A component ended, or would have ended, the process that it shares with everything else.

    ``components``: the names of all that live there, by the id of the object.
    """
    names = [components.get(id(frame.f_locals.get("self"))) for frame, _ in traceback.walk_tb(error.__traceback__)]
    who = next(filter(None, reversed(names)), "A component")
    what = f"raised {type(error).__name__}{_place(error)}: {error}"
    if isinstance(error, SystemExit):
        what = f"called sys.exit({error.code!r}){_place(error)}"
    told = ComponentFailed(
        f"{who} {what}, in a process that is not its alone. That stops the topology; what was not acked will be read "
        "again. Raise an exception to fail a tuple; a spout says by caught_up() that it has no more."
    )
    told.__cause__ = error
    return told


def place(error: BaseException, defined: Defined = None) -> str:
    """``FILE:LINE`` where the user has to look; empty if nothing is known.

    That is where it was raised; for what our code raised when the user's called it, the user's line; and where the
    very call of the user's code failed (too many arguments), the line where ``defined``, which was called, is defined.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not _below(frames[-1].filename, _CALLERS):
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    users = [frame for frame in frames if not _below(frame.filename, _OURS)]
    if users:
        return f"{users[-1].filename}:{users[-1].lineno}"
    return definition(defined) or f"{frames[-1].filename}:{frames[-1].lineno}"


def definition(defined: Defined) -> str:
    """``FILE:LINE`` of a function, or of a class's own constructor, or of the class; empty if it has none."""
    called: Any = inspect.unwrap(defined) if defined is not None else None
    if isinstance(called, type):
        own = inspect.unwrap(next(vars(cls)["__init__"] for cls in called.__mro__ if "__init__" in vars(cls)))
        called = own if hasattr(own, "__code__") else called
    if hasattr(called, "__code__"):
        return f"{called.__code__.co_filename}:{called.__code__.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(called)}:{inspect.getsourcelines(called)[1]}"
    except (TypeError, OSError):
        return ""


def _below(filename: str, folder: str) -> bool:
    return Path(filename).is_relative_to(folder)


def _place(error: BaseException, defined: Defined = None) -> str:
    found = place(error, defined)
    return f" ({found})" if found else ""
