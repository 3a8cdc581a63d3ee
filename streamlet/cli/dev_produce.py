"""``streamlet dev produce``: the lines of a file as records of the development cluster, over our own client."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import IO, Literal

import click

from streamlet.base.errors import INTERRUPTED, BadInput
from streamlet.cli.dev_topics import administrator, is_served, partitions_of, standing_cluster
from streamlet.cli.record_format import key_and_value
from streamlet.kafka import Producer
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.producer import FutureRecordMetadata

_OPEN = 50_000
"""Records on their way at once: what bounds the futures that are kept."""


class Writing:
    """Sends lines, and counts those that the cluster has acknowledged."""

    def __init__(self, producer: Producer, topic: str, partitions: Sequence[int], separator: bytes | None) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._separator = separator
        self._open: deque[FutureRecordMetadata] = deque()
        self.written = 0

    def write(self, lines: Iterable[bytes]) -> None:
        """Write all lines as records. Raises the first record's error.

        Records without a key go round ``partitions`` one by one.
        """
        for number, line in enumerate(lines):
            key, value = key_and_value(line, number + 1, self._separator)
            # One by one, and not by the producer, which stays with one partition for a whole batch: a short file must
            # reach all.
            partition = self._partitions[number % len(self._partitions)] if self._separator is None else None
            try:
                self._open.append(self._producer.send(self._topic, value, key, partition=partition))
            except BadInput as error:
                raise BadInput(f"Line {number + 1}: {error.message}") from error
            # Answers are taken while lines are still sent: a file of any length is written in a bounded memory.
            if len(self._open) >= _OPEN:
                self._settle(_OPEN // 2)

    def finish(self) -> None:
        """Wait for all sent records. Raises the first error, with how many were written."""
        self._producer.flush()
        self._settle(0)

    def _settle(self, left: int) -> None:
        while len(self._open) > left:
            try:
                self._open.popleft().get()
            except KafkaError as error:
                raise KafkaError(
                    f"{error.message} Before it, {_count(self.written)} had been written into {self._topic!r}."
                ) from error
            self.written += 1


@click.command()
@click.argument("name", metavar="TOPIC")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key-separator", help="What stands before it in a line is the record's key.")
@click.option("--compression", type=click.Choice(["gzip", "snappy", "lz4", "zstd"]))
@click.pass_context
def produce(
    context: click.Context,
    name: str,
    file: IO[bytes],
    key_separator: str | None,
    compression: Literal["gzip", "snappy", "lz4", "zstd"] | None,
) -> None:
    """Write each line of FILE (`-`, or none: standard input) into TOPIC, byte for byte."""
    if key_separator == "":
        raise click.BadParameter("--key-separator cannot be empty")
    cluster = standing_cluster()
    with administrator(cluster) as admin:
        # A partition whose brokers have all ended would hold each record until its delivery time-out.
        partitions = [part.partition for part in partitions_of(admin, name) if is_served(part, cluster)]
    if not partitions:
        remedy = cluster.loss() or "`streamlet dev status` shows what is up."
        raise BadInput(f"No partition of {name!r} has a broker that serves it; nothing was written. {remedy}")
    if file.isatty():
        click.echo("Each line becomes a record. Ctrl-D ends.", err=True)
    with Producer(
        bootstrap_servers=cluster.living_servers, acks="all", linger_ms=5, compression_type=compression or "none"
    ) as producer:
        writing = Writing(producer, name, partitions, None if key_separator is None else key_separator.encode())
        interrupted = False
        try:
            writing.write(file)
        except KeyboardInterrupt:
            # Not raised: what was sent before is waited for, so that the count printed below is true.
            interrupted = True
        except BadInput as error:
            writing.finish()
            before = writing.written
            said = f"The {_count(before)} before it {'are' if before > 1 else 'is'} written." if before else ""
            raise BadInput(f"{error.message} {said or 'Nothing was written.'}") from error
        writing.finish()
    click.echo(f"wrote {_count(writing.written)} into {name}")
    if interrupted:
        context.exit(INTERRUPTED)


def _count(number: int) -> str:
    return f"{number} record{'' if number == 1 else 's'}"
