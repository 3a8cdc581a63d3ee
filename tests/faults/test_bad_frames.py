"""10 000 frames that no worker sends, to the workers of a run that goes on meanwhile, before and after the handshake.

The test is one of the run's three workers: it knows the secret, links truly, and what it sends is recorded from its own
link. Its control channel is the coordinator's other end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import selectors
import socket
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlet.backends.contract import RunRequest, RunResult, Stop
from streamlet.backends.processes import ProcessLauncher
from streamlet.backends.run_coordinator import Adopt, RunCoordinator
from streamlet.model.plan import Plan
from streamlet.model.settings import resolve
from streamlet.runtime.links.dialing import Secured, dial
from streamlet.runtime.links.handshake import DATA, Hello, Refused
from streamlet.runtime.links.route_check import RouteCheck
from streamlet.runtime.links.server import TELL_S
from streamlet.runtime.links.wire import MAX_DATA_FRAME, BadFrame, decode_data, encode_data
from streamlet.runtime.tasks.emitter import Outgoing
from streamlet.runtime.worker import messages
from streamlet.runtime.worker.channel import ControlChannel
from streamlet.runtime.worker.loading import load_topology
from streamlet.runtime.worker.messages import Raw
from tests.faults.bad_frames import mutated, stranger, without_secret
from tests.patience import PATIENCE_S
from tests.run_observer import Watcher
from tests.seeds import seeds

ME = 2
PEERS = (0, 1)
BEFORE, BEHIND = 5000, 5000
"""Frames without a handshake, and frames behind one and under a true tag. Of each half are recorded and mutated."""
WHOLE_EACH = 25
"""After so many rounds the run is whole again, and its tuples flow on."""

FILE = """
import json, os
from pathlib import Path
from streamlet import Bolt, Grouping, ReliableSpout, Topology

class Numbers(ReliableSpout):
    'One number after another, until the file "enough" is there.'
    outputs = ["n"]
    max_fails = None

    def initialize(self, conf, context):
        self.folder = Path(conf["test.folder"])
        self.clock = context.clock
        self.next, self.due, self.enough = 0, 0.0, False

    def next_tuple(self):
        now = self.clock.monotonic()
        if now < self.due or self.enough:
            return
        self.enough = (self.folder / "enough").exists()
        self.due = now + 0.002
        self.emit([self.next], tup_id=self.next)
        self.next += 1

    def caught_up(self):
        return self.enough and not self.has_unfinished()

    def close(self):
        (self.folder / "emitted").write_text(str(self.next))

class Sink(Bolt):
    'The witness: writes down every tuple that reaches it, before it is acked.'
    def initialize(self, conf, context):
        self.file = os.open(Path(conf["test.folder"]) / "seen", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, tup):
        os.write(self.file, (json.dumps([tup.component, tup.stream, tup.values], default=repr) + "\\n").encode())

class Tap(Bolt):
    'Runs in the worker that the test is.'
    def process(self, tup): ...

class Attacked(Topology):
    numbers = Numbers.spec()
    sink = Sink.spec(inputs={numbers: Grouping.ALL})
    tap = Tap.spec(inputs={numbers: Grouping.ALL})
"""


class Launcher(ProcessLauncher):
    """Real processes for the others; for worker 2 the other end of its channel is the test's."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.mine: list[socket.socket] = []
        self.started: list[tuple[int, int]] = []

    def start(self, worker: int, epoch: int, adopt: Adopt) -> None:
        self.started.append((worker, epoch))
        if worker != ME:
            super().start(worker, epoch, adopt)
            return
        theirs, ours = socket.socketpair()
        self.mine.append(ours)
        adopt(worker, epoch, ControlChannel.inherited(theirs))


