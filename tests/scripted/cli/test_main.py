"""The group of commands: fast to start, quiet, and out of the way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streamlet.cli.main import COMMANDS


def test_help_names_every_command(streamlet) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        done = streamlet(*arguments)
        assert done.returncode == 0 and all(name in done.stdout for name in COMMANDS)


def test_each_command_has_help_and_is_where_the_table_says(streamlet) -> None:
    for name, (_, line) in COMMANDS.items():
        done = streamlet(name, "--help")
        assert done.returncode == 0 and f"streamlet {name}" in done.stdout and line


@pytest.mark.parametrize("group", ["dev", "dlq", "offsets"])
def test_a_group_without_a_command_shows_its_help_and_is_no_error(streamlet, group: str) -> None:
    done = streamlet(group)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(f"Usage: streamlet {group} ")


def test_the_version_is_printed(streamlet) -> None:
    assert streamlet("--version").stdout.startswith("streamlet ")


def test_help_imports_nothing_heavy() -> None:
    """`streamlet --help` must be there at once: no runtime, no Kafka, no rich, no Spark."""
    code = (
        "import sys\nfrom streamlet.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'rich', 'kazoo', 'msgpack', 'pyspark', 'streamlet.runtime', 'streamlet.kafka'}\n"
        "heavy |= {'streamlet.devcluster'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_a_reader_that_goes_away_is_no_error(streamlet) -> None:
    """`streamlet check --settings | head -1` ends without a word."""
    process = streamlet.start("check", "--settings")
    process.stdout.close()
    process.wait(60)
    assert process.stderr.read() == ""


def test_a_shell_completes_commands() -> None:
    environment = {
        **os.environ,
        "_STREAMLET_COMPLETE": "bash_complete",
        "COMP_WORDS": "streamlet ru",
        "COMP_CWORD": "1",
    }
    command = [sys.executable, "-P", "-m", "streamlet"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "plain,run\nplain,runs\n"
