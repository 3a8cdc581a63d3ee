"""A master's URL, by itself."""

from __future__ import annotations

import pytest

from streamlet.backends.spark.masters import Master, check_slots, parse_master, too_few_slots
from streamlet.base.errors import BadInput


@pytest.mark.parametrize(
    ("url", "local", "executors", "slots"),
    [
        ("local-cluster[2,1,1024]", True, 2, 2),
        ("local-cluster[2, 3, 1024]", True, 2, 6),
        ("local", True, 1, 1),
        ("local[4]", True, 1, 4),
        ("local[4, 2]", True, 1, 4),
        ("local[*]", True, 1, 7),
        ("yarn", False, None, None),
        ("k8s://https://host:6443", False, None, None),
    ],
)
def test_a_master_says_what_it_has(url: str, local: bool, executors: int | None, slots: int | None) -> None:
    assert parse_master(url, 7) == Master(url, local, executors, slots)


def test_a_standalone_master_may_have_several_addresses() -> None:
    assert parse_master("spark://a:7077,b:7078", 1).addresses == (("a", 7077), ("b", 7078))


@pytest.mark.parametrize("url", ["", "spark://", "spark://host", "local-cluster[2,1]", "mesos://x", "localhost:7077"])
def test_a_value_that_is_not_a_master_is_refused_with_one_that_is(url: str) -> None:
    with pytest.raises(BadInput, match=r"is not a Spark master.*spark://HOST:PORT"):
        parse_master(url, 1)


def test_more_workers_than_slots_are_refused_before_anything_starts() -> None:
    master = parse_master("local-cluster[2,1,1024]", 2)
    check_slots(master, 2)
    with pytest.raises(BadInput, match=r"wants 3 workers.* has 2 slots\..*local-cluster\[3,1,1024\]"):
        check_slots(master, 3)


def test_busy_slots_are_counted() -> None:
    said = too_few_slots("spark://a:7077", 3, 4, 2)
    assert "has 4 slots, 2 of them occupied" in said
    assert "--workers 2" in said
