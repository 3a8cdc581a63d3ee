"""Names the right argument, name or module for one that a topology's file has wrong.

Python's own TypeError names the wrong argument and no right one. Pure.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from streamlet.components.component import Component
from streamlet.model.pystorm_names import MODULE, MODULE_ALONE, PAGE
from streamlet.model.validate import nearest

_UNKNOWN = re.compile(r"(?P<called>[\w.<>]+)\(\) got an unexpected keyword argument '(?P<given>\w+)'")
_TAKES_NONE = re.compile(r"(?P<called>\w+)\(\) takes no arguments")


def remedy_for(error: BaseException) -> str:
    """Return the remedy for an error of a topology's file; empty if none is known.

    Of a call that TypeError refused, of a name that is not there, and of a module of streamparse's.
    """
    if isinstance(error, NameError):
        return nearest(error.name, [name for name in _names_at(error) if not name.startswith("__")], "")
    if isinstance(error, ModuleNotFoundError):
        return _of_another_package(error.name or "")
    if isinstance(error, (ImportError, AttributeError)) and f"`streamlet docs {PAGE}`" in str(error):
        return "Nothing was started."  # it says already what takes the name's place
    if type(error) is not TypeError:
        return ""
    found = _UNKNOWN.match(str(error)) or _TAKES_NONE.match(str(error))
    if found is None:
        return ""
    name, _, method = found["called"].partition(".")
    names = _names_at(error)
    cls = next((known for known in _known(name, names) if isinstance(known, type)), None)
    if cls is None:
        return ""
    if issubclass(cls, Component) and method in ("", "__init__"):
        return f"In the body of a topology, a component is a line {_shown(cls, names)}.spec(...), and not a call of it."
    given = found.groupdict().get("given")
    called = getattr(cls, method, None) if method else cls
    if given is None or called is None or not cls.__module__.startswith("streamlet."):
        return ""
    takes = [name for name in _parameters(called) if name != "self"]
    elsewhere: Mapping[str, str] = getattr(cls, "ELSEWHERE", {})
    if given in elsewhere:
        return f"It is called {elsewhere[given]} here."
    return nearest(given, takes, f"It takes {', '.join(takes)}.")


def _of_another_package(module: str) -> str:
    """Return what takes the place of a module of streamparse or pystorm; empty for others."""
    package, _, rest = module.partition(".")
    former = {**MODULE, **MODULE_ALONE}.get(rest.partition(".")[0])
    if package == "streamlet" and former is not None:
        return f"That is a module of streamparse or pystorm: {former}. `streamlet docs {PAGE}` lists all differences."
    if package not in ("streamparse", "pystorm"):
        return ""
    return (
        "A topology of streamparse or pystorm has other imports here: from streamlet import Bolt, Spout, "
        f"ReliableSpout, Topology, Grouping, Stream. `streamlet docs {PAGE}` lists all differences."
    )


def _names_at(error: BaseException) -> Mapping[str, Any]:
    """Return the names that the innermost line of the user's could see."""
    names: Mapping[str, Any] = {}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if not frame.f_globals.get("__name__", "").startswith(("streamlet.", "importlib")):
            names = {**frame.f_globals, **frame.f_locals}
    return names


def _known(name: str, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the holders of a name: in the user's file, then in our modules."""
    if name in names:
        yield names[name]
    for module_name, module in sorted(sys.modules.items()):
        if module_name.startswith("streamlet.") and name in vars(module):
            yield vars(module)[name]


def _shown(cls: type, names: Mapping[str, Any]) -> str:
    return next((name for name, value in names.items() if value is cls), cls.__name__)


def _parameters(called: Any) -> list[str]:
    return [name for name, one in inspect.signature(called).parameters.items() if one.kind is not one.VAR_KEYWORD]
