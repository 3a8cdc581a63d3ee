"""Real parts for whoever asks for them: started once a session, on first use, shared; each test makes its own
topics.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from streamlet.devcluster import DevCluster
from tests import (
    seeds,  # noqa: F401 - drawn before a parallel run starts its processes
    spark_classes,
)
from tests.brokers import MORE_SECURITY
from tests.patience import PATIENCE_S
from tests.spark_home import spark_home

# So a shell starts what runs in its background, and `nohup` what it runs. Every process that a test sends such a signal
# to would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Hypothesis fails an example that takes 200 ms: on a machine that is busy with others, any does now and then.
settings.register_profile("without deadlines", settings(), deadline=None)
settings.load_profile("without deadlines")

for name, value in spark_classes.options().items():
    os.environ.setdefault(name, value)

ROOT = Path(__file__).parents[1]
_numbers = itertools.count(1)


class OneSparkAtATime(LoadFileScheduling):
    """Two files at once, but never two that start Spark: on two cores each would wait minutes for the other's JVMs."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        spoken = (ROOT / file, (ROOT / file).with_name("conftest.py"))
        starts_spark = any(re.search(r"pytest\.mark\.spark", path.read_text()) for path in spoken if path.exists())
        return "spark" if starts_spark else file


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in ``real`` and ``faults`` so; other marks stand at the tests."""
    for item in items:
        rung = item.path.relative_to(ROOT / "tests").parts[0]
        if rung in ("real", "faults"):
            item.add_marker(rung)


def pytest_collection_finish() -> None:
    """Let no garbage collection look through eleven thousand tests.

    On a busy machine one took a second, with the interpreter's lock, in whatever call of an inline run it fell.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:  # Any: xdist's objects are not typed
    return OneSparkAtATime(config, log)


@pytest.fixture(autouse=True)
def nothing_in_sparks_home(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves in pyspark's folder stays for good, and fails the tests that look there."""
    yield
    if request.node.get_closest_marker("spark") is not None:
        assert not (spark_home() / "work").exists(), "a local-cluster without tests.spark_home.linked_home"


@pytest.fixture(autouse=True)
def modules_go_with_their_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Two tests of one process may write a topology into a file of the same name: the second would get the first's."""
    yield
    folder = getattr(request.node, "funcargs", {}).get("tmp_path")
    if folder is not None:
        for name, module in list(sys.modules.items()):
            if str(vars(module).get("__file__")).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


@pytest.fixture(scope="session")
def kafka39() -> Iterator[DevCluster]:
    """One Kafka 3.9 broker that lives in a real ZooKeeper. Do not stop or pause it: others use it.

    It has TLS and SASL listeners too (``secure_servers``), and an authorizer. A Kafka 2.1 in a run of
    ``tests.soak.old_broker``.
    """
    if "STREAMLET_TESTS_ON_KAFKA_2_1" in os.environ:
        from tests.soak import old_broker

        yield from old_broker.clusters()
        return
    with DevCluster("3.9", secured=True, broker_settings=MORE_SECURITY["3.9"]) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka4() -> Iterator[DevCluster]:
    """One Kafka 4.x broker (KRaft). Do not stop or pause it: others use it. TLS and SASL listeners as above."""
    with DevCluster("4", secured=True, broker_settings=MORE_SECURITY["4"]) as cluster:
        yield cluster


@pytest.fixture
def topic_name() -> Callable[[], str]:
    """Gives a topic name (or group, or ZooKeeper path element) that nothing in this session has used."""
    return lambda: f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def make_topic(topic_name: Callable[[], str]) -> Callable[..., str]:
    """``make_topic(cluster, partitions=1, replication=1, configs={})`` makes a fresh topic in milliseconds
    and names it.

    Through librdkafka's admin client: Kafka's own tool does the same but costs a second of JVM each time.
    """

    def make(
        cluster: DevCluster, partitions: int = 1, replication: int = 1, configs: dict[str, str] | None = None
    ) -> str:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        from tests.replicas import await_known

        name = topic_name()
        # Rule: without settings of its own a topic keeps records of any age. Tests write some of years ago, and each
        # five minutes a broker removes such.
        kept = {"retention.ms": "-1"} if configs is None else configs
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=kept)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # A new one for each try: one that has found a controller goes on asking it after that has moved.
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            try:
                admin.create_topics([topic], operation_timeout=20)[name].result(30)
                break
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:  # an earlier try made it, and was not told
                    break
                # A broker that stood still, and now takes up its ZooKeeper session again, says that it does not know;
                # or one of several, as long as the others of a restart have not registered again, or when the
                # controller has just moved.
                passing = KafkaError.UNKNOWN, KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.NOT_CONTROLLER
                if code not in passing or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        if "," in cluster.bootstrap_servers:
            await_known(cluster.bootstrap_servers, name, partitions)
        return name

    return make
