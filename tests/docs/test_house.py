"""The page about the house is true, and the house keeps its rules about names."""

from __future__ import annotations

import ast
import configparser
import re
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

from tests.docs.pages import ROOT

PACKAGE = ROOT / "streamlet"
PAGE = (ROOT / "docs" / "internals" / "house.md").read_text(encoding="utf-8")
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}

LINES_OF_A_FUNCTION, LINES_OF_A_CLASS = 40, 300
"""Without signature and docstring of the function. One that is longer says why, in a comment that begins so:"""

REASON = "# Long: "

OF_TWO_PUBLIC_PACKAGES = {"Broker"}
"""Storm's name for an address in ``streamlet.spouts.kafka``, Kafka's for a node in ``streamlet.kafka``."""


def test_no_two_classes_share_a_name() -> None:
    """Private ones may: they are seen in one file only. A name for a type counts as a class."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, source in SOURCES.items():
        for node in ast.parse(source).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in names:
                if name[0].isupper() and not name.isupper():
                    found[name].append(str(path.relative_to(PACKAGE)))
    assert len(found) > 500
    shared = {name: places for name, places in found.items() if len(places) > 1 and name not in OF_TWO_PUBLIC_PACKAGES}
    assert not shared, "say with a word more what tells them apart"


SHARED_MODULES = {
    *("acls", "configs", "groups", "metadata", "offsets", "replicas", "scram_users", "topics", "transactions"),
    *("errors", "spout", "bolt", "sink", "topology", "metrics", "tls"),
    *("closing", "delivery", "epochs", "options", "parts", "shipping"),
}
"""A message of the protocol and its user; things of one kind; what only folders tell apart. The page has them, too."""


def test_modules_share_no_name_but_those_that_the_page_names() -> None:
    places = Counter(path.stem for path in SOURCES if path.stem != "__init__")
    assert {name for name, count in places.items() if count > 1} == SHARED_MODULES
    assert f"Of modules {len(SHARED_MODULES)} names are" in PAGE


def long_ones(source: str) -> list[tuple[str, bool]]:
    """Return the name of each function and class that is longer than a screen, and whether it says why."""
    found = []
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        is_class = isinstance(node, ast.ClassDef)
        body = node.body[1:] if not is_class and ast.get_docstring(node) and len(node.body) > 1 else node.body
        assert node.end_lineno is not None
        length = node.end_lineno - (node if is_class else body[0]).lineno + 1
        if length > (LINES_OF_A_CLASS if is_class else LINES_OF_A_FUNCTION) and node.name != "__init__":
            indent = " " * (node.col_offset + 4)
            own = lines[node.lineno - 1 : node.end_lineno]
            nested = not is_class and any(line.lstrip().startswith(REASON) for line in own)
            found.append((node.name, nested or any(line.startswith(indent + REASON) for line in own)))
    return found


def test_a_function_or_class_that_is_longer_than_a_screen_says_why() -> None:
    """A constructor of many fields, one a line, need not."""
    said = [
        (f"{path.relative_to(PACKAGE)}:{name}", says)
        for path, source in SOURCES.items()
        for name, says in long_ones(source)
    ]
    assert [place for place, says in said if not says] == [], f"split it by idea, or say why in a comment: {REASON}..."
    assert len(said) < 35, "a reason that is given so often is none"


def test_a_long_function_without_a_reason_is_found() -> None:
    body = "".join(f"    x = {n}\n" for n in range(41))
    assert long_ones(f"def f():\n{body}") == [("f", False)]
    assert long_ones(f"def f():\n    # Long: written out.\n{body}") == [("f", True)]
    assert long_ones(f'def f():\n    """Do it."""\n{body[:-11]}') == []


# -- the map


def floors(layers: str, prefix: str) -> list[set[str]]:
    """Return the rooms of each floor of an import contract, the highest first, by their names below ``prefix``."""
    rows = [re.findall(r"[\w.]+", row) for row in layers.strip().splitlines()]
    return [{name.removeprefix("streamlet.").removeprefix(prefix) for name in row} for row in rows]


def drawn(column: int, text: str) -> list[set[str]]:
    """Return the rooms of each floor in a column of the drawing, the highest first; their numbers must go down to 1."""
    cells = [cell for line in text.splitlines() for cell in re.finditer(r"(\d+) \| (\w+(?:[.,]? ?\w+)*)", line)]
    found = [(int(cell[1]), set(cell[2].split(", "))) for cell in cells if (cell.start() > 20) == bool(column)]
    assert [number for number, _ in found] == list(range(len(found), 0, -1))
    return [rooms for _, rooms in found]


def test_the_map_has_the_floors_of_the_import_contracts() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / "setup.cfg")
    towers, within = PAGE.split("```")[1].split("Within runtime")
    for text, column, contract, prefix in (
        (towers, 0, "storm-layers", ""),
        (towers, 1, "kafka-layers", "kafka."),
        (within, 0, "runtime-rooms", "runtime."),
    ):
        layers = contracts[f"importlinter:contract:{contract}"]["layers"]
        assert drawn(column, text) == floors(layers, prefix), contract


def imports() -> dict[str, set[str]]:
    """Return the modules that each module imports, wherever the import stands in it."""
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
    found: dict[str, set[str]] = {}
    for name, path in named.items():
        wanted = set()
        for node in ast.walk(ast.parse(SOURCES[path])):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {one if one in named else node.module for one in inner}
        found[name] = (wanted & named.keys()) - {name}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither through imports inside a function nor through those for types alone."""
    left = imports()
    assert len(left) > 200
    while free := [name for name, wanted in left.items() if not wanted & left.keys()]:
        for name in free:
            del left[name]
    assert not left, "each of these imports another of them, or what is in a circle"


