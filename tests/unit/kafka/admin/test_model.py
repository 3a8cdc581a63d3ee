"""What an administrator's calls take: wrong values are refused when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from streamlet.base.errors import WrongArgument
from streamlet.kafka.admin.model import ConfigResource


@pytest.mark.parametrize("kind", ["topic", "TOPIC", 2, None])
def test_a_resource_of_an_unknown_type_is_refused(kind: Any) -> None:
    """Taken for a broker's, the settings of a topic called 5 would be those of broker 5."""
    with pytest.raises(WrongArgument, match=r'ConfigResource\.topic\("lines"\)'):
        ConfigResource(kind, "5")


def test_a_resource_says_whose_settings_it_has() -> None:
    assert str(ConfigResource.topic("5")) == "topic '5'"
    assert [str(ConfigResource.broker(5)), str(ConfigResource.broker())] == ["broker 5", "all brokers"]
