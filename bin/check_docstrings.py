"""Check the English of docstrings that ruff cannot: length, banned phrases, names repeated. Exit status 1 if any fails.

Usage: python bin/check_docstrings.py [PATH ...] (default: streamlet). CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 12
BANNED = re.compile(
    r"\b(what (is|are|was|were|has|have|can|may|must|became|becomes)|(of|to|in|from|for|by|with) (which|whom)|whoever"
    r"|(it|he|she|who|that|one) is told|is (told|said) (of|what|when|why|anew)|or (it|they) would|lest|in vain"
    r"|heed(s|ed)?|unto|thereof|therein|herein|is no [a-z]+$|such as have|no more than that)\b",
    re.IGNORECASE,
)
SMALL = {
    "a",
    "an",
    "the",
    "of",
    "to",
    "its",
    "this",
    "for",
    "in",
    "on",
    "and",
    "or",
    "is",
    "are",
    "one",
    "all",
    "by",
    "that",
}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[int, str, str, bool]]:
    """Yield line, name, docstring and whether it is a function's, for each docstring and attribute docstring."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield body[0].lineno, getattr(node, "name", ""), text, function
        for before, after in itertools.pairwise(body):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                value = after.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield after.lineno, "", value.value, False


def faults(name: str, text: str, function: bool) -> Iterator[str]:
    """Yield one sentence for each rule that a docstring breaks."""
    first = re.split(r"(?<=[.:;?!])\s|\n\n", text.strip(), maxsplit=1)[0]
    if name and len(first.split()) > MOST_WORDS:
        yield f"the first sentence has {len(first.split())} words, {MOST_WORDS} at most"
    if found := BANNED.search(text):
        yield f"say it plainly, without {found[0]!r}"
    words = {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower())} - SMALL
    named = {word.rstrip("s") for word in re.findall(r"[a-z]+", re.sub(r"(?<!^)([A-Z])", r" \1", name).lower())}
    if function and words and words <= named | {"return", "yield", "whether", "it"}:
        yield "it repeats the name: say more, or nothing"


def main() -> int:
    """Print each fault with its place."""
    roots = [Path(argument) for argument in sys.argv[1:]] or [Path("streamlet"), Path("topologies")]
    wrong = 0
    for path in sorted(file for root in roots for file in (root.rglob("*.py") if root.is_dir() else [root])):
        for line, name, text, function in documented(ast.parse(path.read_text(encoding="utf-8"))):
            for fault in faults(name, text, function):
                print(f"{path}:{line}: {fault}")
                wrong += 1
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