# -- the figures


def figure(row: str) -> float:
    """Return what the page says of now in a row of its figures."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {row} |"))
    return float(line.split("|")[3].replace(",", "").replace("%", ""))


def test_the_figures_of_the_page_are_about_right() -> None:
    """Files and lines to a twentieth, comments to a third of a percent; never fewer comments than 2.5 %."""
    lines = [line for source in SOURCES.values() for line in source.splitlines()]
    comments = 100 * sum(line.lstrip().startswith("#") for line in lines) / len(lines)
    assert abs(figure("files") - len(SOURCES)) <= len(SOURCES) / 20
    assert abs(figure("lines") - len(lines)) <= len(lines) / 20
    assert abs(figure("lines that are comments") - comments) <= 0.34
    assert comments >= 2.5


EQUAL_LINES = 6


def bare(source: str) -> list[str]:
    """Return a program's lines without indentation, imports, docstrings and blank ones."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt) and node.end_lineno is not None
            left_out.update(range(node.lineno, node.end_lineno + 1))
    return [line.strip() for n, line in enumerate(source.splitlines(), 1) if line.strip() and n not in left_out]


def alike(sources: dict[Path, str]) -> list[tuple[Path, Path, str]]:
    """Return each pair of places that share six lines or more, with the first line; a longer piece counts once."""
    lines = {path: bare(source) for path, source in sources.items()}
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, own in lines.items():
        for at in range(len(own) - EQUAL_LINES + 1):
            places[tuple(own[at : at + EQUAL_LINES])].append((path, at))
    return [
        (one, other, begin[0])
        for begin, found in places.items()
        for (one, at), (other, there) in combinations(found, 2)
        if (one != other or abs(at - there) >= EQUAL_LINES)
        and not (at and there and lines[one][at - 1] == lines[other][there - 1])
    ]


def test_pairs_of_six_equal_lines_are_no_more_than_the_page_says() -> None:
    tests = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    for what, sources in (("package", SOURCES), ("tests", tests)):
        pairs = alike(sources)
        said = figure(f"pairs of places that share six lines or more, {what}")
        assert len(pairs) <= said, "write it once, or give the reason beside it and on the page:\n" + "\n".join(
            f"{one.relative_to(ROOT)} and {other.relative_to(ROOT)}: {begin}" for one, other, begin in pairs
        )
