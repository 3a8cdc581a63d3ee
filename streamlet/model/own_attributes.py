"""Reads from the code of a class's methods which attributes of itself they load and store. Pure.

It sees ``self.name``, under whatever name the first argument has, and nothing that a method hands on.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType


def users_classes(cls: type) -> list[type]:
    """Return a class and its bases, without those of ours and Python's."""
    return [base for base in cls.__mro__ if not base.__module__.startswith("streamlet.") and base is not object]


def sets_itself(cls: type, *names: str) -> bool:
    """Tell whether a method of the user's sets one of these attributes."""
    return any(
        attribute in names
        for base in users_classes(cls)
        for _, method in methods_of(base)
        for attribute in attributes_of_self(method, "STORE_")
    )


def attributes_of_self(function: FunctionType, how: str) -> Iterator[str]:
    """Yield attributes that a method loads ("LOAD_") or stores ("STORE_")."""
    code = function.__code__
    if code.co_argcount:
        yield from _attributes_of(code, code.co_varnames[0], how)


def _attributes_of(code: CodeType, owner: str, how: str) -> Iterator[str]:
    # Two instructions that follow each other: the owner is put on the stack, and an attribute of it taken or set.
    # A newer Python may put two variables there at once: the last one is the owner.
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("CACHE", "COPY"):  # copied where it is also set: self.n += 1
            continue
        if instruction.opname in (f"{how}ATTR", f"{how}METHOD") and _variable(before) == owner:
            yield instruction.argval
        before = instruction
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes_of(constant, owner, how)


def _variable(put: dis.Instruction | None) -> str | None:
    """Return the variable that an instruction puts on the stack last."""
    if put is None or "LOAD_" not in put.opname or "ATTR" in put.opname or put.opname == "LOAD_CONST":
        return None
    last = put.argval[-1] if isinstance(put.argval, tuple) else put.argval
    return last if isinstance(last, str) else None


def methods_of(cls: type) -> Iterator[tuple[str, FunctionType]]:
    """Yield the functions in a class's body, with their names."""
    for name, value in vars(cls).items():
        made = [value.fget, value.fset] if isinstance(value, property) else [value]
        yield from ((name, one) for one in made if isinstance(one, FunctionType))
