"""What travels to an executor."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamlet.backends.spark import shipping
from streamlet.base.errors import BadInput
from streamlet.runtime.worker.loading import load_topology, place_of


def names(file: Path) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(shipping.make_archive(file))).namelist())


def folder(tmp_path: Path) -> Path:
    for name in ("top.py", "beside.py", "package/__init__.py", "package/deep/one.py", "notes.txt",
                 ".venv/lib/a.py", "env/b.py", "__pycache__/c.py", "not-a-name/d.py"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    return tmp_path / "top.py"


def test_the_python_files_of_the_folder_travel_and_nothing_else_of_it(tmp_path: Path) -> None:
    mine = {name for name in names(folder(tmp_path)) if name.startswith("topology/")}
    assert mine == {
        f"topology/{name}" for name in ("top.py", "beside.py", "package/__init__.py", "package/deep/one.py")
    }


@pytest.mark.parametrize("package", [False, True])
def test_src_beside_the_topologies_travels_and_lies_beside_them(tmp_path: Path, package: bool) -> None:
    for name in ("topologies/top.py", "src/bolts/__init__.py", *(["topologies/__init__.py"] if package else [])):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    mine = {name for name in names(tmp_path / "topologies" / "top.py") if not name.startswith("library/")}
    inside = "topology/topologies/" if package else "topology/"
    assert f"{inside}top.py" in mine
    assert ("topology/" if package else "") + "src/bolts/__init__.py" in mine


def test_files_of_editors_and_of_no_date_are_no_trouble(tmp_path: Path) -> None:
    """Emacs' lock is a link to nowhere; reproducible images date every file 1970."""
    (tmp_path / "made.py").write_text("x = 1\n")
    os.utime(tmp_path / "made.py", (0, 0))
    (tmp_path / ".#made.py").symlink_to("someone@somewhere.123")
    (tmp_path / ".hidden.py").write_text("")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    with zipfile.ZipFile(io.BytesIO(shipping.make_archive(tmp_path / "made.py"))) as archive:
        assert [name for name in archive.namelist() if name.startswith("topology/")] == ["topology/made.py"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made.py").write_text("")
    (tmp_path / "other.py").write_text("")
    read = zipfile.ZipFile.write

    def write(archive: zipfile.ZipFile, path: Path, name: str) -> None:
        if path.name == "other.py":  # root may read whatever it likes
            raise PermissionError(13, "Permission denied")
        read(archive, path, name)

    monkeypatch.setattr(zipfile.ZipFile, "write", write)
    with pytest.raises(BadInput, match=r"other\.py cannot be read \(Permission denied\)"):
        shipping.make_archive(tmp_path / "made.py")


def test_streamlet_travels_whole(tmp_path: Path) -> None:
    """An executor that has its compiled dependencies, and no streamlet, can be a worker."""
    file = folder(tmp_path)
    unpacked = tmp_path / "there"
    zipfile.ZipFile(io.BytesIO(shipping.make_archive(file))).extractall(unpacked)
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(unpacked / 'library')!r})\n"
        "import streamlet.backends.spark.slot as slot, kazoo, streamlet.spouts.kafka\n"
        "print(slot.__file__, kazoo.__file__, 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    slot, kazoo, pyspark = done.stdout.split()
    assert (slot.startswith(str(unpacked)), kazoo.startswith(str(unpacked)), pyspark) == (True, True, "False")


def test_a_huge_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MAX_FILES", 3)
    with pytest.raises(BadInput, match=r"more than 3 Python files.*into a folder of their own"):
        shipping.make_archive(folder(tmp_path))


def test_the_secret_is_in_no_repr() -> None:
    slot = shipping.Slot(None, ("127.0.0.1", 1), b"run", b"the secret", 0, 1, "/a/b.py", None, b"and the key")
    assert "secret" not in repr(slot) and "key" not in repr(slot)


def test_a_topology_has_the_name_on_an_executor_that_it_has_here(tmp_path: Path) -> None:
    """In a folder that looks like a package but for its name, too: the slot's folder has another name."""
    project = tmp_path / "my-app"
    project.mkdir()
    (project / "__init__.py").write_text("")
    (project / "topo.py").write_text("x = 1\n")
    here = place_of(project / "topo.py")[1]
    slot = tmp_path / "slot"
    with zipfile.ZipFile(io.BytesIO(shipping.make_archive(project / "topo.py"))) as archive:
        archive.extractall(slot)
    assert place_of(slot / "topology" / "topo.py")[1] == here == "topo"


def test_code_is_unpacked_where_spark_removes_it_though_the_slot_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: SimpleNamespace(attemptNumber=lambda: 0))
    seen: list[str] = []

    class Archive:
        @property
        def value(self) -> bytes:
            seen.extend(path.name for path in tmp_path.iterdir())
            raise OSError("seen")

    slot = shipping.Slot(Archive(), ("127.0.0.1", 1), b"run", b"", 0, 1, str(tmp_path / "topo.py"), None)
    (told,) = shipping.make_host(slot)(iter(()))
    assert "could not unpack" in told["why"]
    assert [name.partition("-")[0] for name in seen] == ["streamlet"] and not [*tmp_path.iterdir()]


def test_what_the_check_imported_travels_as_it_was_read(tmp_path: Path) -> None:
    """Executors run what was checked, not an edit that came while the topology was still being imported."""
    file = tmp_path / f"travels_{tmp_path.name}.py"
    file.write_text(
        "from pathlib import Path\nfrom streamlet import Spout, Topology\n"
        f"Path({str(file)!r}).write_text('raise OSError')\nclass Quiet(Spout):\n    def next_tuple(self): ...\n"
        "class Alone(Topology):\n    quiet = Quiet.spec()\n"
    )
    before = file.read_bytes()
    load_topology(file)
    assert file.read_bytes() != before
    with zipfile.ZipFile(io.BytesIO(shipping.make_archive(file))) as archive:
        assert archive.read(f"{shipping.TOPOLOGY}/{file.name}") == before
