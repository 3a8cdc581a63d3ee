"""A worker process: it builds its part of a plan, runs the loop, and answers its coordinator.

Two threads. The main one is the loop and all user code. The control thread listens for links, reads the coordinator's
messages and sends heartbeats, so that a slow bolt never looks like a dead worker. What a message asks for is posted to
the loop: tasks, links and ledgers are touched on the loop's thread alone, and need no lock.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import logging
import math
import os
import random
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamlet.base.clock import SystemClock
from streamlet.base.environment import environment
from streamlet.base.errors import StreamletError
from streamlet.base.log_line import LogLine
from streamlet.base.open_files import flush_open_files
from streamlet.base.pools import MOST_S, NO_CALLS, STILL_S, PoolCalls, finish_pools
from streamlet.base.termination_signals import TERMINATION_SIGNALS, keep, let_in
from streamlet.components.batch import Batch
from streamlet.components.tuples import Tuple
from streamlet.model.paused import PausedPart
from streamlet.model.plan import Plan, fingerprint, make_plan
from streamlet.runtime.links import handshake
from streamlet.runtime.links.dialing import LinkAddress
from streamlet.runtime.links.handshake import Hello
from streamlet.runtime.links.links import SocketLinks
from streamlet.runtime.links.peering import Peering
from streamlet.runtime.links.route_check import RouteCheck
from streamlet.runtime.links.server import LinkServer, new_socket_name
from streamlet.runtime.links.silence import LOOK_S
from streamlet.runtime.links.wire import MAX_DATA_FRAME
from streamlet.runtime.tasks.building import WorkerContext, component_names
from streamlet.runtime.tasks.in_hand import InHand, roots_at_work, shortened
from streamlet.runtime.tasks.user_errors import Complaints, ComponentFailed, exited, memory_limit
from streamlet.runtime.worker import closed_descriptors, messages
from streamlet.runtime.worker.channel import ChannelClosed, ControlChannel
from streamlet.runtime.worker.collector import Collector
from streamlet.runtime.worker.hang_watch import Hang, HangWatch, call_text, present_call, stack_in_call
from streamlet.runtime.worker.kept_code import Code, KeptCode, own_build
from streamlet.runtime.worker.loading import CannotLoad, ImportedOtherwise, load_topology
from streamlet.runtime.worker.log_lines import Place, at_work, line_now, logs_shown
from streamlet.runtime.worker.loop import DRAINING, WorkerLoop
from streamlet.runtime.worker.messages import Raw, WorkerPlan, from_coordinator
from streamlet.runtime.worker.page_file import map_page
from streamlet.runtime.worker.parents_end import GONE_S, end_after_parent, end_group_after, end_with_group, is_gone
from streamlet.runtime.worker.printed_lines import prints_told
from streamlet.runtime.worker.printed_output import finish_printing, print_without_waiting
from streamlet.runtime.worker.standstill import gap_of
from streamlet.runtime.worker.timers import next_multiple
from streamlet.runtime.worker.users_files import OWN

if TYPE_CHECKING:
    # Rule: not imported to run. OpenSSL takes 1.5 MiB and 3 ms of a worker that does not encrypt.
    from streamlet.runtime.links.tls import LinkTls

ORPHAN_S = 3.0
"""Seconds that a worker without a coordinator may take to end by itself."""

CONTROL_END_S = 3.0
"""Seconds that the control thread may take to end after the loop; it may be sending."""

FLUSH_S = 0.05
"""Seconds between two tries to send what the coordinator has not read yet."""

GAP_S = 2.0
"""Seconds, beside three heartbeats, after which a heartbeat is so late that the process itself stood still."""

LAST_PRINTS_S = 0.3
"""Seconds that what functions of `atexit` print may take."""

BEAT_AFTER_S = 0.1
"""Seconds between the loop's look at its numbers, at multiples of the period, and the heartbeat."""

logger = logging.getLogger("streamlet")


def _tls_of(certificate: bytes) -> LinkTls | None:
    """Return what encrypts the links of a run that has a certificate."""
    if not certificate:
        return None
    from streamlet.runtime.links.tls import LinkTls

    return LinkTls(certificate)


