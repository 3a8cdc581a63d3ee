"""What a commit says: what became of the transaction, and nothing else. Against a scripted coordinator."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamlet.kafka.errors import ClientTimeout, KafkaError
from streamlet.kafka.producer import Producer
from streamlet.kafka.producer.errors import IllegalProducerState, ProducerFenced
from streamlet.kafka.protocol.messages.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdResponse,
)
from streamlet.kafka.protocol.schema import ApiKey
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S
from tests.scripted.fake_broker import CLOSE, FakeBroker
from tests.scripted.fake_cluster import FakeCluster
from tests.scripted.kafka.producer.scripted import both_versions, scripted

FENCED = 90


@contextmanager
def coordinated(version: int = 1) -> Iterator[tuple[FakeBroker, FakeCluster, Producer]]:
    """A transaction with a record in it, begun."""
    with scripted(transaction_version=version, transactional_id="x") as (broker, log, producer):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x").get(PATIENCE_S)
        yield broker, log, producer


def test_a_commit_that_was_made_is_one_though_the_next_epoch_is_refused() -> None:
    """EndTxn is answered, by its second try; refused is the epoch after it, and the next transaction says so."""
    with coordinated() as (broker, _log, producer):
        broker.on(ApiKey.END_TXN, CLOSE, EndTxnResponse(error_code=0))
        broker.on(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(error_code=FENCED, producer_id=-1, producer_epoch=-1))
        producer.commit_transaction()
        ends = [row.request for row in broker.seen(ApiKey.END_TXN)]
        assert all(isinstance(row, EndTxnRequest) and row.committed for row in ends) and len(ends) == 2
        with pytest.raises(ProducerFenced):
            producer.begin_transaction()


STALE_EPOCH = 47


@both_versions
@pytest.mark.parametrize("code", [FENCED, STALE_EPOCH])
def test_f21_a_leader_that_fences_the_producer_is_caught_by_the_one_name(code: int, version: int) -> None:
    """A record's future, the commit and every later call raise the class that the manual's program catches."""
    with coordinated(version) as (_broker, log, producer):
        log.answers = [code]
        future = producer.send("t", b"y")
        with pytest.raises(ProducerFenced, match=r"'t'.*transactional id 'x'.*Close this producer"):
            producer.commit_transaction()
        with pytest.raises(ProducerFenced, match="partition 0"):
            future.get(PATIENCE_S)
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(ProducerFenced):
                call()


@pytest.mark.parametrize("call", ["send", "commit_transaction", "abort_transaction", "begin_transaction"])
def test_while_the_next_epoch_is_asked_for_the_producer_is_as_good_as_ready(call: str) -> None:
    """begin_transaction waits for it; the others miss a transaction, and nothing else."""
    with coordinated() as (broker, _log, producer):
        gate = threading.Event()

        def slow(_request: Any) -> InitProducerIdResponse:
            gate.wait(PATIENCE_S)
            return InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=1)

        broker.on(ApiKey.END_TXN, CLOSE, EndTxnResponse(error_code=0)).on(ApiKey.INIT_PRODUCER_ID, slow)
        producer.commit_transaction()
        # Only the calls below may time out: connecting and committing take longer on a busy machine.
        producer._calls._max_block_s = 0.3
        try:
            if call == "begin_transaction":
                with pytest.raises(ClientTimeout, match=r"begin_transaction\(\) has had no answer.*call it again"):
                    producer.begin_transaction()
            else:
                with pytest.raises(IllegalProducerState, match=r"is ready\. Call begin_transaction\(\) first"):
                    getattr(producer, call)(*(("t", b"y") if call == "send" else ()))
        finally:
            gate.set()
        producer._calls._max_block_s = PATIENCE_S
        producer.begin_transaction()
        producer.send("t", b"y").get(PATIENCE_S)
        producer.commit_transaction()


def _committing() -> Callable[[Producer], None]:
    """The function of the manual's sample."""
    text = (ROOT / "docs" / "guide" / "producer.md").read_text(encoding="utf-8")
    found = re.search(r"^def commit\(producer\):\n(?:    .*\n)+", text, re.MULTILINE)
    assert found
    names: dict[str, Any] = {"ClientTimeout": ClientTimeout}
    exec(found[0], names)
    made: Callable[[Producer], None] = names["commit"]
    return made


@both_versions
def test_a_commit_that_timed_out_is_waited_for_again_as_the_manual_shows(
    version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot be aborted any more: it may be done yet."""
    with coordinated(version) as (broker, log, producer):
        gate = threading.Event()

        def slow(request: EndTxnRequest) -> EndTxnResponse:
            gate.wait(PATIENCE_S)
            return log.end(request)

        broker.on(ApiKey.END_TXN, slow)
        producer._calls._max_block_s = 0.1
        with pytest.raises(ClientTimeout, match=r"commit_transaction\(\) has had no answer"):
            producer.commit_transaction()
        with pytest.raises(IllegalProducerState, match=r"committing\. Call commit_transaction\(\) again"):
            producer.abort_transaction()
        timer = threading.Timer(0.3, gate.set)
        timer.start()
        try:
            _committing()(producer)
        except KafkaError as err:  # what the sample answers with an abort
            pytest.fail(f"the commit was made, and said: {err}")
        finally:
            timer.cancel()
            gate.set()
        assert "still under way" in capsys.readouterr().out
        producer._calls._max_block_s = PATIENCE_S
        producer.begin_transaction()
