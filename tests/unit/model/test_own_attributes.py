"""What a class sets and looks at, told from its code."""

from __future__ import annotations

from typing import Any

from streamlet import Bolt
from streamlet.model.own_attributes import attributes_of_self, methods_of, sets_itself


class Own(Bolt):
    def initialize(this: Any, conf: Any, context: Any) -> None:
        this.kept, this.conf = [], conf
        context.other = conf.name
        this.seen += 1

    @property
    def size(self) -> int:
        return len([(each, self.kept) for each in self.parts()])

    def parts(self) -> list[Any]:
        def later() -> None:
            self.auto_ack = False  # type: ignore[misc]  # as users do

        later()
        return [self.context.task_id]


def test_what_a_method_stores_and_loads_is_what_stands_behind_its_first_argument() -> None:
    methods = dict(methods_of(Own))
    assert {*attributes_of_self(methods["initialize"], "STORE_")} == {"kept", "conf"}
    assert {*attributes_of_self(methods["initialize"], "LOAD_")} == {"seen"}
    assert {*attributes_of_self(methods["size"], "LOAD_")} == {"kept", "parts"}
    assert {*attributes_of_self(methods["parts"], "LOAD_")} == {"context"}


def test_a_flag_that_a_function_in_a_method_sets_is_set() -> None:
    assert sets_itself(Own, "auto_ack") and not sets_itself(Own, "auto_fail") and not sets_itself(Bolt, "auto_ack")
    assert not Own.acks_at_once() and Bolt.acks_at_once()
