"""Loading: one topology, the same in every process, found from a file and perhaps a name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlet.runtime.worker.loading import CannotLoad, load_topology

ONE = """
from streamlet import Spout, Topology
class Lines(Spout):
    outputs = ["line"]
    def next_tuple(self): pass
class First(Topology):
    lines = Lines.spec()
"""


@pytest.fixture(autouse=True)
def _imports_are_undone() -> Iterator[None]:
    """Loading changes the interpreter on purpose; the next test shall not see it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in {name for name in set(sys.modules) - modules if not name.startswith("streamlet")}:
        del sys.modules[name]


def put(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_the_only_topology_needs_no_name(tmp_path: Path) -> None:
    spec = load_topology(put(tmp_path, "only_one.py", ONE))
    assert spec.name == "First" and [c.name for c in spec.components] == ["lines"]


def test_classes_carry_the_files_stem(tmp_path: Path) -> None:
    """Never ``__main__``: a worker that imports the file gets classes of the same name."""
    spec = load_topology(put(tmp_path, "stem_of_it.py", ONE))
    assert spec.component("lines").cls.__module__ == "stem_of_it"


def test_a_topology_imported_from_elsewhere_does_not_count_beside_an_own_one(tmp_path: Path) -> None:
    put(tmp_path, "library_of_it.py", ONE)
    text = "from library_of_it import First, Lines\nfrom streamlet import Topology\n"
    both = put(tmp_path, "user_of_it.py", text + "class Second(Topology):\n    lines = Lines.spec(par=2)\n")
    assert load_topology(both).name == "Second"
    assert load_topology(both, "First").name == "First"
    assert load_topology(put(tmp_path, "alias_of_it.py", text)).name == "First"


def test_a_module_beside_the_file_can_be_imported_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "beside_it.py", "PAR = 3\n")
    file = put(
        tmp_path,
        "with_neighbour.py",
        ONE.replace("spec()", "spec(par=beside_it.PAR)").replace("\nfrom", "\nimport beside_it\nfrom", 1),
    )
    monkeypatch.chdir("/")
    assert load_topology(file).component("lines").par == 3


def test_loading_twice_gives_the_same_value(tmp_path: Path) -> None:
    file = put(tmp_path, "twice_of_it.py", ONE)
    assert load_topology(file) is load_topology(file)


def test_a_module_of_that_name_from_elsewhere_is_not_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(CannotLoad, match="Rename the file"):
        load_topology(put(tmp_path, "sys.py", ONE))


def test_a_setting_that_cannot_be_is_told_with_its_place(tmp_path: Path) -> None:
    """An error of ours in the class body keeps its own paragraph, with file and line before it."""
    text = "from streamlet.spouts.kafka import ZkHosts\n\nhosts = ZkHosts('')\n"
    with pytest.raises(CannotLoad) as raised:
        load_topology(put(tmp_path, "bad_hosts.py", text))
    assert "line 3: ZkHosts needs the addresses" in raised.value.message and raised.value.exit_status == 2


def test_a_module_that_is_not_there_must_be_installed_or_lie_beside(tmp_path: Path) -> None:
    with pytest.raises(CannotLoad, match=r"No module named 'not_there'\. .* must be installed or lie beside it\.$"):
        load_topology(put(tmp_path, "imports_nothing.py", "import not_there\n"))


def test_a_neighbour_that_does_not_parse_is_named_itself(tmp_path: Path) -> None:
    put(tmp_path, "broken_neighbour.py", "class :\n")
    with pytest.raises(CannotLoad, match=r"broken_neighbour\.py does not parse"):
        load_topology(put(tmp_path, "imports_broken.py", "import broken_neighbour\n" + ONE))


def test_a_file_that_is_cancelled_while_it_is_imported_is_named_with_its_line(tmp_path: Path) -> None:
    text = "import asyncio\n\nraise asyncio.CancelledError\n"
    with pytest.raises(CannotLoad, match=r"raised CancelledError \(.*line 3"):
        load_topology(put(tmp_path, "cancelled_topology.py", text))


@pytest.mark.parametrize("kind", [ValueError, SyntaxError])
def test_a_file_with_null_bytes_does_not_parse_in_any_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Python 3.11.2 raises a bare ValueError for it, later ones a SyntaxError."""

    def compiled(name: str) -> None:
        raise kind("source code string cannot contain null bytes")

    file = put(tmp_path, "null_bytes_in_it.py", ONE)
    monkeypatch.setattr("importlib.import_module", compiled)
    with pytest.raises(CannotLoad, match="does not parse: source code string cannot contain null bytes, at its start"):
        load_topology(file)


def test_a_file_in_a_package_is_imported_as_a_module_of_it(tmp_path: Path) -> None:
    package = tmp_path / "shop_of_it" / "flows"
    package.mkdir(parents=True)
    put(package.parent, "__init__.py", "")
    put(package, "__init__.py", "")
    put(package, "spouts.py", ONE)
    file = put(package, "sale.py", "from .spouts import Lines\nfrom streamlet import Topology\n"
               "class Sale(Topology):\n    lines = Lines.spec()\n")  # fmt: skip
    assert load_topology(file).component("lines").cls.__module__ == "shop_of_it.flows.spouts"
    assert load_topology(file).name == "Sale"


def test_a_package_whose_name_is_taken_is_told_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "json"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    with pytest.raises(CannotLoad, match=rf"a module named 'json' is loaded already.*Rename the folder {folder}\.$"):
        load_topology(put(folder, "topo.py", ONE))


@pytest.mark.parametrize("package", [False, True])
def test_src_beside_the_topologies_is_on_the_path(tmp_path: Path, package: bool) -> None:
    """A streamparse project: ``topologies/wordcount.py`` imports from ``src/bolts``. What lies nearer goes first."""
    (tmp_path / "src" / "bolts_of_test").mkdir(parents=True)
    put(tmp_path / "src" / "bolts_of_test", "__init__.py", "NEARER = False")
    (tmp_path / "topologies").mkdir()
    if package:
        put(tmp_path / "topologies", "__init__.py", "")
    file = put(
        tmp_path / "topologies",
        "of_project.py",
        ONE + "    from bolts_of_test import NEARER\n    config = {'near': NEARER}",
    )
    assert load_topology(file).config == {"near": False}
    assert sys.path[-1] == str(tmp_path / "src")


def test_a_topology_of_streamparse_where_that_is_installed_is_told_by_its_package(tmp_path: Path) -> None:
    (tmp_path / "streamparse").mkdir()
    put(tmp_path / "streamparse", "__init__.py", "class Topology: pass")
    text = "from streamparse import Topology\nclass WordCount(Topology): pass\n"
    with pytest.raises(CannotLoad, match=r"but classes of streamparse \(`streamlet docs migrating-from-streamparse`\)"):
        load_topology(put(tmp_path, "theirs.py", text))
