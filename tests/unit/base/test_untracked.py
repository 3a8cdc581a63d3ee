"""How the numbers of untracked tuples read."""

from __future__ import annotations

from streamlet.base.untracked import untracked_text


def test_the_bolts_stand_beside_each_other_and_one_tuple_is_no_plural() -> None:
    assert untracked_text({"slow": 3551, "store": 1}) == "3,551 untracked tuples for slow and 1 for store"
    assert untracked_text({"store": 1}) == "1 untracked tuple for store"
