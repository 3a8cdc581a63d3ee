"""A master's URL, by itself."""

from __future__ import annotations

import re

import pytest

from streamlet.backends.spark.masters import (
    ClusterView,
    Master,
    SparkApplication,
    all_here,
    check_slots,
    cores_of,
    holders_text,
    parse_master,
    read_master_page,
    too_few_slots,
)
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


def test_an_ipv6_address_is_dialled_without_its_brackets() -> None:
    master = parse_master("spark://[::1]:7077", 1)
    assert (master.addresses, master.loopback) == ((("::1", 7077),), True)


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
    assert "--workers 2 (from Python: workers=2)" in said


def test_a_server_of_spark_connect_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"sc://h:15002 is a server of Spark Connect.*spark://HOST:PORT"):
        parse_master("sc://h:15002", 1)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [("spark://127.0.0.1:7077", True), ("spark://localhost:7077,[::1]:7078", True), ("spark://node1:7077", False)],
)
def test_a_master_that_only_this_machine_reaches_is_known(url: str, loopback: bool) -> None:
    assert parse_master(url, 1).loopback is loopback
    assert not parse_master("local[2]", 1).loopback and not parse_master("yarn", 1).loopback


@pytest.mark.parametrize(
    ("url", "driver", "here"),
    [
        ("spark://localhost:7077", None, True),
        ("spark://localhost:7077", "laptop", True),
        ("spark://localhost:7077", "127.0.0.1", True),
        ("spark://localhost:7077", "172.17.0.1", False),
        ("spark://node1:7077", "laptop", False),
        ("local[2]", "172.17.0.1", True),
    ],
)
def test_executors_of_a_master_on_localhost_are_here_unless_somebody_set_where_they_find_the_driver(
    url: str, driver: str | None, here: bool
) -> None:
    """The port of a master in a container may be passed on; "laptop" is what Spark itself would choose."""
    assert all_here(parse_master(url, 1), driver, "laptop") is here


def test_an_application_wants_the_cores_of_its_workers_and_no_more() -> None:
    assert [cores_of(3, each) for each in ("1", "2", "0.5")] == [3, 6, 2]


def test_without_any_free_slot_no_number_of_workers_is_advised() -> None:
    said = too_few_slots("spark://a:7077", 2, 0, 0, "Somebody holds them.")
    assert "--workers" not in said and said.endswith(
        "Somebody holds them. Free some, or give the application more cores."
    )


def test_of_a_local_master_without_slots_nothing_can_be_freed() -> None:
    said = too_few_slots("local[0]", 2, 0, 0)
    assert said.endswith("Give --master 'local-cluster[2,1,1024]', or give the application more cores.")


MINE, OTHER = SparkApplication("app-2", "streamlet", "me", 0), SparkApplication("app-1", "etl", "ann", 4)


def test_who_holds_the_cores_is_named_with_their_number() -> None:
    view = ClusterView(2, 4, 4, 700, (MINE, OTHER))
    said = holders_text(view, "app-2", [], 0, None, "10.0.0.1")
    assert said == (
        "Of the cluster's 4 cores on 2 workers, 4 are taken: 4 by etl of ann (app-1). Cores come free when one of "
        "those ends, or with a further worker of Spark."
    )


def test_jobs_of_the_session_itself_are_named() -> None:
    said = holders_text(None, "local-1", [f"job {n}" for n in range(7)], 1, None, "127.0.0.1")
    assert said == "This application runs job 0, job 1, job 2, job 3, job 4 and 2 more."


def test_a_cluster_without_workers_is_told_as_that() -> None:
    assert "no living worker" in holders_text(ClusterView(0, 0, 0, 0, ()), "app-2", [], 0, None, "10.0.0.1")


def test_executors_that_start_and_do_not_report_are_a_question_of_the_drivers_address() -> None:
    """They cannot say so themselves: it is the driver whom they would tell."""
    mine = SparkApplication("app-2", "streamlet", "me", 2)
    said = holders_text(ClusterView(2, 2, 2, 0, (mine,)), "app-2", [], 0, "2", "127.0.1.1")
    assert "2 cores of them went to this application, and its executors have reported 0" in said
    assert "the driver at 127.0.1.1? If not, set spark.driver.host" in said


def test_an_application_that_has_what_it_may_have_is_told_so() -> None:
    """Free cores elsewhere do not come by themselves then."""
    mine = SparkApplication("app-2", "streamlet", "me", 2)
    said = holders_text(ClusterView(2, 4, 2, 0, (mine,)), "app-2", [], 2, "2", "10.0.0.1")
    assert said.endswith("This application has the 2 cores that it may have (spark.cores.max).")


def test_free_cores_without_memory_for_an_executor_are_told() -> None:
    said = holders_text(ClusterView(1, 4, 1, 300, (MINE,)), "app-2", [], 0, None, "10.0.0.1", "4g")
    assert "most memory left has 300 MiB, and an executor wants 4g (spark.executor.memory)" in said


def test_a_masters_page_is_read_without_its_dead_workers() -> None:
    alive = {"state": "ALIVE", "cores": 2, "coresused": 1, "memoryfree": 700}
    apps = [{"id": "app-1", "name": "etl", "user": "ann", "cores": 1, "state": "RUNNING"}]
    told = {"workers": [alive, {**alive, "state": "DEAD"}, {**alive, "memoryfree": 900}], "activeapps": apps}
    assert read_master_page(told) == ClusterView(2, 4, 2, 900, (SparkApplication("app-1", "etl", "ann", 1),))


def test_a_master_that_came_back_without_its_state_is_told_as_that() -> None:
    """It has free cores, and gives the application none: memory and others have nothing to do with it."""
    said = holders_text(ClusterView(2, 4, 0, 700, ()), "app-2", [], 0, "2", "10.0.0.1")
    assert said.startswith("The cluster's master does not know this application") and "memory" not in said


@pytest.mark.parametrize(
    ("url", "slots", "busy", "advice"),
    [
        ("spark://a:7077", 2, 0, r"Give workers=2, or make the session with room for 3 slots .*'spark\.cores\.max', "),
        ("spark://a:7077", 2, 2, r"Free some, or make the session with room for 5 slots .*dynamicAllocation\.enabled"),
        ("spark://a:7077", 0, 0, r"ever\. Make the session with room for 3 slots"),
        ("yarn", 2, 0, r"'spark\.executor\.instances', "),
        ("local[2]", 2, 1, r"Give workers=1, or make the session with more: \.master\('local\[4\]'\)\.$"),
        ("local-cluster[2,1,1024]", 2, 0, r"\.master\('local-cluster\[3,1,1024\]'\)\.$"),
    ],
)
def test_a_program_is_told_what_it_does_with_its_session(url: str, slots: int, busy: int, advice: str) -> None:
    """It has no command line, and its session keeps the master that it has."""
    said = too_few_slots(url, 3, slots, busy, ours=False)
    assert "--" not in said and re.search(advice, said), said
