"""How ``streamlet consume`` shows a record, and how ``streamlet dev produce`` reads one. Pure: bytes in, bytes out."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from streamlet.base.errors import BadInput
from streamlet.kafka import ConsumerRecord

NULL = b"null"
"""What stands for a key or value that there is none of, as Kafka's own tool shows it; ``--json`` tells it apart."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Writes each record as its bytes and a line end.

    Key and headers come before the value, a tab between, where they are wanted.
    """

    keys: bool = False
    headers: bool = False

    def line(self, record: ConsumerRecord) -> bytes:
        parts = [NULL if record.value is None else record.value]
        if self.keys:
            parts.insert(0, NULL if record.key is None else record.key)
        if self.headers:
            parts.insert(0, b",".join(name.encode() + b":" + (value or b"") for name, value in record.headers))
        return b"\t".join(parts) + b"\n"


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Each record as one JSON object: text where its bytes are UTF-8, ``{"base64": "..."}`` where they are not."""

    def line(self, record: ConsumerRecord) -> bytes:
        row = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": plain(record.key),
            "value": plain(record.value),
            "headers": [[name, plain(value)] for name, value in record.headers],
        }
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def plain(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes for JSON: as text, or under "base64" where they are not UTF-8."""
    if data is None:
        return None
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def key_and_value(line: bytes, number: int, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Return a line of a file, without its end, as a record.

    With a separator, what stands before its first occurrence is the key. Raises BadInput, with the line's number,
    when it does not occur.
    """
    line = line.removesuffix(b"\n")
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise BadInput(
            f"Line {number} has no key: {separator.decode(errors='replace')!r} (--key-separator) does not occur in it."
        )
    return key, value
