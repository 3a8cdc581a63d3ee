"""Definitions that nothing calls, told from methods of the user's own; every name: ``test_streamparse_names``."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet import BatchingBolt, Bolt, Spout, TicklessBatchingBolt, Tuple
from streamlet.model.uncalled_names import uncalled


def test_a_method_of_the_users_own_that_the_class_calls_is_no_override() -> None:
    class Own(Bolt):
        __module__ = "users"

        def process(self, tup: Tuple) -> None:
            def later() -> None:
                self.run()

            later()

        def run(self) -> None: ...

    class Theirs(Bolt):
        __module__ = "users"

        def process(self, tup: Tuple) -> None: ...

        def run(self) -> None:
            super().run()  # type: ignore[misc]  # as they wrote it

    assert [*uncalled(Own, "bolt")] == []
    ((message, _),) = uncalled(Theirs, "bolt")
    assert "Theirs defines run, which nothing here calls: a component does not run by itself" in message


def test_an_override_of_what_the_runtime_sets_is_named_though_the_class_calls_it() -> None:
    class Wraps(Bolt):
        __module__ = "users"

        def process(self, tup: Tuple) -> None:
            self.emit([1])

        def emit(self, *args: object, **more: object) -> None: ...  # type: ignore[override]  # as users do

    ((message, remedy),) = uncalled(Wraps, "bolt")
    assert "Wraps defines emit, which the runtime sets on each task" in message and "self.emit" in remedy


def test_acks_and_failures_are_hooks_of_a_spout() -> None:
    class Hears(Spout):
        __module__ = "users"

        def ack(self, tup_id: object) -> None: ...

        def fail(self, tup_id: object) -> None: ...

    assert [*uncalled(Hears, "spout")] == []


def said_of(cls: type, kind: str = "bolt") -> list[str]:
    return [message for message, _ in uncalled(cls, kind)]


@pytest.mark.parametrize(
    ("base", "name"),
    [
        *((Bolt, "outputs"), (Bolt, "par"), (Spout, "outputs"), (Spout, "exit_on_exception")),
        *((BatchingBolt, "auto_ack"), (BatchingBolt, "auto_fail"), (BatchingBolt, "auto_anchor")),
        (TicklessBatchingBolt, "secs_between_batches"),
    ],
)
@pytest.mark.parametrize("method", ["__init__", "initialize", "cleanup"])
def test_what_is_read_of_the_class_and_set_on_the_task_is_named(base: type, name: str, method: str) -> None:
    """A batch's ``auto_ack`` turned off in ``initialize`` would be ignored, and the batch acked all the same."""

    def sets(self: Any) -> None:
        setattr(self, name, None)

    assert said_of(type("Own", (base,), {"__module__": "users", method: sets})) == []  # what it sets is not known
    scope: dict[str, Any] = {}
    exec(f"def sets(self, *given):\n    self.{name} = None\ndef reads(self):\n    return self.{name}", scope)
    kind = "spout" if base is Spout else "bolt"
    (said,) = said_of(type("Theirs", (base,), {"__module__": "users", method: scope["sets"]}), kind)
    assert f"sets self.{name} in {method}, and nothing reads it there" in said
    own = {"__module__": "users", method: scope["sets"], "reads": scope["reads"]}
    assert said_of(type("Own", (base,), own), kind) == []  # an attribute of their own


def test_settings_of_a_component_that_its_constructor_sets_are_named_and_what_many_call_config_is_not() -> None:
    class Sets(Bolt):
        __module__ = "users"

        def __init__(self) -> None:
            self.config = {"topology.tick.tuple.freq.secs": 1}  # type: ignore[misc]  # as users do

        def process(self, tup: Tuple) -> None: ...

    class Keeps(Bolt):
        __module__ = "users"

        def __init__(self) -> None:
            self.config = {"window": 10}  # type: ignore[misc]  # as users do

        def initialize(self, conf: Any, context: Any) -> None:
            self.config = {"name": conf["topology.name"]}  # type: ignore[misc]  # as users do

        def process(self, tup: Tuple) -> None: ...

    (said,) = said_of(Sets)
    assert "Sets sets self.config in __init__" in said
    assert said_of(Keeps) == []


def test_an_attribute_that_a_class_makes_on_demand_is_not_missed() -> None:
    class Own(Bolt):
        __module__ = "users"

        def __getattr__(self, name: str) -> Any:
            return getattr(self.process, name)

        def process(self, tup: Tuple) -> None:
            self.send_message({})

    assert said_of(Own) == []


def test_what_a_bolt_may_set_on_itself_is_not_named() -> None:
    class Own(Bolt):
        __module__ = "users"

        def initialize(self, conf: Any, context: Any) -> None:
            self.auto_ack = False  # type: ignore[misc]  # pystorm reads it of the task, and so do we
            self.run: list[int] = []  # type: ignore[assignment]  # their own

        def process(self, tup: Tuple) -> None:
            self.run.append(1)

    assert said_of(Own) == []


@pytest.mark.parametrize(
    "text",
    [
        "def __init__(self, input_stream=None, *more):\n    pass",
        "def __init__(self, *args, **kwargs):\n    super(made, self).__init__(rdb_signal=None, *args, **kwargs)",
        "def __init__(self):\n    super(made, self).__init__(output_stream=None)",
    ],
)
def test_arguments_of_pystorms_constructor_are_named(text: str) -> None:
    scope: dict[str, Any] = {}
    exec(text, scope)
    made = type("Made", (Bolt,), {"__module__": "users", "__init__": scope["__init__"]})
    (said,) = said_of(made)
    assert "in its __init__, which nothing here gives or takes: no" in said


class Leaves(BatchingBolt):
    def process(self, tup: Tuple) -> None:
        self.logger.info("got %s", tup.values)

    def process_batch(self, key: Any, tups: list[Tuple]) -> None:
        pass


class Filters(Leaves):
    def process(self, tup: Tuple) -> None:
        if tup.values[0]:
            super().process(tup)
        else:
            self.ack(tup)


def test_a_batching_bolt_whose_process_brings_no_tuple_into_a_batch_is_named() -> None:
    """Its tuples would wait for their time-out, again and again."""
    ((what, remedy),) = uncalled(Leaves, "bolt")
    assert "defines process, which in a BatchingBolt puts a tuple into its batch" in what
    assert "super().process(tup)" in remedy
    assert [*uncalled(Filters, "bolt")] == []
