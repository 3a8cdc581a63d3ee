"""What a process knows of thread pools at its end. Each in a process of its own: a pool is ended once."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from streamlet.base.pools import calls_left, finish_pools, is_pools, pool_threads, wait_for_pools
pool = ThreadPoolExecutor(2)
done = []
def work(n):
    time.sleep(0.01)
    done.append(n)
def show(left, *more):
    print(left.waiting, len(left.under_way), *more, flush=True)
"""


def said(program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=60, check=False
    )
    assert not ran.stderr
    return ran.stdout.strip()


def test_a_pools_thread_is_told_from_others() -> None:
    assert said("print(pool.submit(is_pools).result(), is_pools())") == "True False"


def test_nothing_is_waited_for_where_no_pool_is() -> None:
    assert said("show(finish_pools(1, 3))") == "0 0"


def test_all_calls_of_a_pool_are_made() -> None:
    assert said("for n in range(100): pool.submit(work, n)\nshow(finish_pools(5, 60), len(done))") == "0 0 100"


def test_pools_of_several_sizes_are_all_waited_for() -> None:
    more = "other = ThreadPoolExecutor(1)\nfor n in range(50): pool.submit(work, n), other.submit(work, n)\n"
    assert said(more + "show(finish_pools(5, 60), len(done))") == "0 0 100"


def test_calls_that_do_not_end_are_left_and_those_behind_them_counted() -> None:
    program = """
import os
for _ in range(2):
    pool.submit(time.sleep, 60)
time.sleep(0.1)
for n in range(7):
    pool.submit(work, n)
show(finish_pools(0.3, 60), len(done))
os._exit(0)
"""
    assert said(program) == "7 2 0"


def test_the_wait_has_an_end_though_calls_go_on() -> None:
    program = """
import os
for n in range(10_000):
    pool.submit(work, n)
print(finish_pools(60, 0.3).waiting > 1000, calls_left().waiting > 1000, flush=True)
os._exit(0)
"""
    assert said(program) == "True True"


def test_pools_that_go_on_are_waited_for_until_their_last_call_is_made() -> None:
    program = "for n in range(50): pool.submit(work, n)\nshow(wait_for_pools((), 5, 60), len(done))\n"
    assert said(program + "print(pool.submit(lambda: 'goes on').result())") == "0 0 50\ngoes on"


def test_the_last_call_may_be_a_long_one() -> None:
    for ask in ("wait_for_pools((), 5, 60)", "finish_pools(5, 60)"):
        assert said(f"pool.submit(time.sleep, 0.7).add_done_callback(done.append)\nshow({ask}, len(done))") == "0 0 1"


def test_pools_that_were_there_before_are_not_waited_for() -> None:
    program = "for n in range(500): pool.submit(work, n)\nshow(wait_for_pools(pool_threads(), 5, 60), len(done) < 400)"
    assert said(program) == "0 0 True"


@pytest.mark.parametrize("end", ["pool.shutdown()", "pool.shutdown(wait=False)", "pool = None"])
@pytest.mark.parametrize("ask", ["wait_for_pools((), 0.2, 60)", "finish_pools(0.2, 60)", "calls_left()"])
@pytest.mark.parametrize("ends_s", [0, 0.5])
def test_a_pool_that_was_ended_leaves_no_call(end: str, ask: str, ends_s: float) -> None:
    """Its end marks lie in the queue, also while its last calls are made."""
    program = f"for n in range(4): pool.submit(time.sleep, {ends_s} if n > 1 else 0)\ntime.sleep(0.1)\n"
    program += f"kept = list(pool._threads)\n{end}\nshow({ask})"
    assert said(program) == ("0 2" if ends_s and "shutdown()" not in end else "0 0")


def test_calls_behind_those_under_way_are_counted_though_the_pool_was_ended() -> None:
    program = "import os\nfor n in range(9): pool.submit(time.sleep, 60)\ntime.sleep(0.1)\npool.shutdown(wait=False)\n"
    assert said(program + "show(wait_for_pools((), 0.1, 60))\nshow(finish_pools(0.1, 60))\nos._exit(0)") == "7 2\n7 2"


def test_a_thread_that_waits_for_its_next_call_has_none_under_way() -> None:
    program = "for n in range(200): pool.submit(work, n).result()\ntime.sleep(0.1)\nshow(calls_left())\n"
    assert said(program + "show(wait_for_pools((), 60, 60))") == "0 0\n0 0"
