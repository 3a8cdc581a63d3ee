"""On which brokers a test runs, as names of fixtures."""

from __future__ import annotations

import os

ON_KAFKA_2_1 = "STREAMLET_TESTS_ON_KAFKA_2_1" in os.environ
"""A run of ``tests.soak.old_broker``, in which ``kafka39`` is a Kafka 2.1."""
BROKERS = ["kafka39", "kafka4"]
ONE_BROKER = ["kafka39"] if ON_KAFKA_2_1 else ["kafka4"]
"""For what does not depend on the broker's version and takes its time."""

_CHECKED = {"super.users": "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "true"}
_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
_TOKENS: dict[str, object] = {
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f'{_LOGIN} unsecuredLoginStringClaim_sub="b";',
}
MORE_SECURITY: dict[str, dict[str, object]] = {
    "3.9": {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", **_CHECKED, **_TOKENS},
    "4": {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        **_CHECKED,
        **_TOKENS,
    },
}
"""Settings of the session's brokers by release: ACLs, which nothing is denied by until a test makes one, and on the
listener SASL_PLAINTEXT tokens whose signature nobody checks (Kafka's own validator for development).
"""
