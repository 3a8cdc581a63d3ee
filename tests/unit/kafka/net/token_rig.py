"""What tests of tokens share."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable

from tests.patience import PATIENCE_S


def jwt(**claims: object) -> str:
    parts = ({"alg": "none"}, claims)
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return f"{coded[0]}.{coded[1]}."


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)
