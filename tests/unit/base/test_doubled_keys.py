"""A key that stands twice in JSON is named."""

from __future__ import annotations

import json

import pytest

from streamlet.base.doubled_keys import DoubledKey, each_once


def test_an_object_with_each_key_once_is_read_as_ever() -> None:
    text = '{"a": {"b": 1}, "c": [{"b": 2}, {"b": 3}]}'
    assert json.loads(text, object_pairs_hook=each_once) == json.loads(text)


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 1}', '{"c": [{"a": 1, "a": 2}]}'])
def test_a_doubled_key_is_named_at_any_depth(text: str) -> None:
    with pytest.raises(DoubledKey, match="'a' is given twice"):
        json.loads(text, object_pairs_hook=each_once)
