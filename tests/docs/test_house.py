"""The page about the house is true, and the house keeps its rules about names."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.docs.pages import ROOT

PACKAGE = ROOT / "streamlet"

LINES_OF_A_FUNCTION, LINES_OF_A_CLASS = 40, 300
"""Without signature and docstring of the function. One that is longer says why, in a comment that begins so:"""

REASON = "# Long: "

OF_TWO_PUBLIC_PACKAGES = {"Broker"}
"""Storm's name for an address in ``streamlet.spouts.kafka``, Kafka's for a node in ``streamlet.kafka``."""


def test_no_two_classes_share_a_name() -> None:
    """Private ones may: they are seen in one file only. A name for a type counts as a class."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in names:
                if name[0].isupper() and not name.isupper():
                    found[name].append(str(path.relative_to(PACKAGE)))
    assert len(found) > 500
    shared = {name: places for name, places in found.items() if len(places) > 1 and name not in OF_TWO_PUBLIC_PACKAGES}
    assert not shared, "say with a word more what tells them apart"


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
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, says in long_ones(path.read_text(encoding="utf-8"))
    ]
    assert [place for place, says in said if not says] == [], f"split it by idea, or say why in a comment: {REASON}..."
    assert len(said) < 35, "a reason that is given so often is none"


def test_a_long_function_without_a_reason_is_found() -> None:
    body = "".join(f"    x = {n}\n" for n in range(41))
    assert long_ones(f"def f():\n{body}") == [("f", False)]
    assert long_ones(f"def f():\n    # Long: written out.\n{body}") == [("f", True)]
    assert long_ones(f'def f():\n    """Do it."""\n{body[:-11]}') == []
