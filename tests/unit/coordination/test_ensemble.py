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


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("zk1:2181/streamlet,zk2:2181/streamlet", "zk1:2181,zk2:2181/streamlet"),
        ("zk1/a/b, zk2:2182", "zk1,zk2:2182/a/b"),
        ("zk1:2181/a,[::1]:2181/a/", "zk1:2181,[::1]:2181/a"),
        ("zk1:2181/streamlet,", "zk1:2181/streamlet"),
        ("zk1;zk2", "zk1,zk2"),
        ("zk1:2181;zk2:2181/a", "zk1:2181,zk2:2181/a"),
        ("zk1 zk2:2182", "zk1,zk2:2182"),
    ],
)
def test_a_path_behind_each_server_and_other_separators_are_refused_with_what_was_meant(text: str, meant: str) -> None:
    """All from the first slash on was one path, through one server, and stored offsets were not found there."""
    with pytest.raises(SettingError) as caught:
        Ensemble.parse(text)
    assert str(caught.value).endswith(f"Probably this is meant: {meant}")
    assert ("the path is written once, after the last server" in str(caught.value)) == ("," in text.partition("/")[2])
    assert str(Ensemble.parse(meant)).endswith(meant.partition("/")[2])


def test_two_paths_behind_two_servers_are_refused_without_a_guess() -> None:
    with pytest.raises(SettingError, match="the path is written once") as caught:
        Ensemble.parse("zk1:2181/a,zk2:2181/b")
    assert "Probably" not in str(caught.value)


@pytest.mark.parametrize("host", ["zk_1", "zk-1.example.org", "bücher", "10.0.0.1", "[fe80::1%eth0]"])
def test_what_a_resolver_may_know_is_a_host(host: str) -> None:
    assert str(Ensemble.parse(f"{host}:2181/a")) == f"{host}:2181/a"
