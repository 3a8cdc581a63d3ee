"""What a bolt remembers of one key: its attributes, as far as they differ from those that ``initialize`` left.

One bolt object serves one key after the other. Before each its attributes are set to what the key left, else to what
``initialize`` left; after each those that changed are pickled. What cannot be pickled (a connection, a lock, an open
file) belongs to the object: ``initialize`` makes it, and all keys share it. It does not make a dict or list that holds
it shared, nor does a function or class that cannot be found by name: that is refused. Knows no Spark.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from streamlet.base.errors import StreamletError
from streamlet.components.bolt import Bolt
from streamlet.components.tuples import Tuple

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_GONE = "(gone)"
"""Marks an attribute that the bolt has deleted. No attribute of Python's syntax has this name."""

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)
_CONTAINERS = (dict, list, set, frozenset, tuple, deque)

MakeTuple = Callable[[Sequence[Any], str, str, int], Tuple]
"""Makes a kept tuple again: values, component, stream, state."""


class StateNotKept(StreamletError):
    """A bolt's attribute cannot be kept in the checkpoint."""


class KeyState:
    """The attributes of a bolt, changed from key to key. After ``initialize``. Raises StateNotKept.

    ``shared``: objects that all keys have in common, though they could be pickled.
    """

    def __init__(self, bolt: Bolt, name: str, make_tuple: MakeTuple, shared: Sequence[object] = ()) -> None:
        self._bolt = bolt
        self._name = name
        self._make_tuple = make_tuple
        self._begun = dict(vars(bolt))
        own = {name: value for name, value in self._begun.items() if all(value is not one for one in shared)}
        self._pickled = {name: data for name, value in own.items() if (data := self._at_first(name, value)) is not None}
        """Of each attribute that may differ from key to key, what ``initialize`` left: to compare with."""
        # Rule: attributes are written and read together. Two that hold the same object, as self.window and self.views =
        # {"w": self.window}, hold the same one of a key. Each read by itself would hold a copy of its own.
        mutable = {name: own[name] for name in self._pickled if own[name].__class__ not in _PLAIN}
        self._mutable_names = mutable.keys()
        self._mutable = self._dumps(mutable)

    def restore(self, kept: bytes | None) -> None:
        """Set the attributes that a key left; None or empty: those that ``initialize`` left."""
        own = vars(self._bolt)
        for name in [name for name in own if name not in self._begun]:
            del own[name]
        own.update(self._begun)
        changed, gone = self._loads(kept) if kept else ({}, ())
        if not self._mutable_names <= changed.keys():  # else each would be read twice
            own.update(self._loads(self._mutable))
        own.update(changed)
        for name in gone:
            own.pop(name, None)

    def changes(self) -> bytes:
        """Return the attributes that differ; empty where none does. Raises StateNotKept."""
        own = vars(self._bolt)
        changed = {name: value for name, value in own.items() if self._differs(name, value)}
        if any(value.__class__ not in _PLAIN for value in changed.values()):
            changed = {name: value for name, value in own.items() if name in changed or self._goes_along(name, value)}
        gone = [name for name in self._begun if name not in own]
        if not changed and not gone:
            return b""
        try:
            return self._dumps((changed, gone))
        except Exception as error:
            raise self._not_kept(changed, error) from error

    def _at_first(self, name: str, value: Any) -> bytes | None:
        """Return an attribute's first value, pickled; None where all keys share it. Raises StateNotKept."""
        # Rule: only what pickle refuses for its type is shared by all keys. A dict with a lambda or a lock in it is
        # state like any other: shared, it would mix the keys' counts, and no error would tell.
        try:
            return self._dumps(value)
        except (pickle.PicklingError, AttributeError) as error:
            if isinstance(value, _FUNCTIONS):
                return None
            raise StateNotKept(
                f"The bolt {self._name} has set self.{name} in initialize (or __init__), and a query's checkpoint "
                "keeps what a bolt remembers of a key by pickle, which finds functions and classes by their names: "
                f"{error}. "
                "Use a named function of a module instead of a lambda or an inner one (defaultdict(int), not "
                "defaultdict(lambda: 0)); put the class into a module. What all keys shall share belongs to the class "
                "or to a module."
            ) from error
        except Exception as error:  # whatever an object's own pickling raises
            if not isinstance(value, _CONTAINERS):
                return None
            raise StateNotKept(
                f"The bolt {self._name} has set self.{name} in initialize (or __init__) to a {type(value).__name__}, "
                "and a query's checkpoint keeps what a bolt remembers of a key by pickle, which refuses what is in it: "
                f"{error}. Give each connection, lock and the like an attribute of its own, which all keys share."
            ) from error

    def _or_none(self, value: Any) -> bytes | None:
        try:
            return self._dumps(value)
        except Exception:  # noqa: BLE001 - as above
            return None

    def _dumps(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        _Pickler(buffer, self._bolt).dump(value)
        return buffer.getvalue()

    def _loads(self, data: bytes) -> Any:
        return _Unpickler(io.BytesIO(data), self._bolt, self._make_tuple).load()

    def _differs(self, name: str, value: Any) -> bool:
        before = self._begun.get(name, _GONE)
        if value is before and (value.__class__ in _PLAIN or name not in self._pickled):
            return False
        return name not in self._pickled or self._or_none(value) != self._pickled[name]

    def _goes_along(self, name: str, value: Any) -> bool:
        return name in self._pickled and value.__class__ not in _PLAIN

    def _not_kept(self, changed: dict[str, Any], error: BaseException) -> StateNotKept:
        names = [name for name, value in changed.items() if self._or_none(value) is None]
        named = " and ".join(f"self.{name}" for name in names) or "its attributes"
        return StateNotKept(
            f"The bolt {self._name} has set {named} while it handled rows, and a query's checkpoint keeps what a bolt "
            f"remembers of a key by pickle, which refuses that: {error}. Make connections, locks and the like in "
            "initialize, where all keys share them; put the classes of what is remembered into a module."
        )


def _kept_tuple(*parts: Any) -> Tuple:
    """Stand for the function that makes a kept tuple: ``_Unpickler`` has the real one."""
    raise AssertionError("a kept tuple is read by the bolt that kept it")


def _this_bolt() -> Bolt:
    """Stand for the bolt whose attributes these are: ``_Unpickler`` has it."""
    raise AssertionError("a bolt's attributes are read by the bolt")


class _Pickler(pickle.Pickler):
    """Keeps tuples by their values, and the bolt itself by a mark.

    The class of a tuple whose values have names exists in this process only; so do a bolt's ``emit`` and connections.
    """

    def __init__(self, file: io.BytesIO, bolt: Bolt) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._bolt = bolt

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tuple):
            return _kept_tuple, ([*value.values], value.component, value.stream, value.state)
        if value is self._bolt:  # as in {"a": self.on_a}
            return _this_bolt, ()
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, bolt: Bolt, make_tuple: MakeTuple) -> None:
        super().__init__(file)
        self._bolt = bolt
        self._make_tuple = make_tuple

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__:
            if name == _kept_tuple.__name__:
                return self._make_tuple
            if name == _this_bolt.__name__:
                return lambda: self._bolt
        return super().find_class(module, name)
