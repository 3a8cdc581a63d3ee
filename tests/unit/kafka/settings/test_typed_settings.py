"""The types that an editor shows for settings are those of the settings."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Required, get_args, get_origin, get_type_hints

import pytest

from streamlet.kafka.admin.admin import AdminConfig, AdminSettings
from streamlet.kafka.consumer.consumer_config import ConsumerConfig, ConsumerSettings
from streamlet.kafka.producer.producer_config import _ACKS, ProducerConfig, ProducerSettings
from streamlet.kafka.settings.client_config import ClientConfig, ClientSettings
from streamlet.kafka.settings.security import MECHANISMS, PROTOCOLS
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
Consumer(bootstrap_servers="127.0.0.1:9092").consume
from streamlet.kafka import KafkaProducer
Producer(bootstrap_servers="127.0.0.1:9092", acks=2)
Producer(bootstrap_servers="127.0.0.1:9092", acks=1, compression_type="zstd")
Consumer(bootstrap_servers="127.0.0.1:9092", auto_offset_reset="begin")
Consumer(bootstrap_servers="127.0.0.1:9092", isolation_level="committed")
Producer(bootstrap_servers="127.0.0.1:9092", compression_type="brotli")
Admin(bootstrap_servers="127.0.0.1:9092", security_protocol="TLS")
from streamlet import Topology, run
from streamlet.backends import InlineBackend
run(Topology, backend="inlin")
Topology.run(backend="inline")
run(Topology, backend=InlineBackend())
from streamlet.kafka.producer import KafkaProducer as Other
"""
WRONG = {
    6: "bootstrap_server",
    7: "autooffset_reset",
    8: "client_id",
    9: "group_id",
    10: "bootstrap_servers",
    11: "consume",
    12: "KafkaProducer",
    13: "acks",
    15: "auto_offset_reset",
    16: "isolation_level",
    17: "compression_type",
    18: "security_protocol",
    21: "backend",
    24: "KafkaProducer",
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
    widened = {name: of_values(hint) for name, hint in get_type_hints(typed).items()}
    assert widened == {**fields, "bootstrap_servers": str | Sequence[str]}
    assert get_type_hints(typed, include_extras=True)["bootstrap_servers"] == Required[str | Sequence[str]]


ALLOWED: Mapping[str, Sequence[object]] = {
    "acks": _ACKS,
    "security_protocol": PROTOCOLS,
    "sasl_mechanism": (*MECHANISMS, None),
    **ClientConfig.CHOICES,
    **ProducerConfig.CHOICES,
    **ConsumerConfig.CHOICES,
}


@pytest.mark.parametrize("typed", [ClientSettings, ProducerSettings, ConsumerSettings, AdminSettings])
def test_a_typed_setting_allows_the_values_that_the_setting_takes(typed: type) -> None:
    shown = {name: set(values_of(hint)) for name, hint in get_type_hints(typed).items() if values_of(hint)}
    names = set(ALLOWED) & set(get_type_hints(typed))
    assert shown == {name: set(ALLOWED[name]) for name in names}


def values_of(hint: Any) -> list[object]:
    """Return the values that a hint names; none for a plain type."""
    if get_origin(hint) is Literal:
        return [*get_args(hint)]
    parts = [values_of(part) for part in get_args(hint)]
    return [*itertools.chain(*parts), *([None] if any(parts) and type(None) in get_args(hint) else [])]


def of_values(hint: Any) -> Any:
    """Return a hint with the types of the values it names."""
    values = values_of(hint)
    return functools.reduce(operator.or_, {type(value) for value in values}) if values else hint


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
