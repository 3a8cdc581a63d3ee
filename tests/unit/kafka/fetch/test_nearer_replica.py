"""Which replica is read from: named for a time, or left for a time."""

from __future__ import annotations

from streamlet.kafka.fetch.nearer_replica import NearerReplica


def test_a_named_replica_is_read_from_until_its_time_is_over() -> None:
    """Then the leader is asked, and hears the rack."""
    nearer = NearerReplica()
    assert nearer.at(1.0) is None and not nearer.hides_rack(1.0)
    nearer.named(2, 10.0)
    assert nearer.at(9.9) == 2 and not nearer.hides_rack(9.9)
    assert nearer.at(10.0) is None and not nearer.hides_rack(10.0)


def test_after_a_failure_the_leader_hears_no_rack_for_a_time() -> None:
    """Of another leader, too, and at another position; these end only what was named."""
    nearer = NearerReplica()
    nearer.named(2, 10.0)
    nearer.failed(20.0)
    assert nearer.at(5.0) is None and nearer.hides_rack(19.9) and not nearer.hides_rack(20.0)
    nearer.forget()
    assert nearer.hides_rack(19.9)
    nearer.named(2, 30.0)
    nearer.forget()
    assert nearer.at(5.0) is None and not nearer.hides_rack(5.0)
