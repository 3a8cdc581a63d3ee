"""Answers of a token's endpoint."""

from __future__ import annotations

import json

import pytest

from streamlet.kafka.errors import TokenFailed
from streamlet.kafka.net.token_endpoint import read_answer

URL = "https://login.example.org/token"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!doctype html><title>Log in</title>", "answers with a web page where a token should be"),
        (b"", "answers with nothing"),
        (b"geheim", "answers with no JSON"),
        (b"[1]", "has no access_token that is one"),
        (b'{"token": "geheim"}', "has no access_token"),
        (b'{"access_token": "geheim here"}', "has no access_token"),
        (b" " * ((1 << 20) + 1), "more than 1048576 bytes"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_what_an_endpoint_may_answer_in_place_of_a_token(body: bytes, said: str) -> None:
    with pytest.raises(TokenFailed) as caught:
        read_answer(URL, body)
    assert said in caught.value.message and URL in caught.value.message and "geheim" not in caught.value.message


@pytest.mark.parametrize(
    ("expires_in", "life_s"), [(60, 60), (0.5, 0.5), ("3600", 3600), (0, None), (-1, None), (True, None), ("x", None)]
)
def test_the_life_of_a_token_is_what_the_endpoint_says(expires_in: object, life_s: float | None) -> None:
    body = json.dumps({"access_token": "abc", "token_type": "Bearer", "expires_in": expires_in}).encode()
    assert read_answer(URL, body).life_s == life_s
