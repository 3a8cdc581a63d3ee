"""ZooKeeper's own transaction log: every write to every node, in order, also those that no watcher was in time for.

The layout is that of ``org.apache.zookeeper.server.persistence.FileTxnLog`` (ZooKeeper 3.x): a file header, then for
each transaction an Adler-32, a length, header and body, and a ``B``; the rest of the file is zeros.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ERROR, CREATE, SET_DATA, CREATE2 = -1, 1, 5, 15
BAD_VERSION = -103

_FILE_HEADER = struct.Struct(">4siq")
_ENTRY = struct.Struct(">qi")
_HEADER = struct.Struct(">qiqqi")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One entry. ``path``, ``data`` and ``version`` of a create or set; ``error`` of a request that was refused."""

    session: int
    zxid: int
    time_ms: int
    kind: int
    path: str = ""
    data: bytes = b""
    version: int = 0
    error: int = 0


def read_log(*data_dirs: Path) -> list[Transaction]:
    """All transactions in the log files of an ensemble's ``dataDir``, by zxid. The servers may be running, and in step:
    one that is behind, or was just killed, may hold transactions that the others will have it forget.
    """
    files = [file for data_dir in data_dirs for file in (data_dir / "version-2").glob("log.*")]
    found = {entry.zxid: entry for file in files for entry in _entries(file.read_bytes())}
    return without_forgotten([found[zxid] for zxid in sorted(found)])


def without_forgotten(entries: Sequence[Transaction]) -> list[Transaction]:
    """What was proposed by a leader that was deposed before a quorum had it is left out, by zxid.

    A server that learns from a whole snapshot what the others have, and not what it must cut off, keeps it in its log.
    """
    forgotten: set[int] = set()
    standing: dict[str, list[Transaction]] = {}
    for entry in entries:
        if entry.kind == SET_DATA:
            # Each write makes a node's version larger by one: one that does not was made as if those before it from
            # there on had never been. The leader of a later epoch (the upper half of a zxid) says so.
            before = standing.setdefault(entry.path, [])
            while before and before[-1].version >= entry.version and before[-1].zxid >> 32 < entry.zxid >> 32:
                forgotten.add(before.pop().zxid)
            before.append(entry)
        elif entry.kind in (CREATE, CREATE2):
            standing[entry.path] = []
    return [entry for entry in entries if entry.zxid not in forgotten]


def _entries(content: bytes) -> Iterator[Transaction]:
    if len(content) < _FILE_HEADER.size:
        return
    magic, _, _ = _FILE_HEADER.unpack_from(content)
    assert magic == b"ZKLG", magic
    at = _FILE_HEADER.size
    while at + _ENTRY.size < len(content):
        checksum, length = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        entry = content[at : at + length]
        at += length + 1
        if not length or content[at - 1 : at] != b"B":
            return  # the end, or an entry that is being written
        assert zlib.adler32(entry) == checksum, "a damaged transaction log"
        yield _transaction(entry)


def _transaction(entry: bytes) -> Transaction:
    session, _, zxid, time_ms, kind = _HEADER.unpack_from(entry)
    at = _HEADER.size
    if kind in (CREATE, CREATE2, SET_DATA):
        path, at = _buffer(entry, at)
        data, at = _buffer(entry, at)
        version = struct.unpack_from(">i", entry, at)[0] if kind == SET_DATA else 0
        return Transaction(session, zxid, time_ms, kind, path.decode(), data, version)
    error = struct.unpack_from(">i", entry, at)[0] if kind == ERROR else 0
    return Transaction(session, zxid, time_ms, kind, error=error)


def _buffer(entry: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">i", entry, at)
    at += 4
    if length < 0:
        return b"", at
    return entry[at : at + length], at + length
