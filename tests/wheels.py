"""Wheels that are made on the spot: pip installs them without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str = "tiny") -> Path:
    """A wheel of one module."""
    path, record = folder / f"{name}-1.5-py3-none-any.whl", f"{name}-1.5.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{name}/__init__.py", "answer = 42\n")
        made.writestr(f"{record}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        made.writestr(f"{record}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{record}/RECORD", "")
    return path
