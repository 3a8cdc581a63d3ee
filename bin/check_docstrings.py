"""Check the English that ruff cannot: docstrings, texts of errors and logs, reasons. Exit status 1 if any fails.

Usage: python bin/check_docstrings.py [PATH ...] (default: streamlet). CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 12
"""Words before the first full stop, colon or semicolon of a docstring: what a reader takes in at one look."""

MOST_WORDS_OF_A_SENTENCE = 20

NO_VERBS = re.compile(
    "Whether|Those|Where|All|For|From|Once|How|Every|Each|Who|Why|In|Of|On|Until|Instead|Only|No|Nothing|They|Its|What"
    "|When|Everything|Defaults|Progress|One|Seconds|Milliseconds|Names"
)
"""Words that a function's docstring does not begin with: it begins with a verb in the imperative."""

UNITS = {"_S": "Seconds", "_MS": "Milliseconds"}
"""First words of the docstring of a constant, by the end of its name."""

MEASURED = re.compile("_?[A-Z][A-Z0-9_]*_(S|MS|BYTES)")
"""Names of constants that need a docstring: nobody can see what such a number of seconds or bytes is for."""

BANNED = re.compile(
    r"\b(what (is|are|was|were|has|have|can|may|must|became|becomes)|(of|to|in|from|for|by|with) (which|whom)|whoever"
    r"|(it|he|she|who|that|one) is told|is (told|said) (of|what|when|why)|or (it|they) would|lest|in vain|anew"
    r"|heed(s|ed)?|news (are|were|have|carry)|unto|thereof|therein|herein|is no [a-z]+$|such as have"
    r"|no more than that)\b",
    re.IGNORECASE,
)
BANNED_IN_TEXTS = re.compile(
    r"\b(in vain|anew|lest|whoever|heed|(?<!\bthere )(is|are|be) no(?! longer\b| more\b))\b", re.IGNORECASE
)
BANNED_IN_COMMENTS = re.compile(
    r"\b(in vain|anew|lest|whoever|heed(s|ed)?|unto|thereof|therein|herein|news (are|were|have))\b", re.IGNORECASE
)
SILENCED = re.compile(r"type: ignore(\[[\w,-]*\])?|noqa(: [A-Z0-9, ]+)?")
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
    """Yield line, name, docstring and whether it is a function's, of each docstring.

    Of an attribute's, too. A property is an attribute.
    """
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_attribute(node)
            yield body[0].lineno, getattr(node, "name", ""), text, function
        for before, after in itertools.pairwise(body):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                value = after.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    target = before.targets[0] if isinstance(before, ast.Assign) else before.target
                    name = getattr(target, "id", "")
                    yield after.lineno, name if name.isupper() else "", value.value, False


def unsaid(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and fault of each constant of seconds or bytes that no docstring follows."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, after in itertools.zip_longest(body, body[1:]) if isinstance(body, list) else ():
            if not isinstance(before, ast.Assign | ast.AnnAssign):
                continue
            target = before.targets[0] if isinstance(before, ast.Assign) else before.target
            name = getattr(target, "id", "")
            value = after.value if isinstance(after, ast.Expr) else None
            if MEASURED.fullmatch(name) and not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                yield before.lineno, f"{name}: say in a docstring below it what it measures"


def is_attribute(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function is read like an attribute."""
    names = {getattr(one, "id", getattr(one, "attr", "")) for one in node.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is not a docstring, with {} in place of values."""
    seen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):  # breadth first: an f-string comes before its parts
        if id(node) in seen:
            continue
        if isinstance(node, ast.JoinedStr):
            seen.update(map(id, node.values))
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def faults(name: str, text: str, function: bool) -> Iterator[str]:
    """Yield one sentence for each rule that a docstring breaks."""
    constant = name.isupper() and not function
    clause = re.split(r"(?<=[.:;?!])\s|\n\n", text.strip(), maxsplit=1)[0]
    sentence = re.split(r"(?<=[.?!])\s|\n\n", text.strip(), maxsplit=1)[0]
    if name and not constant and len(clause.split()) > MOST_WORDS:
        yield f"its beginning has {len(clause.split())} words, {MOST_WORDS} at most"
    elif name and not constant and len(sentence.split()) > MOST_WORDS_OF_A_SENTENCE:
        yield f"the first sentence has {len(sentence.split())} words, {MOST_WORDS_OF_A_SENTENCE} at most"
    word = re.split(r"[\s,:.]", text.strip(), maxsplit=1)[0]
    if function and (NO_VERBS.fullmatch(word) or not re.fullmatch("[A-Z][a-z]+|XOR", word)):
        yield f"it begins with {word!r}: begin with a verb in the imperative"
    unit = next((unit for end, unit in UNITS.items() if constant and name.endswith(end)), None)
    if unit and not text.strip().startswith(unit):
        yield f"it begins with {word!r}: begin with {unit!r}, and say of what"
    if found := BANNED.search(text):
        yield plainly(found[0])
    words = {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower())} - SMALL
    named = {word.rstrip("s") for word in re.findall(r"[a-z]+", re.sub(r"(?<!^)([A-Z])", r" \1", name).lower())}
    if function and words and words <= named | {"return", "yield", "whether", "it"}:
        yield "it repeats the name: say more, or nothing"


def comments(source: str) -> dict[int, str]:
    """Return the comments of a program by their lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def unexplained(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and fault of each silenced check without a reason after it or in a comment above it."""
    for line, comment in comments(source).items():
        reason = SILENCED.sub("", comment)
        above = source.splitlines()[line - 2].lstrip() if line > 1 else ""
        if reason != comment and not re.search("[a-z]", reason) and not above.startswith("# "):
            yield line, f"{comment}: say why, after it or in a comment above it"


def plainly(phrase: str) -> str:
    """Return the sentence about a banned phrase."""
    return f"say it plainly, without {phrase!r}"


def main() -> int:
    """Print each fault with its place."""
    roots = [Path(argument) for argument in sys.argv[1:]] or [Path("streamlet"), Path("topologies")]
    wrong = 0
    for path in sorted(file for root in roots for file in (root.rglob("*.py") if root.is_dir() else [root])):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        found = [(line, fault) for line, *doc in documented(tree) for fault in faults(*doc)]
        found += [(line, plainly(hit[0])) for line, text in texts(tree) if (hit := BANNED_IN_TEXTS.search(text))]
        found += [
            (line, plainly(hit[0]))
            for line, comment in comments(source).items()
            if (hit := BANNED_IN_COMMENTS.search(comment))
        ]
        found += unexplained(source)
        found += unsaid(tree)
        for line, fault in found:
            print(f"{path}:{line}: {fault}")
        wrong += len(found)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
