"""Archives of compiled and other packages for executors that have Python alone.

pip makes the folder of packages, and tar the archive. A manifest stands first in it and is compared before anything
runs.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from streamlet.base.errors import BadInput

MANIFEST = "streamlet-pack.json"
COMPILED = ("msgpack", "crc32c", "cramjam")
"""Modules that every worker imports and that do not travel with the run: they are not pure Python."""

DISTRIBUTION = "streamlet-storm"
MOST_LINES, MOST_OF_LINE = 5, 300
"""Lines of pip's that are told, and characters of each."""

ERROR = re.compile(r"(?i:\berror\b)|(Error|Exception)\b")
ASIDE = re.compile(r"(?i)note:|hint:|\[notice\]|WARNING:|DEPRECATION:")
"""How lines of pip's begin that tell no reason."""

SCRIPT_BLOCK = re.compile(r"(?m)^# /// script\s*$\n(?P<lines>(?:^#(?:| .*)$\n)+?)^# ///\s*$")
"""Metadata at the top of a script, as the Python packaging specifications have it ("inline script metadata")."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An archive's origin and content."""

    streamlet: str
    python: str
    platform: str
    packages: Mapping[str, str]
    """Name -> version."""


@dataclass(frozen=True, slots=True)
class Pack:
    """An archive that was read and found to fit."""

    file: Path
    manifest: Manifest
    size: int = 0

    def __str__(self) -> str:
        return told(self.file, self.manifest, self.size)


def told(file: Path, manifest: Manifest, size: int) -> str:
    """Return name, packages and size of an archive in words."""
    count = len(manifest.packages)
    return f"{file.name} ({count} package{'' if count == 1 else 's'}, {size / (1 << 20):.1f} MiB)"


def python_here() -> str:
    """Return the minor version of this Python."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def streamlet_here() -> str:
    """Return the version of this streamlet; empty for a source tree that is not installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""


# -- making ----------------------------------------------------------------------------------------------------------


def make_pack(output: Path, requirements: Sequence[str] = (), files: Sequence[Path] = ()) -> Manifest:
    """Write an archive of the packages that workers want.

    ``requirements`` and ``files`` are added, as pip takes them. A package that is installed here is packed in the
    version that is here.
    Raises BadInput.
    """
    _check_replaceable(output)
    if importlib.util.find_spec("pip") is None:
        raise BadInput(
            f"Packing lets pip install into a folder, and this Python ({sys.executable}) has no pip. Install it with: "
            f"{sys.executable} -m ensurepip"
        )
    wanted = [*requirements_of(COMPILED), *requirements]
    with tempfile.TemporaryDirectory(prefix="slt-pack-") as made:
        folder = Path(made) / "packages"
        constraints = Path(made) / "constraints.txt"
        constraints.write_text("".join(f"{line}\n" for line in _installed_here()))
        _install(folder, wanted, files, constraints)
        shutil.rmtree(folder / "bin", ignore_errors=True)  # commands, which begin with the path of this Python
        manifest = Manifest(
            streamlet_here(), python_here(), sysconfig.get_platform(), dict(sorted(_packages_in(folder)))
        )
        _write(output, folder, manifest)
    return manifest


def _install(folder: Path, wanted: Sequence[str], files: Sequence[Path], constraints: Path) -> None:
    # Not compiled: the archive is smaller, and an executor keeps what it has compiled as long as it lives.
    pip = [sys.executable, "-m", "pip", "install", "--no-compile", "--quiet", "--no-input"]
    listed = [word for file in files for word in ("--requirement", str(file))]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", str(folder), "-c", str(constraints), *listed, *wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = "".join(f"\n  {line}" for line in last_words(done.stderr)) or " it says nothing."
        raise BadInput(
            f"pip could not install what is to be packed:{said}\nEach package that is installed here is wanted in the "
            "version that is here, so that a topology meets the same there."
        )


def last_words(said: str) -> list[str]:
    """Return pip's last lines about errors; its last ones without any."""
    # Rule: each of pip's lines stays one, and the last ones count. It ends with the reason; what a build printed, and
    # advice about pip itself, stand around it.
    lines = [line.strip(" │╰─>×") for line in said.splitlines()]
    lines = [line[:MOST_OF_LINE] for line in lines if line and not ASIDE.match(line)]
    return list(dict.fromkeys([line for line in lines if ERROR.search(line)] or lines))[-MOST_LINES:]


def _installed_here() -> Iterator[str]:
    """Yield the packages of this Python as constraints of pip."""
    seen = {DISTRIBUTION}
    for found in importlib.metadata.distributions():
        name = found.metadata["Name"]
        # The first of a name is the one that is imported here; pip refuses two versions of one.
        # A version with a local part ("+cpu") is on no index: pip is to choose there.
        if name is not None and name not in seen and "+" not in found.version:
            yield f"{name}=={found.version}"
        seen.add(name)


