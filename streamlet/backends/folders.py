"""The temporary folders of runs, each named after its owner.

A run removes its folders. A run whose processes were all killed cannot, so the next run does it: a folder goes if it is
this user's, was made on this machine and under this kernel's view of processes, and the process that made it is gone. A
process is known by its number and the moment it was started, for numbers come again.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from streamlet.base.errors import BadInput
from streamlet.base.process_identity import start_ticks

_NAME = re.compile(r"slt-(?:spark-)?(\d{1,10})-(\d{1,20})-(\d{1,20})-([0-9a-f]{8})-\w+")


def run_folder() -> Path:
    """Make a folder, 0700, for the files of a run. Raises BadInput."""
    return _make_folder("slt-")


def spark_folder() -> Path:
    """Make a folder, 0700, for the files of a Spark application here. Raises BadInput."""
    return _make_folder("slt-spark-")


def living_folders() -> list[Path]:
    """Return the folders of this user's living runs."""
    with os.scandir(tempfile.gettempdir()) as entries:
        return [Path(entry.path) for entry in entries if _owner_lives(entry) is True]


def recreate_if_swept(folder: Path) -> bool:
    """Make a swept folder again; tell whether it was swept. Raises OSError."""
    # Those who sweep temporary files (a system after ten days, a person who needs room) do not know that a run lives.
    # Its name cannot be guessed before it is there, but afterwards: what another user has put there is not ours.
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{folder} is somebody else's") from None
        return False
    return True


def _make_folder(kind: str) -> Path:
    try:
        place = tempfile.gettempdir()
        _remove_dead({place})
        return Path(tempfile.mkdtemp(prefix=_prefix(kind), dir=place))
    except OSError as error:
        tried = f"in {os.environ['TMPDIR']} (TMPDIR)" if os.environ.get("TMPDIR") else "for temporary files"
        raise BadInput(
            f"A run needs a small folder of its own, and none can be made {tried}: {error.strerror or error}. Make "
            "room there, or set TMPDIR to a folder that you may write to."
        ) from error


def _prefix(kind: str) -> str:
    # The owner stands in the name: a later run removes what a killed one left. The start tells apart two processes with
    # one number, the namespace those of another container, the boot those of another machine: the first namespace has
    # one number on all machines, and a temporary folder may be shared.
    own = os.getpid()
    return f"{kind}{own}-{start_ticks(own)}-{_namespace()}-{_boot()}-"


def _remove_dead(places: set[str]) -> None:
    for place in places:
        try:
            entries = list(os.scandir(place))
        except OSError:
            continue
        for entry in entries:
            if _owner_lives(entry) is False:
                shutil.rmtree(entry.path, ignore_errors=True)  # another run may be removing it, too


def _owner_lives(entry: os.DirEntry[str]) -> bool | None:
    """Tell whether the process lives that made a folder of ours; None: it is no such folder."""
    named = _NAME.fullmatch(entry.name)
    if named is None:
        return None
    try:
        if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            return None
    except OSError:
        return None
    pid, started, namespace = map(int, named.groups()[:3])
    # The processes of another container or machine are not to be seen from here.
    if (namespace, named[4]) != (_namespace(), _boot()):
        return None
    return start_ticks(pid) == started


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _boot() -> str:
    """Return eight digits of this machine's present boot; zeros where they are not told."""
    # A machine that was started again has a new one: what lay there before is nobody's to judge, and is swept with the
    # temporary folder itself.
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")[:8]
    except OSError:
        return "0" * 8
