"""The reference page says what the code says: commands, options, settings, groupings, methods."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from streamlet import Bolt, Grouping, ReliableSpout, Spout, TopologyContext
from streamlet.backends.contract import RunResult, RunStatus
from streamlet.base import errors
from streamlet.base.backoff import Backoff
from streamlet.bolts.kafka import KafkaBolt
from streamlet.cli import show
from streamlet.cli.main import COMMANDS, streamlet
from streamlet.cli.metrics_file import _Families
from streamlet.devcluster.jars import RELEASES
from streamlet.model.grouping import KINDS
from streamlet.model.settings import SETTINGS
from streamlet.spouts.kafka import KafkaHosts, SpoutConfig
from streamlet.spouts.kafka.schemes import scheme
from tests.docs.pages import ROOT
from tests.scripted.cli.test_check import COPY

PAGE = (ROOT / "docs" / "reference" / "reference.md").read_text(encoding="utf-8")


GROUPS = {"dev", "dlq", "offsets", "runs"}


def section(title: str) -> str:
    """What stands under a heading, up to the next of the same or a higher rank."""
    rank = title.split(" ", 1)[0]
    body = PAGE.split(f"\n{title}\n", 1)[1]
    return re.split(rf"\n#{{1,{len(rank)}}} ", body, maxsplit=1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of its tables, without headings and rules."""
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return [cells for at, cells in enumerate(lines) if not cells[0].startswith("---") and not _is_rule(lines, at + 1)]


def _is_rule(lines: list[list[str]], at: int) -> bool:
    return at < len(lines) and lines[at][0].startswith("---")


def options(command: click.Command) -> set[str]:
    return {
        option.opts[-1] for option in command.params if isinstance(option, click.Option) and option.opts != ["--help"]
    }


def own_commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(streamlet)
    for name in COMMANDS:
        command = streamlet.get_command(context, name)
        assert command is not None
        yield name, command


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in GROUPS])
def test_a_command_has_exactly_the_options_of_its_table(name: str) -> None:
    title = next(line for line in PAGE.splitlines() if line.startswith(f"### streamlet {name} "))
    written = {cells[0].strip("`") for cells in rows(section(title))}
    assert written == options(dict(own_commands())[name])


def test_dev_has_exactly_the_commands_and_options_of_its_table() -> None:
    dev = dict(own_commands())["dev"]
    assert isinstance(dev, click.Group)
    there = {f"{name} {option}" for name, command in dev.commands.items() for option in options(command)}
    written = [cells[0].strip("`").split() for cells in rows(section("### streamlet dev"))]
    assert {" ".join(words) for words in written if words[-1].startswith("--")} == there
    assert {words[0] for words in written} == set(dev.commands)


@pytest.mark.parametrize("name", ["offsets", "dlq", "runs"])
def test_a_group_has_exactly_the_commands_and_options_of_its_tables(name: str) -> None:
    """Its second table has the options, each with the commands that take it."""
    group = dict(own_commands())[name]
    assert isinstance(group, click.Group)
    there = {(name, option) for name, command in group.commands.items() for option in options(command)}
    text = section(f"### streamlet {name}")
    commands, taken = text.split("| option | of | meaning |")
    assert {cells[0].strip("`").split()[0] for cells in rows(commands)} == set(group.commands)
    written: set[tuple[str, str]] = set()
    for option, of, _ in rows("|" + taken):
        names = set(group.commands) if of == "all" else set(re.findall(r"`(\w+)`", of))
        written |= {(name, option.strip("`")) for name in names}
    assert written == there


def test_the_page_lists_every_exit_status() -> None:
    written = {int(cells[0]) for cells in rows(section("## Exit statuses"))}
    assert written == {0, errors.EXIT_FAILED, errors.BAD_INPUT, errors.INTERRUPTED, 129, 143}


def test_the_page_lists_every_setting_with_default_and_meaning() -> None:
    def shown(value: Any) -> str:
        if value is None:
            return "none"
        return str(value).lower() if isinstance(value, bool | str) else f"{value:.12g}"

    written = [tuple(cells) for cells in rows(section("## Settings"))]
    assert written == [(f"`{s.key}`", shown(s.default), s.meaning) for s in SETTINGS.values()]


def test_the_page_lists_every_spout_setting_with_its_default() -> None:
    def shown(field: dataclasses.Field[Any]) -> str:
        if field.default is not dataclasses.MISSING:
            return f"`{field.default!r}`"
        factory = field.default_factory
        return "required" if factory is dataclasses.MISSING else f"`{factory.__name__}()`"  # type: ignore[attr-defined]

    written = [(cells[0], cells[1]) for cells in rows(section("## SpoutConfig").split("### Schemes")[0])]
    # The page has the spout's own first; for the dataclass the inherited ones are.
    there = sorted(
        dataclasses.fields(SpoutConfig), key=lambda field: field.name not in vars(SpoutConfig)["__annotations__"]
    )
    assert written == [(f"`{field.name}`", shown(field)) for field in there]


def test_the_page_lists_every_argument_of_a_kafka_bolt() -> None:
    written = {name for cells in rows(section("## KafkaBolt")) for name in re.findall(r"`(\w+)`", cells[0])}
    parameters = inspect.signature(KafkaBolt.spec).parameters.values()
    own = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    assert written == own | {"key_serializer", "value_serializer", "max_block_ms"}


