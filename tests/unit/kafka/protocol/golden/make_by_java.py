"""Add to ``messages.json`` what kafka-python has no codec for, as Kafka's own classes encode it.

``python -m tests.unit.kafka.protocol.golden.make_by_java "KAFKA_4_JARS/*"`` from the top of the checkout. Only messages
and versions that the file lacks are added.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from streamlet.kafka.protocol import schema
from streamlet.kafka.protocol.schema import Array, Struct, Wire, uuid_text
from tests.kafka_requests import REQUESTS
from tests.unit.kafka.protocol.golden.make import RENAMED, SIZES

_ENCODE = Path(__file__).parents[2] / "golden" / "Encode.java"
_FILE = Path(__file__).with_name("messages.json")
_NO_ID = uuid_text(bytes(15) + b"\x01")


def value_of(rng: random.Random, kind: Any, version: int, nullable: bool) -> tuple[Any, Any]:
    """A random value in two forms: Java's JSON, ours."""
    if nullable and rng.random() < 0.3:
        return None, None
    if kind in SIZES:
        number = rng.randrange(-(1 << SIZES[kind] - 1), 1 << SIZES[kind] - 1)
        return number, number
    if kind is schema.BOOL:
        flag = rng.random() < 0.5
        return flag, flag
    if kind is schema.UUID:
        text = uuid_text(rng.randbytes(16)) or _NO_ID
        return text, text
    if kind is schema.STRING:
        text = "".join(rng.choice("abcé漢 ") for _ in range(rng.randrange(12)))
        return text, text
    if kind in (schema.BYTES, schema.RECORDS):
        raw = rng.randbytes(rng.randrange(20))
        return base64.b64encode(raw).decode(), raw.hex()
    if isinstance(kind, Struct):
        return message_of(rng, kind._cls, version)
    if isinstance(kind, Array):
        rows = [value_of(rng, kind._item, version, False) for _ in range(rng.randrange(3))]
        return [row[0] for row in rows], [row[1] for row in rows]
    raise NotImplementedError(kind)


def message_of(rng: random.Random, cls: type, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A random message in two forms."""
    java, plain = {}, {}
    for spec in dataclasses.fields(cls):
        row: Wire = spec.metadata["wire"]
        if not row.since <= version <= row.until:
            continue
        name = RENAMED.get((cls.__name__, spec.name), spec.name)
        head, *rest = name.split("_")
        theirs = head + "".join(part.title() for part in rest)
        java[theirs], plain[spec.name] = value_of(rng, row.kind, version, version >= row.nullable_since)
    return java, plain


def main() -> None:
    """Write the file again, with the new rows in the order of the APIs."""
    rows = json.loads(_FILE.read_text(encoding="utf-8"))
    known = {(row["message"], row["version"]) for row in rows}
    new: list[dict[str, Any]] = []
    asked: list[str] = []
    for api, kind in REQUESTS.items():
        for cls in (kind, kind.response_type):
            for version in kind.versions:
                if (cls.__name__, version) in known:
                    continue
                rng = random.Random(f"{cls.__name__} {version}")
                for _ in range(4):
                    java, plain = message_of(rng, cls, version)
                    asked.append(json.dumps({"message": cls.__name__, "version": version, "values": java}))
                    new.append({"api": api.name, "message": cls.__name__, "version": version, "values": plain})
    said = subprocess.run(
        ["java", "-cp", sys.argv[1], str(_ENCODE)],
        input="\n".join(asked),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout.split("\n")
    rows += [{**row, "body": body} for row, body in zip(new, said, strict=False)]
    order = [api.name for api in REQUESTS]
    rows.sort(key=lambda row: order.index(row["api"]))
    _FILE.write_text(json.dumps(rows, ensure_ascii=False, indent=0, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
