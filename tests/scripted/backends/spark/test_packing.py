"""Archives of packages: made by pip from wheels on the disk, and compared."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamlet.backends.spark import packing
from streamlet.base.errors import BadInput
from tests.wheels import wheel


@pytest.fixture(autouse=True)
def without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "COMPILED", ())
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_an_archive_has_what_is_required_and_says_so_first(tmp_path: Path) -> None:
    """The same packages give the same bytes."""
    listed = tmp_path / "requirements.txt"
    listed.write_text(f"{wheel(tmp_path, 'listed')}\n")
    tiny = str(wheel(tmp_path))
    for name in ("one.tar.gz", "two.tar.gz"):
        made = packing.make_pack(tmp_path / name, [tiny], [listed])
    assert dict(made.packages) == {"listed": "1.5", "tiny": "1.5"}
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    read = packing.read_pack(tmp_path / "one.tar.gz")
    assert read.manifest == made and str(read).startswith("one.tar.gz (2 packages, ")
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        names = archive.getnames()
    assert names[0] == packing.MANIFEST and "tiny/__init__.py" in names and "tiny/__pycache__" not in str(names)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"python": "3.99"}, r"packed with Python 3\.99 and this is Python 3\.\d+: .*streamlet pack -o .*env\.tar\.gz"),
        ({"streamlet": "0.0.9"}, r"packed by streamlet 0\.0\.9 and this is \d.*streamlet pack -o .*env\.tar\.gz"),
    ],
)
def test_an_archive_of_another_python_or_streamlet_is_refused(
    tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    packing.make_pack(tmp_path / "env.tar.gz", [str(wheel(tmp_path))])
    made = packing.read_pack(tmp_path / "env.tar.gz").manifest
    with pytest.raises(BadInput, match=said):
        packing.check_manifest(tmp_path / "env.tar.gz", replace(made, **changed))


def another_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("bin/python"), io.BytesIO(b""))


def one_that_says_less(path: Path) -> None:
    """Its manifest lacks what every version of streamlet writes."""
    with tarfile.open(path, "w:gz") as archive:
        packing._add(archive, packing.MANIFEST, b'{"python": "3.11"}')


def half_of_one(path: Path) -> None:
    packing.make_pack(path, [str(wheel(path.parent))])
    path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, r"There is no archive .*`streamlet pack -o"),
        (lambda path: path.write_bytes(b"no archive"), r"was not made by `streamlet pack`, or is damaged"),
        (half_of_one, r"was not made by `streamlet pack`, or is damaged"),
        (one_that_says_less, r"was not made by `streamlet pack`, or is damaged"),
        (another_archive, r"does not begin with streamlet-pack\.json.*spark\.archives and PYSPARK_PYTHON"),
    ],
    ids=["none", "no archive", "half", "less", "another"],
)
def test_what_is_no_archive_of_ours_is_named(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    make(tmp_path / "env.tar.gz")
    with pytest.raises(BadInput, match=said):
        packing.read_pack(tmp_path / "env.tar.gz")


def test_only_an_archive_of_ours_is_replaced(tmp_path: Path) -> None:
    """``streamlet pack FILE -o FILE`` would leave a packed topology without its source."""
    output, tiny = tmp_path / "top.py", str(wheel(tmp_path))
    output.write_text("x = 1\n")
    with pytest.raises(BadInput, match=r"top\.py is there and was not made by `streamlet pack`: it would be lost"):
        packing.make_pack(output, [tiny], [])
    assert output.read_text() == "x = 1\n"
    with tarfile.open(tmp_path / "venv.tar.gz", "w:gz") as archive:
        packing._add(archive, "bin/python", b"")
    with pytest.raises(BadInput, match="it would be lost"):
        packing.make_pack(tmp_path / "venv.tar.gz", [tiny], [])
    for content in (b"", b"\x1f\x8b broken"):
        (tmp_path / "env.tar.gz").write_bytes(content)
        packing.make_pack(tmp_path / "env.tar.gz", [tiny], [])
    packing.make_pack(tmp_path / "env.tar.gz", [tiny], [])
    assert dict(packing.read_pack(tmp_path / "env.tar.gz").manifest.packages) == {"tiny": "1.5"}


def test_what_pip_cannot_get_is_told_in_its_words_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"pip could not install .*:\n  ERROR: .*no-such-package") as caught:
        packing.make_pack(tmp_path / "env.tar.gz", ["no-such-package"])
    assert list(tmp_path.iterdir()) == []
    lines = caught.value.message.splitlines()
    assert len(lines) == 4 and all(line.count("ERROR:") == 1 for line in lines[1:3]) and lines[3].startswith("Each")


BUILD = """\
  error: subprocess-exited-with-error

  × Building wheel for thing (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [4 lines of output]
      running build_ext
      thing.c:1:10: fatal error: zlib.h: No such file or directory
      compilation terminated.
      error: command '/usr/bin/gcc' failed with exit code 1
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for thing
ERROR: Failed to build installable wheels for some pyproject.toml based projects (thing)

[notice] A new release of pip is available
"""


def test_of_a_build_that_fails_the_lines_that_tell_the_reason_are_kept_each_by_itself() -> None:
    assert packing.last_words(BUILD) == [
        "error: subprocess-exited-with-error",
        "thing.c:1:10: fatal error: zlib.h: No such file or directory",
        "error: command '/usr/bin/gcc' failed with exit code 1",
        "ERROR: Failed building wheel for thing",
        "ERROR: Failed to build installable wheels for some pyproject.toml based projects (thing)",
    ]
    assert packing.last_words("") == []
    assert packing.last_words("one\ntwo\n\nnote: three\n") == ["one", "two"]
    assert packing.last_words("".join(f"error {n}\n" for n in range(9)))[0] == "error 4"


def test_a_topology_file_names_its_packages_in_its_script_block(tmp_path: Path) -> None:
    """As other tools read them off a script."""
    file = tmp_path / "top.py"
    file.write_text("x = 1\n")
    assert packing.script_requirements(file) == []
    file.write_text('# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "tiny==1.5",\n# ]\n# ///\n')
    assert packing.script_requirements(file) == ["tiny==1.5"]
    for block, said in (("dependencies = 3", "a list of texts"), ("dependencies = [", "not valid TOML")):
        file.write_text(f"# /// script\n# {block}\n# ///\n")
        with pytest.raises(BadInput, match=said):
            packing.script_requirements(file)


def test_a_newer_streamlet_is_named_though_its_manifest_says_more(tmp_path: Path) -> None:
    said = {"streamlet": "99.0", "python": packing.python_here(), "platform": "any", "packages": {}, "more": 1}
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        packing._add(archive, packing.MANIFEST, json.dumps(said).encode())
    with pytest.raises(BadInput, match=r"packed by streamlet 99\.0 and this is"):
        packing.read_pack(tmp_path / "env.tar.gz")


def test_of_two_installations_of_one_package_the_first_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one that is imported; pip refuses to want both."""
    found = [SimpleNamespace(metadata={"Name": "tiny"}, version=version) for version in ("2.0", "1.5")]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    assert list(packing._installed_here()) == ["tiny==2.0"]


def test_a_ctrl_c_while_an_archive_is_written_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(packing, "_add", interrupted)
    tiny = str(wheel(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        packing.make_pack(tmp_path / "env.tar.gz", [tiny], [])
    assert not [*tmp_path.glob("*env.tar.gz*")] and not [*tmp_path.glob(".env.tar.gz*")]
