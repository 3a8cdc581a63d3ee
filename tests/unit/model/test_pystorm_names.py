"""Names of streamparse and pystorm that are not here answer with what to write instead."""

from __future__ import annotations

import importlib

import pytest

import streamlet
from streamlet import BadInput, Bolt, Grouping, Spout, Topology
from streamlet.model.pystorm_names import COMPONENT, GROUPING, MODULE, TOPOLOGY


@pytest.mark.parametrize("name", COMPONENT)
@pytest.mark.parametrize("base", [Bolt, Spout])
def test_a_components_attribute_says_what_takes_its_place(base: type, name: str) -> None:
    component = base()
    with pytest.raises(AttributeError, match=rf"{name}'.*streamlet docs migrating-from-streamparse"):
        getattr(component, name)
    assert not hasattr(component, name) and not hasattr(base, name)
    setattr(component, name, "its own")
    assert getattr(component, name) == "its own"


@pytest.mark.parametrize("name", MODULE)
def test_an_import_says_what_takes_its_place(name: str) -> None:
    with pytest.raises(ImportError, match=f"'{name}'.*streamlet docs"):
        getattr(importlib.import_module("streamlet"), name)


@pytest.mark.parametrize("name", TOPOLOGY)
def test_a_topologys_attribute_says_what_takes_its_place(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}'.*streamlet docs"):
        getattr(Topology, name)


@pytest.mark.parametrize("name", GROUPING)
def test_javas_groupings_say_what_takes_their_place(name: str) -> None:
    with pytest.raises(BadInput, match="direct_task"):
        getattr(Grouping, name)("com.example.Grouping", [])


def test_storms_partial_key_grouping_says_what_to_do_in_its_place() -> None:
    with pytest.raises(BadInput, match=r"not there yet.*Grouping\.fields"):
        Grouping.partial_key("word")


def test_other_names_fail_as_ever() -> None:
    with pytest.raises(AttributeError, match=r"'Bolt' object has no attribute 'no_such'$"):
        Bolt().no_such  # noqa: B018 - the look is what is tested
    with pytest.raises(AttributeError, match=r"no attribute 'no_such'$"):
        streamlet.no_such  # noqa: B018 - the look is what is tested
