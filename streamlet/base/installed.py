"""Which version of a package this Python has."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys


def installed_version(package: str) -> str | None:
    """Return the version of an importable package; None where it is missing."""
    # Rule: believe a package that is imported, and no list of what was installed. spark-submit puts the pyspark of its
    # own Spark first on the path, as a zip that no installer has written down.
    if sys.modules.get(package) is None:
        if importlib.util.find_spec(package) is None:
            return None
        try:
            return importlib.metadata.version(package)  # quick: an import of pyspark takes half a second
        except importlib.metadata.PackageNotFoundError:
            pass
    return str(importlib.import_module(package).__version__)


def release(version: str) -> tuple[int, ...]:
    """Return major and minor number of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