class Me:
    """Worker 2: what a worker does of its own accord, and what the test makes it do."""

    def __init__(self, sock: socket.socket, plan: Plan) -> None:
        self.expected = {peer: RouteCheck(plan, peer) for peer in PEERS}
        self.channel = ControlChannel.inherited(sock)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.channel, selectors.EVENT_READ, self.hear)
        self.plan: Raw = {}
        self.book: Raw = {"version": 0, "workers": {}}
        self.links: dict[int, Secured] = {}
        self.told = self.whole = self.seen = self.refused = 0
        self.unseen: dict[int, Secured] = {}
        self.stopped = self.draining = False
        self.quiet = 0
        self.traffic: list[dict[int, int]] = []
        self.lost: list[Raw] = []
        self.recorded: list[bytes] = []
        self.tuples = 0
        self.beat_at = 0.0

    # -- as any worker ---------------------------------------------------------------------------------------

    def turn(self, seconds: float) -> None:
        if time.monotonic() > self.beat_at:
            self.beat_at = time.monotonic() + 1
            self.say(messages.Beat({}, [], 0, 0))
        for key, _ in self.selector.select(seconds):
            key.data()
        self.link()
        if self.draining:
            self.say_drained()

    def say(self, message: messages.Message) -> None:
        self.channel.try_send(message)

    def hear(self) -> None:
        for message in self.channel.receive():
            kind = message["t"]
            if kind == "plan":
                self.plan = message
                self.say(messages.Ready(["unix", "/nobody/dials/me", 0], os.getpid()))
                self.say(messages.Initialized())
            elif kind == "book":
                self.book = message
            elif kind == "whole":
                self.whole = message["version"]
            elif kind == "lost":
                self.lost.append(message)
            elif kind == "cut" and ME in message["pair"]:
                (peer,) = set(message["pair"]) - {ME}
                if peer in self.links and self.links[peer].hello.version < message["version"]:
                    self.read(peer, self.links[peer])  # had it read all it was sent, before it closed?
                    if peer in self.links:
                        self.unseen[peer] = self.links[peer]
                        self.hang_up(peer)
            elif kind == "pause":
                self.draining = True
            elif kind == "quiet":
                self.quiet = message["step"]
                self.traffic = []
            elif kind == "stop":
                self.say(messages.Stopped([]))
                self.stopped = True

    def say_drained(self) -> None:
        """All is worked off as it comes; the drain is over when nothing is on its way either."""
        links = self.links.items()
        sent = {peer: link.writer._number for peer, link in links}
        traffic = [sent, {peer: link.reader._number for peer, link in links}]
        if traffic != self.traffic:
            self.traffic = traffic
            state = messages.State(
                drained=True, caught_up=False, done=True, traffic=traffic, idle=True, quiet=self.quiet
            )
            self.say(state)

    def link(self) -> None:
        version = self.book["version"]
        for peer, (_, *address) in self.book["workers"].items():
            if peer in PEERS and peer not in self.links:
                hello = Hello(DATA, self.plan["run_id"], ME, 1, peer, version)
                try:
                    secured = dial(tuple(address), hello, self.plan["secret"], MAX_DATA_FRAME)
                except (OSError, Refused):
                    return  # if it does not live, the coordinator will say so
                secured.sock.setblocking(False)
                self.links[peer] = secured
                self.selector.register(secured.sock, selectors.EVENT_READ, lambda one=(peer, secured): self.read(*one))
        if version > self.told and set(self.book["workers"]) >= set(PEERS) and set(self.links) == set(PEERS):
            self.told = version
            self.say(messages.Linked(version))

    def read(self, peer: int, link: Secured) -> None:
        """Ack what comes to the tap; frames with tuples are kept as recorded ones."""
        if self.links.get(peer) is not link:
            return  # hung up in this very turn
        try:
            data = link.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data, self.unseen[peer] = b"", link
        if not data:
            self.hang_up(peer)
            self.say(messages.LinkLost(peer, 1, link.hello.version, "closed"))
            return
        for payload in link.reader.feed(data):
            incoming = decode_data(payload)
            if incoming.runs:
                self.recorded = [*self.recorded[-99:], payload]
            roots = [root for run in incoming.runs for root in run.roots]
            self.tuples += len(roots)
            edges = [edge for run in incoming.runs for edge in run.edges]
            if roots:
                acks = encode_data(Outgoing([], roots, edges))
                self.recorded.append(acks)
                with contextlib.suppress(OSError):
                    link.sock.sendall(link.writer.frame(acks))

    def hang_up(self, peer: int) -> None:
        link = self.links.pop(peer)
        self.selector.unregister(link.sock)
        link.sock.close()

    # -- as no worker does -------------------------------------------------------------------------------------

    def until(self, reached: Any, what: str, turn_s: float = 0.02) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline and not self.lost, (
                what,
                self.lost,
                self.book,
                self.whole,
                list(self.links),
            )
            self.turn(turn_s)

    def attack(self, tagged: dict[int, bytes]) -> None:
        """One frame behind a true tag to each of these peers, who must close the link for it, if it is a bad one.

        It is counted as seen when it was read: a socket that is closed with something unread resets the other end.
        """
        self.until(lambda: len(self.links) == len(PEERS), "linked again")
        links = dict(self.links)
        for peer, payload in tagged.items():
            with contextlib.suppress(OSError):
                links[peer].sock.sendall(links[peer].writer.frame(payload))
        for peer, payload in tagged.items():
            link, bad = links[peer], self.is_bad(peer, payload)
            self.until(lambda: self.links.get(peer) is not link or not (bad or unread(link.sock)), "it is read", 0.001)  # noqa: B023
            if self.unseen.get(peer) is not link:
                self.seen += 1
                self.refused += self.links.get(peer) is not link

    def is_bad(self, peer: int, payload: bytes) -> bool:
        """Whether the peer has to close its link."""
        try:
            incoming = decode_data(payload)
            incoming.worker = ME
            self.expected[peer].check(incoming)
        except BadFrame:
            return True
        return False

    def cut_off(self, peer: int, untagged: bytes) -> None:
        """One frame of no true tag: the other end must close the link, and soon. What came before it was parsed."""
        self.until(lambda: self.whole == self.book["version"] and len(self.links) == len(PEERS), "whole again")
        link = self.links[peer]
        began = time.monotonic()
        with contextlib.suppress(OSError):
            link.sock.sendall(untagged)
        self.until(lambda: self.links.get(peer) is not link, "the link is closed")
        assert time.monotonic() - began < 5