def _packages_in(folder: Path) -> Iterator[tuple[str, str]]:
    for found in importlib.metadata.distributions(path=[str(folder)]):
        yield found.metadata["Name"], found.version


def _write(output: Path, folder: Path, manifest: Manifest) -> None:
    """Write the archive: the same packages give the same bytes."""
    partial = output.with_name(f".{output.name}.part")
    try:
        with (
            partial.open("wb") as file,
            gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            _add(archive, MANIFEST, json.dumps(asdict(manifest), indent=1).encode())
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.add(path, str(path.relative_to(folder)), recursive=False, filter=anonymous)
        partial.replace(output)
    except OSError as error:
        raise BadInput(f"{output} cannot be written: {error.strerror}. Name another file with -o.") from error
    finally:
        partial.unlink(missing_ok=True)


def _check_replaceable(output: Path) -> None:
    """Refuse to write over a file that `streamlet pack` has not made. Raises BadInput."""
    # Rule: replace an archive, a broken one too, and no other file. `streamlet pack FILE -o FILE` would leave a packed
    # topology without its source.
    if not output.is_file() or output.stat().st_size == 0:
        return
    try:
        with output.open("rb") as file:
            ours = file.read(2) == b"\x1f\x8b"  # gzip's
        if ours:
            with tarfile.open(output, mode="r:gz") as archive:
                first = archive.next()
                ours = first is not None and first.name == MANIFEST
    except (tarfile.TarError, EOFError, zlib.error):
        pass  # a damaged one
    except OSError as error:
        raise BadInput(f"{output} cannot be read: {error.strerror}. Name another file with -o.") from error
    if not ours:
        raise BadInput(
            f"{output} is there and was not made by `streamlet pack`: it would be lost. Name another file with -o, or "
            "remove that one."
        )


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member of an archive without owner and time: equal content makes equal bytes."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def requirements_of(modules: Sequence[str]) -> list[str]:
    """Return this installation's requirements for modules."""
    wanted = {}
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        found = re.match(r"([A-Za-z0-9_.-]+)([^;]*)", line)
        if found and "extra ==" not in line:
            wanted[found[1].lower()] = found[0].strip().replace(" ", "")
    return [wanted.get(name, name) for name in modules]


def script_requirements(file: Path) -> list[str]:
    """Return the ``dependencies`` that a file's script metadata names. Raises BadInput."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}.") from error
    found = SCRIPT_BLOCK.search(text)
    if found is None:
        return []
    lines = [line[2:] if line.startswith("# ") else line[1:] for line in found["lines"].splitlines()]
    try:
        named = tomllib.loads("\n".join(lines)).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"The block `# /// script` of {file} is not valid TOML: {error}.") from error
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise BadInput(f'The block `# /// script` of {file} wants `dependencies = ["NAME", ...]`, a list of texts.')
    return named


# -- reading ---------------------------------------------------------------------------------------------------------


def read_pack(file: Path) -> Pack:
    """Read an archive's manifest and compare it with what runs here. Raises BadInput."""
    again = "`streamlet pack -o NAME` makes one."
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            manifest = _manifest_in(file, archive)
            for _ in archive:  # to the end: half an archive is told here, not by an executor
                pass
        size = file.stat().st_size
    except FileNotFoundError as error:
        raise BadInput(f"There is no archive {file}: `streamlet pack -o {file}` makes one.") from error
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{file} was not made by `streamlet pack`, or is damaged ({error}): {again}") from error
    check_manifest(file, manifest)
    return Pack(file, manifest, size)


def _manifest_in(file: Path, archive: tarfile.TarFile) -> Manifest:
    first = archive.next()
    content = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
    if content is None:
        raise BadInput(
            f"{file} was not made by `streamlet pack`: it does not begin with {MANIFEST}. Make one with `streamlet "
            "pack -o NAME`; other environments are handed to Spark itself, with spark.archives and PYSPARK_PYTHON."
        )
    said = json.load(content)
    return Manifest(**{field.name: said[field.name] for field in fields(Manifest)})


def check_manifest(file: Path, manifest: Manifest) -> None:
    """Refuse an archive of another Python or streamlet. Raises BadInput."""
    again = f"Make it again with this one: streamlet pack -o {file}"
    if manifest.python != python_here():
        raise BadInput(
            f"{file} was packed with Python {manifest.python} and this is Python {python_here()}: a compiled package "
            f"of one cannot be imported by the other. {again}"
        )
    if manifest.streamlet != streamlet_here():
        raise BadInput(
            f"{file} was packed by streamlet {manifest.streamlet} and this is {streamlet_here()}, which may want other "
            f"packages. {again}"
        )
