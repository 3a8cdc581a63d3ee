"""The ids that a name had."""

from __future__ import annotations

from streamlet.kafka.metadata.topic_ids import TopicIds


def test_an_id_that_was_replaced_stays_so() -> None:
    ids = TopicIds()
    assert [ids.note("t", each) for each in ("a", "a", "b", None, "c")] == [True, False, True, False, True]
    assert [ids.is_replaced("t", each) for each in ("a", "b", "c", None)] == [True, True, False, False]
    assert not ids.is_replaced("u", "a")
