"""``streamlet docs``: the pages of the documentation, which the package brings along, in a terminal."""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

import click

from streamlet.base.errors import BadInput

KINDS = {
    "guide": "To learn",
    "reference": "To look something up",
    "internals": "To change the code",
    "evidence": "Behind the promises",
}
"""A folder of pages, in the order of the list, and its heading there."""

_WIDEST = 100
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """One page: its name on the command line, its folder, and its file."""

    name: str
    kind: str
    file: Traversable

    @cached_property
    def text(self) -> str:
        """Return the Markdown without comments, links as ``streamlet docs`` takes them."""
        text = re.sub(r"^<!--.*?-->\n", "", self.file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        return _LINK.sub(lambda link: f"[{link[1]}]({_asked_for(link[2], self)})", text)

    @property
    def title(self) -> str:
        """Its first heading."""
        return self.text.partition("\n")[0].lstrip("# ")

    def section(self, anchor: str) -> str | None:
        """Return the part of an anchor, from its heading on; None if there is none."""
        lines = self.text.split("\n")
        ranks = _ranks(self.text)
        for at, line in enumerate(lines):
            if anchor in _ANCHOR.findall(line) or (ranks[at] and _made(line) == anchor):
                begin = next((up for up in range(at, -1, -1) if ranks[up]), 0)
                if not ranks[at] and ranks[min(at + 1, len(lines) - 1)]:
                    begin = at + 1  # an anchor in the line above its heading
                rank = ranks[begin] or 1
                rest = range(begin + 1, len(lines))
                end = next((down for down in rest if ranks[down] and ranks[down] <= rank), len(lines))
                return "\n".join(lines[begin:end]).rstrip() + "\n"
        return None

    def anchors(self) -> list[str]:
        """Return the anchors that may follow its name after a ``#``."""
        ranks = _ranks(self.text)
        headings = [_made(line) for line, rank in zip(self.text.split("\n"), ranks, strict=True) if rank]
        return [*headings, *_ANCHOR.findall(self.text)]


def pages() -> dict[str, Page]:
    """Return every page by its name, in the order of the list."""
    root = files("streamlet") / "docs"
    contents = (root / "README.md").read_text(encoding="utf-8")  # lists them in the order in which to read them
    found = {"design": Page("design", "internals", root / "design.md")}
    for kind in KINDS:
        places = {file: contents.find(f"({kind}/{file.name})") % len(contents) for file in (root / kind).iterdir()}
        for file in sorted(places, key=lambda each: (places[each], each.name)):
            if file.name.endswith(".md"):
                name = kind if file.name == "README.md" else file.name.removesuffix(".md")
                found[name] = Page(name, kind, file)
    return found


def _complete(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    return [name for name in pages() if name.startswith(begun)]


@click.command()
@click.argument("page", required=False, shell_complete=_complete)
def docs(page: str | None) -> None:
    """Show a page of the documentation, or the list of pages. PAGE#ANCHOR shows one section."""
    known = pages()
    if page is None:
        click.echo(_listed(known))
        return
    name, _, anchor = page.partition("#")
    found = known.get(name.rpartition("/")[2].removesuffix(".md").lower() or "")
    if found is None:
        near = _near(name, list(known))
        raise BadInput(" ".join(filter(None, [f"There is no page {name!r}.", near, "`streamlet docs` lists them."])))
    text = found.section(anchor) if anchor else found.text
    if text is None:
        raise BadInput(f"Page {found.name} has no section {anchor!r}. {_near(anchor, found.anchors())}".rstrip())
    _show(text)


def _listed(known: dict[str, Page]) -> str:
    width = max(map(len, known))
    lines = []
    for kind, heading in KINDS.items():
        lines.append(f"{heading}:")
        lines += [f"  {page.name:{width}}  {page.title}" for page in known.values() if page.kind == kind]
    return "\n".join([*lines, "", "streamlet docs PAGE shows one; PAGE#ANCHOR one section of it."])


def _near(wrong: str, known: list[str]) -> str:
    near = difflib.get_close_matches(wrong, known, n=1) or [name for name in known if wrong and wrong.lower() in name]
    return f"Did you mean {near[0]!r}?" if near else ""


def _asked_for(target: str, page: Page) -> str:
    """Return a link's target; for another page, what ``streamlet docs`` takes."""
    file, hashed, anchor = target.partition("#")
    if "://" in target or not (file.endswith(".md") or not file):
        return target
    name = file.rpartition("/")[2].removesuffix(".md") or page.name
    if name == "README":
        name = next((kind for kind in KINDS if kind in file), page.kind if "/" not in file else "README")
    return f"{name}{hashed}{anchor}"


def _ranks(text: str) -> list[int]:
    """Return for each line the rank of its heading, or 0. A sign in a block of code makes none."""
    # A `#` in a block of code begins a comment there and not a section.
    bare = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    return [len(line) - len(line.lstrip("#")) if re.match(r"#+ ", line) else 0 for line in bare.split("\n")]


def _made(heading: str) -> str:
    """Return the anchor that a heading makes."""
    words = _ANCHOR.sub("", heading).lstrip("#").strip().lower()
    return re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")


def _show(text: str) -> None:
    """Print text: formatted and in pages in a terminal, else plain."""
    text = _ANCHOR.sub("", text)
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    columns, height = shutil.get_terminal_size()
    console = Console(width=min(columns, _WIDEST), force_terminal=True)
    with console.capture() as captured:
        console.print(Markdown(text, hyperlinks=False))
    shown = captured.get()
    if shown.count("\n") < height:
        click.echo(shown, nl=False)
    else:
        click.echo_via_pager(shown)
