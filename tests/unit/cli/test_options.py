"""``-c`` and ``--config``: precedence, tables, and what belongs to a component."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlet import Spout, Topology
from streamlet.base.errors import SettingError
from streamlet.cli.options import client_settings_in_file, given_in_file, given_on_line
from streamlet.model.validate import InvalidTopology
from streamlet.running import make_request, split_settings


class Tunable(Spout):
    outputs = ["line"]

    def next_tuple(self) -> None: ...

    @classmethod
    def override_keys(cls) -> frozenset[str]:
        return frozenset({"topic", "fetch_size_bytes", "stop_offset"})

    @classmethod
    def topology_keys(cls) -> frozenset[str]:
        return frozenset({"scheme"})


class Made(Topology):
    config = {"my.table": {"a": 1}, "lines.of.mine": 3}
    lines = Tunable.spec()


SPEC = Made.__topology__


def test_a_later_one_wins() -> None:
    given = given_on_line(("topology.max.spout.pending=5", "topology.max.spout.pending=6"))
    assert split_settings(SPEC, given)[0] == {"topology.max.spout.pending": 6}


def test_values_may_hold_equals_signs() -> None:
    assert given_on_line(("lines.topic=a=b",)) == [("lines.topic", "a=b", "-c")]


def test_component_settings_are_told_from_the_runs() -> None:
    """A key of the topology's own wins over a component of that name: it says exactly that key."""
    settings, overrides, _ = split_settings(
        SPEC, given_on_line(("lines.topic=x", "lines.of.mine=4", "topology.workers=2"))
    )
    assert settings == {"lines.of.mine": "4", "topology.workers": 2}
    assert overrides == {"lines": {"topic": "x"}}


def test_tables_of_a_file_are_joined_by_dots(tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text('topology.max.spout.pending = 5\n[lines]\ntopic = "x"\n[my.table]\na = 2\n')
    settings, overrides, _ = split_settings(SPEC, given_in_file(toml, SPEC))
    assert settings == {"topology.max.spout.pending": 5, "my.table": {"a": 2}}
    assert overrides == {"lines": {"topic": "x"}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table.toml", '[lines]\nstop_offset = {0 = 20, "1" = "latest"}\nscheme.a = 1\n'),
        ("dots.toml", 'lines.stop_offset.0 = 20\nlines.stop_offset.1 = "latest"\nlines.scheme = {a = 1}\n'),
        ("s.json", '{"lines": {"stop_offset": {"0": 20, "1": "latest"}, "scheme": {"a": 1}}}'),
        ("dots.json", '{"lines.stop_offset": {"0": 20, "1": "latest"}, "lines.scheme": {"a": 1}}'),
    ],
)
def test_a_table_that_a_components_setting_has_as_its_value_stays_whole(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    overrides = split_settings(SPEC, given_in_file(tmp_path / name, SPEC))[1]
    assert overrides == {"lines": {"stop_offset": {"0": 20, "1": "latest"}, "scheme": {"a": 1}}}


def test_of_a_setting_that_the_topology_alone_can_set_that_is_said() -> None:
    with pytest.raises(InvalidTopology, match=r"'scheme' can be set in the topology alone") as caught:
        make_request(SPEC, [("lines.scheme", "x", "-c")], backend="inline")
    assert "Did you mean" not in caught.value.message


def test_settings_may_stand_in_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"topology": {"max": {"spout": {"pending": 5}}}, "topology.workers": 3}')
    assert split_settings(SPEC, given_in_file(path, SPEC))[0] == {
        "topology.max.spout.pending": 5,
        "topology.workers": 3,
    }


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("line.topic", "lines.topic"),
        ("lnes.fetch_size_bytes", "lines.fetch_size_bytes"),
        ("topology.workres", "topology.workers"),
        ("my.tble", "my.table"),
    ],
)
def test_a_wrong_name_of_any_kind_gets_the_nearest_right_one(key: str, near: str) -> None:
    """Settings, keys of the topology's own and components' settings are all candidates."""
    with pytest.raises(SettingError, match=f"Did you mean '{near}'"):
        make_request(SPEC, [(key, "1", "-c")], backend="inline")


@pytest.mark.parametrize("key", ["lines.sasl_plain_password", "sasl_plain_password", "lines.ssl_password"])
@pytest.mark.parametrize("source", ["-c", "mine.toml"])
def test_a_password_is_told_where_it_goes(key: str, source: str) -> None:
    """No other setting is meant, and what was given is not said again."""
    with pytest.raises(
        SettingError, match=f"^{key} given by {source} is not taken: .*streamlet docs security"
    ) as caught:
        make_request(SPEC, [(key, "geheim", source)], backend="inline")
    assert "geheim" not in caught.value.message and "Did you mean" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("deep.toml", "a = " + "[" * 100_000 + "]" * 100_000),
        ("wide.toml", ".".join("a" * 5000) + " = 1"),
    ],
)
def test_a_file_that_nests_too_deeply_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    for read in (lambda path: given_in_file(path, SPEC), client_settings_in_file):
        with pytest.raises(SettingError, match=f"{name} nests its tables too deeply"):
            read(tmp_path / name)


def test_who_gave_a_bad_value_is_named(tmp_path: Path) -> None:
    given: list[tuple[str, Any, str]] = [("topology.debug", "perhaps", "settings.toml")]
    with pytest.raises(SettingError, match=r"given by settings\.toml"):
        make_request(SPEC, given, backend="inline")


def test_all_wrong_settings_are_named_at_once() -> None:
    pairs = ("topology.max.spout.pendng=3", "topology.workers=many", "lines.topc=x")
    with pytest.raises(SettingError) as caught:
        make_request(SPEC, given_on_line(pairs), backend="inline")
    said = caught.value.message
    assert all(one in said for one in ("topology.max.spout.pendng", "'many'", "topc"))


def test_a_table_of_a_setting_stays_whole(tmp_path: Path) -> None:
    """Its rows are the user's names, and no settings."""
    path = tmp_path / "settings.toml"
    path.write_text('[topology.environment]\nHOME_TOWN = "Bern"\n[streamlet.shared]\n"model.v2" = "m.bin"\n')
    given = {key: value for key, value, _ in given_in_file(path, SPEC)}
    assert given == {"topology.environment": {"HOME_TOWN": "Bern"}, "streamlet.shared": {"model.v2": "m.bin"}}


def test_an_empty_table_in_place_of_a_settings_value_is_refused(tmp_path: Path) -> None:
    """It was no setting, so the run had no log file and nobody said so. A section of comments is none either."""
    path = tmp_path / "settings.toml"
    path.write_text('["streamlet.log.file"]\n[topology]\n# workers = 3\n')
    with pytest.raises(SettingError, match=r"'streamlet.log.file' given by .*settings.toml cannot be \{\}") as caught:
        make_request(SPEC, given_in_file(path, SPEC), backend="inline")
    assert "topology" not in caught.value.message.replace("topology.", "")
