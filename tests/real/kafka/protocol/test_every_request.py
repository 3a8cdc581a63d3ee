"""Every request in every version that we share with a real broker: understood, done, and answered in full."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamlet.devcluster import DevCluster
from streamlet.devcluster.broker_settings import PLAIN_USERS
from streamlet.kafka.net.sasl import sasl_client
from streamlet.kafka.protocol.schema import ApiKey
from tests.kafka_requests import REQUESTS
from tests.unit.kafka.protocol.every_request import Conversation, log_in, shared_versions


@pytest.mark.parametrize("release", ["kafka39", "kafka4"])
def test_every_request_in_every_shared_version_is_understood(
    release: str, request: pytest.FixtureRequest, topic_name: Callable[[], str]
) -> None:
    """No hang-up, no error, and each answer decodes to its last byte; none of our versions is left untried.

    The requests depend on one another (what one made the next one uses), so an answer that says "done" to bytes that
    meant something else would be noticed.
    """
    cluster: DevCluster = request.getfixturevalue(release)
    with Conversation(cluster.bootstrap_servers, topic_name()) as talk:
        talk.say_everything()
    heard = [*talk.heard]
    for version in REQUESTS[ApiKey.SASL_AUTHENTICATE].versions:
        ((user, password),) = PLAIN_USERS.items()
        heard += log_in(cluster.secure_servers("SASL_PLAINTEXT"), version, sasl_client("PLAIN", user, password, "n"))
    assert {(row.request.api_key, row.version) for row in heard} == shared_versions(talk.offered)
    assert set(REQUESTS) <= set(talk.offered), "an API of ours that this broker does not have"
