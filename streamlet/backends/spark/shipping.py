"""Code for executors that have no streamlet: one archive, unpacked for one task.

It travels as a broadcast variable and is removed after the task. Compiled packages travel in an archive that the user
has packed (``packing``), or are there: ``preflight`` asks for them.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlet.backends.spark.parcels import NOTHING, Sent
from streamlet.base.errors import BadInput
from streamlet.base.python_files import package_files, python_files
from streamlet.runtime.worker.imported_code import imported_code
from streamlet.runtime.worker.loading import place_of, source_folder

LIBRARY = "library"
TOPOLOGY = "topology"
PURE = ("streamlet", "kazoo")
"""Packages that travel: streamlet, and its imports that are pure Python."""

MAX_FILES = 2000
MAX_BYTES = 32 << 20
"""Most bytes of the files that travel to the executors: beyond it the folder is hardly a program."""


def make_archive(file: Path) -> bytes:
    """Zip streamlet and the user's Python files.

    These are the files of ``file``'s own folder, and of ``src`` beside it.

    Raises BadInput when such a folder is huge.
    """
    buffer = io.BytesIO()
    # Reproducible images and stores of packages date their files 1970, which a zip cannot say.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for package in PURE:
            for path, name in package_files(package):
                archive.write(path, f"{LIBRARY}/{name}")
        imported = imported_code(file)
        for path, name in _neighbours(file.absolute()):
            try:
                # `src` lies beside the topology's folder there, too; its name here begins with `../`.
                member = os.path.normpath(f"{TOPOLOGY}/{name}")
                text = imported.text_of(str(path))
                if text is not None:  # as this process has imported it, whatever was written since
                    archive.writestr(member, text)
                else:
                    archive.write(path, member)
            except OSError as error:
                raise BadInput(
                    f"{path} cannot be read ({error.strerror}), and all Python files of a topology's folder travel to "
                    f"the executors. Make it readable, or move {file.name} and its imports into a folder of their own."
                ) from error
    return buffer.getvalue()


def _neighbours(file: Path) -> Iterator[tuple[Path, str]]:
    root, name = place_of(file)
    # Of a file in a package all of that package travels: its relative imports lead there.
    folder = root / name.partition(".")[0] if "." in name else file.parent
    beside = source_folder(file)
    for place in [folder] if beside is None else [folder, beside]:
        size = 0
        for count, path in enumerate(python_files(place), 1):
            if path == root / "__init__.py":
                # The slot's folder has a name of ours. With this file it would look like a package there, and the
                # module get another name than on the driver.
                continue
            size += path.stat().st_size
            if count > MAX_FILES or size > MAX_BYTES:
                raise BadInput(
                    f"{place} holds more than {MAX_FILES} Python files or {MAX_BYTES >> 20} MiB of them, and all "
                    f"Python files of a topology's folder travel to the executors. Move {file.name} and the modules "
                    "it imports into a folder of their own."
                )
            yield path, os.path.relpath(path, root)


@dataclass(frozen=True, slots=True)
class Slot:
    """Everything that a slot's task needs. Plain data but for ``code_zip``, a broadcast variable.

    Secret and certificate are here and nowhere else: not in Spark's configuration, environment, descriptions or logs.
    """

    code_zip: Any
    address: tuple[str, int]
    run_id: bytes
    secret: bytes
    worker: int
    epoch: int
    file: str
    folder: str | None
    """Working directory for an executor on the driver's machine; None: its own."""
    certificate: bytes = b""
    sent: Sent = NOTHING

    def __repr__(self) -> str:
        return f"Slot(worker={self.worker}, epoch={self.epoch})"


def make_host(slot: Slot) -> Callable[[Any], Any]:
    """Make the function of a slot's one task.

    It travels by value, with plain data: streamlet is not there yet. It never raises for an expected ending.
    """
    # Long: `host` travels by value, so all that it needs stands inside it.
    code_zip, library, topology = slot.code_zip, LIBRARY, TOPOLOGY
    packages, shared, places = slot.sent.packages, slot.sent.shared, dict(slot.sent.places)
    root, _ = place_of(Path(slot.file))
    facts: dict[str, Any] = {
        "address": slot.address,
        "run_id": slot.run_id,
        "secret": slot.secret,
        "worker": slot.worker,
        "epoch": slot.epoch,
        "name": str(Path(slot.file).relative_to(root)),
        "origin": str(root),
        "folder": slot.folder,
        "certificate": slot.certificate,
    }

    # `rows` is not read: Spark gives the Python worker of such a task to no other task, so no thread, module or
    # socket of this run meets the next one.
    def host(rows: Any) -> Any:
        import io
        import os
        import shutil
        import sys
        import tempfile
        import zipfile
        from pathlib import Path

        from pyspark import TaskContext

        status, why = 0, "its Python worker died, or its executor"
        if TaskContext.get().attemptNumber() == 0:  # a second attempt is Spark's; a next epoch is ours
            before = list(sys.path)
            # The executor's own folder for blocks, as for parcels: Spark removes it with the executor. A slot that is
            # killed removes nothing itself.
            root = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]).absolute()
            unpacked = Path(tempfile.mkdtemp(prefix="streamlet-", dir=root))
            try:
                try:
                    zipfile.ZipFile(io.BytesIO(code_zip.value)).extractall(unpacked)
                    installed = None if packages is None else packages()
                    there = Path("" if shared is None else shared())
                except Exception as error:  # noqa: BLE001 - the disk, the archive, what Spark brought of it
                    # Not raised: the next attempt would be Spark's, and this one's reason lost.
                    yield {"status": 1, "why": f"it could not unpack what was sent: {type(error).__name__}: {error}"}
                    return
                for name in [name for name in sys.modules if name.partition(".")[0] == "streamlet"]:
                    del sys.modules[name]  # another version, imported by an earlier task of this process
                if installed is not None:
                    sys.path.insert(0, installed)
                sys.path.insert(0, str(unpacked / library))
                from streamlet.backends.spark.slot import run_slot

                files = {name: str(there / place) for name, place in places.items()}
                status, why = run_slot(str(unpacked / topology), shared=files, **facts)
            finally:
                sys.path[:] = before
                shutil.rmtree(unpacked, ignore_errors=True)
        yield {"status": status, "why": why}

    return host
