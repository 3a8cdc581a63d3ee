"""Knows which spouts wake the loop by a descriptor, and which are polled. On the loop's thread."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable
from typing import Any

from streamlet.base.errors import text_of
from streamlet.runtime.tasks.spout_task import SpoutTask
from streamlet.runtime.tasks.user_errors import ComponentFailed
from streamlet.runtime.worker.held_watch import TellOfTask


class SpoutWakeups:
    """The descriptors of a worker's spouts, in its loop's selector."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        ask: Callable[[SpoutTask], Any],
        name_of: Callable[[int], str],
        tell: TellOfTask,
    ) -> None:
        """Begin without spouts.

        ``ask`` calls a spout's ``fileno``, and answers for its errors; ``name_of`` returns a task's component.
        """
        self._selector = selector
        self._ask = ask
        self._name_of = name_of
        self._tell = tell
        self._polled: list[SpoutTask] = []
        """Spouts without a descriptor."""
        self._descriptors: dict[SpoutTask, int | None] = {}
        """What each of the others last returned from ``fileno``."""
        self._watched: dict[SpoutTask, int] = {}
        self._unwatchable: set[SpoutTask] = set()
        """Spouts with a warning that their descriptor is lost."""

    def add(self, spout: SpoutTask) -> None:
        """Take a spout in at its start. Raises ComponentFailed for a descriptor that is none."""
        descriptor = self._ask(spout)
        if descriptor is None or not self._can_watch(spout, descriptor):
            self._polled.append(spout)
        else:
            self._descriptors[spout] = descriptor

    def _can_watch(self, spout: SpoutTask, descriptor: int) -> bool:
        try:
            self._selector.register(descriptor, selectors.EVENT_READ, None)
        except PermissionError:  # a regular file is always readable, and epoll watches none
            return False
        except (KeyError, OSError, TypeError, ValueError) as error:
            raise ComponentFailed(
                f"The spout {self._name_of(spout.task_id)} returned {descriptor!r} from fileno, which cannot be "
                f"watched ({text_of(error)}). Return the number of an open socket or pipe of its own, or None to be "
                "asked each millisecond."
            ) from error
        self._selector.unregister(descriptor)
        return True

    def must_poll(self) -> bool:
        """Tell whether a spout may be asked that cannot wake the loop."""
        if any(_may_be_asked(spout) for spout in self._polled):
            return True
        return any(_may_be_asked(spout) and spout not in self._watched for spout in self._descriptors)

    def watch(self) -> None:
        """Watch the descriptors of spouts that may be asked, and no others."""
        # Rule: a spout that may not be asked reads nothing. Its descriptor would stay readable, and the loop would
        # never sleep.
        for spout in self._descriptors:
            wanted = _may_be_asked(spout)
            if wanted and spout not in self._watched:
                self._watch(spout)
            elif not wanted:
                self._watch_no_more(spout)

    def renew(self) -> None:
        """Ask spouts for the descriptors that they have now, and watch these."""
        # Rule: a spout's descriptor lasts no longer than its connection. The kernel forgets a closed one, and says
        # nothing where the next has the same number; a number that is another's by now is not ours to watch. So each
        # is asked for and watched again, and one that has none is asked for tuples as a spout without one.
        for spout in self._descriptors:
            self._watch_no_more(spout)
            self._descriptors[spout] = self._ask(spout)

    def _watch(self, spout: SpoutTask) -> None:
        if self._try_to_watch(spout) is None:
            return
        self._descriptors[spout] = self._ask(spout)  # the one that is known may be of a connection that has ended
        if (error := self._try_to_watch(spout)) is not None:
            self._tell_unwatchable(spout, error)

    def _try_to_watch(self, spout: SpoutTask) -> Exception | None:
        """Watch a spout's descriptor, if it has one; return why it cannot be watched."""
        descriptor = self._descriptors[spout]
        if descriptor is not None:
            try:
                self._selector.register(descriptor, selectors.EVENT_READ, None)
            except (KeyError, OSError, TypeError, ValueError) as error:
                return error
            self._watched[spout] = descriptor
        return None

    def _watch_no_more(self, spout: SpoutTask) -> None:
        if (descriptor := self._watched.pop(spout, None)) is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(descriptor)

    def _tell_unwatchable(self, spout: SpoutTask, error: Exception) -> None:
        if spout in self._unwatchable:
            return
        self._unwatchable.add(spout)
        name, descriptor = self._name_of(spout.task_id), self._descriptors[spout]
        self._tell(
            "warning",
            f"The spout {name} (task {spout.task_id}) returned {descriptor!r} from fileno, which cannot be watched any "
            f"more ({text_of(error)}). It is asked for tuples each millisecond until it returns another one. Return "
            "the present connection's descriptor, and None while there is none.",
            name,
            spout.task_id,
        )


def _may_be_asked(spout: SpoutTask) -> bool:
    return spout.active and not spout.full
