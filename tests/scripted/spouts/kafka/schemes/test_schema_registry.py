"""The client of a schema registry against a server that answers well, badly, slowly or not at all."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamlet.base.errors import SettingError
from streamlet.spouts.kafka import SchemaRegistry, SchemeNotReady
from streamlet.spouts.kafka.errors import UnknownSchema
from streamlet.spouts.kafka.schemes import schema_registry
from streamlet.spouts.kafka.schemes.schema_registry import SECOND_LOOK_S, UNKNOWN_FOR_S
from tests.patience import PATIENCE_S
from tests.scripted.schema_registry_server import RegistryServer, registry_server


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.schemas[7] = {"schema": '"string"'}
        yield server


def patiently(ask: Callable[[], Any]) -> Any:
    """Ask as a partition does: again while it is not ready."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except SchemeNotReady:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url + "/")
    for _ in range(3):
        assert registry.schema(7) == (7, "AVRO", '"string"', ())
        assert registry.schema_at_hand(7).text == '"string"'
    assert server.asked == ["/schemas/ids/7"]


def test_references_come_in_the_order_of_need_and_are_asked_for_once(server: RegistryServer) -> None:
    server.versions["a b", "1"] = {"schema": "A"}
    server.versions["b", "2"] = {"schema": "B", "references": [{"name": "A", "subject": "a b", "version": 1}]}
    server.versions["a%20b", "1"] = server.versions.pop(("a b", "1"))
    both = [{"name": "B", "subject": "b", "version": 2}, {"name": "A", "subject": "a b", "version": 1}]
    server.schemas[8] = {"schema": "C", "schemaType": "PROTOBUF", "references": both}
    server.schemas[9] = {"schema": "D", "references": both}
    registry = SchemaRegistry(server.url)
    assert registry.schema(8) == (8, "PROTOBUF", "C", (("A", "A"), ("B", "B")))
    registry.schema(9)
    assert len(server.asked) == 4


def test_a_reference_that_was_deleted_softly_is_found_and_one_that_is_gone_is_named(server: RegistryServer) -> None:
    now = [0.0]
    server.versions["a", "1"] = {"schema": "A", "deleted": True}
    server.schemas[8] = {"schema": "B", "references": [{"name": "A.x", "subject": "a", "version": 1}]}
    server.schemas[9] = {"schema": "C", "references": [{"name": "D.x", "subject": "d", "version": 3}]}
    registry = SchemaRegistry(server.url, clock=lambda: now[0])
    assert registry.schema(8).references == (("A.x", "A"),)
    with pytest.raises(SchemeNotReady):
        registry.schema(9)
    now[0] += SECOND_LOOK_S
    with pytest.raises(UnknownSchema, match=r"schema id 9 needs 'D\.x', which is version 3 of subject 'd'"):
        registry.schema(9)


def test_an_id_that_the_registry_does_not_know_is_named_after_a_second_look(server: RegistryServer) -> None:
    now = [0.0]
    registry = SchemaRegistry(server.url, clock=lambda: now[0])
    for _ in range(2):
        with pytest.raises(SchemeNotReady, match=r"its schema id is 42, .* asked once more"):
            registry.schema(42)
    assert len(server.asked) == 1
    now[0] += SECOND_LOOK_S
    for _ in range(2):
        with pytest.raises(UnknownSchema, match="its schema id is 42"):
            registry.schema(42)
    assert len(server.asked) == 2
    now[0] += UNKNOWN_FOR_S
    with pytest.raises(UnknownSchema):
        registry.schema(42)
    server.schemas[42] = {"schema": "late"}
    now[0] += UNKNOWN_FOR_S
    assert registry.schema(42).text == "late"


def test_a_schema_that_one_address_has_not_heard_of_yet_is_asked_of_the_others(server: RegistryServer) -> None:
    with registry_server() as behind:
        registry = SchemaRegistry([behind.url, server.url])
        assert registry.schema(7).text == '"string"'
        assert behind.asked == ["/schemas/ids/7"]


def test_a_new_schema_that_the_registry_hears_of_a_moment_later_is_not_taken_for_unknown(
    server: RegistryServer,
) -> None:
    now = [0.0]
    registry = SchemaRegistry(server.url, clock=lambda: now[0])
    with pytest.raises(SchemeNotReady):
        registry.schema(42)
    server.schemas[42] = {"schema": "new"}
    now[0] += SECOND_LOOK_S
    assert registry.schema(42).text == "new"


class CountedWaits(threading.Event):
    count = 0

    def wait(self, timeout: float | None = None) -> bool:
        CountedWaits.count += 1
        return super().wait(timeout)


class NotedRequest(schema_registry._Request):
    def __init__(self, began_s: float) -> None:
        super().__init__(began_s)
        self.done = CountedWaits()


