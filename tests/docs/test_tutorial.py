"""The pages that need a real Kafka, from their first command to their last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Sandbox, needs

pytestmark = [pytest.mark.real, pytest.mark.faults, pytest.mark.timeout(1800)]


def page(name: str) -> object:
    """A page as a parameter, with the marks of what it needs."""
    path = ROOT / name
    return pytest.param(path, id=name, marks=[pytest.mark.spark] if "spark" in needs(path) else [])


@pytest.mark.parametrize("page", [page(str(path.relative_to(ROOT))) for path in PAGES if needs(path)])
def test_every_block_of_the_tutorial_runs(page: Path, sandbox: Sandbox) -> None:
    """In a clean home: the cluster, the counts that are shown, a kill in the middle; at the end nothing is up."""
    sandbox.run_page(page)
    state = Path(sandbox.environment["XDG_STATE_HOME"]) / "streamlet" / "dev"
    own = "DevCluster(" in page.read_text(encoding="utf-8")  # it stops a broker, so it starts its own
    assert sandbox.addresses or own, "the page never started a cluster"
    assert not (state / "state.json").exists(), "the page left its cluster up"
