"""The node store on a real ZooKeeper. The only file that imports kazoo."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kazoo import exceptions as kz
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.security import make_digest_acl

from streamlet.base.chance import CHANCE
from streamlet.base.keep_alive import keep_alive
from streamlet.base.port_probe import spoken_at
from streamlet.coordination.ensemble import Ensemble, NotZooKeeper, ask_for_session, server_name
from streamlet.coordination.node_store import (
    ANY_VERSION,
    AuthFailed,
    NodeStoreError,
    NodeStoreUnavailable,
    StoreState,
    Watch,
    check_path,
    check_size,
    conflict,
    exists_already,
    missing,
    not_empty,
)

CONNECT_TIMEOUT_S = 6.0
"""Seconds that the first connection may take."""
REQUEST_TIMEOUT_S = 10.0
"""Seconds before a request without an answer fails."""
SESSION_TIMEOUT_S = 10.0
"""Seconds without a heartbeat after which the ensemble ends the session."""
CLOSE_TIMEOUT_S = 3.0
"""Seconds that a close waits for kazoo's threads."""
CLOSE_LOST_S = 0.3
"""Seconds that it waits without a connection."""
WAIT_TOLD_S = 1.0
"""Seconds before a line names the server that the start waits for."""

_CONNECT_LEAST_S = 1.5
"""Seconds to take a connection, or to answer on it, at least: the kernel repeats a lost first packet after one."""

_KEEP_ALIVE_S = 3
"""Seconds without traffic before the kernel probes the server's."""

_PROBE_AGAIN_S = 0.2
"""Seconds between two rounds of probes."""
_PROBE_TIMEOUT_S = 1.0
"""Seconds at most to find out what a server that refuses us speaks."""