class Worker:
    """Everything a worker process is. ``run`` returns the exit status."""

    # Long: a process's two threads, what both touch, and every message from and to the coordinator. What the loop does
    # with a message is the loop's; the watch of hanging calls and the code that is kept have modules.

    def __init__(
        self,
        channel: ControlChannel,
        plan: WorkerPlan,
        early: Sequence[Raw] = (),
        finish_pools: Callable[[], PoolCalls] = lambda: NO_CALLS,
    ) -> None:
        """Take the first message. ``finish_pools``: see ``WorkerContext``; pools of a process that lives on go on."""
        self.channel = channel
        self.plan = plan
        # Messages that were read together with the plan. A coordinator that ends a run while its workers start may have
        # said `stop` already; if these were dropped, both sides would wait for ever.
        self._early = early
        self.index = plan.worker
        self.epoch = plan.epoch
        self.clock = SystemClock()
        self.complaints = Complaints(
            self.tell, self.clock, lambda text: self.channel.try_send(messages.Complaint(text))
        )
        self.numbers = messages.Beat({}, [], 0, 0)
        """Written by the loop, sent by the control thread; replaced as a whole."""
        self._beaten = self.numbers
        """The numbers of the latest heartbeat."""
        self.reported: messages.State | None = None
        self.clean = self.settled = self.initialized = self._failure_reported = False
        self.server: LinkServer | None = None
        self._tls = _tls_of(plan.certificate)
        self.over = threading.Event()
        self._looks = threading.Event()
        """The control thread has looked at the loop."""
        self._parent = os.getppid()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._page = map_page(plan.page)
        self.in_hand = InHand(self._page, lambda root: self.loop.ledgers.message_of(root))
        self.in_hand.note_writer(os.getpid())
        self._components: dict[int, str] = {}
        """The component of each task that lives here; empty until the topology is there."""
        self._component_of: dict[int, str] = {}
        """The component of each task, wherever it lives."""
        self._gap_s = 3 * plan.heartbeat_s + GAP_S
        limit_s = plan.conf["streamlet.task.hang.secs"]
        self._held_gap_s = gap_of(self._gap_s, plan.heartbeat_s, limit_s)
        self._hangs = HangWatch(limit_s, self._held_gap_s)
        self._main_thread = threading.get_ident()
        self._control_thread = threading.Thread(target=self._control, name="control", daemon=True)
        self.collector: Collector | None = None
        self._loop: WorkerLoop | None = None
        self._finish_pools = finish_pools
        self.peering: Peering

    @property
    def loop(self) -> WorkerLoop:
        """The loop, once it is built."""
        assert self._loop is not None
        return self._loop

    # -- the main thread -----------------------------------------------------------------------------------------

    def run(self) -> int:
        """Build, announce, initialise, turn until told to stop; leave nothing behind."""
        try:
            place = Place(self.in_hand.words, self._components, self.index, self.epoch)
            # Before the topology is imported: its modules may read the environment.
            with at_work(place), environment(self._variables()):
                return self._run_to_end()
        finally:
            # In a Spark task the process lives on, so threads, sockets and pipes end here.
            self._release()

    def _run_to_end(self) -> int:
        try:
            self._build()
            self._listen()
            self._control_thread.start()
            # Rule: the thread that looks has looked before the first call of a component. One that holds the lock from
            # then on would be told as one that let others look, or to nobody.
            self._looks.wait(GAP_S)
            self.loop.initialize()
            self.loop.be_careful(self.plan.careful, self.plan.careful_s)
            self.loop.timers.every(self.plan.heartbeat_s, self._note_numbers, self.clock.monotonic(), aligned=True)
            self._note_numbers()
            self.collector = Collector(self.plan.conf["streamlet.worker.memory.bytes"])
            self.initialized = True
            self.channel.send(messages.Initialized())
            self._turn()
        except ChannelClosed as error:
            self._end_if_closed(error.__context__)
            self.clean = False
        except MemoryError as error:
            return self._out_of_memory(error)
        except StreamletError as error:
            if self._loop is not None:
                self._loop.finish_open_trees()
            return self._failed(error, error.exit_status)
        except Exception as error:  # noqa: BLE001 - the last frame of a process: report, then end
            self._end_if_closed(error)
            return self._failed(error, 1)
        except BaseException as error:  # noqa: BLE001 - a component's sys.exit(), too
            # A component's sys.exit() is no death of the worker: a replacement would come to the same line again. So it
            # ends the run with an error that names component and line, and the exit status stays ours.
            tasks = () if self._loop is None else self._loop.tasks.values()
            return self._failed(exited(error, component_names(tasks)), 1)
        try:
            return self._close()
        except Exception as error:
            self._end_if_closed(error)  # a `cleanup` may have closed them
            raise

    def _variables(self) -> dict[str, str]:
        """Return the topology's environment variables that this process may not have."""
        variables = dict(self.plan.conf["topology.environment"] or {})
        if not self._over_network:
            variables.pop("PYTHONPATH", None)  # in that of this process since its start, beside ours
        return variables

    def _end_if_closed(self, error: BaseException | None) -> None:
        """End the process if it has lost a descriptor of its own. Any thread.

        Of a ChannelClosed the kernel's error is its context.
        """
        # Rule: not once the run is over, when this process closes them itself. A slot of Spark lives on.
        if error is not None and closed_descriptors.is_closed(error) and not self.over.is_set():
            # A coordinator of processes reads the exit status. Spark keeps it to itself, so the executor's log says it.
            closed_descriptors.end(self.index, self.epoch, {*self._components.values()}, shown=self._over_network)

    def _out_of_memory(self, error: MemoryError) -> int:
        """Ask to be replaced: what a MemoryError left half done in our own code cannot be trusted."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        self.channel.try_send(messages.Unfit(f"ran out of memory at {where.filename}:{where.lineno}{memory_limit()}"))
        with contextlib.suppress(Exception):
            self.loop.close(clean=False)
        return 1

    def _build(self) -> None:
        plan = self.plan
        placed = self._placed()
        self._components.update((task.task_id, task.component) for task in placed.tasks_on(self.index))
        self._component_of.update((task.task_id, task.component) for task in placed.tasks)
        shared = WorkerContext(
            plan=placed,
            worker=self.index,
            epoch=self.epoch,
            topology_id=plan.run_id.hex(),
            conf=plan.conf,
            clock=self.clock,
            rng=random.Random(os.urandom(32)),
            report=self.complaints.report,
            explain=self.complaints.explain,
            wake=lambda: self.loop.post(lambda: None),
            overrides=plan.overrides,
            in_hand=self.in_hand,
            page=self._page,
            crashes=plan.crashes,
            tell=self.tell,
            finish_pools=self._finish_pools,
            run_began=plan.began,
        )
        links = SocketLinks(self._link_lost, RouteCheck(placed, self.index).check)
        self._loop = WorkerLoop(shared, links)
        if self._over_network:
            now = self.clock.monotonic()
            self.loop.timers.every(LOOK_S, lambda: links.cut_silent(self.clock.monotonic()), now)
        self.peering = Peering(
            Hello(handshake.DATA, plan.run_id, self.index, self.epoch, wanted=self.index),
            plan.workers,
            plan.secret,
            links,
            self.loop.post,
            self._linked,
            lambda peer, why: self.channel.try_send(messages.Unlinked(peer, why)),
            lambda why: self.channel.try_send(messages.Unfit(f"{why}{memory_limit()}")),
            self._tls,
        )

    def _placed(self) -> Plan:
        """Import the topology and place its tasks as the coordinator did. Raises StreamletError."""
        plan, name = self.plan, None
        if plan.modules:
            kept = plan.links, plan.elsewhere, plan.kept_s, plan.compiled, plan.edited
            code = Code(plan.modules, plan.files, plan.roots, *kept)
            tell = self._tell_edited, self._tell_added, self._tell_compiled
            KeptCode(code, Path(plan.code_folder), *tell).install()
            name = code.name_of(Path(plan.file))
        try:
            topology = load_topology(Path(plan.file), plan.attribute, notes_sources=False, known_as=name)
        except CannotLoad as error:  # the coordinator could: the user's input is not bad
            raise ImportedOtherwise(self.index, plan.file, error) from error
        placed = make_plan(topology, plan.workers, plan.conf)
        if fingerprint(placed) != plan.fingerprint:
            raise StreamletError(
                f"Worker {self.index} imported {plan.file} and found another topology than the coordinator did. "
                "The class body must give the same components in every process: no random names, no dependence on "
                "time, environment or working directory."
            )
        return placed

    def _tell_edited(self, file: str) -> None:
        self.tell(
            "warning",
            f"{file} was changed since the run began. Worker {self.index} (epoch {self.epoch}) runs the code of the "
            "start, as all others do; start the run again to take the change.",
        )

    def _tell_added(self, file: str, taken: bool) -> None:
        here = f"Worker {self.index} (epoch {self.epoch})"
        if taken:
            text = (
                f"{file} was added or changed after the run began, and its code of then was not kept. {here} has "
                "imported it as it is now, and this copy is what others import from now on; a worker that looked for "
                "it before runs without it, or with what it found. If the topology did not make the file itself, start "
                "the run again: its workers may have different code."
            )
        else:
            text = (
                f"{file} was added after the run began, and the topology's import did not find it then. {here} goes "
                "on without it, as all others do; start the run again to take it."
            )
        self.tell("warning", text)

    def _tell_compiled(self, file: str) -> None:
        self.tell(
            "warning",
            f"{file} was changed since the run began. Only .py files are kept, and this is another kind: worker "
            f"{self.index} (epoch {self.epoch}) starts with it as it is now, and workers that started before have it "
            "as it was. Start the run again: its workers may have different code.",
        )

    def _turn(self) -> None:
        assert self.collector is not None
        loop, collect_if_due, sleep_s = self.loop, self.collector.collect_if_due, 0.0
        while not loop.stopped:
            sleep_s = loop.turn(sleep_s)
            collect_if_due()
            if loop.ledgers.failure is not None:
                self._report_failure()
            # Only a worker that has nothing to do can have come to an end. The turns of a busy one do not count open
            # trees.
            if loop.at_rest:
                self._report_state()

    def _report_failure(self) -> None:
        """Report the error that ends the run after its drain, once."""
        failure = self.loop.ledgers.failure
        if failure is not None and not self._failure_reported:
            self._failure_reported = True
            self._report_failed(failure, failure.exit_status, drains=True)

    def _report_state(self) -> None:
        """Report the last tree done or the end reached at once: heartbeats are too slow."""
        loop = self.loop
        asks_end = bool(self.plan.conf["streamlet.until.caught.up"])
        state = messages.State(
            drained=loop.ledgers.pending() == 0 and loop.idle,
            caught_up=asks_end and not loop.paused and loop.ledgers.caught_up(),
            done=loop.ledgers.unfinished() == 0,
            # None before the pause for good: a `drained` from then may be older than the last tuple.
            traffic=loop.links.traffic() if DRAINING in loop.paused else None,
            idle=loop.idle,
            quiet=loop.quiet,
        )
        if state != self.reported:
            self.reported = state
            self.channel.try_send(state)

    def _note_numbers(self) -> None:
        """Read all numbers of one moment, so that they fit each other. On the loop's thread."""
        # At the multiples of the period on the machine's clock, which are the same moments in every worker. Read when a
        # heartbeat is due instead, bolts would be a second ahead of the spouts that feed them.
        loop = self.loop
        loop.ledgers.note_open()
        wait_s, call_s = loop.census.work_left()
        self.numbers = messages.Beat(
            tasks={task_id: live.task.stats.snapshot() for task_id, live in loop.tasks.items()},
            partitions=loop.ledgers.partitions(),
            pending=loop.ledgers.pending(),
            unfinished=loop.ledgers.unfinished(),
            wait_s=wait_s,
            call_s=call_s,
            **loop.untracked.look()._asdict(),
            sent=dict(loop.account.sent),
            lost=loop.lost_with_links(),
        )

    def _report_failed(self, error: Exception, status: int, *, drains: bool = False) -> None:
        message = str(error) if isinstance(error, StreamletError) else self._bug(error)
        trace = "".join(traceback.format_exception(error))
        self.channel.try_send(messages.Failed(message, status, trace, _retriable(error), drains))

    def _failed(self, error: Exception, status: int) -> int:
        # Reported before the close, which may hang in a `cleanup`; not before the open trees were finished, for the
        # report ends the other workers too.
        self._report_failed(error, status)
        if self._loop is not None:
            self._close_failed(self._loop, starts_again=_retriable(error))
        return status

    def _close_failed(self, loop: WorkerLoop, starts_again: bool) -> None:
        """Close after an error, and tell the last numbers."""
        left: dict[str, int] = {}
        try:
            # A worker whose peers were activated first may have been given tuples before it was itself.
            if loop.activated or loop.processed():
                left = loop.left_over(settled=False, ticks=False)
            self._report_numbers()
        except Exception:
            logger.debug("worker %d: what it left was not counted", self.index, exc_info=True)
        loop.close(clean=False)
        self._report_numbers()
        if not starts_again:  # else it is not the end of the run, and its next start has nothing of this one
            self.channel.try_send(messages.Stopped([], left, [], *loop.account.all_exchanged()))

    def _bug(self, error: Exception) -> str:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        return (
            f"Worker {self.index} raised {type(error).__name__} at {place}: {error}. The topology stops; what was not "
            "acked will be read again. The traceback is shown with --debug."
        )

    def _close(self) -> int:
        left = self.loop.left_over(self.settled, ticks=self.clean)
        self._report_failure()  # of a last tick, or of a spout at the last acks
        self._report_numbers()  # a `cleanup` that hangs must not keep them from the user, nor what is left
        raised = self.loop.close(self.clean)
        self._report_numbers()  # after the spouts' last commit: the last numbers count it
        self.complaints.flush()
        traces = ["".join(traceback.format_exception(error.__cause__ or error)) for error in raised]
        account = self.loop.account.all_exchanged()
        try:
            self.channel.send(messages.Stopped([str(error) for error in raised], left, traces, *account))
        except ChannelClosed as error:
            self._end_if_closed(error.__context__)
        return 1 if raised else 0

    def _report_numbers(self) -> None:
        try:
            self._note_numbers()
            self._beat()
        except Exception:
            logger.debug("worker %d: the last numbers were not reported", self.index, exc_info=True)

    def _release(self) -> None:
        self.over.set()
        if self._control_thread.ident is not None:
            os.write(self._wake_write, b"\0")
            self._control_thread.join(CONTROL_END_S)
        if self.server is not None:
            self.server.close()
        if self.collector is not None:
            self.collector.close()
        if not self._control_thread.is_alive():  # one that hangs still looks at the pipe
            os.close(self._wake_read)
            os.close(self._wake_write)

    # -- links -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self.server = LinkServer(
            self._listen_address(),
            self.plan.secret,
            self.peering.check_hello,
            self.peering.add_secured,
            MAX_DATA_FRAME,
            self._tls,
        )
        self.channel.send(messages.Ready(self.server.address, os.getpid(), self.plan.host, self.plan.executor))

    @property
    def _over_network(self) -> bool:
        return not self.plan.folder

    def _listen_address(self) -> LinkAddress:
        """Return the address to listen at for peers: never every interface."""
        if not self._over_network:
            return "unix", new_socket_name(self.plan.run_id, self.index, self.epoch), 0
        # Without a named host: peers can reach the address from which we reach the coordinator, too.
        return "tcp", self.plan.listen_host or self.channel.sock.getsockname()[0], 0

    def _link_lost(self, worker: int, epoch: int, version: int, why: str) -> None:
        """Pause and report the loss. On the loop's thread."""
        # The open trees fail when the coordinator answers, which it does in every case: with `cut`, or with `lost` if
        # the peer has died. Failed at once they would all be lost ones, and the one that the peer died of with them.
        self.loop.link_broke(worker)
        self.channel.try_send(messages.LinkLost(worker, epoch, version, why))

    def _recover(self, what: str, *lost: int) -> None:
        failed = self.loop.recover(lost)
        if failed:
            trees = "1 open tree" if failed == 1 else f"{failed} open trees"
            logger.info("worker %d: %s was lost and %s failed", self.index, what, trees)

    # -- the control thread ----------------------------------------------------------------------------------------

    def _control(self) -> None:
        assert self.server is not None
        self.loop.long_calls.look(self._held_gap_s)
        self._hanging()
        self._looks.set()
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ, self._read_messages)
            # Peers and the coordinator are served here, not on the loop's thread: a `process` that takes a minute must
            # neither keep a peer from linking nor stop the heartbeat, or a healthy worker would be replaced.
            selector.register(self.server, selectors.EVENT_READ, self.server.serve)
            selector.register(self._wake_read, selectors.EVENT_READ, lambda: None)
            period, due = self.plan.heartbeat_s, 0.0
            longest_s = LOOK_S if self._over_network else math.inf
            try:
                for raw in self._early:
                    self._handle(raw)
                while not self.over.is_set():
                    left_s = min(max(0.0, due - time.monotonic()), longest_s)
                    for key, _ in selector.select(min(left_s, FLUSH_S) if self.channel.unsent else left_s):
                        key.data()
                    if self.channel.unsent:
                        self.channel.flush()
                    if self._over_network:
                        # A coordinator that cannot reach this worker replaces it after this time. So the worker ends
                        # after the same time, and does not work on beside its replacement.
                        self.channel.give_up_if_silent(
                            time.monotonic(), self.plan.conf["streamlet.worker.timeout.secs"]
                        )
                    if time.monotonic() >= due:
                        due = next_multiple(time.monotonic(), period) + min(BEAT_AFTER_S, period / 2)
                        self._beat()
            except ChannelClosed as error:
                self._end_if_closed(error.__context__)
                self._orphaned()
            except Exception as error:  # noqa: BLE001 - the last frame of a thread: report, then end
                self._end_if_closed(error)
                # A row or metric that cannot be packed: reported by name, since a replacement would be silent again.
                self._report_failed(error, 1)
                self._orphaned()

    def _read_messages(self) -> None:
        for raw in self.channel.receive():
            self._handle(raw)

    def _handle(self, raw: Raw) -> None:
        # Each message becomes an act on the loop's thread. Tasks, ledgers and links belong to that thread alone, and so
        # none of them has a lock.
        post = self.loop.post
        match from_coordinator(raw):
            case messages.Book(version, workers):
                book = {peer: (epoch, (kind, host, port)) for peer, (epoch, kind, host, port) in workers.items()}
                post(lambda: self.peering.apply_book(version, book))
            case messages.Whole(version):
                post(lambda: self._whole(version))
            case messages.Pause(gone):
                post(lambda: self._drain(gone))
            case messages.Paused(parts):
                paused = [PausedPart(*part) for part in parts]
                post(lambda: self.loop.pause_parts(paused))
            case messages.TickNow():
                post(self.loop.tick_now)
            case messages.Quiet(step):
                post(lambda: self.loop.be_quiet(step))
            case messages.Lost() as lost:
                post(lambda: self._worker_lost(lost))
            case messages.Cut(pair, version):
                post(lambda: self._cut(pair, version))
            case messages.Close(clean, settled):
                post(lambda: self._stop(clean, settled))

    def _whole(self, version: int) -> None:
        """Let tuples flow: every worker is linked by this version of the book."""
        if not self.peering.all_linked_by(version):
            return  # overtaken by a loss or a newer book
        self.loop.recovered()
        if not self.loop.activated:
            self.loop.activate()
            # Rule: an error of a spout ends a run as Ctrl-C does, with a drain. Bolts are whole, and what they keep of
            # acked tuples until their next tick or their cleanup is nowhere else.
            self.loop.ledgers.retires = True
        # The state is sent once more: a spout that was done before all were up has said so when the coordinator could
        # not use it, since it minds an end only while the run is whole.
        self.reported = None

    def _worker_lost(self, lost: messages.Lost) -> None:
        self.peering.gone(lost.worker, lost.epoch)
        self.loop.be_careful(lost.careful, lost.careful_s)
        # Before the rest fails as lost: the tuple that it died of is the one that counts a try.
        at_fault = self._component_of.get(lost.careful[0], "") if lost.careful else ""
        self.loop.ledgers.apply_crashes([*lost.roots], lost.how, at_fault)
        self._recover(f"worker {lost.worker}", lost.worker)
        # Its last words are read by now, so these counts are final.
        self.channel.try_send(
            messages.Exchanged(lost.worker, lost.epoch, *self.loop.account.exchanged_with(lost.worker))
        )
        if DRAINING in self.loop.paused:
            self._write_off([lost.worker])  # what was sent to it stays counted: nobody takes its place
        else:
            self.loop.account.forget(lost.worker)

    def _drain(self, gone: Sequence[int]) -> None:
        """Let nothing new begin: the run is ending. From now on the state says what went over the links, too."""
        self.loop.pause(DRAINING)
        self._write_off(gone)

    def _write_off(self, gone: Sequence[int]) -> None:
        self.loop.write_off(gone)
        self._go_on_without_the_dead()

    def _linked(self, version: int) -> None:
        self.channel.try_send(messages.Linked(version))
        self._go_on_without_the_dead()

    def _go_on_without_the_dead(self) -> None:
        """Let tuples travel once all links to the living stand."""
        # Rule: with a worker missing a run that ends is not whole again, so nobody says it. Without this, what threads
        # have handed over to spouts would wait for the drain's whole time, and be left.
        dead = self.loop.departures.written_off
        if dead and self.peering.all_linked_but(dead):
            self.loop.recovered()

    def _cut(self, pair: Sequence[int], version: int) -> None:
        """Recover from a lost link between two workers, this one or others."""
        self.peering.cut(pair, version)
        self._recover(f"the link between workers {pair[0]} and {pair[1]}", *pair)

    def _stop(self, clean: bool, settled: bool = False) -> None:
        self.clean, self.settled = clean, settled
        self.loop.stopped = True

    def _beat(self) -> None:
        built = [] if self.initialized else list(self.loop.tasks.values())
        component = built[-1].plan.component if built else ""
        self.loop.long_calls.look(self._held_gap_s)
        hanging = [*self._hanging(), *self.loop.long_calls.rows()]
        if (stuck := self.loop.long_calls.stuck()) is not None:
            task, tup, since = stuck
            why = f"has had only calls of {self._task_name(task)} that hang, for {self.clock.monotonic() - since:.0f} s"
            self._ask_for_replacement(why, task, tup, shortened(tup.values))
        self.channel.send(dataclasses.replace(self._present_numbers(), initializing=component, hanging=hanging))

    def _present_numbers(self) -> messages.Beat:
        """Return the loop's numbers; of one that is late the untracked tuples and its call as they are."""
        numbers, late = self.numbers, self.numbers is self._beaten
        self._beaten = numbers
        if not (late and self.initialized):
            return numbers
        # Rule: a loop that hangs in a call tells no counts, and nobody sends untracked tuples again. Where no page
        # outlives this process, its last heartbeat is all that there is of them.
        # So it is with a batch that is larger than those before it: a drain would be too short for it.
        call_s = max(numbers.call_s, self.loop.census.at_work_s())
        return dataclasses.replace(numbers, call_s=call_s, **self.loop.untracked.look()._asdict())

    def _hanging(self) -> list[dict[str, Any]]:
        """Return the loop's call that takes too long, and name it once."""
        now = self.clock.monotonic()  # before the look: the loop may hold the lock between these two
        look, tup = present_call(self.in_hand, self.loop.tasks)
        hang = self._hangs.observe(look, now)
        if self._hangs.over is not None:
            over = self._hangs.over.look
            told = f"{self._task_name(over.task)} went on after more than {self._hangs.over.seconds:.0f} s."
            self.tell("warning", told, self._components.get(over.task, ""), over.task)
        if hang is None:
            return []
        if hang.first:
            self._tell_hang(hang, tup)
        held = "" if tup is None else look.held_text
        self._ask_for_replacement(f"has been in one call for {hang.seconds:.0f} s", look.task, tup, held)
        return [{"task": look.task, "call": look.call, "seconds": hang.seconds, "tuple": held}]

    def _tell_hang(self, hang: Hang, tup: Tuple | Batch | None) -> None:
        told = (
            f"Worker {self.index} has been in {call_text(hang, tup, self._task_name(hang.look.task))}. "
            "Nothing else of it runs meanwhile."
            f"{stack_in_call(self._main_thread, hang.look, self.in_hand, self.loop.tasks)}"
        )
        self.tell("warning", told, self._components.get(hang.look.task, ""), hang.look.task)

    def _ask_for_replacement(self, why: str, task: int, tup: Tuple | Batch | None, values: str) -> None:
        """Ask to be replaced, where the user wants that for a hang; ``tup`` is at fault."""
        if self.plan.conf["streamlet.task.hang.action"] != "replace" or not self.initialized or self.loop.stopped:
            return
        # With each heartbeat: the coordinator may have been unable to do it when it was asked first. In which call,
        # stands on the page that is read with this.
        unfit = messages.Unfit(why)
        if isinstance(tup, Tuple):  # named exactly: the slice may hold others that have not been begun
            # Rule: said here, and not written on the page, and without its message. The loop may go on at any moment
            # and write there itself; and what a spout calls its message is for its own thread to ask.
            roots = roots_at_work([root for root, _ in tup.anchors] if tup.anchors else [tup.root])
            unfit = dataclasses.replace(unfit, task=task, roots=roots, values=values)
        # First, with what waits behind that call: the coordinator counts it as lost.
        self.channel.try_send(self._present_numbers())
        self.channel.try_send(unfit)

    def _task_name(self, task_id: int) -> str:
        return f"{self.loop.plan.tasks[task_id - 1].component} (task {task_id})"

    def _orphaned(self) -> None:
        """End without the coordinator: unclean, soon, even if user code never returns."""
        # A coordinator that was killed cannot remove the folder of the run: its workers do. But one that hangs up and
        # lives has replaced this worker, and the others have what they need there.
        if self.plan.folder and is_gone(self._parent):
            shutil.rmtree(self.plan.folder, ignore_errors=True)
        self.loop.post(lambda: self._stop(False))
        if not self.over.wait(ORPHAN_S):
            if self._over_network:  # a slot of Spark, which has no group of its own
                os._exit(1)
            end_with_group(1)

    def tell(self, level: str, text: str, component: str = "", task: int = 0) -> None:
        """Show a line to the person who watches the run. Any thread."""
        self.tell_line(line_now(level, text, component=component, task=task))

    def tell_line(self, line: LogLine) -> None:
        """Send a line of the run's log. Any thread."""
        self.channel.try_send(messages.event_of(line))


