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

from streamlet.backends.coordinator import Adopt, Coordinator
from streamlet.backends.ports import RunRequest, RunResult, RunStatus, Stop
from streamlet.backends.processes import ProcessLauncher
from streamlet.model.settings import resolve
from streamlet.runtime import handshake
from streamlet.runtime.control import ControlChannel, Message
from streamlet.runtime.dialing import Secured, dial
from streamlet.runtime.handshake import DATA, Hello, Refused
from streamlet.runtime.loading import load_topology
from streamlet.runtime.ports import Outgoing
from streamlet.runtime.wire import MAX_DATA_FRAME, decode_data, encode_data, pack, unpack

pytestmark = pytest.mark.faults

ME = 2
PEERS = (0, 1)
BEFORE, CYCLES = 7500, 1250
PATIENCE_S = 20.0

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


class Silent:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_status(self, status: RunStatus) -> None: ...

    def on_event(self, level: str, text: str) -> None:
        self.events.append(text)


class Me:
    """Worker 2: what a worker does of its own accord, and what the test makes it do."""

    def __init__(self, sock: socket.socket) -> None:
        self.channel = ControlChannel.inherited(sock)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.channel, selectors.EVENT_READ, self.hear)
        self.plan: Message = {}
        self.book: Message = {"version": 0, "workers": {}}
        self.links: dict[int, Secured] = {}
        self.told = self.whole = 0
        self.stopped = False
        self.lost: list[Message] = []
        self.recorded: list[bytes] = []
        self.beat_at = 0.0

    # -- as any worker ---------------------------------------------------------------------------------------

    def turn(self, seconds: float) -> None:
        if time.monotonic() > self.beat_at:
            self.beat_at = time.monotonic() + 1
            self.say({"t": "beat", "tasks": {}, "partitions": [], "pending": 0, "unfinished": 0})
        for key, _ in self.selector.select(seconds):
            key.data()
        self.link()

    def say(self, message: Message) -> None:
        self.channel.try_send(message)

    def hear(self) -> None:
        for message in self.channel.receive():
            kind = message["t"]
            if kind == "plan":
                self.plan = message
                self.say({"t": "ready", "address": ["unix", "/nobody/dials/me", 0], "pid": os.getpid()})
                self.say({"t": "initialized"})
            elif kind == "book":
                self.book = message
            elif kind == "whole":
                self.whole = message["version"]
            elif kind == "lost":
                self.lost.append(message)
            elif kind == "cut" and ME in message["pair"]:
                (peer,) = set(message["pair"]) - {ME}
                if peer in self.links and self.links[peer].hello.version < message["version"]:
                    self.hang_up(peer)
            elif kind == "pause":
                self.say({"t": "state", "drained": True, "caught_up": False, "done": True})
            elif kind == "stop":
                self.say({"t": "stopped", "errors": []})
                self.stopped = True

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
            self.say({"t": "linked", "version": version})

    def read(self, peer: int, link: Secured) -> None:
        """Ack what comes to the tap; frames with tuples are kept as recorded ones."""
        if self.links.get(peer) is not link:
            return  # hung up in this very turn
        try:
            data = link.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.hang_up(peer)
            self.say({"t": "link_lost", "worker": peer, "epoch": 1, "version": link.hello.version, "why": "closed"})
            return
        for payload in link.reader.feed(data):
            incoming = decode_data(payload)
            if incoming.runs:
                self.recorded = [*self.recorded[-99:], payload]
            roots = [root for run in incoming.runs for root in run.roots]
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

    def until(self, reached: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline and not self.lost, (
                what,
                self.lost,
                self.book,
                self.whole,
                list(self.links),
            )
            self.turn(0.02)

    def attack(self, peer: int, tagged: bytes, untagged: bytes) -> None:
        """One frame behind a true tag, one behind none; the link must be closed by the other end, and come back.

        The second is sent when the first was read: what comes together with a frame of no tag is not parsed.
        """
        self.until(lambda: self.whole == self.book["version"] and len(self.links) == 2, "whole again")
        link = self.links[peer]
        began = time.monotonic()
        with contextlib.suppress(OSError):
            link.sock.sendall(link.writer.frame(tagged))
        self.until(lambda: self.links.get(peer) is not link or not unread(link.sock), "the tagged one is read")
        with contextlib.suppress(OSError):
            link.sock.sendall(untagged)
        self.until(lambda: self.links.get(peer) is not link, "the link is closed")
        assert time.monotonic() - began < 5


def unread(sock: socket.socket) -> int:
    """Bytes that the other end of a Unix socket has not read yet."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4), "little")


BAD: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 99, 2**63, 2**64 - 1, -(2**63), 1.5, "", "default", b"x", [], [[]], [1], [None], {},
    {1: 2}, [[1, 2]], ["x"], [[["x"]]],
]  # fmt: skip


def mutated(rng: random.Random, payload: bytes) -> bytes:
    """A recorded payload with one field, at any depth, replaced, left out, or given twice."""
    frame = unpack(payload)
    if frame[0] and rng.random() < 0.3:  # a target that is there: a bolt that reads the stream, or the spout
        for run in frame[0]:
            run[0] = rng.choice((1, 2))
            run[6] = [["alien"] for _ in run[6]]
        return pack(frame)
    node: Any = frame
    while True:
        at = rng.randrange(len(node))
        if isinstance(node[at], list) and node[at] and rng.random() < 0.8:
            node = node[at]
            continue
        what = rng.randrange(4)
        if what == 0:
            del node[at]
        elif what == 1:
            node.append(node[at])
        else:
            node[at] = rng.choice(BAD)
        return pack(frame)


def without_secret(rng: random.Random, payload: bytes) -> bytes:
    """A frame as a stranger could send it: well made, but for its tag; or announced as longer than any may be."""
    kind = rng.randrange(3)
    if kind == 0:
        return len(payload).to_bytes(4, "big") + rng.randbytes(16) + payload
    if kind == 1:
        return rng.randrange(MAX_DATA_FRAME + 1, 1 << 32).to_bytes(4, "big") + rng.randbytes(rng.randrange(60))
    return b"\xff" + rng.randbytes(3) + rng.randbytes(rng.randrange(200))


def stranger(rng: random.Random, path: str, run_id: bytes, payload: bytes) -> None:
    """A connection that proves nothing. It gets the acceptor's fixed answer at most, and is gone."""
    hello = bytearray(handshake.encode_hello(Hello(DATA, run_id, ME, 1, rng.choice(PEERS), 1), rng.randbytes(16)))
    kind = rng.randrange(4)
    if kind == 0:
        words = rng.randbytes(rng.randrange(300))
    elif kind == 1:
        words = without_secret(rng, payload)
    else:
        if kind == 2:
            hello[rng.randrange(len(hello))] ^= 1 << rng.randrange(8)
        words = bytes(hello) + rng.randbytes(handshake.PROOF_BYTES) + without_secret(rng, payload)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        said = b""
        with contextlib.suppress(ConnectionError):
            sock.connect(path)
            sock.sendall(words)
            sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(4096):
                said += data
        assert len(said) <= handshake.ANSWER_BYTES


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
                "test.folder": str(folder),
            },
            also_known=["test.folder"],
        )
        self.observer = Silent()
        request = RunRequest(topology, conf, file=file, workers=3, until_caught_up=True)
        self.coordinator = Coordinator(request, self.observer, Stop())
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
    deadline = time.monotonic() + 10
    while not made.launcher.mine:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    me = Me(made.launcher.mine[0])
    yield made, me
    print(made.observer.events[-20:], made.result)  # shown when the test fails
    made.coordinator.stop.ask()
    me.channel.close()
    made.thread.join(20)
    for link in me.links.values():
        link.sock.close()
    me.selector.close()
    for sock in made.launcher.mine:
        sock.close()


