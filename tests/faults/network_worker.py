"""A worker on a host of a ``network.Network``: what a Spark executor runs, without Spark. Its slot comes on stdin."""

from __future__ import annotations

import json
import sys

from streamlet.backends.spark.slot import run_slot


def main() -> None:
    slot = json.loads(sys.stdin.readline())
    slot |= {"run_id": bytes.fromhex(slot["run_id"]), "secret": bytes.fromhex(slot["secret"])}
    status, how = run_slot(slot.pop("unpacked"), **slot | {"address": tuple(slot["address"])})
    print(how, file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
