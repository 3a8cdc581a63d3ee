"""The page about the house is true, and the house keeps its rules about names."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.docs.pages import ROOT

PACKAGE = ROOT / "streamlet"

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
