"""The configuration files of ZooKeeper, Kafka and their loggers, as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def properties(values: Mapping[str, object]) -> str:
    """Format settings as Java's properties, for values without newlines."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def zookeeper(data: Path, port: int) -> dict[str, object]:
    """Return the settings of one ZooKeeper on loopback, without its admin server.

    ``dump`` shows which broker nodes are still there.
    """
    return {
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        # No limit for one address: here every client comes from 127.0.0.1.
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok,dump",
        # The shortest session a ZooKeeper grants has two ticks: tests of expiry need not wait long.
        "tickTime": 1000,
    }


def _broker(data: Path, replicas: int) -> dict[str, object]:
    """Return the settings of every broker.

    They are quick on one machine, and strict where a default would hide a mistake.
    """
    return {
        "log.dirs": data,
        # A misspelt topic in a test must be an error and not a new topic.
        "auto.create.topics.enable": "false",
        # A first member is not kept waiting three seconds for others.
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        # Transactions go on while a test has killed two of three brokers.
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
    }


def broker_with_zookeeper(broker: int, port: int, zookeeper_port: int, data: Path, replicas: int) -> dict[str, object]:
    """Return the settings of a 3.9 broker with ZooKeeper."""
    return {
        "broker.id": broker,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "zookeeper.session.timeout.ms": 6000,
        "zookeeper.connection.timeout.ms": 15000,
        **_broker(data, replicas),
    }


def broker_with_kraft(
    broker: int, port: int, controller_ports: Sequence[int], data: Path, replicas: int
) -> dict[str, object]:
    """Return the settings of a 4.x node that is broker and controller.

    The voters are fixed, broker i on controller_ports[i].
    """
    voters = ",".join(f"{node}@127.0.0.1:{voter}" for node, voter in enumerate(controller_ports))
    return {
        "process.roles": "broker,controller",
        "node.id": broker,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_ports[broker]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 1000,
        # Members of the newer group protocol (KIP-848) hear of a rebalance in their next heartbeat, 5 s apart by
        # default; a killed one is missed after its session, 45 s by default.
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.session.timeout.ms": 6000,
        **_broker(data, replicas),
    }


SECURE_LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN_USERS = {"alice": "alice-secret"}
"""Who may log in with PLAIN on a secured broker; SCRAM's users are made with Kafka's own admin calls."""
SESSION_LIFETIME_MS = 1500
"""Milliseconds that a login with PLAIN holds on SASL_PLAINTEXT; SCRAM's has no end."""


def secured(before: Mapping[str, object], ports: Sequence[int], broker_pem: Path, ca: Path) -> dict[str, object]:
    """Add three secure listeners to a broker's properties.

    ``ports`` are those of SECURE_LISTENERS.

    SSL asks for a client certificate, SASL_SSL for none; PLAINTEXT stays, and the brokers speak it to each other.
    """
    added = ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(SECURE_LISTENERS, ports, strict=True))
    mapped = ",".join(f"{name}:{name}" for name in SECURE_LISTENERS)
    known = before.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    users = " ".join(f'user_{name}="{password}"' for name, password in PLAIN_USERS.items())
    plain = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    values: dict[str, object] = {
        **before,
        "listeners": f"{before['listeners']},{added}",
        "advertised.listeners": f"{before['advertised.listeners']},{added}",
        "listener.security.protocol.map": f"{known},{mapped}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": broker_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": SESSION_LIFETIME_MS,
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        values[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            values[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
    return values


def reload4j(level: str, target: str) -> str:
    """Return the logging settings of 3.9: one console appender."""
    return properties(
        {
            "log4j.rootLogger": f"{level}, console",
            "log4j.appender.console": "org.apache.log4j.ConsoleAppender",
            "log4j.appender.console.target": f"System.{target}",
            "log4j.appender.console.layout": "org.apache.log4j.PatternLayout",
            "log4j.appender.console.layout.ConversionPattern": "%d{ISO8601} %p %c{1}: %m%n",
        }
    )


def log4j2(level: str, target: str) -> str:
    """Return the same for 4.x."""
    return properties(
        {
            "appender.console.type": "Console",
            "appender.console.name": "console",
            "appender.console.target": f"SYSTEM_{target.upper()}",
            "appender.console.layout.type": "PatternLayout",
            "appender.console.layout.pattern": "%d{ISO8601} %p %c{1}: %m%n",
            "rootLogger.level": level,
            "rootLogger.appenderRef.console.ref": "console",
        }
    )