@pytest.mark.parametrize("seed", [random.SystemRandom().randrange(2**32)])
def test_10000_bad_frames_to_living_workers_move_no_tuple_and_stop_no_run(
    run: tuple[Run, Me], tmp_path: Path, seed: int
) -> None:
    """Workers live, links come back, every number is counted, and nothing else has reached a bolt."""
    rng = random.Random(seed)
    made, me = run
    me.until(lambda: me.whole and len(me.recorded) > 20, "tuples flow")
    addresses = [str(me.book["workers"][peer][2]) for peer in PEERS]
    payloads = list(me.recorded)
    for cycle in range(CYCLES):
        for _ in range(BEFORE // CYCLES):
            stranger(rng, rng.choice(addresses), me.plan["run_id"], rng.choice(payloads))
        tagged = mutated(rng, rng.choice(me.recorded)) if cycle % 2 else rng.randbytes(rng.randrange(200))
        me.attack(rng.choice(PEERS), tagged, without_secret(rng, rng.choice(me.recorded)))
    (tmp_path / "enough").touch()
    me.until(lambda: me.stopped, "the run ends")
    made.thread.join(PATIENCE_S)
    assert isinstance(made.result, RunResult) and made.result.reason == "caught_up", made.result
    assert made.launcher.started == [(0, 1), (1, 1), (2, 1)] and not me.lost, made.observer.events
    assert len([text for text in made.observer.events if "was refused" in text]) < 30, "strangers fill no log"
    emitted = int((tmp_path / "emitted").read_text())
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert {(component, stream) for component, stream, _ in seen} == {("numbers", "default")}
    assert {len(values) for _, _, values in seen} == {1}
    assert {values[0] for _, _, values in seen} == set(range(emitted)) and emitted > 100
