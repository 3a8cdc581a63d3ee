"""Checks of settings: the topology's, a component's, the command line's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamlet.base.errors import SettingError
from streamlet.model.problem import Problem, listed, nearest
from streamlet.model.settings import SETTINGS, parse_setting
from streamlet.model.topology import ComponentDef, TopologySpec


def config_problems(component: str | None, config: Mapping[Any, Any]) -> Iterator[Problem]:
    """Yield reserved keys that nothing reads, and values a setting cannot have. ``component`` None: the topology."""
    for key, value in config.items():
        reserved = isinstance(key, str) and key.startswith(("topology.", "streamlet."))
        if not isinstance(key, str):
            yield Problem(component, f"config has the key {key!r}.", "Keys are strings.")
        elif key in SETTINGS:
            try:
                parse_setting(key, value, "config")
            except SettingError as error:
                yield Problem(component, error.message, "Change it, or leave it out for the default.")
        elif reserved:
            yield Problem(
                component,
                f"config has the setting {key!r}, which nothing reads (topology.* and streamlet.* are reserved).",
                nearest(key, SETTINGS, "`streamlet check --settings` lists them; a key of your own begins otherwise."),
            )


def misplaced_settings(component: ComponentDef) -> Iterator[Problem]:
    """Yield a component's settings that nothing reads there.

    They are the whole run's, or the other kind of component's.
    """
    for key in component.config:
        of = SETTINGS[key].component if key in SETTINGS else component.kind
        if of is None:
            yield Problem(
                component.name,
                f"config has the setting {key!r}, which is the whole run's: nothing reads it here.",
                "Move it into the topology's config, or give it by -c.",
            )
        elif of != component.kind:
            yield Problem(
                component.name,
                f"config has the setting {key!r}, which only a {of} has, and this is a {component.kind}.",
                f"Move it to the {of} that it is meant for, or into the topology's config for all of them.",
            )


def override_problems(component: ComponentDef, overrides: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield settings of ``-c COMPONENT.NAME=VALUE`` that the component refuses."""
    if not overrides:
        return
    known: frozenset[str] = getattr(component.cls, "override_keys", frozenset)()
    for name in overrides:
        if name not in known:
            yield Problem(
                component.name,
                f"There is no setting {component.name}.{name} that -c could change.",
                nearest(name, known, f"There are: {listed(known)}.")
                if known
                else f"{component.cls.__qualname__} has none; a key of your own belongs into the topology's config.",
            )
    if all(name in known for name in overrides):
        try:
            component.cls.with_overrides(component.kwargs, overrides)  # type: ignore[attr-defined]
        except SettingError as error:
            yield Problem(component.name, error.message, "It was given by -c.")


def unknown_components(topology: TopologySpec, overrides: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield components that ``-c`` names and the topology does not have."""
    names = [component.name for component in topology.components]
    for name in overrides:
        if name not in names:
            yield Problem(
                None,
                f"-c names the component {name!r}, which is not there.",
                nearest(name, names, f"There are: {listed(names)}."),
            )
