"""Tells whether a text can be the name or the number of a host."""

from __future__ import annotations

import re

_HOST = re.compile(r"[\w.:%-]+")
"""Letters of any script, digits, and what IPv6 and its zones have. Underscores: the names of Docker's networks."""


def can_be_host(host: str) -> bool:
    """Tell whether a resolver can be asked for a host."""
    # Rule: one check for every address that a user writes. "h1;h2" was a host for one parser and none for another, and
    # a resolver that does not know it sounds like a server that is away.
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return _HOST.fullmatch(host) is not None
