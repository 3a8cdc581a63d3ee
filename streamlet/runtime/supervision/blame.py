"""Finds the tuple that killed a worker, from the page the worker left. Pure.

A death in a slice of many names the bolt only, and so does one in a tick, or on a thread of a bolt's own, while the
bolt held many. Its tasks, in every worker, then get one tuple at a time for a while: the tuple comes again, and the
next death names it exactly. From then on its spout counts the deaths and gives it up: a spout that lives gets the
failed tree, one that died with the bolt gets the message's deaths when it starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from streamlet.runtime.tasks.in_hand import CALLS, HOLDS, Holding, Key
from streamlet.tracking.roots import owner_task

_K = TypeVar("_K")

CAREFUL_S = 120.0
"""Seconds after a death during which the bolt at work gets one tuple at a time: longer than retries wait."""

MOST_REMEMBERED = 1000
"""Most messages whose deaths are remembered; beyond, the oldest is forgotten."""

MOST_LIGHT_DEATHS = 4
"""Deaths of one tuple that weigh less where the spout alone limits them."""

NAMED_WEIGHT = 0.25
"""Weight of a death towards the limit of restarts if its tuple is known: its spout counts it, too."""


@dataclass(frozen=True, slots=True)
class DeathVerdict:
    """The conclusion from a death. ``text`` continues "worker 1 was killed"; empty if nothing was in hand."""

    text: str = ""
    roots: tuple[int, ...] = ()
    careful: tuple[int, ...] = ()
    """Tasks that get one tuple at a time from now on."""
    weight: float = 1.0
    """How much the death counts towards the limit of restarts."""


class Blame:
    """Counts and judges the deaths of a run.

    ``tasks``: the component of each task. ``most``: deaths after which a spout gives up a tuple.
    """

    def __init__(self, tasks: Mapping[int, str], most: int = 0) -> None:
        self._tasks = tasks
        self._most = most or MOST_LIGHT_DEATHS
        self._named: dict[tuple[str, str], int] = {}
        """(component, values) -> deaths."""
        self._careful_until: dict[str, float] = {}
        self._held_deaths: dict[str, float] = {}
        """Component -> seconds of the last death that its held tuples may have caused."""
        self._with_threads: set[str] = set()
        """Components that were seen to have threads of their own."""
        self._deaths: dict[tuple[int, Key], int] = {}
        """(spout task, message) -> deaths, of messages whose spout died too."""

    def in_hand_text(self, held: Holding | None) -> str:
        """Return what a living worker has in hand, for a sentence."""
        return "" if held is None or held.task not in self._tasks else self._describe(held)

    def _describe(self, held: Holding) -> str:
        called = f"{self._tasks[held.task]} (task {held.task})"
        ids = ", ".join(text for _, _, text in held.messages)
        one = f"the tuple {held.values}{f' of message {ids}' if ids else ''}" if held.values else "a tuple"
        if held.call == CALLS[0]:
            text = f" at work in {called} on {f'one of {held.count:,} tuples' if held.count > 1 else one}"
        elif held.call == HOLDS:
            text = f" while {called} held {f'{held.count:,} tuples' if held.count > 1 else one}"
        else:
            many = f"{held.count:,} tuples" if held.count > 1 else one
            text = f" in {held.call} of {called}{f', which held {many}' if held.count else ''}"
        others = [each for each in held.beside if each.has_threads and each.task != held.task]
        names = [f"{self._tasks[each.task]} (task {each.task})" for each in others if each.task in self._tasks]
        return f"{text}, beside threads of {', '.join(names)}" if names else text

    def names_one(self, held: Holding) -> bool:
        """Tell whether one tuple alone can be why a worker died."""
        self._note_threads(held)
        suspects = self._suspects(held)
        return len(suspects) == 1 and suspects[0].count == 1

    def _note_threads(self, held: Holding) -> None:
        self._with_threads.update(self._tasks.get(each.task, "") for each in held.beside if each.has_threads)

    def _suspects(self, held: Holding) -> list[Holding]:
        """Return the possible causes of a death: one for each bolt that had tuples."""
        # Rule: a thread of a bolt's own works on what the bolt holds while the loop is in any other call. So nothing is
        # charged for a death unless a single tuple in the whole worker can be why. A bolt that is not known to have
        # threads only waits for more.
        beside = [each for each in held.beside if self._tasks.get(each.task) in self._with_threads]
        if held.call != HOLDS and held.count:
            beside = [held, *(each for each in beside if each.task != held.task or held.call == CALLS[0])]
        return [each for each in beside if each.task in self._tasks]

    def _are_careful(self, suspects: Iterable[Holding], now: float) -> set[str]:
        """Note a death; return the bolts that get one tuple at a time by it."""
        # Rule: what bolts held counts against them with the second death in a row. A worker that was killed from
        # outside held something, too, and a pool of twenty threads would be a twentieth as fast for two minutes. So
        # does the `process` of a bolt with threads, which hands over what it is given.
        found, before = set(), dict(self._held_deaths)
        for each in suspects:
            component = self._tasks[each.task]
            at_work = each.call == CALLS[0] and component not in self._with_threads
            if at_work or now - before.get(component, -CAREFUL_S) < CAREFUL_S:
                found.add(component)
            if not at_work:
                self._held_deaths[component] = now
        return found

    def judge(self, held: Holding | None, now: float) -> DeathVerdict:
        """Judge the tuples that were in hand at a death; remember the verdict."""
        if held is None or held.task not in self._tasks:
            return DeathVerdict()
        self._note_threads(held)
        text, suspects = self._describe(held), self._suspects(held)
        if not suspects:
            return DeathVerdict(text)
        components = self._are_careful(suspects, now)
        self._careful_until.update(dict.fromkeys(components, now + CAREFUL_S))
        careful = tuple(task for task, name in self._tasks.items() if name in components)
        # Nobody is charged for a death among many tuples: 500 innocent ones would be given up after a few such deaths.
        if len(suspects) > 1 or suspects[0].count != 1:
            then = ", which now come one by one until it is known which, for two minutes at most" if careful else ""
            return DeathVerdict(f"{text}{then}", careful=careful)
        (one,) = suspects
        for root, key, _ in one.messages:
            _count(self._deaths, (owner_task(root), key))
        # One that comes again when it should have been given up has a spout without a policy, and would never end.
        weighs_less = one.roots and _count(self._named, (self._tasks[one.task], one.values)) <= self._most
        return DeathVerdict(text, one.roots, careful, NAMED_WEIGHT if weighs_less else 1.0)

    def careful(self, now: float) -> list[int]:
        """Return the tasks that get one tuple at a time."""
        return [task for task, component in self._tasks.items() if now < self._careful_until.get(component, 0.0)]

    def deaths_of(self, spouts: Iterable[int]) -> dict[int, dict[Key, int]]:
        """Return how often each message of these spout tasks killed its worker."""
        wanted = {task: {} for task in spouts}  # type: dict[int, dict[Key, int]]
        for (task, key), deaths in self._deaths.items():
            if task in wanted:
                wanted[task][key] = deaths
        return {task: found for task, found in wanted.items() if found}


def _count(counts: dict[_K, int], key: _K) -> int:
    """Count one more for a key; of too many, forget the oldest."""
    counts[key] = count = counts.pop(key, 0) + 1
    if len(counts) > MOST_REMEMBERED:
        del counts[next(iter(counts))]
    return count