def test_the_page_lists_every_scheme_with_its_fields() -> None:
    written = {cells[0].strip("`"): re.findall(r"`(\w+)`", cells[1]) for cells in rows(section("### Schemes"))}
    there = {
        name: list(cls.outputs)
        for name, cls in vars(scheme).items()
        if hasattr(cls, "deserialize_columns") and hasattr(cls, "outputs") and not getattr(cls, "_is_protocol", False)
    }
    assert written == there


def test_the_readme_names_the_kafkas_that_are_tested() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(release.kafka in text for release in RELEASES.values())


def test_the_page_lists_every_grouping() -> None:
    written = {eval(cells[0].strip("`"), {"Grouping": Grouping}).kind for cells in rows(section("## Groupings"))}
    assert written == KINDS


@pytest.mark.parametrize("cls", [Bolt, Spout])
def test_the_page_lists_every_method_a_component_may_override(cls: type) -> None:
    """Every name of the tables is there, and every public method of the class is on the page."""
    text = section("## What a component may override")
    tables = text.split("| method of a spout")
    names = set(
        re.findall(
            r"`(\w+)(?:\(|`)", "\n".join(" ".join(c[:1]) for c in rows(tables[0] if cls is Bolt else "|" + tables[1]))
        )
    )
    assert names and all(hasattr(cls, name) for name in names), names
    bound = {
        "emit",
        "emit_many",
        "emit_columns",
        "emit_each",
        "room",
        "as_last_try",
        "ack",
        "fail",
        "dead_letter",
        "log",
        "report_metric",
        "raise_exception",
    }
    inner = {
        "bind",
        "bind_context",
        "spec",
        "override_keys",
        "topology_keys",
        "with_overrides",
        "is_tick",
        "is_heartbeat",
        "takes_batches",
        "most_unacked",
        "exactly_once_problems",
    }
    public = {name for name, member in inspect.getmembers(cls, callable) if not name.startswith("_")}
    assert public - bound - inner <= names | {"cleanup"}


def test_the_page_lists_what_a_reliable_spout_and_the_context_offer() -> None:
    text = section("## What a component may override")
    for name in ("max_fails", "replay_backoff", "given_up"):
        assert hasattr(ReliableSpout, name) and f"`{name}" in text
    for field in dataclasses.fields(TopologyContext):
        assert f"`{field.name}`" in text or f"`{field.name}(" in text, field.name


def test_json_answers_have_exactly_the_keys_that_are_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of a check, whether valid or not, and of a run, whether it ended well or failed."""
    readings = ROOT / "topologies" / "readings.py"
    seen = set()
    copy = tmp_path / "copied.py"
    copy.write_text(COPY)
    exactly_once = ("-c", "topology.delivery=exactly-once")
    for target, more, status in ((readings, (), 0), ("nowhere.py", (), 2), (copy, exactly_once, 0)):
        with pytest.raises(SystemExit) as ended:
            streamlet.main(["check", str(target), "--json", *more], standalone_mode=False)
        assert ended.value.code == status
        seen |= json.loads(capsys.readouterr().out).keys()
    title = next(line for line in PAGE.splitlines() if line.startswith("### streamlet check "))
    (meaning,) = [cells[1] for cells in rows(section(title)) if cells[0] == "`--json`"]
    assert seen == set(re.findall(r"`(\w+)`", meaning)) - {"component", "message", "remedy"}

    view = show.JsonView()
    view.finish(RunResult("caught_up", RunStatus("ended", 1.0), True))
    show.JsonView().failed(errors.StreamletError("oh"), 1)
    told = [json.loads(line).keys() for line in capsys.readouterr().out.splitlines()]
    written = re.findall(r"`(\w+)`", " ".join(cells[0] for cells in rows(section("## The result of a run"))))
    assert set().union(*told) == set(written)


GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


def test_the_glossary_is_in_order_and_each_page_it_names_uses_the_word() -> None:
    table = rows(GLOSSARY.read_text(encoding="utf-8"))
    words = [cells[0] for cells in table]
    assert words == sorted(words) and len(words) > 50
    for word, meaning, links in table:
        pages = re.findall(r"\]\(([^)#]+)", links)
        assert meaning and pages, word
        term = word.partition(" (")[0].replace("-", "[- ]?")
        for page in pages:
            text = (GLOSSARY.parent / page).read_text(encoding="utf-8")
            assert re.search(rf"\b{term}", text, re.IGNORECASE), f"{page} does not speak of {word}"


def test_every_series_of_the_metrics_file_is_on_the_page_with_its_labels() -> None:
    found = {
        f"`{each.name}{'_total' * (each.type == 'counter')}`": [f"`{label}`" for label in each._labelnames[1:]] or ["-"]
        for each in _Families("T", RunStatus("running", 1.0)).collect()
    }
    told = {name: labels.split(", ") for name, labels, _ in rows(section("## The metrics file"))}
    assert told == found


def test_a_failed_record_is_tried_for_as_long_as_the_guide_says() -> None:
    """20 pauses, without the chance in them."""
    config = SpoutConfig(KafkaHosts("b:9092"), "t", id="i")
    retries = Backoff(
        config.retry_initial_delay_ms / 1e3, config.retry_delay_max_ms / 1e3, config.retry_delay_multiplier, 0.0
    )
    seconds = sum(retries.delay(fails, lambda: 0.5) for fails in range(1, config.retry_limit + 1))
    assert (config.retry_limit, seconds // 10) == (20, 14)