def unread(sock: socket.socket) -> int:
    """Bytes that the other end of a Unix socket has not read yet."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4), "little")


class Run:
    """The run, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        file = folder / "attacked.py"
        file.write_text(FILE)
        topology = load_topology(file)
        conf = resolve(
            topology.config,
            {
                "streamlet.until.caught.up": True,
                "topology.max.spout.pending": 20,
                "topology.message.timeout.secs": 3,
                "streamlet.worker.restarts.max": 10_000,  # a link is lost with each frame that is refused
                "test.folder": str(folder),
            },
            also_known=["test.folder"],
        )
        self.observer = Watcher()
        request = RunRequest(topology, conf, file=file, workers=3, until_caught_up=True)
        self.coordinator = RunCoordinator(request, self.observer, Stop())
        self.launcher = Launcher(str(self.coordinator.directory))
        self.result: RunResult | BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.result = self.coordinator.run(self.launcher)
        except BaseException as error:
            self.result = error


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[Run, Me]]:
    made = Run(tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while not made.launcher.mine:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    me = Me(made.launcher.mine[0], made.coordinator.plan)
    yield made, me
    print(made.observer.texts[-20:], made.result)  # shown when the test fails
    made.coordinator.stop.ask()
    me.channel.close()
    made.thread.join(PATIENCE_S)
    for link in me.links.values():
        link.sock.close()
    me.selector.close()
    for sock in made.launcher.mine:
        sock.close()


@pytest.mark.parametrize("seed", seeds("bad frames"))
def test_10000_bad_frames_to_living_workers_move_no_tuple_and_stop_no_run(
    run: tuple[Run, Me], tmp_path: Path, seed: int
) -> None:
    """Workers live, links come back, every number is counted, and nothing else has reached a bolt."""
    rng = random.Random(seed)
    made, me = run
    me.until(lambda: me.whole and len(me.recorded) > 20, "tuples flow")
    began = time.monotonic()
    addresses = [str(me.book["workers"][peer][2]) for peer in PEERS]

    def frames() -> dict[int, bytes]:
        """One for each peer: a mutated one and a random one, in turns."""
        pair = [mutated(rng, rng.choice(me.recorded)), rng.randbytes(rng.randrange(200))]
        rng.shuffle(pair)
        return dict(zip(PEERS, pair, strict=True))

    strangers = cycle = 0
    while me.seen < BEHIND or strangers < BEFORE:
        for payload in frames().values():
            if strangers < BEFORE:
                claimed = Hello(DATA, me.plan["run_id"], ME, 1, rng.choice(PEERS), 1)
                stranger(rng, rng.choice(addresses), claimed, payload)
                strangers += 1
        me.attack(frames())
        if cycle % WHOLE_EACH == 0:
            me.cut_off(rng.choice(PEERS), without_secret(rng, rng.choice(me.recorded)))
        cycle += 1
    print(f"{strangers} frames of strangers, {me.seen} behind a true tag, for {me.refused} of them the link was closed")
    assert strangers == BEFORE and me.refused > BEHIND // 2
    # Links that break all the time keep few trees open; afterwards more may be, and the run goes on at its own pace.
    then = me.tuples
    me.until(lambda: me.tuples > then + 100, "tuples flow again")
    (tmp_path / "enough").touch()
    me.until(lambda: me.stopped, "the run ends")
    made.thread.join(PATIENCE_S)
    assert isinstance(made.result, RunResult) and made.result.reason == "caught_up", made.result
    assert made.launcher.started == [(0, 1), (1, 1), (2, 1)] and not me.lost, made.observer.texts
    told = [text for text in made.observer.texts if "was refused" in text]
    most = len(PEERS) * (2 + (time.monotonic() - began) / TELL_S)
    assert len(told) <= most, "strangers fill no log: one line in ten seconds from each worker"
    emitted = int((tmp_path / "emitted").read_text())
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert {(component, stream) for component, stream, _ in seen} == {("numbers", "default")}
    assert {len(values) for _, _, values in seen} == {1}
    assert {values[0] for _, _, values in seen} == set(range(emitted)) and emitted > 100
