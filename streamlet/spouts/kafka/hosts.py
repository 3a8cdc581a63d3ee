"""How a spout finds the brokers of its topic: the choice picks reader, coordinator and offset store (K11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka.partition import Broker


@dataclass(frozen=True)
class StaticHosts:
    """Partition number -> broker, by hand, perhaps for a few partitions only: ``StaticHosts({0: "kafka1:9092"})``.

    Taken at its word: nothing is looked up again. When a broker stops leading its partition the spout stops with
    a message that names the new leader and the two remedies (trap T13).
    """

    leaders: Mapping[int, Broker | str]

    def __post_init__(self) -> None:
        if not isinstance(self.leaders, Mapping) or not self.leaders:
            raise SettingError(
                "StaticHosts needs at least one partition, as a mapping from partition number to broker: "
                'StaticHosts({0: "kafka1:9092", 1: "kafka2:9092"}).'
            )
        parsed: dict[int, Broker | str] = {}
        for number, broker in self.leaders.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise SettingError(f"StaticHosts: {number!r} is no partition number. They are integers from 0.")
            parsed[number] = broker if isinstance(broker, Broker) else Broker.parse(broker)
        object.__setattr__(self, "leaders", MappingProxyType(parsed))

    @property
    def brokers(self) -> dict[int, Broker]:
        """Partition number -> broker, parsed."""
        return {n: b for n, b in self.leaders.items() if isinstance(b, Broker)}

    def __hash__(self) -> int:
        return hash(frozenset(self.leaders.items()))


@dataclass(frozen=True)
class ZkHosts:
    """The ZooKeeper a cluster of Kafka up to 3.9 lives in: ``ZkHosts("zk1:2181,zk2:2181")``, an ensemble of any size,
    perhaps with a chroot at its end (``zk1:2181,zk2:2181/kafka``).

    ``broker_zk_path``: where Kafka keeps its nodes there (``/brokers``, or ``/chroot/brokers``).
    ``refresh_freq_secs``: leaders and partitions are read again after so many seconds, and after a failed fetch.
    ``digest``: user and password for a ZooKeeper that asks for them; used for the offsets there too.
    Kafka 4 has no ZooKeeper: use KafkaHosts for it.
    """

    broker_zk_str: str
    broker_zk_path: str = "/brokers"
    refresh_freq_secs: float = 60.0
    digest: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_digest("ZkHosts", self.digest)
        if not isinstance(self.broker_zk_str, str) or not self.broker_zk_str.strip():
            raise SettingError('ZkHosts needs the addresses of ZooKeeper: ZkHosts("zk1:2181,zk2:2181").')
        if not self.broker_zk_path.startswith("/"):
            raise SettingError(f"ZkHosts: broker_zk_path is {self.broker_zk_path!r}; it begins with a slash.")
        _check_refresh("ZkHosts", self.refresh_freq_secs)


@dataclass(frozen=True)
class KafkaHosts:
    """Bootstrap servers of any Kafka: ``KafkaHosts("kafka1:9092,kafka2:9092")``; one that answers is enough.

    ``refresh_freq_secs``: partitions and leaders are looked up again after so many seconds, and after a failed fetch.
    """

    bootstrap_servers: str | Sequence[str]
    refresh_freq_secs: float = 60.0

    def __post_init__(self) -> None:
        listed = self.bootstrap_servers
        texts = listed.split(",") if isinstance(listed, str) else list(listed)
        brokers = tuple(str(Broker.parse(text)) for text in texts if text.strip())
        if not brokers:
            raise SettingError('KafkaHosts needs at least one address: KafkaHosts("kafka1:9092,kafka2:9092").')
        object.__setattr__(self, "bootstrap_servers", brokers)
        _check_refresh("KafkaHosts", self.refresh_freq_secs)

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The bootstrap servers, parsed."""
        return tuple(Broker.parse(text) for text in self.bootstrap_servers)


BrokerHosts = StaticHosts | ZkHosts | KafkaHosts


def hosts_from_text(text: str, before: BrokerHosts) -> BrokerHosts:
    """Hosts as a command line names them: ``zk://h:p,h:p[/chroot]`` or ``kafka://h:p,h:p``. Raises SettingError.

    What ``before`` says beyond addresses (refresh, path of the brokers) stays where the kind stays.

    >>> hosts_from_text("zk://zk1:2181,zk2:2181/kafka", ZkHosts("elsewhere", refresh_freq_secs=5.0))
    ZkHosts(broker_zk_str='zk1:2181,zk2:2181', broker_zk_path='/kafka/brokers', refresh_freq_secs=5.0)
    """
    kind, _, rest = text.partition("://")
    addresses, slash, path = rest.partition("/")
    if kind == "zk" and addresses:
        kept = before if isinstance(before, ZkHosts) else ZkHosts(addresses)
        brokers = f"/{path.strip('/')}/brokers" if path.strip("/") else kept.broker_zk_path
        return replace(kept, broker_zk_str=addresses, broker_zk_path=brokers)
    if kind == "kafka" and addresses and not slash:
        kept_kafka = before if isinstance(before, KafkaHosts) else KafkaHosts(addresses)
        return replace(kept_kafka, bootstrap_servers=addresses)
    raise SettingError(
        f"SpoutConfig: hosts cannot be {text!r}: as text it is zk://HOST:PORT,... (a ZooKeeper, Kafka up to 3.9) or "
        "kafka://HOST:PORT,... (bootstrap servers). StaticHosts can be written in the topology only."
    )


def check_digest(kind: str, digest: object) -> None:
    """Raises SettingError, without the password, for what is no pair of user and password."""
    if digest is None:
        return
    if not (isinstance(digest, tuple) and len(digest) == 2 and all(isinstance(part, str) and part for part in digest)):
        raise SettingError(f'{kind}: digest is a pair of user and password: digest=("user", password).')
    if ":" in digest[0]:
        raise SettingError(f"{kind}: digest's user is {digest[0]!r}; ZooKeeper's users have no colon in their names.")


def _check_refresh(kind: str, seconds: float) -> None:
    if not seconds > 0:
        raise SettingError(f"{kind}: refresh_freq_secs is {seconds!r}; it is a number of seconds above 0.")
