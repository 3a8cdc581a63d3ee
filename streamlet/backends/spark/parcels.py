"""Files for executors: sent as broadcast variables, unpacked once on each executor.

Not ``addFile`` or ``addArchive``: a session that goes on could not take them back, and would send an edited file under
an old name as the old one.
"""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamlet.backends.spark.spark_session import Session

PIECE = 32 << 20
"""Bytes of a broadcast variable: driver and workers hold one at a time in memory, however large the file is."""

Unpack = Callable[[], str]
"""Unpacks an archive once an executor, and returns its folder. Travels by value."""


@contextlib.contextmanager
def sent(session: Session, archive: Path, kind: str) -> Iterator[Unpack]:
    """Hold a tar archive ready for the executors while entered."""
    digest, pieces = hashlib.sha256(), []
    try:
        with archive.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                pieces.append(session.context.broadcast(piece))
        yield make_unpack(pieces, f"{kind}-{digest.hexdigest()[:16]}")
    finally:
        if session.alive():
            for variable in pieces:
                variable.destroy()


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


def tar_files(files: Mapping[str, str], archive: Path) -> dict[str, str]:
    """Write files and folders into an archive; return the place of each in it."""
    places = {name: f"{name}/{Path(path).name}" for name, path in files.items()}
    with tarfile.open(archive, "w") as made:
        for name, path in sorted(files.items()):
            made.add(path, places[name])
    return places
