"""Names of a package whose modules are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loads_on_demand(package: str, modules: Mapping[str, str], otherwise: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``: it loads a name's module when the name is first used.

    ``modules``: name -> module below the package. ``otherwise`` is asked for all other names.
    """

    def load(name: str) -> Any:
        if name not in modules:
            return otherwise(name)
        found = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, found)  # the next use asks nobody
        return found

    return load