def _retriable(error: BaseException) -> bool:
    """Tell whether the error, or what it explains, is retriable."""
    # Any other error of ours says it itself, whatever it came from.
    found = error.__cause__ if isinstance(error, ComponentFailed) else error
    return isinstance(found, StreamletError) and found.retriable


def serve(
    channel: ControlChannel,
    shared: Mapping[str, str] | None = None,
    at_end: Callable[[], None] = lambda: None,
    finish_pools: Callable[[], PoolCalls] = lambda: NO_CALLS,
    **known: Any,
) -> int:
    """Be a worker for the coordinator at the other end; return the exit status.

    Called on a process's main thread. ``shared``: where the files of ``streamlet.shared`` lie here. ``at_end`` is
    called before the channel ends; ``finish_pools`` is that of ``WorkerContext``. ``known`` are fields of the plan
    that this process knows better: where the topology's file lies here, or a secret that must not travel over a network
    again. Threads, handlers and sockets are gone when it returns.
    """
    try:
        raws: list[Raw] = []
        while not raws:  # however long it takes: the coordinator may be stopped, and its end is seen
            raws = channel.receive(wait=True)
        if _is_another_build(channel, raws[0]):
            return 1
        plan = from_coordinator(raws[0])
    except (ChannelClosed, messages.BadMessage):
        return 1
    if not isinstance(plan, WorkerPlan):
        return 1
    if shared:
        known["conf"] = {**plan.conf, "streamlet.shared": shared}
    worker = Worker(channel, dataclasses.replace(plan, **known), raws[1:], finish_pools)
    try:
        prints = prints_told(worker.tell_line) if plan.keeps_log else contextlib.nullcontext()
        with logs_shown(worker.tell_line, plan.debug), prints, contextlib.ExitStack() as last:
            last.callback(at_end)
            return worker.run()
    finally:
        channel.finish()


