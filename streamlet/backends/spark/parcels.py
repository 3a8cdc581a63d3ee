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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamlet.backends.spark.packing import anonymous
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
        places = {name: f"{name}/{_own_name(Path(path))}" for name, path in files.items()}
        if files:
            parcels.append(_Parcel(session.context))
            # What a link leads to, for the link itself leads nowhere on another machine.
            with tarfile.open(fileobj=parcels[-1], mode="w|", dereference=True) as made:
                for name, path in sorted(files.items()):
                    with _readable(Path(path)):
                        made.add(path, places[name], filter=_plain)
            shared = parcels[-1].finish("shared")
        yield Sent(packages, shared, places, sum(parcel.size for parcel in parcels))
    finally:
        destroy(session, [piece for parcel in parcels for piece in parcel.pieces])


def _own_name(path: Path) -> str:
    return path.name if path.name not in ("", "..") else path.resolve().name or "root"


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{error.filename or path} cannot be read ({error.strerror or 'it changes meanwhile'}), and it is to be "
            "sent to Spark's executors."
        ) from error


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out what differs between two copies of one content. Raises BadInput for devices and the like."""
    if not (member.isfile() or member.isdir()):
        raise BadInput(
            f"{member.name} is neither a file nor a folder, and it is to be sent to Spark's executors: leave it out."
        )
    return anonymous(member)


class _Parcel(io.RawIOBase):
    """Takes the bytes of an archive, and broadcasts them piece by piece."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.pieces: list[Any] = []
        self.size = 0
        self._context = context
        self._digest = hashlib.sha256()
        self._rest = bytearray()
        self._failed = False

    def write(self, data: Any) -> int:
        if self._failed:  # of a tar that is closed because of that
            return len(data)
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
        try:
            self.pieces.append(broadcast(self._context, piece))
        except BadInput:
            self._failed = True
            raise


def broadcast(context: Any, content: bytes) -> Any:
    """Make a broadcast variable. Raises BadInput where the driver has no room."""
    try:
        return context.broadcast(content)
    except OSError as error:
        raise BadInput(
            f"What is to be sent to Spark's executors does not fit on the driver ({error.strerror}), which needs room "
            "for a copy where spark.local.dir is, by default in the folder for temporary files."
        ) from error


def destroy(session: Session, variables: Iterable[Any]) -> None:
    """Take broadcast variables back from a session that goes on."""
    if session.lost() is not None:
        return
    for variable in variables:
        with contextlib.suppress(Exception):  # py4j raises half a dozen kinds when Spark ends in this moment
            variable.destroy()


def make_unpack(pieces: Sequence[Any], name: str) -> Unpack:
    """Make the function that unpacks an archive as ``name`` on an executor."""
    # It travels by value, as does what `_make_place` makes, so all that the two need stands inside them.
    place = _make_place(pieces)

    def unpack() -> str:
        import contextlib
        import fcntl
        import os
        import shutil
        import socket
        import tarfile
        import zlib
        from pathlib import Path

        # The executor's own folder for blocks, which Spark removes with the executor, and at the end of an application
        # at the latest: a standalone cluster keeps the working directory of an executor for days. The next run of the
        # session finds the same content there.
        root = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0])
        folder, partial, joined = root / name, root / f"{name}.part", root / f"{name}.tar"

        def clean() -> None:
            joined.unlink(missing_ok=True)
            shutil.rmtree(partial, ignore_errors=True)

        try:
            with (root / f"{name}.lock").open("w") as lock, contextlib.ExitStack() as after:
                fcntl.flock(lock, fcntl.LOCK_EX)  # several slots of an executor come at once
                after.callback(clean)
                if not folder.exists():
                    clean()
                    place(joined, partial, folder)
        except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
            # One line, which `preflight.explain_unpacking` reads.
            why = " ".join(str(error).split())
            raise RuntimeError(f"no unpacking in {root} on {socket.gethostname()}: {why}") from error
        return str(folder)

    return unpack


def _make_place(pieces: Sequence[Any]) -> Callable[[Path, Path, Path], None]:
    """Make the function that joins an archive's pieces and unpacks them."""

    def place(joined: Path, partial: Path, folder: Path) -> None:
        import os
        import tarfile

        # For the owner alone, as the files in it may be.
        with os.fdopen(os.open(joined, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in pieces:
                try:
                    file.write(piece.value)
                finally:
                    # pyspark would keep each as long as this process lives. An encrypted one has no file to be read
                    # from again.
                    if hasattr(piece, "_path"):
                        vars(piece).pop("_value", None)
        with tarfile.open(joined) as archive:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(partial)  # noqa: S202 - the user's own files, filtered where Python can
        partial.rename(folder)

    return place
