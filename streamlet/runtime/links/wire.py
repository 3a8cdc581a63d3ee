"""Frames between workers, and between a worker and its coordinator. Pure.

A frame is ``length (4, big endian) | tag (16) | msgpack``. The tag is an HMAC-SHA256 over the frame's number and its
payload with a key of this link and direction, so a frame that was changed, repeated, reordered or written by someone
else is refused before it is parsed. It costs about two microseconds a frame, nothing a tuple.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgpack

from streamlet.base.errors import StreamletError
from streamlet.components.columns import Columns
from streamlet.components.spout import FailureCause
from streamlet.runtime.tasks.emitter import Incoming, Outgoing, Run
from streamlet.tracking.census import Answer, Ask
from streamlet.tracking.shared_roots import SharedRoots

TAG_BYTES = 16
"""Bytes of a frame's tag: an HMAC-SHA256, cut."""

MAX_DATA_FRAME = 64 << 20
MAX_CONTROL_FRAME = 16 << 20

LARGE = 1 << 20
"""Bytes of the smallest payload that is not copied to be signed, verified or decoded."""

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")


class BadFrame(StreamletError):
    """A frame that no streamlet sends. The link is closed; nothing of the frame is used."""


def pack(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return the msgpack form that every frame uses. ``default`` gives what stands for an object it does not know."""
    packed: bytes = msgpack.packb(
        value, default=default, use_bin_type=True, datetime=True, unicode_errors="surrogatepass"
    )
    return packed


def unpack(payload: bytes | memoryview | bytearray) -> Any:
    """Read msgpack of a peer. Raises BadFrame."""
    # No length in the payload is believed beyond the payload's size: a few hostile bytes could claim gigabytes.
    size = len(payload)
    try:
        return msgpack.unpackb(
            payload,
            raw=False,
            use_list=True,
            strict_map_key=False,
            timestamp=3,
            unicode_errors="surrogatepass",
            max_str_len=size,
            max_bin_len=size,
            max_array_len=size,
            max_map_len=size // 2 + 1,
            max_ext_len=12,
        )
    except Exception as error:  # noqa: BLE001 - msgpack raises a dozen kinds (an unhashable key is a TypeError)
        raise BadFrame(f"A frame of {size} bytes does not parse ({type(error).__name__}).") from None


def _tag(key: bytes, number: int, payload: bytes | memoryview) -> bytes:
    if len(payload) < LARGE:
        return hmac.digest(key, _NUMBER.pack(number) + payload, hashlib.sha256)[:TAG_BYTES]
    signed = hmac.new(key, _NUMBER.pack(number), hashlib.sha256)
    signed.update(payload)
    return signed.digest()[:TAG_BYTES]


class FrameWriter:
    """One direction of a link: payloads to frames."""

    __slots__ = ("_key", "_number")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def frame(self, payload: bytes) -> bytes:
        """Return the next frame."""
        tag = _tag(self._key, self._number, payload)
        self._number += 1
        return _LENGTH.pack(len(payload)) + tag + payload


class FrameReader:
    """The other direction: received bytes to whole, verified payloads."""

    __slots__ = ("_buffer", "_key", "_limit", "_number")

    def __init__(self, key: bytes, limit: int) -> None:
        self._key = key
        self._limit = limit
        self._number = 0
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[bytes | memoryview]:
        """Return payloads completed by ``data``. Raises BadFrame. After an error the reader is useless."""
        buffer = self._buffer
        buffer += data
        payloads: list[bytes | memoryview] = []
        at, end = 0, len(buffer)
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > self._limit:
                raise BadFrame(f"A frame of {length} bytes was announced; {self._limit} is the limit.")
            stop = at + 4 + TAG_BYTES + length
            if stop > end:
                break
            body = at + 4 + TAG_BYTES
            payload: bytes | memoryview = memoryview(buffer)[body:stop]
            if length < LARGE:
                payload = bytes(payload)
            if not hmac.compare_digest(_tag(self._key, self._number, payload), buffer[at + 4 : body]):
                # The number is part of the tag, so a repeated frame fails here. It must: an ack delta that is applied
                # twice is a false ack.
                raise BadFrame("A frame's tag does not match: it was changed, repeated, or not written by the peer.")
            self._number += 1
            payloads.append(payload)
            at = stop
            if length >= LARGE:  # the buffer goes with its payload
                buffer = self._buffer = buffer[stop:]
                at, end = 0, len(buffer)
        if at:
            del buffer[:at]
        return payloads


def encode_data(outgoing: Outgoing) -> bytes:
    """Return one turn's traffic for another worker as a payload."""
    out = outgoing
    places: list[Sequence[int]] = []
    place_of: dict[SharedRoots, int] = {}

    # In a run a negative root is a place in the frame's last part, counted from -1. That part is packed last, so it is
    # whole by then; each set of trees travels once, however many tuples belong to it.
    # Rows that are held as columns travel so: a map from a field's number to its values.
    def form(kept: Any) -> int | dict[int, list[Any]]:
        if kept.__class__ is Columns:
            return dict(enumerate(kept.by_field))
        if kept.__class__ is not SharedRoots:
            raise TypeError(f"a {type(kept).__name__} does not travel")
        if kept not in place_of:
            places.append([*dict.fromkeys(kept.roots)])
            place_of[kept] = -len(places)
        return place_of[kept]

    causes = _by_cause(out.causes) if out.causes else []
    parts = [out.runs, out.roots, out.deltas, out.fails, causes, out.full, out.ask, out.answer, out.read, places]
    return pack(parts, form)


def _by_cause(causes: dict[int, FailureCause]) -> list[list[Any]]:
    """Return each cause with its trees: a batch that raised fails many for one."""
    trees: dict[FailureCause, list[int]] = {}
    for root, cause in causes.items():
        trees.setdefault(cause, []).append(root)
    return [[*cause, roots] for cause, roots in trees.items()]


def data_payloads(outgoing: Outgoing, limit: int = MAX_DATA_FRAME) -> tuple[list[bytes], list[Run]]:
    """Split one turn's traffic into payloads within the peer's limit.

    Returns as few payloads as fit, in order, and as runs of one tuple each what fits in none.
    """
    # The peer closes the link at a frame that is too long, and each replay would close it again. So traffic is halved
    # until it fits, and a tuple that fits in no frame is handed back to fail where it was emitted.
    payload = encode_data(outgoing)
    if len(payload) <= limit:
        return [payload], []
    if outgoing.ask is not None or outgoing.answer is not None:
        return _census_last(outgoing, limit)
    runs, roots, deltas, fails, causes = outgoing.runs, outgoing.roots, outgoing.deltas, outgoing.fails, outgoing.causes
    if runs:
        alone = len(runs) == 1 and len(runs[0].roots) == 1
        if alone and not replace(outgoing, runs=[]):
            return [], runs
        left, right = (runs, []) if alone else _halves(runs)
        return _append_rest(*data_payloads(Outgoing(left), limit), replace(outgoing, runs=right), limit)
    if fails and roots:  # failures first: an ack of the same turn may be the last of a tree that has failed
        return _append_rest(
            *data_payloads(Outgoing(fails=fails, causes=causes), limit),
            replace(outgoing, fails=[], causes={}),
            limit,
        )
    half = max(len(roots), len(fails)) // 2
    first, last = fails[:half], fails[half:]
    begun = data_payloads(Outgoing([], roots[:half], deltas[:half], first, causes=_of(first, causes)), limit)
    rest = replace(outgoing, roots=roots[half:], deltas=deltas[half:], fails=last, causes=_of(last, causes))
    return _append_rest(*begun, rest, limit)


def _of(fails: list[int], causes: dict[int, FailureCause]) -> dict[int, FailureCause]:
    """Return the causes of some failures: they travel in one frame."""
    return {root: causes[root] for root in fails if root in causes}


def _census_last(outgoing: Outgoing, limit: int) -> tuple[list[bytes], list[Run]]:
    # After all else: a question means what the peer has then read of this link, an answer what its deltas left open.
    rest = replace(outgoing, ask=None, answer=None)
    payloads, too_large = data_payloads(rest, limit) if rest else ([], [])
    last = encode_data(Outgoing(ask=outgoing.ask, answer=outgoing.answer))
    # One that fits in no frame is dropped: a census without an answer comes to no conclusion.
    return payloads + [last] * (len(last) <= limit), too_large


def _append_rest(first: list[bytes], too_large: list[Run], rest: Outgoing, limit: int) -> tuple[list[bytes], list[Run]]:
    if not rest:
        return first, too_large
    payloads, more = data_payloads(rest, limit)
    return first + payloads, too_large + more


def _halves(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """Split runs, or the rows of the only one, into two shares. Neither is empty."""
    if len(runs) > 1:
        half = len(runs) // 2
        return runs[:half], runs[half:]
    run = runs[0]
    count = len(run.roots)
    return [run.part(0, count // 2)], [run.part(count // 2, count)]


def decode_data(payload: bytes | memoryview) -> Incoming:
    """Read a data frame; check every shape and type the loop relies on. Raises BadFrame."""
    frame = unpack(payload)
    if not isinstance(frame, list) or len(frame) != 10:
        raise BadFrame("A data frame does not have its ten parts.")
    runs, roots, deltas, fails, causes, full, ask, answer, read, places = frame
    for column in (roots, deltas, fails, [] if full is None else full):
        _ints(column)
    if len(roots) != len(deltas) or not isinstance(runs, list):
        raise BadFrame("A data frame's parts do not fit each other.")
    shared = _shared_roots(places)
    made = [_run(item, shared) for item in runs]
    told = _causes(causes)
    return Incoming(
        made, roots, deltas, fails, full, ask=_ask(ask), answer=_answer(answer), causes=told, read=_read(read)
    )


def _read(item: Any) -> dict[int, int] | None:
    if item is None:
        return None
    if type(item) is not dict:
        raise BadFrame("A data frame does not say by task what was read.")
    _ints([*item, *item.values()])
    return item


def _causes(items: Any) -> dict[int, FailureCause]:
    if type(items) is not list:
        raise BadFrame("A data frame has no list of causes.")
    causes: dict[int, FailureCause] = {}
    for item in items:
        if type(item) is not list or [*map(type, item)] != [str, str, str, bool, list]:
            raise BadFrame("A failure's cause does not have its five parts.")
        _ints(item[4])
        causes.update(dict.fromkeys(item[4], FailureCause(*item[:4])))
    return causes


def _shared_roots(places: Any) -> list[SharedRoots]:
    if type(places) is not list:
        raise BadFrame("A data frame has no list of trees that share an edge.")
    for roots in places:
        _ints(roots)
        # Twice the same tree would cancel the edge out, and the tree would be acked too early.
        if len(roots) < 2 or len(set(roots)) != len(roots) or min(roots) < 1:
            raise BadFrame("Trees that share an edge are fewer than two, named twice, or none.")
    return [SharedRoots(roots) for roots in places]


def _run(item: Any, shared: list[SharedRoots]) -> Run:
    if not isinstance(item, list) or len(item) != 8:
        raise BadFrame("A run does not have its eight parts.")
    if type(item[6]) is dict:
        item[6] = _columns(item[6])
    run = Run(*item)
    if not (
        type(run.target) is type(run.source) is int
        and type(run.stream) is str
        and type(run.multi) is type(run.has_untracked) is bool
        and type(run.roots) is type(run.edges) is list
        and type(run.values) in (list, Columns)
        and len(run.roots) == len(run.edges) == len(run.values)
        and (type(run.values) is Columns or set(map(type, run.values)) <= {list})
    ):
        raise BadFrame("A run's parts have the wrong types or lengths.")
    if run.multi:
        for roots, edges in zip(run.roots, run.edges, strict=True):
            _ints(roots)
            _ints(edges)
            if not roots or len(roots) != len(edges):
                raise BadFrame("A tuple with several roots does not name them all.")
    else:
        _ints(run.roots)
        _ints(run.edges)
        if shared:
            run = run._replace(roots=_with_shared_roots(run.roots, shared))
    return run


def _columns(by_number: dict[Any, Any]) -> Columns:
    columns = [*by_number.values()]
    numbers_fit = [*by_number] == [*range(len(columns))] and set(map(type, by_number)) == _INT
    if not numbers_fit or set(map(type, columns)) != {list} or len(set(map(len, columns))) != 1:
        raise BadFrame("A run's columns are not lists of one length, counted from 0.")
    return Columns(columns)


def _with_shared_roots(roots: list[int], shared: list[SharedRoots]) -> list[Any]:
    if min(roots, default=0) < -len(shared):
        raise BadFrame("A tuple belongs to trees that its frame does not name.")
    return [shared[-1 - root] if root < 0 else root for root in roots]


def _ask(item: Any) -> Ask | None:
    if item is None:
        return None
    if type(item) is not list or len(item) != 4 or type(item[0]) is not int:
        raise BadFrame("A question about queues does not have its four parts.")
    _ints(item[1])
    _ints(item[2])
    if type(item[3]) is not list:
        raise BadFrame("A question about queues has no list of loads.")
    for load in item[3]:
        _load(load)
    return Ask(*item)


def _answer(item: Any) -> Answer | None:
    if item is None:
        return None
    if type(item) is not list or len(item) != 9:
        raise BadFrame("An answer about queues does not have its nine parts.")
    answer = Answer(*item)
    _ints([answer.number, answer.queued, answer.slowest])
    if type(answer.waiting) is not dict:
        raise BadFrame("An answer about queues does not say where trees wait.")
    _ints([*answer.waiting, *answer.waiting.values()])
    _seconds(answer.wait_s)
    for counts in (answer.sent, answer.received):
        if type(counts) is not dict:
            raise BadFrame("An answer about queues has no counts of frames.")
        _ints([*counts, *counts.values()])
    if type(answer.held) is not list:
        raise BadFrame("An answer about queues has no list of tuples held.")
    for held in answer.held:
        if type(held) is not list or len(held) != 3:
            raise BadFrame("A tuple held does not have its three parts.")
        _ints(held[:2])
        _seconds(held[2])
    _load(answer.load)
    return answer


def _load(value: Any) -> None:
    if type(value) is not float or not 0 <= value <= 1:
        raise BadFrame("A worker's load must be a float from 0 to 1.")


def _seconds(value: Any) -> None:
    if type(value) is not float or not 0 <= value < math.inf:
        raise BadFrame("A time in seconds is negative, infinite or not a float.")


_INT = {int}


def _ints(values: Any) -> None:
    if type(values) is not list or not set(map(type, values)) <= _INT:
        raise BadFrame("A column of numbers holds something else.")
