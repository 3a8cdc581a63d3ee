"""Definitions that nothing calls, told from methods of the user's own; every name: ``test_streamparse_names``."""

from __future__ import annotations

from streamlet import Bolt, Spout, Tuple
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
