"""Files for executors: sent as broadcast variables, unpacked once on each executor.

Not ``addFile`` or ``addArchive``: a session that goes on could not take them back, and would send an edited file under
an old name as the old one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamlet.backends.spark.spark_session import Session
from streamlet.base.errors import BadInput

PIECE = 32 << 20
"""Bytes of a broadcast variable: driver and workers hold one at a time in memory, however large the file is."""

Unpack = Callable[[], str]
"""Unpacks an archive once an executor, and returns its folder. Travels by value."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Parcels of a run, ready for the executors. ``places``: where each shared file is in the folder of ``shared``."""

    packages: Unpack | None = None
    shared: Unpack | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    """Bytes in all."""


NOTHING = Sent()


@contextlib.contextmanager
def sent(session: Session, archive: Path | None, files: Mapping[str, str]) -> Iterator[Sent]:
    """Hold an archive of packages and shared files ready while entered. Raises BadInput."""
    parcels: list[_Parcel] = []
    try:
        packages = shared = None
        if archive is not None:
            parcels.append(_Parcel(session.context))
            with _readable(archive), archive.open("rb") as file:
                shutil.copyfileobj(file, parcels[-1], PIECE)
            packages = parcels[-1].finish("packages")
        places = {name: f"{name}/{Path(path).name}" for name, path in files.items()}
        if files:
            parcels.append(_Parcel(session.context))
            with tarfile.open(fileobj=parcels[-1], mode="w|") as made:
                for name, path in sorted(files.items()):
                    with _readable(Path(path)):
                        made.add(path, places[name])
            shared = parcels[-1].finish("shared")
        yield Sent(packages, shared, places, sum(parcel.size for parcel in parcels))
    finally:
        if session.alive():
            for variable in [piece for parcel in parcels for piece in parcel.pieces]:
                variable.destroy()


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{error.filename or path} cannot be read ({error.strerror}), and it is to be sent to Spark's executors."
        ) from error


class _Parcel(io.RawIOBase):
    """Takes the bytes of an archive, and broadcasts them piece by piece."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.pieces: list[Any] = []
        self.size = 0
        self._context = context
        self._digest = hashlib.sha256()
        self._rest = bytearray()

    def write(self, data: Any) -> int:
        self._rest += data
        self.size += len(data)
        while len(self._rest) >= PIECE:
            self._send(bytes(self._rest[:PIECE]))
            del self._rest[:PIECE]
        return len(data)

    def finish(self, kind: str) -> Unpack:
        """Send the rest; return the function that unpacks the whole."""
        self._send(bytes(self._rest))
        return make_unpack(self.pieces, f"{kind}-{self._digest.hexdigest()[:16]}")

    def _send(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.pieces.append(self._context.broadcast(piece))


def make_unpack(pieces: Sequence[Any], name: str) -> Unpack:
    """Make the function that unpacks an archive as ``name`` on an executor."""

    def unpack() -> str:
        import fcntl
        import shutil
        import tarfile
        from pathlib import Path

        from pyspark import SparkFiles

        # Spark removes it with the executor: the next run of the session finds the same content there.
        root = Path(SparkFiles.getRootDirectory()).absolute()
        folder, partial, joined = root / name, root / f"{name}.part", root / f"{name}.tar"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several slots of an executor come at once
            if not folder.exists():
                shutil.rmtree(partial, ignore_errors=True)
                with joined.open("wb") as file:
                    for piece in pieces:
                        file.write(piece.value)
                        vars(piece).pop("_value", None)  # pyspark would keep each as long as this process lives
                with tarfile.open(joined) as archive:
                    if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                        archive.extraction_filter = tarfile.data_filter
                    archive.extractall(partial)  # noqa: S202 - the user's own files, filtered where Python can
                joined.unlink()
                partial.rename(folder)
        return str(folder)

    return unpack
