"""Changes of settings, and settings with their source. Pure."""

from __future__ import annotations

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka.admin import (
    AlterConfig,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    configs,
)
from streamlet.kafka.protocol.messages import configs as wire_configs


def test_changes_of_settings_set_delete_and_append() -> None:
    """Text sets, None deletes, an AlterConfig says more; what is no text is refused with its name."""
    lines = ConfigResource.topic("lines")
    changes = {"a": "1", "b": None, "c": AlterConfig(ConfigOp.APPEND, "x")}
    request = configs.alter_request({lines: changes}, False)
    rows = [(row.name, row.config_operation, row.value) for row in request.resources[0].configs]
    assert rows == [("a", 0, "1"), ("b", 1, None), ("c", 2, "x")]
    with pytest.raises(BadInput, match=r"topic 'lines'.*'a' = 1"):
        configs.alter_request({lines: {"a": 1}}, False)  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="SUBTRACT of 'a' needs a value"):
        configs.alter_request({lines: {"a": AlterConfig(ConfigOp.SUBTRACT)}}, False)


def test_settings_are_read_with_their_source() -> None:
    """A source, or a kind of resource, that is newer than this client hurts nothing."""
    entry = wire_configs.DescribeConfigsResourceResult(
        name="x", value=None, read_only=True, is_sensitive=True, config_source=99
    )
    result = wire_configs.DescribeConfigsResult
    response = wire_configs.DescribeConfigsResponse(
        throttle_time_ms=0,
        results=(
            result(error_code=0, error_message=None, resource_type=4, resource_name="1", configs=(entry,)),
            result(error_code=0, error_message=None, resource_type=99, resource_name="1", configs=()),
            result(error_code=3, error_message=None, resource_type=2, resource_name="t", configs=()),
        ),
    )
    answers = configs.read_described(response)
    found = answers.results[ConfigResource.broker(1)]["x"]
    assert (found.source, found.is_read_only, found.is_default) == (ConfigSource.UNKNOWN, True, False)
    assert list(answers.errors) == [ConfigResource.topic("t")]
    assert [str(ConfigResource.broker()), str(ConfigResource.topic("t"))] == ["all brokers", "topic 't'"]
