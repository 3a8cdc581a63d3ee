"""``streamlet pack``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamlet.backends.spark import packing
from streamlet.base.errors import BadInput
from streamlet.cli.pack import pack
from tests.wheels import wheel


@pytest.fixture(autouse=True)
def in_a_folder_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "COMPILED", ())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.chdir(tmp_path)


def test_what_the_file_and_the_options_name_is_packed_and_the_next_command_told(tmp_path: Path) -> None:
    Path("top.py").write_text(f"# /// script\n# dependencies = {json.dumps([str(wheel(tmp_path))])}\n# ///\n")
    done = CliRunner().invoke(pack, ["top.py", "-o", "out.tar.gz", "--requirement", str(wheel(tmp_path, "more"))])
    assert done.exit_code == 0, done.output
    assert "  more 1.5\n  tiny 1.5\nout.tar.gz (2 packages, " in done.output
    assert "streamlet run top.py --spark URL --archive out.tar.gz" in done.output


def test_a_file_of_requirements_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match=r"no file numpy: -r names a file of requirements, --requirement a package"):
        CliRunner().invoke(pack, ["-r", "numpy"], catch_exceptions=False)
