"""What a user may write for a host."""

from __future__ import annotations

import pytest

from streamlet.base.host_names import can_be_host


@pytest.mark.parametrize("host", ["h", "h_1", "h-1.example.org", "bücher", "10.0.0.1", "::1", "fe80::1%eth0"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    assert can_be_host(host)


@pytest.mark.parametrize("host", ["", "a b", "a;b", "a,b", "a/b", "a@b", "a\n", "h\0", "a" * 64, "a..b", '"a"'])
def test_what_no_resolver_takes_is_no_host(host: str) -> None:
    assert not can_be_host(host)