def _is_another_build(channel: ControlChannel, plan: Raw) -> bool:
    """Tell whether streamlet was changed since the run began, and report it."""
    # Asked before the plan is decoded, which another build may not understand. Two versions in one run could count a
    # tree differently, and nothing would tell.
    if plan["t"] != "plan" or plan.get("build") in ("", own_build()):
        return False
    channel.send(
        messages.Failed(
            f"Worker {plan.get('worker')} (epoch {plan.get('epoch')}) found another streamlet below {OWN} than the run "
            "began with: it was upgraded or edited meanwhile. Start the run again; what is tracked and was not acked "
            "is read again.",
            1,
            "",
            False,
        )
    )
    channel.finish()
    return True


def _leave_signals_to_coordinator() -> None:
    """Outlive SIGINT, SIGTERM and SIGHUP: the coordinator, which gets them too, ends its workers."""
    # systemd, a container's end and `kill` of a group send SIGTERM to every process. A worker that died of it would
    # take along what its coordinator is about to drain.
    numbers = [number for number in TERMINATION_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    # A handler that does nothing, not SIG_IGN: what a component starts would inherit that for good, and could not be
    # terminated.
    keep(lambda *_: None, numbers)
    # Rule: nothing of a worker stops for a terminal. Its group is in the background: a password that a client asks for
    # stopped it, again and again; now that call fails.
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    # A child that is forked (multiprocessing) is the user's own, and ends like any program. A signal that comes before
    # it has its own handlers waits until it has.
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore_defaults() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore_defaults)


