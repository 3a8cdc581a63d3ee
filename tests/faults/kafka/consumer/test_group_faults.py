"""Members that are killed or paused: their partitions go on, and they commit nothing that is not theirs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlet.devcluster import DevCluster
from streamlet.kafka import Consumer, ConsumerRecord, TopicPartition
from tests.brokers import BROKERS, ONE_BROKER
from tests.consumers import take, until
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.real
Make = Callable[..., Consumer]
QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000}
MEMBER = Path(__file__).parents[2] / "streamlet_member.py"


class Member:
    """A member in a process of its own."""

    def __init__(self, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(MEMBER), json.dumps(settings)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def said(self, what: str) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if line["what"] == what]

    def wait(self, reached: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, self.lines
            assert self.process.poll() is None, self.lines
            time.sleep(0.02)

    def end(self, with_signal: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            os.kill(self.process.pid, with_signal)
        self.process.wait(20)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """Both brokers, one after the other."""
    found: DevCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def member(cluster: DevCluster) -> Iterator[Callable[..., Member]]:
    """``member(topics=[...], group_id=..., **settings)``; killed after the test."""
    made: list[Member] = []

    def make(**settings: Any) -> Member:
        one = Member(bootstrap_servers=cluster.bootstrap_servers, **{**QUICK, **settings})
        made.append(one)
        return one

    yield make
    for one in made:
        one.end(signal.SIGKILL)


@pytest.mark.parametrize("cluster", ONE_BROKER, indirect=True)
def test_c11_a_killed_members_partitions_go_on_from_the_committed_offset(
    cluster: DevCluster,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    make_consumer: Make,
    member: Callable[..., Member],
) -> None:
    """kill -9; after its session the other has everything, and reads on where the last commit was."""
    topic = make_topic(cluster, partitions=2)
    for number in (0, 1):
        produce(cluster, topic, [b"x"] * 1000, number)
    ours = make_consumer(cluster, topic, group_id=topic, enable_auto_commit=False, max_poll_records=20, **QUICK)
    victim = member(topics=[topic], group_id=topic, work_s=0.05)
    until([ours], lambda: len(ours.assignment()) == 1 and len(victim.said("committed")) >= 3)
    victim.end(signal.SIGKILL)
    (theirs,) = {0, 1} - {tp.partition for tp in ours.assignment()}
    committed = max(line["next"].get(f"{topic}:{theirs}", 0) for line in victim.said("committed"))
    seen: list[int] = []

    def hear(_who: Consumer, rows: list[ConsumerRecord]) -> None:
        seen.extend(row.offset for row in rows if row.partition == theirs)

    killed = time.monotonic()
    until([ours], lambda: len(ours.assignment()) == 2, hear)
    print(f"taken over {time.monotonic() - killed:.1f} s after the kill; session_timeout_ms is 6000")
    until([ours], lambda: bool(seen) and seen[-1] == 999, hear)
    # The last "committed" may have died unsaid between broker and pipe, so it may be one round further.
    assert committed <= seen[0] <= committed + 20
    assert seen == list(range(seen[0], 1000))


def test_c11_a_paused_member_commits_nothing_it_no_longer_owns_and_says_why(
    cluster: DevCluster,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    make_consumer: Make,
    member: Callable[..., Member],
    tmp_path: Path,
) -> None:
    """SIGSTOP with work done and not committed, until the heir has done it too: what was done is refused then.

    The error names what happened, what it means and which settings there are; the log says how long no heartbeat had
    been taken. Both go on: whoever is given the partition reads on from the heir's commit.
    """
    topic = make_topic(cluster)
    tp = TopicPartition(topic, 0)
    produce(cluster, topic, [b"x"] * 10)
    go = tmp_path / "go"
    zombie = member(topics=[topic], group_id=topic, commit_when=str(go))
    zombie.wait(lambda: zombie.said("records"))
    os.kill(zombie.process.pid, signal.SIGSTOP)
    done = zombie.said("records")[0]["offsets"][f"{topic}:0"]
    assert done[0] == 0
    heir = make_consumer(cluster, topic, group_id=topic, enable_auto_commit=False, **QUICK)
    assert [row.offset for row in take(heir, 10)] == list(range(10))
    heir.commit()
    assert heir.assignment() == {tp}
    go.touch()
    os.kill(zombie.process.pid, signal.SIGCONT)
    until([heir], lambda: bool(zombie.said("commit failed")))
    refused = next(line for line in zombie.lines if line["what"].startswith("commit"))
    assert refused.get("error") == "CommitFailed", "the commit that it was stopped before is the one that was refused"
    for words in (
        f"group '{topic}' has gone on without this member (UnknownMemberId)",
        "read on from the last commit",
        "silent for longer than session_timeout_ms",
        "Poll to join again",
    ):
        assert words in refused["message"], refused
    until([heir], lambda: bool(zombie.said("lost")))
    why = next(line["message"] for line in zombie.said("log") if "last heartbeat it took" in line["message"])
    assert "UnknownMemberId" in why and "session_timeout_ms is 6000" in why
    silent = re.search(r"was sent ([0-9.]+) s ago", why)
    assert silent is not None and float(silent[1]) >= 6.0, why
    after = zombie.lines[zombie.lines.index(refused) :]
    assert next(line["what"] for line in after if line["what"] in ("records", "lost")) == "lost"
    assert heir.committed(tp)[tp].offset == 10
    produce(cluster, topic, [b"y"] * 10)
    seen: list[int] = []

    def all_read() -> bool:
        found = [line["offsets"][f"{topic}:0"] for line in zombie.said("records")[1:]]
        return {*seen, *(offset for first, last in found for offset in range(first, last + 1))} >= set(range(10, 20))

    until([heir], all_read, lambda _who, rows: seen.extend(row.offset for row in rows))
    assert all(offset > 10 for line in zombie.said("committed") for offset in line["next"].values())
