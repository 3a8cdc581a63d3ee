"""The names of ``streamlet.kafka`` and its consumer, which are loaded when they are first used."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType

import pytest

import streamlet.kafka
import streamlet.kafka.consumer
from streamlet.kafka import _SUBMODULES


def loaded_by(code: str) -> set[str]:
    """The modules of ours that a fresh interpreter has loaded after this code."""
    code += "; import json, sys; print(json.dumps([name for name in sys.modules if name.startswith('streamlet')]))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize("package", [streamlet.kafka, streamlet.kafka.consumer], ids=lambda package: package.__name__)
def test_each_name_is_found_where_the_table_says(package: ModuleType) -> None:
    table = package._MODULES
    assert sorted(table) == package.__all__ == sorted(package.__all__)
    for name, module in table.items():
        found = getattr(package, name)
        assert found.__name__ == name and found.__module__.startswith(f"{package.__name__}.{module}")
        assert name in dir(package)


def test_a_spout_loads_neither_producer_nor_admin_nor_consumer() -> None:
    """Each process of a run would pay for it."""
    loaded = loaded_by("import streamlet.spouts.kafka")
    assert "streamlet.spouts.kafka.spout" in loaded
    others = ("streamlet.kafka.producer", "streamlet.kafka.admin", "streamlet.kafka.consumer.consumer")
    assert not [name for name in loaded if name.startswith(others) and not name.endswith("_config")]


@pytest.mark.parametrize("module", sorted(_SUBMODULES))
def test_a_submodule_is_an_attribute_of_the_tower(module: str) -> None:
    assert f"streamlet.kafka.{module}" in loaded_by(f"import streamlet.kafka; streamlet.kafka.{module}")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = streamlet.kafka.Nothing  # type: ignore[attr-defined]


def test_the_client_that_has_a_setting_is_named_whether_it_is_loaded_or_not() -> None:
    code = "from streamlet.kafka import Producer; Producer(default_api_timeout_ms=1)"
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "is a setting of the Admin and the Consumer, and none of the Producer" in ran.stderr
