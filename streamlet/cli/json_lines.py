"""What ``--json`` prints: every line is JSON, whatever stands in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_KEYS = frozenset({str, int, bool, type(None)})
"""Types of keys that JSON has a text for."""


def json_text(content: Any) -> str:
    """Return one line of JSON; NaN and infinity are null, unknown types are text."""
    try:
        return json.dumps(content, default=str, allow_nan=False)
    except (ValueError, TypeError):
        # A user's metric. Python would write NaN, which is no JSON: the whole line would be lost to its reader.
        return json.dumps(_finite(content), default=str)


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key if type(key) in _KEYS else str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
