"""Parts of a DataFrame: who reads them, how far, and which are done. Pure."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MANIFEST = "_streamlet_parts.json"
"""Name of the list of parts that ``streamlet.spark.write_parts`` leaves beside them; Spark does not read it."""

_NUMBERED = re.compile(r"part-(\d+)-")


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file. With other bytes or another time it is another part."""

    name: str
    size: int
    mtime_ns: int


def owner(name: str, tasks: int) -> int:
    """Return the index of the task that reads a part."""
    # Rule: by the part's name alone. By its place in a listing two tasks that see other files, or one that is started
    # again later, would leave a part to each other, and nobody would read it.
    numbered = _NUMBERED.match(name)  # Spark's names: even shares
    return (int(numbered[1]) if numbered else zlib.crc32(name.encode())) % tasks


def hidden(name: str) -> bool:
    """Tell whether Spark leaves a name in a folder unread."""
    return name.startswith(("_", "."))


def manifest_text(rows: Mapping[str, int]) -> str:
    """Return the list of parts as text; ``rows``: how many each part has."""
    parts = [{"name": name, "rows": rows[name]} for name in sorted(rows)]
    return json.dumps({"version": 1, "parts": parts}, indent=1) + "\n"


def manifest_rows(text: str) -> dict[str, int]:
    """Return the rows of each part in a list. Raises ValueError."""
    try:
        return {str(part["name"]): int(part["rows"]) for part in json.loads(text)["parts"]}
    except (KeyError, TypeError) as error:
        raise ValueError(f"it has no {error}") from None


def folder_problem(files: Collection[str], folders: Iterable[str], listed: Mapping[str, int] | None) -> str | None:
    """Return why the names in a folder cannot be read as parts; None if they can.

    ``listed``: the parts that the manifest names, if there is one.
    """
    if unexpected := sorted(name for name in folders if not hidden(name)):
        return (
            f"it holds the folder {unexpected[0]}, as a table does that was written with partitionBy, and only files "
            "that lie in it directly are read. Write it without partitionBy"
        )
    if others := sorted(name for name in files if not hidden(name) and not name.endswith(".parquet")):
        return f"it holds {others[0]}, and only files *.parquet are read. Move it elsewhere"
    found = {name for name in files if not hidden(name)}
    if listed is None:
        return None if found else "it holds no file *.parquet"
    if missing := sorted(listed.keys() - found):
        return (
            f"{len(missing)} of the {len(listed)} parts that were written are not seen there, {missing[0]} first. It "
            "must be a folder that this machine shares with those that wrote them"
        )
    if more := sorted(found - listed.keys()):
        return (
            f"it holds {more[0]}, which {MANIFEST} there does not name: something else has written into it. Move the "
            "file elsewhere, or write the DataFrame into a folder of its own"
        )
    return None


def done_text(part: Part, rows: int) -> str:
    """Return what a marker says of a part that is done."""
    return json.dumps({"size": part.size, "mtime_ns": part.mtime_ns, "rows": rows}) + "\n"


def is_done(part: Part, marker: str) -> bool:
    """Tell whether a marker speaks of this very file."""
    try:
        said = json.loads(marker)
        return (said["size"], said["mtime_ns"]) == (part.size, part.mtime_ns)
    except (ValueError, KeyError, TypeError):
        return False  # a part that is read twice is better than one that is read by nobody


@dataclass(slots=True)
class OpenPart:
    """A part with rows that are emitted, or will be."""

    part: Part
    emitted: int = 0
    over: int = 0
    given_up: int = 0
    """Of those that are over."""
    read_out: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.read_out and self.over == self.emitted


@dataclass(slots=True)
class PartLedger:
    """The parts of one task: to be read, open, over."""

    todo: list[Part]
    """The next one last."""
    open: dict[str, OpenPart] = field(default_factory=dict)
    done: int = 0
    """Also before this start."""
    left: int = 0
    """Parts that are over, some of whose rows were given up: they are not noted as done."""

    def begin(self) -> OpenPart:
        """Take the next part."""
        part = self.todo.pop()
        self.open[part.name] = OpenPart(part)
        return self.open[part.name]

    def emitted(self, name: str, rows: int) -> None:
        """Note rows that were emitted."""
        self.open[name].emitted += rows

    def read_out(self, name: str) -> OpenPart | None:
        """Note that a part has no more rows; return it if it is over."""
        self.open[name].read_out = True
        return self._over(name)

    def row_over(self, name: str, given_up: bool = False) -> OpenPart | None:
        """Note a row that was acked or given up; return its part if that is over."""
        one = self.open[name]
        one.over += 1
        one.given_up += given_up
        return self._over(name)

    def _over(self, name: str) -> OpenPart | None:
        one = self.open[name]
        if not one.is_over:
            return None
        del self.open[name]
        if one.given_up:
            self.left += 1
        else:
            self.done += 1
        return one

    @property
    def ended(self) -> bool:
        """Whether every part is over."""
        return not self.todo and not self.open


def shares(parts: Sequence[Part], task: int, tasks: int, markers: Mapping[str, str]) -> PartLedger:
    """Return the parts of one task; ``markers``: their texts, by part."""
    own = sorted((part for part in parts if owner(part.name, tasks) == task), key=lambda part: part.name, reverse=True)
    todo = [part for part in own if part.name not in markers or not is_done(part, markers[part.name])]
    return PartLedger(todo, done=len(own) - len(todo))


def path_problem(path: Any, what: str) -> str | None:
    """Return why a value cannot be a folder's path; None if it can."""
    if not isinstance(path, str):
        if hasattr(path, "rdd") or hasattr(path, "sparkSession"):
            return (
                f"{what} is a DataFrame. Workers import the topology from its file, and an executor has no Spark "
                "session to read a DataFrame with. Write it, in the program that has the session, with "
                "streamlet.spark.write_parts(df, FOLDER), and give that folder"
            )
        return f'{what} is {path!r:.100}: give a folder as a string, "/shared/readings"'
    if "://" in path or re.match(r"\w{2,}:", path):
        return (
            f"{what} is {path!r}: files are read and written by path, and no {path.partition(':')[0]} client is used. "
            "Give a folder that all workers reach under one path, as of NFS or another mounted file system"
        )
    return None if path else f"{what} is empty"
