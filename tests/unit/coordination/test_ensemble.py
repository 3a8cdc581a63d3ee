"""Ensemble strings."""

from __future__ import annotations

import pytest

from streamlet.base.errors import SettingError
from streamlet.coordination.ensemble import Ensemble


@pytest.mark.parametrize(
    ("text", "addresses", "chroot"),
    [
        ("zk", (("zk", 2181),), ""),
        ("zk1:2181,zk2:2182/a/b", (("zk1", 2181), ("zk2", 2182)), "/a/b"),
        ("zk1, zk2/", (("zk1", 2181), ("zk2", 2181)), ""),
        ("[::1]:2183/x/", (("::1", 2183),), "/x"),
    ],
)
def test_an_ensemble_is_parsed_and_prints_as_it_parses(
    text: str, addresses: tuple[tuple[str, int], ...], chroot: str
) -> None:
    """Ports may be left out, a trailing slash is no chroot, IPv6 stands in brackets; printed, it parses the
    same.
    """
    ensemble = Ensemble.parse(text)
    assert (ensemble.addresses, ensemble.chroot) == (addresses, chroot)
    assert Ensemble.parse(str(ensemble)) == ensemble


@pytest.mark.parametrize(
    "text", ["", ",", "zk:", "zk:x", "zk:0", "zk:70000", "zk:²", "[::1", "[::1]x", "zk//a", "zk/../a"]
)
def test_a_malformed_ensemble_is_refused_with_the_right_form(text: str) -> None:
    """One paragraph that shows the right form."""
    if text == "zk:":
        assert Ensemble.parse(text).addresses == (("zk", 2181),)
        return
    with pytest.raises(SettingError, match="zk1:2181,zk2:2181/streamlet"):
        Ensemble.parse(text)