def main() -> None:
    """Run as ``python -m streamlet.runtime.worker.worker FD``, FD being the control channel."""
    parent = os.getppid()
    end_after_parent()
    _leave_signals_to_coordinator()
    print_without_waiting()
    let_in()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # as every descriptor but one that was passed on is already
    channel = ControlChannel.inherited(socket.socket(fileno=descriptor))
    # As the interpreter does where a program ends by itself: a pool's calls are made.
    status = serve(channel, at_end=finish_printing, finish_pools=lambda: finish_pools(STILL_S, MOST_S))
    channel.close()
    # Rule: without a coordinator the exit is bounded here. Who waits there for the processes of a pool waits for ever.
    end_group_after(parent, ORPHAN_S)
    # What libraries and the user's modules left to be done at exit. Not by returning: the interpreter would then wait
    # for all threads of libraries. The coordinator ends a worker that takes too long.
    atexit._run_exitfuncs()
    # Rule: what stands in the buffer of a file that a component left open is written, as at any program's end. Its
    # tuples are acked, and nobody sends them again.
    gc.unfreeze()  # the collector has frozen what `initialize` made
    for failed in flush_open_files():
        status = status or 1
        print(f"Not everything could be written to a file that was left open, {failed}", file=sys.__stderr__)
    finish_printing(LAST_PRINTS_S)
    if is_gone(parent, GONE_S if channel.ended else 0.0):
        end_with_group(status)
    os._exit(status)


if __name__ == "__main__":
    main()
