from __future__ import annotations

import sys

import pytest

from streamlet import BadInput
from streamlet.base.arrow import parquet_for


def test_where_pyarrow_is_missing_the_error_says_who_needs_it_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput) as refused:
        parquet_for("out")
    assert str(refused.value).startswith("out reads or writes Parquet with pyarrow")
    assert f"{sys.executable} -m pip install 'pyarrow>=18'" in str(refused.value)
