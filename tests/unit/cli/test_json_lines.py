"""A line of ``--json`` is JSON, whatever stands in it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from streamlet.cli.json_lines import json_text


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ({"a": [1, None, "b"]}, {"a": [1, None, "b"]}),
        ({"a": math.nan, "b": [math.inf, (-math.inf, 1.5)]}, {"a": None, "b": [None, [None, 1.5]]}),
        ({("a", 1): {b"c": math.inf}, 2: 3}, {"('a', 1)": {"b'c'": None}, "2": 3}),
        ({"a": Path("/x")}, {"a": "/x"}),
    ],
)
def test_what_json_has_no_form_for_is_null_or_text(content: Any, read: Any) -> None:
    assert json.loads(json_text(content), parse_constant=lambda constant: pytest.fail(constant)) == read
