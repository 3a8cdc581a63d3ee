"""What ``tests/topologies/reads_shared.py`` reads."""

from __future__ import annotations

from pathlib import Path


def shared_files(folder: Path) -> dict[str, Path]:
    """Write a file and a folder; name -> path, as the setting takes it."""
    (folder / "numbers.json").write_text('{"one": 1, "two": 2}')
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "data" / "deep" / "note.txt").write_text("read")
    return {"numbers": folder / "numbers.json", "folder": folder / "data"}