def test_after_an_unknown_id_the_loop_waits_no_more_until_a_schema_is_found(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strange bytes seem to have a new id in each record."""
    monkeypatch.setattr(schema_registry, "_Request", NotedRequest)
    monkeypatch.setattr(schema_registry, "MOST_ABSENT", 5)
    monkeypatch.setattr(CountedWaits, "count", 0)
    server.schemas[8] = {"schema": '"int"'}
    registry = SchemaRegistry(server.url)

    def doubted(number: int) -> None:
        try:
            registry.schema_at_hand(number)
        except SchemeNotReady as error:
            if "is asked once more" not in error.message:
                raise

    for number in range(1000, 1020):
        patiently(lambda: doubted(number))  # noqa: B023 - it is over before the next number
    assert CountedWaits.count == 1
    assert len(registry._absent) == 5
    assert patiently(lambda: registry.schema_at_hand(7)).text == '"string"'
    assert CountedWaits.count == 1
    assert patiently(lambda: registry.schema_at_hand(8)).text == '"int"'
    assert CountedWaits.count == 2


@pytest.mark.parametrize("status", [500, 503, 429, 301, 401, 403])
def test_a_registry_that_fails_is_asked_again_after_a_pause(server: RegistryServer, status: int) -> None:
    now = [0.0]
    registry = SchemaRegistry(server.url, password="secret", user="ann", clock=lambda: now[0])
    server.status = status
    for _ in range(3):
        with pytest.raises(SchemeNotReady, match=str(status)) as caught:
            registry.schema(7)
        assert "secret" not in str(caught.value)
    assert len(server.asked) == 1
    server.status, now[0] = None, 60.0
    assert registry.schema(7).text == '"string"'


def test_a_404_of_another_server_is_no_word_about_the_schema(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.schemas[7] = {"error_code": 404, "message": "no such page"}
    server.status = 404
    monkeypatch.setattr("tests.scripted.schema_registry_server.json.dumps", lambda made: "<html>not here</html>")
    with pytest.raises(SchemeNotReady, match="status 404: b'<html>not here"):
        SchemaRegistry(server.url).schema(7)


def test_an_answer_without_a_schema_is_not_taken_for_one(server: RegistryServer) -> None:
    server.schemas[7] = {"skema": 1}
    with pytest.raises(SchemeNotReady, match="answered without a schema"):
        SchemaRegistry(server.url).schema(7)


def test_several_addresses_are_tried_in_turn(server: RegistryServer) -> None:
    with registry_server() as other:
        gone = other.url
    registry = SchemaRegistry([gone, server.url])
    assert registry.schema(7).text == '"string"'
    server.schemas[8] = {"schema": '"int"'}
    registry.schema(8)
    assert registry.urls == [server.url, gone], "the one that answered is asked first"
    with pytest.raises(SchemeNotReady, match=f"schema id 7: .*{gone}: ConnectionRefusedError"):
        SchemaRegistry(gone).schema(7)


def test_a_slow_registry_holds_the_loop_once_for_a_moment_and_its_answer_is_taken(server: RegistryServer) -> None:
    server.answers.clear()
    registry = SchemaRegistry(server.url)
    for _ in range(50):
        with pytest.raises(SchemeNotReady, match=r"schema id 7: .* has not answered yet"):
            registry.schema_at_hand(7)
    assert len(server.asked) == 1, "one request at a time"
    server.answers.set()
    assert patiently(lambda: registry.schema_at_hand(7)).text == '"string"'
    assert len(server.asked) == 1


def test_a_registry_that_sends_byte_by_byte_is_cut_off(server: RegistryServer) -> None:
    server.drips = True
    registry = SchemaRegistry(server.url, timeout_s=0.1)
    with pytest.raises(SchemeNotReady):
        registry.schema_at_hand(7)

    def failed() -> None:
        try:
            registry.schema_at_hand(7)
        except SchemeNotReady as error:
            if "is asked again later" not in error.message:
                raise

    patiently(failed)
    server.drips = False
    assert patiently(lambda: registry.schema_at_hand(7)).text == '"string"'


def test_a_request_whose_thread_cannot_start_is_made_again_later(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for one under way for ever, and the record that asked for it was poison."""
    now = [0.0]
    registry = SchemaRegistry(server.url, clock=lambda: now[0])

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(schema_registry.threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(SchemeNotReady, match=r"schema id 7: .* again later\. can't start new thread"):
                registry.schema_at_hand(7)
    with pytest.raises(SchemeNotReady):
        registry.schema_at_hand(7)
    now[0] += 1.0
    assert registry.schema(7).text == '"string"'


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, None),
        ({"user": "ann", "password": "s3cret"}, "Basic YW5uOnMzY3JldA=="),
        ({"token": "t0ken"}, "Bearer t0ken"),
    ],
)
def test_who_asks_is_sent_and_never_shown(server: RegistryServer, given: Any, sent: str | None) -> None:
    registry = pickle.loads(pickle.dumps(SchemaRegistry(server.url, **given)))
    registry.schema(7)
    assert server.authorizations == [sent]
    assert repr(registry) == str(registry) == f"SchemaRegistry({server.url})"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": []}, "there is no url"),
        ({"url": "registry:8081"}, "url is 'registry:8081'"),
        ({"url": "http://ann:s3cret@host"}, "the url of host has a user in it"),
        ({"url": "http://host:99999"}, "the url is"),
        ({"url": "http://h", "user": "ann"}, "user and password together"),
        ({"url": "http://h", "user": "ann", "password": "s3cret", "token": "t"}, "or a token"),
        ({"url": "http://h", "token": "s3cret\nx"}, "text without line breaks"),
        ({"url": "http://h", "timeout_s": 0}, "timeout_s is 0"),
        ({"url": "http://h", "timeout_s": float("inf")}, "timeout_s is inf"),
        ({"url": "http://h?x=1"}, "the url is"),
        ({"url": "https://h", "ssl_cafile": "/no/such.pem"}, "ssl_cafile='/no/such.pem' cannot be read: FileNotFound"),
        ({"url": "https://h", "ssl_cafile": __file__}, "cannot be read: SSLError"),
        ({"url": "https://h", "ssl_cafile": 3}, "ssl_cafile=3 cannot be read: TypeError"),
    ],
)
def test_settings_of_a_registry_that_cannot_be_are_refused(given: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        SchemaRegistry(**given)
    assert "s3cret" not in str(caught.value)
