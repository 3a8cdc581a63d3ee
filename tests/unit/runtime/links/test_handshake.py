"""The proofs of a handshake: what they cover, and what each side refuses."""

from __future__ import annotations

import pytest

from streamlet.runtime.links import handshake
from streamlet.runtime.links.handshake import CONTROL, DATA, HELLO_BYTES, Hello, Refused

SECRET = b"s" * 32
HELLO = Hello(DATA, b"r" * 16, worker=3, epoch=2, wanted=1, version=7)
FIRST = handshake.encode_hello(HELLO, b"n" * 16)
NONCE = b"m" * 16
ANSWER = handshake.answer(SECRET, FIRST, NONCE)


@pytest.mark.parametrize("kind", [DATA, CONTROL])
def test_a_hello_arrives_as_it_was_sent(kind: int) -> None:
    hello = Hello(kind, b"r" * 16, 3, 2, 1, 7)
    data = handshake.encode_hello(hello, b"n" * 16)
    assert len(data) == HELLO_BYTES and handshake.decode_hello(data) == hello


@pytest.mark.parametrize("data", [b"HTTP" + FIRST[4:], FIRST[:4] + b"\x09" + FIRST[5:]], ids=["magic", "kind"])
def test_the_first_message_of_another_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match="does not speak"):
        handshake.decode_hello(data)


def test_two_sides_with_one_secret_accept_each_other() -> None:
    proof = handshake.check_answer(SECRET, FIRST, ANSWER)
    handshake.check_proof(SECRET, FIRST, NONCE, proof)


def test_either_side_refuses_a_proof_by_another_secret() -> None:
    """The text of the error holds neither proof nor secret."""
    with pytest.raises(Refused) as error:
        handshake.check_answer(b"w" * 32, FIRST, ANSWER)
    assert str(error.value) == "it does not know this run's secret"
    with pytest.raises(Refused):
        handshake.check_proof(SECRET, FIRST, NONCE, handshake.check_answer(SECRET, FIRST, ANSWER)[:-1] + b"\0")


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    """Each role has a proof of its own: a stranger cannot return ours to us."""
    theirs = ANSWER[4 + len(NONCE) :]
    with pytest.raises(Refused):
        handshake.check_proof(SECRET, FIRST, NONCE, theirs)


@pytest.mark.parametrize("place", range(4, HELLO_BYTES))
def test_a_hello_that_was_changed_on_its_way_is_refused(place: int) -> None:
    """Epoch, version, wanted worker and nonce are covered by both proofs."""
    changed = bytearray(FIRST)
    changed[place] ^= 1
    with pytest.raises(Refused, match="secret"):
        handshake.check_answer(SECRET, FIRST, handshake.answer(SECRET, bytes(changed), NONCE))


def test_no_two_links_or_directions_share_a_key() -> None:
    """A recorded frame fits no other link."""
    links = [
        handshake.link_keys(SECRET, first, nonce)
        for first in (FIRST, handshake.encode_hello(HELLO, b"o" * 16))
        for nonce in (NONCE, b"p" * 16)
    ]
    keys = [key for link in links for key in (link.to_acceptor, link.to_dialer)]
    assert len(set(keys)) == len(keys) == 8
