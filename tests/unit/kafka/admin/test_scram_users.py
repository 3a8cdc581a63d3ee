"""Users of SCRAM: changes, their requests, and what answers say. Pure."""

from __future__ import annotations

import hashlib

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import broker_errors as e
from streamlet.kafka.admin import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
    scram_users,
)
from streamlet.kafka.protocol.messages import scram_users as wire

ALICE = UserScramCredentialUpsertion("alice", "geheim", "SCRAM-SHA-256")
BOB = UserScramCredentialDeletion("bob")


def test_a_password_is_salted_and_shown_nowhere() -> None:
    request = scram_users.alter_request([ALICE, BOB])
    (row,) = request.upsertions
    assert (row.name, row.mechanism, row.iterations, len(row.salt)) == ("alice", 1, 4096, 24)
    assert row.salted_password == hashlib.pbkdf2_hmac("sha256", b"geheim", row.salt, 4096)
    assert row.salt != scram_users.alter_request([ALICE]).upsertions[0].salt
    shown = f"{ALICE!r} {ALICE} {request!r}"
    assert "geheim" not in shown and repr(row.salted_password) not in shown
    assert request.deletions == (wire.ScramCredentialDeletion(name="bob", mechanism=2),)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: UserScramCredentialUpsertion("", "x"), "not a name of a user"),
        (lambda: UserScramCredentialUpsertion("a", ""), "'a': the password must be"),
        (lambda: UserScramCredentialUpsertion("a", 77), "'a': the password must be a string"),
        (lambda: UserScramCredentialUpsertion("a", "x", "PLAIN"), "must be 'SCRAM-SHA-256' or 'SCRAM-SHA-512'"),
        (lambda: UserScramCredentialUpsertion("a", "x", iterations=4095), "from 4096 to 16384"),
        (lambda: UserScramCredentialUpsertion("a", "x", iterations=16385), "from 4096 to 16384"),
        (lambda: UserScramCredentialDeletion("a", None), "must be 'SCRAM-SHA-256'"),
        (lambda: scram_users.alterations_by_mechanism("alice"), "UserScramCredentialUpsertion"),
        (lambda: scram_users.alterations_by_mechanism(["alice"]), "'alice' is not a change of a user"),
        (lambda: scram_users.alterations_by_mechanism([BOB, BOB]), r"user 'bob' \(SCRAM-SHA-512\) is to be changed tw"),
    ],
)  # fmt: skip
def test_what_can_be_no_change_is_refused(make, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=said) as caught:
        make()
    assert "77" not in caught.value.message


def test_each_user_is_once_in_a_request() -> None:
    """Brokers of 4.x refuse a request that names one twice."""
    more = UserScramCredentialUpsertion("alice", "other", "SCRAM-SHA-512")
    assert scram_users.alterations_by_mechanism([ALICE, more, BOB]) == [[ALICE], [more, BOB]]
    assert scram_users.alterations_by_mechanism(ALICE) == [[ALICE]]


def test_answers_say_who_and_what() -> None:
    response = wire.AlterUserScramCredentialsResponse(
        results=(
            wire.AlterUserScramCredentialsResult(user="alice", error_code=0),
            wire.AlterUserScramCredentialsResult(user="bob", error_code=91),
            wire.AlterUserScramCredentialsResult(user="nobody", error_code=0),
        )
    )
    told = scram_users.read_altered([ALICE, BOB], response)
    assert list(told.results) == [ALICE] and isinstance(told.errors[BOB], e.ResourceNotFound)
    assert told.errors[BOB].message.startswith("Changing user 'bob' (SCRAM-SHA-512): ")
    infos = tuple(wire.CredentialInfo(mechanism=number, iterations=5000) for number in (9, 2, 1))
    row = wire.DescribeUserScramCredentialsResult(user="alice", error_code=0, credential_infos=infos)
    found, fault = scram_users.read_described(wire.DescribeUserScramCredentialsResponse(results=(row,)))
    assert fault is None
    names = ["SCRAM-SHA-256", "SCRAM-SHA-512", "mechanism 9"]
    assert found.results == {"alice": tuple(ScramCredentialInfo(name, 5000) for name in names)}


def test_all_users_are_asked_for_without_null() -> None:
    """A broker that must refuse a null never answers."""
    assert scram_users.describe_request(None).users == ()
