"""ReliableSpout: what failed is emitted again as it was, later and later, and never silently dropped."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import pytest

from streamlet import NoRoom, ReliableSpout
from streamlet.base.clock import ManualClock
from streamlet.components.kept_bytes import KeptBytes
from streamlet.components.spout import FailReason


class Port:
    """What the runtime binds: keeps what was emitted."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[tuple[Any, ...]] = []
        self.refuse = False
        self.kept = KeptBytes(dict, lambda: None)

    def emit(
        self,
        values: Sequence[Any],
        tup_id: Hashable | None = None,
        stream: str | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        if self.refuse:
            raise ValueError("cannot travel")
        self.sent.append((list(values), tup_id, stream, direct_task))
        return [7] if need_task_ids else None

    def emit_many(self, tuples: Any, tup_id: Hashable | None = None, stream: str | None = None) -> None:
        if self.refuse:
            raise ValueError("cannot travel")
        self.sent.append(([list(values) for values in tuples], tup_id, stream))

    def emit_each(self, tuples: Any, tup_ids: Any) -> bool:
        if self.refuse:
            raise ValueError("cannot travel")
        self.sent += [(list(values), tup_id, None, None) for values, tup_id in zip(tuples, tup_ids, strict=True)]
        return True

    def as_last_try(self, emit: Any) -> None:
        emit()

    def room(self) -> int:
        return 1

    def ack(self, tup: Any) -> None: ...

    def fail(self, tup: Any) -> None: ...

    def report_metric(self, name: str, value: float) -> None: ...

    def here(self) -> bool:
        return True

    def emit_from_other_thread(self, *call: Any) -> None: ...

    def emit_many_from_other_thread(self, *call: Any) -> None: ...

    def emit_each_from_other_thread(self, *call: Any) -> None: ...


class Kept(ReliableSpout):
    outputs = ["n"]
    lost: ClassVar[list[Any]] = []

    def next_tuple(self) -> None: ...

    def given_up(self, tup_id: Hashable, values: Sequence[Any], fails: int) -> None:
        self.lost.append((tup_id, list(values), fails))


@pytest.fixture
def bound() -> tuple[Kept, Port]:
    spout, port = Kept(), Port()
    Kept.lost.clear()
    spout.bind(port)  # type: ignore[arg-type]
    return spout, port


def test_an_acked_tuple_is_forgotten(bound: tuple[Kept, Port]) -> None:
    spout, _ = bound
    spout.emit([1], tup_id="a")
    assert spout.has_unfinished()
    spout.ack("a")
    assert not spout.has_unfinished() and not spout.replay()


def test_a_failed_tuple_is_replayed_once_its_wait_is_over(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    spout.emit([1], tup_id="a", stream="s")
    spout.fail("a")
    assert not spout.replay()
    port.clock.advance(0.2)
    assert spout.replay() and not spout.replay()
    assert port.sent == [([1], "a", "s", None)] * 2


def test_an_id_that_cannot_be_hashed_is_refused_in_words(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    calls: list[Callable[[], object]] = [
        lambda: spout.emit([1], tup_id=["a", 1]),
        lambda: spout.emit_many([[1]], tup_id=["a", 1]),
        lambda: spout.emit_each([[1]], [["a", 1]]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"tup_id \['a', 1\] is a list, which cannot be hashed.*give a str"):
            call()
    assert not port.sent and not spout.has_unfinished()


def test_waits_between_replays_grow(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    spout.emit([1], tup_id="a")
    waits = []
    for _ in range(3):
        spout.fail("a")
        waited = 0.0
        while not spout.replay():
            port.clock.advance(0.05)
            waited += 0.05
        waits.append(waited)
    assert waits == sorted(waits) and waits[-1] > 2 * waits[0]


def test_what_is_given_up_is_reported(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    spout.emit([1], tup_id="a")
    for _ in range(4):
        spout.fail("a")
        port.clock.advance(60)
        spout.replay()
    assert Kept.lost == [("a", [1], 4)] and not spout.has_unfinished()


def test_a_late_failure_of_something_acked_changes_nothing(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    spout.emit([1], tup_id="a")
    spout.ack("a")
    spout.fail("a")
    port.clock.advance(60)
    assert not spout.replay() and len(port.sent) == 1


def test_a_replay_goes_to_the_same_task(bound: tuple[Kept, Port]) -> None:
    """A tuple emitted to a named task is no other tuple the second time."""
    spout, port = bound
    spout.emit([1], tup_id="a", stream="s", direct_task=3)
    spout.fail("a")
    port.clock.advance(1)
    assert spout.replay()
    assert port.sent == [([1], "a", "s", 3)] * 2


def test_what_a_fail_of_the_users_drops_is_forgotten(bound: tuple[Kept, Port]) -> None:
    """Each dropped id stayed in memory for the life of the task."""
    spout, _ = bound

    def drop(tup_id: Any) -> None:
        spout.unacked_tuples.pop(tup_id)

    vars(spout)["fail"] = drop
    for n in range(3):
        spout.emit([n], n)
    spout.fail_many([0, 1, 2])
    assert not spout._waiting and not spout.has_unfinished()


def test_several_tuples_of_one_tree_are_replayed_together(bound: tuple[Kept, Port]) -> None:
    """emit_many is as reliable as emit: all of them come again."""
    spout, port = bound
    spout.emit_many(([n] for n in range(3)), tup_id="a")
    assert spout.has_unfinished()
    spout.fail("a")
    port.clock.advance(1)
    assert spout.replay()
    assert port.sent == [([[0], [1], [2]], "a", None)] * 2
    spout.ack("a")
    assert not spout.has_unfinished()


def test_a_replay_is_not_changed_by_what_the_spout_does_to_its_list(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    values = [1]
    spout.emit(values, tup_id="a")
    values[0] = 99
    spout.fail("a")
    port.clock.advance(1)
    spout.replay()
    assert port.sent[1][0] == [1]


def test_a_replay_is_not_changed_by_what_the_spout_does_to_a_container(bound: tuple[Kept, Port]) -> None:
    """A spout that fills one dict again and again: each message is replayed as it was emitted."""
    spout, port = bound
    order: dict[str, Any] = {"lines": [0]}
    for n in range(3):
        order["lines"][0] = n
        spout.emit([n, order], tup_id=n)
        spout.emit_many([[n], [(order,)]], tup_id=f"many {n}")
    for n in range(3):
        spout.fail_many([n, f"many {n}"])
    port.sent.clear()
    port.clock.advance(1)
    while spout.replay():
        pass
    assert [sent[0] for sent in port.sent[::2]] == [[n, {"lines": [n]}] for n in range(3)]
    assert [sent[0] for sent in port.sent[1::2]] == [[[n], [[{"lines": [n]}]]] for n in range(3)]


class Named(tuple[Any, ...]):
    """Travels as a list, and cannot be made from one argument as tuples are."""

    def __new__(cls, left: Any, right: Any) -> Named:
        return super().__new__(cls, (left, right))


def test_a_tuple_of_a_class_of_ones_own_is_kept_as_the_list_that_it_travels_as(bound: tuple[Kept, Port]) -> None:
    """A copy by its class could raise after the send: the message would be under way, and nobody would wait for it."""
    spout, port = bound
    box = [1]
    spout.emit([Named(box, 2)], tup_id="a")
    spout.emit_many([[Named(box, 2)]], tup_id="b")
    spout.emit_each([[Named(box, 2)]], ["c"])
    box[0] = 99
    spout.fail_many(["a", "b", "c"])
    port.sent.clear()
    port.clock.advance(1)
    while spout.replay():
        pass
    assert [sent[0] for sent in port.sent] == [[[[1], 2]], [[[[1], 2]]], [[[1], 2]]]


def test_an_emit_that_was_refused_leaves_nothing_unfinished(bound: tuple[Kept, Port]) -> None:
    """Else a spout that catches the error would never be caught up."""
    spout, port = bound
    port.refuse = True
    with pytest.raises(ValueError, match="cannot travel"):
        spout.emit([1], tup_id="a")
    assert not spout.has_unfinished()


def test_an_id_is_wanted(bound: tuple[Kept, Port]) -> None:
    spout, _ = bound
    with pytest.raises(ValueError, match="tup_id"):
        spout.emit([1])
    with pytest.raises(ValueError, match="tup_id"):
        spout.emit_many([[1]])


def test_what_was_lost_with_a_worker_is_replayed_and_does_not_count(bound: tuple[Kept, Port]) -> None:
    """Ten workers that die say nothing against the tuple; failures of its own still do."""
    spout, port = bound
    spout.emit([1], tup_id="a")
    for reason in [FailReason.LOST] * 10 + [FailReason.FAILED] * 3:
        spout.fail_reason = reason
        spout.fail("a")
        port.clock.advance(100.0)
        assert spout.replay()
    assert len(port.sent) == 14 and not Kept.lost
    spout.fail("a")
    assert Kept.lost == [("a", [1], 4)]


def test_a_message_that_killed_workers_counts_and_is_given_up_at_once_when_it_must(
    bound: tuple[Kept, Port], caplog: pytest.LogCaptureFixture
) -> None:
    spout, _port = bound
    spout.emit([1], tup_id="a")
    spout.fail_reason, spout.fail_detail = FailReason.CRASHED, "was killed by SIGSEGV"
    spout.fail("a")
    assert spout.failed_tuples == {"a": 1} and not Kept.lost
    spout.fail_final = True
    spout.fail("a")
    assert Kept.lost == [("a", [1], 2)]
    ReliableSpout.given_up(spout, "a", [1], 2)
    assert "gave up tuple 'a' after 2 failures: [1]: its worker was killed by SIGSEGV" in caplog.text


def test_an_id_whose_first_tuple_is_open_is_refused_by_name(bound: tuple[Kept, Port]) -> None:
    """Only one of the two could be replayed; the other was lost without a word."""
    spout, port = bound
    spout.emit([1], tup_id="a")
    with pytest.raises(ValueError, match="tup_id 'a' was emitted again"):
        spout.emit([2], tup_id="a")
    with pytest.raises(ValueError, match="tup_id 'a' was emitted again"):
        spout.emit_many([[2]], tup_id="a")
    assert len(port.sent) == 1
    spout.ack("a")
    spout.emit([3], tup_id="a")


def test_a_spout_may_emit_a_failed_id_again_itself_and_the_replay_is_then_left_out(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    spout.emit([1], tup_id="a")
    spout.fail_many(["a"])
    spout.emit([1], tup_id="a")
    with pytest.raises(ValueError, match="tup_id 'a' was emitted again"):
        spout.emit([1], tup_id="a")
    port.clock.advance(60.0)
    spout.replay()
    assert [values for values, *_ in port.sent] == [[1], [1]]


def test_an_id_that_waits_for_its_replay_is_not_taken_for_another_message(bound: tuple[Kept, Port]) -> None:
    """The first one would be dropped, and the run end well. A `fail` of the user's may change what comes again."""
    spout, port = bound
    values: list[Any] = [(1, [2])]
    spout.emit(values, tup_id="a")
    spout.fail_many(["a"])
    for other in (
        lambda: spout.emit(["other"], tup_id="a"),
        lambda: spout.emit_many([values], tup_id="a"),
        lambda: spout.emit_each([["other"], [3]], ["a", "b"]),
    ):
        with pytest.raises(ValueError, match="tup_id 'a' was emitted again"):
            other()
    spout.emit(values, tup_id="a")

    class Changes(Kept):
        def fail(self, tup_id: Hashable) -> None:
            self.emit(["changed"], tup_id=tup_id)

    changes = Changes()
    changes.bind(port)  # type: ignore[arg-type]
    changes.emit(["first"], tup_id="b")
    changes.fail_many(["b"])
    assert port.sent[-1][0] == ["changed"]


@pytest.mark.parametrize("many", [False, True])
def test_a_failed_id_whose_new_tuple_was_refused_is_replayed_as_before(many: bool, bound: tuple[Kept, Port]) -> None:
    """The spout catches the refusal; what was emitted first is still neither acked nor given up."""
    spout, port = bound

    def emit() -> None:
        spout.emit_many([["a"]], tup_id=1) if many else spout.emit(["a"], tup_id=1)

    emit()
    spout.fail_many([1])
    port.refuse = True
    with pytest.raises(ValueError, match="cannot travel"):
        emit()
    port.refuse = False
    port.clock.advance(10.0)
    assert spout.replay()
    assert [row[0] for row in port.sent] == [[["a"]] if many else ["a"]] * 2


def test_each_message_of_emit_each_comes_again_alone(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    spout.emit_each([[1], [2]], ["a", "b"])
    assert [sent[:2] for sent in port.sent] == [([1], "a"), ([2], "b")]
    assert list(spout.unacked_tuples) == ["a", "b"]


@pytest.mark.parametrize("ids", [["a", "b", "open"], ["a", None, "c"], ["a", "b", "a"]])
def test_emit_each_emits_nothing_where_one_of_its_ids_may_not_be(bound: tuple[Kept, Port], ids: list[Any]) -> None:
    spout, port = bound
    spout.emit([0], tup_id="open")
    with pytest.raises(ValueError, match="tup_id"):
        spout.emit_each([[1], [2], [3]], ids)
    assert len(port.sent) == 1 and list(spout.unacked_tuples) == ["open"]
    port.refuse = True
    with pytest.raises(ValueError, match="cannot travel"):
        spout.emit_each([[1]], ["a"])
    assert list(spout.unacked_tuples) == ["open"]


def test_emit_each_may_emit_what_failed_again(bound: tuple[Kept, Port]) -> None:
    spout, port = bound
    spout.emit([1], tup_id="a")
    spout.fail_many(["a"])
    assert spout.emit_each([[1], [3]], ["a", "b"]) is True
    port.clock.advance(60.0)
    while spout.replay():
        pass
    assert [values for values, *_ in port.sent] == [[1], [1], [3]]


def test_a_value_of_a_megabyte_does_not_fill_the_log(
    bound: tuple[Kept, Port], caplog: pytest.LogCaptureFixture
) -> None:
    spout, _ = bound
    ReliableSpout.given_up(spout, "k" * 1_000_000, ["x" * 1_000_000], 2)
    (line,) = [record.getMessage() for record in caplog.records]
    assert len(line) < 5_000
    assert line.startswith("gave up tuple 'kkk") and "['xxx" in line and "characters more)" in line
    with pytest.raises(ValueError, match="was emitted again") as refused:
        spout._emitted_again("k" * 1_000_000, ["x"])
    assert len(str(refused.value)) < 5_000


class Threads(Port):
    """A port whose calls come from another thread until ``taken`` makes them on the loop's."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []
        self.there = True
        self.full = False

    def here(self) -> bool:
        return not self.there

    def emit_from_other_thread(self, emit: Callable[..., Any], tup: Any, tup_id: Any, *more: Any) -> None:
        self._put(lambda: emit([*tup], tup_id, *more[:2]))

    def emit_many_from_other_thread(self, emit_many: Callable[..., Any], *call: Any) -> None:
        self._put(lambda: emit_many(*call))

    def emit_each_from_other_thread(self, emit_each: Callable[..., Any], *call: Any) -> None:
        self._put(lambda: emit_each(*call))

    def _put(self, act: Callable[[], Any]) -> None:
        if self.full:
            raise NoRoom("no room")
        self.calls.append(act)

    def taken(self) -> None:
        self.there = False
        while self.calls:
            self.calls.pop(0)()
        self.there = True


@pytest.fixture
def threaded() -> tuple[Kept, Threads]:
    spout, port = Kept(), Threads()
    spout.bind(port)  # type: ignore[arg-type]
    return spout, port


def each_way(spout: Kept) -> list[Callable[[], Any]]:
    """Three ways to emit the id 1."""
    return [
        lambda: spout.emit([1], 1),
        lambda: spout.emit_many([[1], [2]], 1),
        lambda: spout.emit_each([[0], [1]], [0, 1]),
    ]


@pytest.mark.parametrize("first", range(3))
def test_an_id_that_another_thread_has_handed_over_is_refused_where_it_is_emitted_again(
    threaded: tuple[Kept, Threads], first: int
) -> None:
    """On any thread, the loop's too, before and after the loop has taken it, until it is acked."""
    spout, port = threaded
    each_way(spout)[first]()
    for when in ("handed over", "open"):
        for again in each_way(spout):
            with pytest.raises(ValueError, match=r"tup_id [01] was emitted again"):
                again()
            port.there = False
            with pytest.raises(ValueError, match=r"tup_id [01] was emitted again"):
                again()
            port.there = True
        if when == "handed over":
            port.taken()
    spout.ack(1)
    spout.ack(0)
    each_way(spout)[first]()
    port.taken()
    assert [sent[1] for sent in port.sent].count(1) == 2


def test_an_id_whose_call_found_no_room_is_free(threaded: tuple[Kept, Threads]) -> None:
    spout, port = threaded
    port.full = True
    for emit in each_way(spout):
        with pytest.raises(NoRoom):
            emit()
    port.full = False
    spout.emit([1], 1)
    with pytest.raises(ValueError, match="was emitted again"):
        spout.emit_each([[0], [1]], [0, 1])
    spout.emit([0], 0)
    port.taken()
    assert [sent[1] for sent in port.sent] == [1, 0]


def test_one_that_failed_may_be_emitted_again_from_another_thread(threaded: tuple[Kept, Threads]) -> None:
    spout, port = threaded
    spout.emit([1], 1)
    port.taken()
    spout.fail(1)
    spout.emit([1], 1)
    with pytest.raises(ValueError, match="was emitted again"):
        spout.emit([1], 1)
    port.taken()
    assert [sent[1] for sent in port.sent].count(1) == 2
