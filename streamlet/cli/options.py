"""Settings that ``-c`` and ``--config`` give."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streamlet.base.doubled_keys import DoubledKey, each_once
from streamlet.base.errors import SettingError
from streamlet.model.settings import SETTINGS, TABLES
from streamlet.model.topology import TopologySpec
from streamlet.running import Given, own_names

LOGGING = "logging"
"""The table of a settings file that holds no settings, but what ``logging.config`` takes."""


def given_settings(path: Path | None, pairs: tuple[str, ...], topology: TopologySpec) -> Given:
    """Return what a file and the command line set; the line wins. Raises SettingError."""
    return [*(given_in_file(path, topology) if path else []), *given_on_line(pairs)]


def given_on_line(pairs: tuple[str, ...]) -> Given:
    """Parse ``-c key=value`` arguments. Raises SettingError."""
    given = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise SettingError(
                f"-c {pair} sets nothing. Write -c KEY=VALUE, for example -c topology.max.spout.pending=500."
            )
        given.append((key.strip(), value, "-c"))
    return given


def given_in_file(path: Path, topology: TopologySpec) -> Given:
    """Read settings from a TOML or JSON file; tables are joined by dots. Raises SettingError."""
    # Rule: what a component's setting is given is its value, also a table: places by partition are no settings of
    # their own.
    theirs = [f"{one.name}.{name}" for one in topology.components for name in own_names(one)]
    rows = _rows_in(path, {**topology.config, LOGGING: None, **dict.fromkeys([*TABLES, *theirs])})
    return [(key, value, str(path)) for key, value in rows if not _is_logging(key, value, topology)]


def logging_in_file(path: Path, topology: TopologySpec) -> dict[str, Any] | None:
    """Return the ``[logging]`` section of a settings file, if it has one. Raises SettingError."""
    section: dict[str, Any] | None = _table_in(path).get(LOGGING)
    return section if _is_logging(LOGGING, section, topology) else None


def _is_logging(key: str, value: Any, topology: TopologySpec) -> bool:
    return key == LOGGING and isinstance(value, dict) and LOGGING not in topology.config


def client_settings_in_file(path: Path) -> dict[str, Any]:
    """Read a Kafka client's settings; ``sasl.mechanism`` is ``sasl_mechanism``. Raises SettingError."""
    settings: dict[str, Any] = {}
    for key, value in _rows_in(path, {}):
        # Java's names have dots and ours underscores; given both ways, nothing would say which of the two counts.
        name = key.replace(".", "_")
        if name in settings:
            raise SettingError(f"{path}: {name} is given twice, with dots and with underscores: leave one of them out.")
        settings[name] = value
    return settings


def _rows_in(path: Path, own: Mapping[str, Any]) -> list[tuple[str, Any]]:
    try:
        rows = list(_flat(_table_in(path), "", own))
    except RecursionError:  # a parser's, or our own
        raise SettingError(f"{path} nests its tables too deeply: no setting's name has so many parts.") from None
    seen: set[str] = set()
    for key, _ in rows:
        if key in seen:  # once with dots and once in a table, which a parser takes for two keys
            raise SettingError(f"{path}: {DoubledKey(key)}.")
        seen.add(key)
    return rows


def _table_in(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text, object_pairs_hook=each_once) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise SettingError(f"The settings in {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # both parsers' errors, and bytes that are not UTF-8
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise SettingError(f"{path} is not valid {kind}: {error}.") from error
    if not isinstance(content, dict):
        raise SettingError(f"{path} holds no table of settings but a {type(content).__name__}.")
    return content


def _flat(table: Mapping[str, Any], prefix: str, own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = prefix + name
        # A table that the topology itself has as a value stays whole: its parts are not settings. So does an empty one
        # in place of a setting's value, which is refused; any other may be a section whose lines are comments.
        if isinstance(value, dict) and key not in own and (value or key not in SETTINGS):
            yield from _flat(value, f"{key}.", own)
        else:
            yield key, value
