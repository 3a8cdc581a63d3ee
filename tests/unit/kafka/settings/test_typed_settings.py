"""The types that an editor shows for settings are those of the settings."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Required, get_type_hints

import pytest

from streamlet.kafka.admin.admin import AdminConfig, AdminSettings
from streamlet.kafka.consumer.consumer_config import ConsumerConfig, ConsumerSettings
from streamlet.kafka.producer.producer_config import ProducerConfig, ProducerSettings
from streamlet.kafka.settings.client_config import ClientConfig, ClientSettings
from tests.docs.pages import ROOT

PROGRAM = """\
from streamlet.kafka import Admin, Consumer, Producer

Producer(bootstrap_servers="127.0.0.1:9092", linger_ms=5, value_serializer=str.encode)
Consumer("lines", bootstrap_servers=["127.0.0.1:9092"], group_id="g")
Admin(bootstrap_servers="127.0.0.1:9092", default_api_timeout_ms=1)
Producer(bootstrap_server="127.0.0.1:9092")
Consumer(bootstrap_servers="127.0.0.1:9092", autooffset_reset="earliest")
Admin(bootstrap_servers="127.0.0.1:9092", client_id=5)
Producer(bootstrap_servers="127.0.0.1:9092", group_id="g")
Consumer()
Consumer(bootstrap_servers="127.0.0.1:9092").highwater
from streamlet.kafka import KafkaProducer
"""
WRONG = {
    6: "bootstrap_server",
    7: "autooffset_reset",
    8: "client_id",
    9: "group_id",
    10: "bootstrap_servers",
    11: "highwater",
    12: "KafkaProducer",
}


@pytest.mark.parametrize(
    ("typed", "config"),
    [
        (ClientSettings, ClientConfig),
        (ProducerSettings, ProducerConfig),
        (ConsumerSettings, ConsumerConfig),
        (AdminSettings, AdminConfig),
    ],
)
def test_typed_settings_are_the_fields_of_the_config(typed: type, config: type[ClientConfig]) -> None:
    """Name by name and type by type; only the servers may be a list, which becomes a tuple."""
    hints = get_type_hints(config)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(config)}
    assert get_type_hints(typed) == {**fields, "bootstrap_servers": str | Sequence[str]}
    assert get_type_hints(typed, include_extras=True)["bootstrap_servers"] == Required[str | Sequence[str]]


def test_a_misspelt_setting_is_a_type_error_before_anything_runs(tmp_path: Path) -> None:
    """The wrong lines of a program, each with its name; the right ones pass."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found: dict[int, str] = {}
    for number, said in re.findall(r"program\.py:(\d+): error: (.*)", ran.stdout):
        found[int(number)] = found.get(int(number), "") + said
    assert set(found) == set(WRONG), ran.stdout + ran.stderr
    assert all(name in found[number] for number, name in WRONG.items()), ran.stdout
