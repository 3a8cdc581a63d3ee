"""Users for SCRAM, made and tried by librdkafka."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from streamlet.devcluster import DevCluster
from tests.patience import PATIENCE_S

_NAMES = {ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512"}


def set_password(cluster: DevCluster, user: str, password: str, mechanisms: Iterable[ScramMechanism]) -> None:
    """Returns when the broker lets that user in: it may hear of the change after the acknowledgement."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for mechanism in mechanisms:
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(PATIENCE_S)
        settings = {"bootstrap.servers": cluster.secure_servers("SASL_PLAINTEXT"), "sasl.mechanism": _NAMES[mechanism]}
        settings |= {"security.protocol": "SASL_PLAINTEXT", "sasl.username": user, "sasl.password": password}
        AdminClient(settings).list_topics(timeout=PATIENCE_S)
