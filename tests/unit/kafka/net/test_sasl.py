"""SASL conversations without a socket: the RFC's own vectors, and a broker that does not know the password."""

from __future__ import annotations

import pytest

from streamlet.kafka.errors import AuthenticationFailed
from streamlet.kafka.net.sasl import OAuthBearer, Plain, Scram, sasl_client
from streamlet.kafka.protocol.messages.api_versions_and_sasl import SaslAuthenticateRequest

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_sha_256_says_what_rfc_7677_says() -> None:
    """Section 3 of the RFC, byte for byte."""
    talk = sasl_client("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert isinstance(talk, Scram) and talk.mechanism == "SCRAM-SHA-256"
    assert talk.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert talk.next(SERVER_FIRST) == CLIENT_FINAL
    assert talk.next(SERVER_FINAL) is None


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    """SCRAM proves both sides: a false signature, or none, ends it."""
    for false in (b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", b"v=", b"x=1", b"", b"v=!!!"):
        talk = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
        talk.next(SERVER_FIRST)
        with pytest.raises(AuthenticationFailed, match="did not prove that it knows"):
            talk.next(false)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "is not valid"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "is not valid"),
        (SERVER_FIRST.replace(b"s=W22", b"s=!"), "is not valid"),
        (SERVER_FIRST.replace(b"4096", b"1"), "1 iterations"),
        (SERVER_FIRST.replace(b"4096", b"2147483647"), "2147483647 iterations"),
        (SERVER_FIRST.replace(b"4096", b"x"), "x iterations"),
        (SERVER_FIRST.replace(b",i=4096", b""), "no iterations"),
        (b"e=unknown-user", "'unknown-user'"),
        (b"\xff\xfe", "is not text"),
        (b"", "is not valid"),
    ],
)
def test_what_a_hostile_broker_may_say_first(answer: bytes, words: str) -> None:
    """No nonce of its own, no salt, too few rounds to be safe or so many that we would hash for hours."""
    with pytest.raises(AuthenticationFailed, match=words) as caught:
        Scram("SCRAM-SHA-256", "user", "pencil", NONCE).next(answer)
    assert "pencil" not in str(caught.value)


def test_user_names_with_commas_and_equal_signs_are_escaped() -> None:
    """RFC 5802: they separate fields."""
    assert Scram("SCRAM-SHA-512", "a,b=c", "p", "n").first() == b"n,,n=a=2Cb=3Dc,r=n"


def test_plain_says_all_at_once() -> None:
    """NUL, user, NUL, password; nothing comes back. What it says is not shown by the request that carries it."""
    talk = sasl_client("PLAIN", "alice", "geheim-é", NONCE)
    assert isinstance(talk, Plain)
    assert talk.first() == b"\0alice\0geheim-\xc3\xa9" and talk.next(b"") is None
    assert "geheim" not in repr(SaslAuthenticateRequest(auth_bytes=talk.first()))


def test_oauthbearer_says_what_rfc_7628_says() -> None:
    """The token with its extensions; after a refusal in JSON one byte, and then nothing is believed any more."""
    talk = OAuthBearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", {"tenant": "t1", "zone": "a b"})
    assert talk.first() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01tenant=t1\x01zone=a b\x01\x01"
    )
    assert talk.next(b"") is None
    assert "refuses our token (it says: no)" in talk.refused(" (it says: no)")
    refused = OAuthBearer("abc", {})
    assert refused.next(b'{"status":"invalid_token"}') == b"\x01"
    assert '{"status":"invalid_token"}' in refused.refused("") and "abc" not in refused.refused("")
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        refused.next(b"")
