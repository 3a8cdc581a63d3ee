"""The configuration files of ZooKeeper, Kafka and their loggers, as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def properties(values: Mapping[str, object]) -> str:
    """Java's properties format, for values without newlines."""
    return "".join(f"{key}={value}\n" for key, value in values.items())


def zookeeper(data: Path, port: int) -> dict[str, object]:
    """One ZooKeeper on loopback, without its admin server; ``dump`` shows whose broker node is still
    there.
    """
    return {
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok,dump",
        "tickTime": 1000,
    }


def _broker(data: Path, replicas: int) -> dict[str, object]:
    """What every broker gets: quick on one machine, and strict where a default would hide a mistake."""
    return {
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
    }


def broker_with_zookeeper(broker: int, port: int, zookeeper_port: int, data: Path, replicas: int) -> dict[str, object]:
    """A 3.9 broker that lives in ZooKeeper."""
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
    """A 4.x node that is broker and controller in one; the voters are fixed, broker i on
    controller_ports[i].
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
        **_broker(data, replicas),
    }


def reload4j(level: str, target: str) -> str:
    """Logging of 3.9: one console appender; the caller decides where the console goes."""
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
    """Logging of 4.x, the same."""
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
