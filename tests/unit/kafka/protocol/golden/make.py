"""Write ``messages.json``: bodies of every message we have, in every version, as kafka-python encodes them.

Run with kafka-python 3 installed (it is no dependency of the tests):
``python tests/unit/kafka/protocol/golden/make.py``
from the top of the checkout, which must be on PYTHONPATH. Its codecs are generated from Kafka's own message
descriptions, so they are a second opinion on field order, versions, null and compact forms. Values are random with a
fixed seed, and stored beside the bytes.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import random
import uuid
from pathlib import Path
from typing import Any

from streamlet.kafka.protocol import schema
from streamlet.kafka.protocol.schema import Array, Struct, Wire, uuid_text
from tests.kafka_requests import REQUESTS

MODULES = tuple(f"kafka.protocol.{name}" for name in ("admin", "metadata", "consumer", "producer", "sasl"))
# Where our field has another name than the description's.
RENAMED = {
    ("FetchResponse", "topics"): "responses",
    ("OffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch",
}
SIZES = {schema.INT8: 8, schema.INT16: 16, schema.INT32: 32, schema.INT64: 64}


def value_of(
    rng: random.Random, kind: Any, theirs: Any, version: int, flexible: bool, nullable: bool
) -> tuple[Any, Any, Any]:
    """A random value in three forms: ours, kafka-python's, JSON's."""
    if nullable and rng.random() < 0.3:
        return None, None, None
    if kind in SIZES:
        number = rng.randrange(-(1 << SIZES[kind] - 1), 1 << SIZES[kind] - 1)
        return number, number, number
    if kind is schema.BOOL:
        flag = rng.random() < 0.5
        return flag, flag, flag
    if kind is schema.UUID:
        raw = rng.randbytes(16)
        return uuid_text(raw), uuid.UUID(bytes=raw), uuid_text(raw)
    if kind is schema.STRING:
        text = "".join(rng.choice("abcé漢 ") for _ in range(rng.randrange(12)))
        return text, text, text
    if isinstance(kind, Struct):
        return message_of(rng, kind._cls, theirs, version, flexible)
    if isinstance(kind, Array):
        rows = [value_of(rng, kind._item, theirs, version, flexible, False) for _ in range(rng.randrange(3))]
        return tuple(r[0] for r in rows), [r[1] for r in rows], [r[2] for r in rows]
    raw = rng.randbytes(rng.randrange(20))
    return raw, raw, raw.hex()


def message_of(rng: random.Random, ours: type, theirs: Any, version: int, flexible: bool) -> tuple[Any, Any, Any]:
    """A random message in three forms."""
    mine, foreign, plain = {}, {}, {}
    for spec in dataclasses.fields(ours):
        row: Wire = spec.metadata["wire"]
        if not row.since <= version <= row.until or (row.tag is not None and not flexible):
            continue
        if spec.name.endswith("authorized_operations"):
            continue  # a set of names there, a plain number here; both at their default
        name = RENAMED.get((ours.__name__, spec.name), spec.name)
        nested = getattr(theirs, theirs.fields[name].type_str, None)
        nested = nested if hasattr(nested, "fields") else None
        nullable = version >= row.nullable_since
        mine[spec.name], foreign[name], plain[spec.name] = value_of(rng, row.kind, nested, version, flexible, nullable)
    return ours(**mine), theirs(version=version, **foreign), plain


def main() -> None:
    """Write the file beside this one."""
    modules = [importlib.import_module(name) for name in MODULES]
    rows = []
    for api, kind in REQUESTS.items():
        for cls in (kind, kind.response_type):
            theirs = next(getattr(m, cls.__name__) for m in modules if hasattr(m, cls.__name__))
            for version in kind.versions:
                rng = random.Random(f"{cls.__name__} {version}")  # so that a new message changes no other
                for _ in range(4):
                    _mine, foreign, plain = message_of(rng, cls, theirs, version, version >= kind.flexible_since)
                    body = foreign.encode(version=version)
                    rows.append(
                        {
                            "api": api.name,
                            "message": cls.__name__,
                            "version": version,
                            "values": plain,
                            "body": body.hex(),
                        }
                    )
    target = Path(__file__).with_name("messages.json")
    target.write_text(json.dumps(rows, ensure_ascii=False, indent=0, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
