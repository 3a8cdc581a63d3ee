"""What ``apply`` gives."""

from __future__ import annotations

import pytest

from streamlet.base.errors import BadInput
from streamlet.spark.applying.apply import Applied


def test_a_result_that_is_not_there_is_named_with_those_that_are() -> None:
    applied = Applied({"count": 1, "words": 2}, None, None, [])
    with pytest.raises(BadInput, match="There is no result 'cnt': apply gave count, words") as caught:
        applied["cnt"]
    assert isinstance(caught.value, KeyError)
    assert applied.get("cnt") is None and "cnt" not in applied