# kazoo tells each dropped connection several times; what matters reaches the user as state and errors.
# Turn it on with logging.getLogger("streamlet.coordination.kazoo").setLevel("INFO").
_log = logging.getLogger("streamlet.coordination.kazoo")
if _log.level == logging.NOTSET:
    _log.setLevel(logging.CRITICAL)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """Opens kazoo's connections. No member takes a session's whole time for that."""

    def __init__(self, connect_s: float, silent_s: float) -> None:
        super().__init__()
        self._connect_s = connect_s
        self._silent_s = silent_s
        self._unanswered: socket.socket | None = None
        """The connection on which a session was asked for, until the first byte of the answer."""
        self._answer_by = 0.0

    def create_connection(self, *args: Any, **keys: Any) -> Any:
        # kazoo gives one member the time of a whole session. A machine that is off refuses nothing: the session, and
        # every commit, would wait for it, and be lost, while the other two members serve.
        keys["timeout"] = min(self._connect_s, keys.get("timeout") or self._connect_s)
        self._answer_by = time.monotonic() + self._connect_s
        sock = super().create_connection(*args, **keys)
        keep_alive(sock, _KEEP_ALIVE_S, 3, self._silent_s)
        self._unanswered = sock
        return sock

    def select(self, reads: Any, writes: Any, excepts: Any, timeout: float | None = None) -> Any:
        """Wait for sockets, as `select.select`. On kazoo's connection thread."""
        # Rule: the answer has the rest of the time to connect, and no whole session. A ZooKeeper that starts takes
        # connections before it serves, and leaves some of those without an answer for as long as they stay open.
        if self._unanswered is not None and reads == [self._unanswered]:
            left = max(_CONNECT_LEAST_S, self._answer_by - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        ready = super().select(reads, writes, excepts, timeout)
        if ready[0]:
            self._unanswered = None
        return ready


class ZooKeeperNodeStore:
    """A ``NodeStore`` in an ensemble, ``host:port,host:port/chroot``; opens its session when made.

    ``digest``: (user, password); nodes are then created for that user alone. The chroot need not exist.
    Construction blocks up to ``connect_timeout_s`` and raises ``NodeStoreUnavailable`` with what each
    host answered (at once where all of them speak another protocol), ``AuthFailed``, or ``SettingError``
    for a malformed ensemble string. ``on_wait`` is called once, after a second, with the servers
    that have not answered and the time left.

    kazoo keeps one session over lost connections (SUSPENDED) and opens another when it has expired (LOST). A write that
    was under way then may or may not have been carried out: it fails as ``outcome_unknown``, and the caller reads the
    node again before it repeats anything.
    """

    def __init__(
        self,
        hosts: str,
        *,
        digest: tuple[str, str] | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._ensemble = Ensemble.parse(hosts)
        self._where = f"ZooKeeper {self._ensemble}"
        self._request_timeout_s = request_timeout_s
        self.state = StoreState.SUSPENDED
        self._lock = threading.Lock()
        # Writes that nobody has settled yet. kazoo answers on its own threads and `close` on the caller's: the
        # one that takes a future out of the set, under the lock, settles it.
        self._open: set[Future[int]] = set()
        self._closed = False
        self._connected = threading.Event()
        deadline = time.monotonic() + connect_timeout_s
        self.session_timeout_s = session_timeout_s
        first = self._await_answer(deadline, connect_timeout_s, on_wait)
        session_s = self.session_timeout_s  # as granted
        connect_s = max(_CONNECT_LEAST_S, session_s / 2 / len(first))
        self._client = KazooClient(
            hosts=",".join(map(server_name, first)),
            randomize_hosts=False,  # they are in a random order, but for the one that has just answered
            timeout=session_s,
            handler=_Handler(connect_s, session_s * 2 / 3),
            # Without end: an ensemble may be away for an hour, and each request has a time-out of its own.
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0},
            auth_data=None if digest is None else [("digest", ":".join(digest))],
            default_acl=None if digest is None else [make_digest_acl(*digest, all=True)],
            logger=_log,
        )
        self._client.add_listener(self._note_state)
        try:
            self._client.start_async()
            connected = self._connected.wait(max(0.5, deadline - time.monotonic()))
        except BaseException:  # Ctrl-C in the wait too: kazoo's threads must not stay
            self.close()
            raise
        if not connected:
            self.close()
            raise self._unavailable(f"it granted no session within {connect_timeout_s:.0f} s")

    def __repr__(self) -> str:
        return f"<ZooKeeperNodeStore {self._ensemble} {self.state.value}>"

    # -- NodeStore

    @property
    def session_id(self) -> int | None:
        held = self._client.client_id
        return int(held[0]) if held is not None and held[0] else None

    def get(self, path: str, changed: Watch | None = None, *, fresh: bool = False) -> tuple[bytes, int] | None:
        try:
            data, stat = self._ask(path, lambda node: self._client.get_async(node, watch=changed), fresh=fresh)
        except kz.NoNodeError:
            return None
        return bytes(data), int(stat.version)

    def exists(self, path: str) -> int | None:
        stat = self._ask(path, lambda node: self._client.exists_async(node))
        return None if stat is None else int(stat.version)

    def children(self, path: str, changed: Watch | None = None, *, fresh: bool = False) -> list[str]:
        return sorted(self._act(path, lambda node: self._client.get_children_async(node, watch=changed), fresh=fresh))

    def create(self, path: str, data: bytes = b"", *, makepath: bool = True, ephemeral: bool = False) -> int:
        check_size(path, data)
        self._act(path, lambda node: self._client.create_async(node, data, makepath=makepath, ephemeral=ephemeral))
        return 0

    def set(self, path: str, data: bytes, version: int) -> int:
        check_size(path, data)
        stat = self._act(path, lambda node: self._client.set_async(node, data, version), version)
        return int(stat.version)

    def set_async(self, path: str, data: bytes, version: int) -> Future[int]:
        future: Future[int] = Future()
        with self._lock:
            self._open.add(future)
        try:
            node = self._node(path)
            check_size(path, data)
            sent = self._client.set_async(node, data, version)
        except (kz.KazooException, NodeStoreError, ValueError) as error:
            self._settle(future, None, error, path, version)
        else:
            sent.rawlink(lambda result: self._settle(future, result, result.exception, path, version))
        return future

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._act(path, lambda node: self._client.delete_async(node, version), version)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        # kazoo waits for a server that may never answer; after CLOSE_TIMEOUT_S its (daemon) threads are left
        # behind.
        closer = threading.Thread(target=self._stop_client, name="streamlet-zookeeper-close", daemon=True)
        closer.start()
        # Rule: without a connection there is no session to end, and nothing to wait for. A spout that ends while its
        # ensemble is away would take seconds for nothing.
        closer.join(CLOSE_TIMEOUT_S if self.state is StoreState.CONNECTED else CLOSE_LOST_S)
        self.state = StoreState.LOST
        with self._lock:
            left, self._open = self._open, set()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._unavailable("it was closed", outcome_unknown=True))

    # -- inside

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except (OSError, kz.KazooException):
            _log.info("kazoo did not stop in order", exc_info=True)

    def _await_answer(
        self, deadline: float, timeout_s: float, on_wait: Callable[[str], None] | None
    ) -> list[tuple[str, int]]:
        """Wait until one host grants a session to a probe of ours; return all of them, that one first.

        kazoo alone would keep silent about why it cannot connect, and its thread dies of an answer in
        another protocol. When every host speaks another one, no more is waited for.
        """
        spoken: dict[str, str] = {}
        # Not always the first that is named: it would have the clients of all spouts.
        hosts = CHANCE.sample(self._ensemble.addresses, len(self._ensemble.addresses))
        while True:
            answers: dict[str, str] = {}
            for host, port in hosts:
                left = deadline - time.monotonic()
                why = self._refusal(host, port, max(0.2, min(_PROBE_TIMEOUT_S, left)), spoken)
                if why is None:
                    return sorted(hosts, key=lambda each: each != (host, port))
                answers[server_name((host, port))] = why
            told = "; ".join(f"{server}: {answers[server]}" for server in map(server_name, self._ensemble.addresses))
            if spoken.keys() == answers.keys():
                raise self._unavailable(told, spoken=frozenset(spoken.values()))
            left = deadline - time.monotonic()
            if left < _PROBE_AGAIN_S:
                raise self._unavailable(f"{told} (tried for {timeout_s:.0f} s)")
            if on_wait is not None and timeout_s - left >= WAIT_TOLD_S:
                on_wait(f"waiting for {self._where}, for up to {left:.0f} s more. So far: {told}")
                on_wait = None
            time.sleep(_PROBE_AGAIN_S)

    def _refusal(self, host: str, port: int, timeout_s: float, spoken: dict[str, str]) -> str | None:
        """Return why a host grants no session; None when it does. Notes in ``spoken`` what it speaks instead."""
        server = server_name((host, port))
        if server in spoken:
            return _foreign(spoken[server])
        try:
            # Rule: of the time we ask for and the time the server grants, the shorter one counts. kazoo does not say
            # what it was granted, and a session that is taken for longer than it is ends before its lease.
            granted_s = ask_for_session(host, port, timeout_s, self.session_timeout_s)
            self.session_timeout_s = min(self.session_timeout_s, granted_s)
            return None
        except NotZooKeeper as error:
            spoken[server] = spoken_at(host, port) or "another protocol"
            return _foreign(spoken[server]) if spoken[server] != "another protocol" else str(error)
        except (TimeoutError, ConnectionResetError) as error:
            # Connected, but no answer: a ZooKeeper that is busy or has no quorum, or something else altogether.
            found = spoken_at(host, port)
            if found not in (None, "ZooKeeper"):
                spoken[server] = found
                return _foreign(found)
            return error.strerror or "timed out"
        except OSError as error:
            return error.strerror or str(error) or type(error).__name__

    def _note_state(self, state: str) -> None:
        """Note a change of the session's state. On kazoo's connection thread: must not block."""
        if not self._closed:
            self.state = StoreState[state]  # kazoo calls its states by the same names
        if state == KazooState.CONNECTED:
            self._connected.set()

    def _node(self, path: str) -> str:
        check_path(path)
        if self._closed:
            raise self._unavailable("it was closed")
        if path == "/":
            return self._ensemble.chroot or "/"
        return self._ensemble.chroot + path

    # Any: kazoo is untyped, and what it answers depends on the request.
    def _ask(self, path: str, request: Callable[[str], Any], *, fresh: bool = False) -> Any:
        """Send, wait, and translate errors of the connection into ours.

        Errors of the node stay as they are. ``fresh``: the answer is as the leader had it after the call began.
        """
        node = self._node(path)
        deadline = time.monotonic() + self._request_timeout_s
        try:
            # Rule: a read that must be fresh goes behind a transaction that changes nothing, and both answers count. A
            # server answers reads from its own memory, and a leader answers a sync, while they are cut off from the
            # others, who end sessions meanwhile; a transaction takes a quorum. The read alone may have been sent to
            # another server, after the connection with the transaction was lost.
            agreed = self._agreement(node) if fresh else None
            sent = request(node)
            if agreed is not None:
                agreed.get(timeout=self._request_timeout_s)  # also a check that found no node took a quorum
            return sent.get(timeout=max(0.0, deadline - time.monotonic()))
        except (kz.NoNodeError, kz.NodeExistsError, kz.BadVersionError, kz.NotEmptyError):
            raise
        except (kz.KazooException, KazooTimeoutError) as error:
            raise self._translate(error, path, ANY_VERSION) from error

    def _agreement(self, node: str) -> Any:
        """Send a transaction that changes nothing; return kazoo's future of its answer."""
        transaction = self._client.transaction()
        transaction.check(node, ANY_VERSION)
        return transaction.commit_async()

    def _act(self, path: str, request: Callable[[str], Any], version: int = ANY_VERSION, *, fresh: bool = False) -> Any:
        try:
            return self._ask(path, request, fresh=fresh)
        except kz.KazooException as error:
            raise self._translate(error, path, version) from error

    def _settle(self, future: Future[int], result: Any, error: BaseException | None, path: str, version: int) -> None:
        """Resolve the future. On kazoo's completion thread, or the caller's when nothing could be sent."""
        with self._lock:
            # The one that takes it out settles it; `close` may have.
            if future not in self._open:
                return
            self._open.remove(future)
        if not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(int(result.value.version))
        elif isinstance(error, (kz.KazooException, KazooTimeoutError)):
            future.set_exception(self._translate(error, path, version))
        else:
            future.set_exception(error)

    def _translate(self, error: BaseException, path: str, version: int) -> NodeStoreError:
        match error:
            case kz.NoNodeError():
                return missing(path, self._where)
            case kz.NodeExistsError():
                return exists_already(path, self._where)
            case kz.NotEmptyError():
                return not_empty(path, self._where)
            case kz.BadVersionError():
                return conflict(path, self._where, version)
            case kz.NoAuthError() | kz.AuthFailedError() | kz.InvalidACLError():
                return AuthFailed(
                    f"{self._where} does not allow this for node {path}: its access list names other users. "
                    "Give the digest user and password it was made with."
                )
            case KazooTimeoutError():
                why = f"no answer about {path} within {self._request_timeout_s:.0f} s"
            case kz.SessionExpiredError():
                why = f"the session expired before {path} was answered"
            case _:
                why = f"the connection was lost before {path} was answered ({type(error).__name__})"
        # Whatever ended the wait: the request was on its way, and a write may have been carried out.
        return self._unavailable(why, outcome_unknown=True)

    def _unavailable(
        self, why: str, *, outcome_unknown: bool = False, spoken: frozenset[str] = frozenset()
    ) -> NodeStoreUnavailable:
        return NodeStoreUnavailable(
            f"{self._where} cannot be used: {why.rstrip('.')}. Check that a ZooKeeper runs there and that the "
            "address, host:port,host:port/chroot, is its client port, which is usually 2181 (`streamlet dev up` "
            "starts one on this machine).",
            outcome_unknown=outcome_unknown,
            spoken=spoken,
        )


def _foreign(spoken: str) -> str:
    return f"it speaks {spoken}, not ZooKeeper's protocol"
