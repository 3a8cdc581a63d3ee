"""``streamlet consume``: the records of a topic on standard output."""

from __future__ import annotations

import dataclasses
import difflib
import socket
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from streamlet.base.errors import BadInput, SettingError, StreamletError
from streamlet.base.notices import told_if_slow
from streamlet.cli.dev_topics import standing_cluster
from streamlet.cli.interrupts import EndAsked, interrupts_to
from streamlet.cli.options import client_settings_in_file
from streamlet.cli.record_format import JsonLines, Lines
from streamlet.devcluster import resident
from streamlet.kafka import Admin, AdminError, ClientConfig, Consumer, ConsumerConfig, TopicPartition
from streamlet.kafka.broker_errors import UnknownTopicOrPartition
from streamlet.kafka.consumer import ConsumerRebalanceListener
from streamlet.kafka.consumer.consumer_config import CLASSIC_PROTOCOL, CONSUMER_PROTOCOL
from streamlet.kafka.consumer.errors import LogTruncated, NoOffsetForPartition, PositionOutOfRange
from streamlet.kafka.errors import KafkaError

_POLL_MS = 200
"""Milliseconds of one poll: Ctrl-C is seen after each."""
_COMMIT_S = 1.0
"""Seconds between two commits."""
_NOTHING_LEFT_S = {CLASSIC_PROTOCOL: 5.0, CONSUMER_PROTOCOL: 15.0}
"""Seconds after which a member without a partition gets none, by protocol: others give up theirs a heartbeat later.

In the newer one it hears of that a heartbeat later still, and brokers have heartbeats each 5 s.
"""
_LOOK_S = 1.0
"""Seconds between two looks for partitions that were added."""
_METADATA_MS = 5000
"""Milliseconds after which the cluster is asked again for the topic's partitions, where the file says nothing."""
_REACH_S = 5.0
"""Seconds to wait for an address that takes no connection."""
_TOLD_AFTER_S = 3.0
"""Seconds before a wait for an answer is reported."""
_ANSWER_MS = 15_000
"""Milliseconds that the cluster may take to answer before anything is read."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of one reading, as the command line gives them."""

    topic: str
    partitions: tuple[int, ...]
    group: str | None
    from_beginning: bool
    from_offset: int | None
    until_end: bool
    max_records: int | None

    def check(self) -> None:
        """Raise BadInput for options that contradict each other, or name nothing."""
        if self.group == "":
            raise BadInput("--group '' is not a name of a group: give its name, or leave the option out.")
        if self.from_beginning and self.from_offset is not None:
            raise BadInput("--from-beginning and --from-offset say two places to begin at: leave one out.")
        if self.group is not None and (self.partitions or self.from_offset is not None):
            raise BadInput(
                "--group shares a topic's partitions out and goes on where the group was; --partition and "
                "--from-offset say otherwise: leave the one or the others out."
            )


class Reading(ConsumerRebalanceListener):
    """One consumer and what it has shown. ``end`` may be asked for by a signal's handler."""

    def __init__(self, consumer: Consumer, wanted: Wanted, form: Lines | JsonLines, out: IO[bytes]) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._form = form
        self._out = out
        self._ends: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        """Where a group begins that has stored nothing; a partition that is not in it, with its first record."""
        self._committed_s = time.monotonic()
        self._stored = 0
        """How many of ``shown`` the group is known to have stored."""
        self._unwritten = False
        """Records were polled that have not left us: a commit would cover them."""
        self._given_s: float | None = None
        """Since when the group's latest round is over."""
        self.end = EndAsked()
        self.shown = 0
        self.left_out = self._told = False
        """Others of the group hold every partition."""
        self.partitions: set[int] = set()
        self.there: set[TopicPartition] = set()
        """The partitions of the topic that are wanted, as far as they are known."""
        self._looked_s = time.monotonic()

    def begin(self, partitions: list[TopicPartition]) -> None:
        """Take up the topic where the user wants it."""
        wanted, consumer = self._wanted, self._consumer
        self.there.update(partitions)
        if wanted.until_end:
            self._ends = consumer.end_offsets(partitions)
        if wanted.group is not None:
            if not (wanted.from_beginning or wanted.until_end):
                self._starts = consumer.end_offsets(partitions)
            consumer.subscribe([wanted.topic], listener=self)
            return
        consumer.assign(partitions)
        if wanted.from_offset is not None:
            self._check_offset(wanted.from_offset, partitions)
            for tp in partitions:
                consumer.seek(tp, wanted.from_offset)
        elif wanted.from_beginning or wanted.until_end:
            consumer.seek_to_beginning(*partitions)
        else:
            consumer.seek_to_end(*partitions)

    def read(self) -> None:
        """Read until the end, enough records, or ``end``.

        Every polled record has been written and flushed when this returns.
        """
        while self.end.number is None:
            try:
                if self._done():
                    break
                self._show_next()
                self._take_new()
            except (NoOffsetForPartition, PositionOutOfRange, LogTruncated) as error:
                self._find_place(error)
            self._commit_now_and_then()
        if self._uncommitted:
            self._stored = self.shown
            self._consumer.commit()

    def _show_next(self) -> None:
        left = None if self._wanted.max_records is None else self._wanted.max_records - self.shown
        most = 500 if left is None else min(left, 500)
        polled = self._consumer.poll(_POLL_MS, most)
        # From here to the flush a commit would cover records that may never leave us.
        self._unwritten = True
        for tp, records in polled.items():
            self._out.writelines(map(self._form.line, records))
            self.shown += len(records)
            self.partitions.add(tp.partition)
        self._out.flush()
        self._unwritten = False

    def _take_new(self) -> None:
        """Read partitions that were added, too, from their first record."""
        # Rule: who follows a topic follows all of it. Each record of a partition that was added since is newer than the
        # command, and nothing else would say that it is there. A group shares such partitions out by itself.
        wanted, now = self._wanted, time.monotonic()
        if wanted.group is not None or wanted.partitions or wanted.until_end or now - self._looked_s < _LOOK_S:
            return
        self._looked_s = now
        try:
            numbers = self._consumer.partitions_for_topic(wanted.topic, 0)
        except KafkaError:  # nothing is known at the moment: a poll says what is wrong
            return
        if new := {TopicPartition(wanted.topic, number) for number in numbers or ()} - self.there:
            self.there |= new
            self._consumer.assign(self.there)
            self._consumer.seek_to_beginning(*new)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Commit, so that the next owner goes on after the shown records."""
        self._given_s = None
        if self._uncommitted:
            shown = self.shown
            try:
                self._consumer.commit()
            except StreamletError as error:
                click.echo(f"Warning: What was shown last will be shown again: {error.message}", err=True)
            self._stored = shown

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Note when the group's round was over, and partitions that were added."""
        self._given_s = time.monotonic()
        self.there.update(assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Commit nothing: the partitions are others' already."""
        self._given_s, self._stored = None, self.shown

    @property
    def _uncommitted(self) -> bool:
        return self._wanted.group is not None and self._stored < self.shown and not self._unwritten

    def _say_if_waiting(self) -> None:
        """Say once that this member has no partition: a quiet topic would look the same."""
        if self._told or self._wanted.until_end or self._given_s is None or self._consumer.assignment():
            return
        if time.monotonic() - self._given_s >= _NOTHING_LEFT_S[self._consumer.config.group_protocol]:
            self._told = True
            click.echo(
                f"Other members of group {self._wanted.group!r} hold every partition of {self._wanted.topic}: waiting "
                "until one is given to this one. Ctrl-C ends.",
                err=True,
            )

    def _done(self) -> bool:
        if self._wanted.max_records is not None and self.shown >= self._wanted.max_records:
            return True
        self._say_if_waiting()
        if not self._wanted.until_end:
            return False
        assigned = self._consumer.assignment()
        if not assigned:
            # An empty assignment is final only when it has stood for longer than a heartbeat: a cooperative member is
            # given nothing in its first round, because the others have yet to give partitions back.
            patience_s = _NOTHING_LEFT_S[self._consumer.config.group_protocol]
            self.left_out = self._given_s is not None and time.monotonic() - self._given_s >= patience_s
            return self.left_out
        # A partition that came since had nothing in it when the end was looked up.
        return all(self._consumer.position(tp) >= self._ends.get(tp, 0) for tp in assigned)

    def _find_place(self, error: NoOffsetForPartition | PositionOutOfRange | LogTruncated) -> None:
        """Give a position to partitions that have none in the log."""
        # Rule: no reset policy, here the places are named. A policy answers two questions at once: a reader that began
        # at the end, and was overtaken by deletion, would go to the end again, past records that are still there.
        assigned = self._consumer.assignment()
        if isinstance(error, NoOffsetForPartition):
            for tp in assigned.intersection(error.partitions):
                if tp in self._starts:
                    self._consumer.seek(tp, self._starts[tp])
                else:
                    self._consumer.seek_to_beginning(tp)
        elif isinstance(error, PositionOutOfRange):
            for tp in assigned.intersection(error.offsets):
                self._go_on(tp, error.offsets[tp])
        else:
            for tp in assigned.intersection((error.topic_partition,)):
                self._go_back(tp, error.divergent_offsets.get(tp))

    def _go_on(self, tp: TopicPartition, offset: int) -> None:
        """Go on at the log's first record; name those deleted before it."""
        first = self._consumer.beginning_offsets([tp])[tp]
        if offset < first:
            which = f"Record {offset}" if offset == first - 1 else f"Records {offset} to {first - 1}"
            were = "was deleted before it was" if offset == first - 1 else "were deleted before they were"
            click.echo(f"{which} of {tp} {were} read: going on at {first}.", err=True)
            self._consumer.seek(tp, first)
        else:
            self._go_back(tp, None)

    def _go_back(self, tp: TopicPartition, to: int | None) -> None:
        """Go on in a log that is another one now; None: at its first record."""
        at = self._consumer.beginning_offsets([tp])[tp] if to is None else to
        click.echo(
            f"The place that was reached in {tp} is not in its log any more: the topic was made again, or a new leader "
            f"lacks what came last. Going on at {at}.",
            err=True,
        )
        if tp in self._ends:  # the old log's end is one that this one may never reach
            self._ends[tp] = min(self._ends[tp], self._consumer.end_offsets([tp])[tp])
        self._consumer.seek(tp, at)

    def _commit_now_and_then(self) -> None:
        """Commit about once a second, and never beyond the last shown record."""
        now = time.monotonic()
        if self._uncommitted and now - self._committed_s >= _COMMIT_S:
            self._committed_s, shown = now, self.shown

            # Count only what a callback has confirmed: a commit that was sent is not yet stored.
            def answered(_: object, error: Exception | None) -> None:
                if error is None:  # else the next one, or the last, covers it
                    self._stored = max(self._stored, shown)

            self._consumer.commit_async(callback=answered)

    def _check_offset(self, offset: int, partitions: list[TopicPartition]) -> None:
        first, last = self._consumer.beginning_offsets(partitions), self._consumer.end_offsets(partitions)
        for tp in partitions:
            if not first[tp] <= offset <= last[tp]:
                raise BadInput(
                    f"Offset {offset} is not in partition {tp.partition} of {tp.topic!r}: that holds {first[tp]} to "
                    f"{last[tp]} (the next one to be written)."
                )


_OTHER_NAMES = {
    "--broker": "--bootstrap-servers",
    "--brokers": "--bootstrap-servers",
    "--broker-list": "--bootstrap-servers",
    "--servers": "--bootstrap-servers",
    "--max-messages": "--max-records",
    "--count": "--max-records",
    "--offset": "--from-offset",
    "--group-id": "--group",
    "--consumer.config": "--config",
    "--command-config": "--config",
}
"""Options of kafka-console-consumer, kcat and the like, and ours."""


class ConsumeCommand(click.Command):
    """The command; an option of another consumer is answered with ours."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as error:
            # What click takes for near by its letters is another option altogether: --keys for --brokers.
            if error.option_name in _OTHER_NAMES:
                text = f"No such option {error.option_name!r}. Did you mean {_OTHER_NAMES[error.option_name]!r}?"
                raise click.UsageError(text, error.ctx) from None
            raise


@click.command(cls=ConsumeCommand)
@click.argument("topic")
@click.option("--bootstrap-servers", "--bootstrap-server", "servers", metavar="HOST:PORT,...",
              help="The cluster; without it the one of `streamlet dev up`.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE",
              help="A TOML or JSON file of client settings, such as TLS, user and password.")  # fmt: skip
@click.option("--group", metavar="NAME", help="Share the topic out with this group, and go on where it was.")
@click.option("--from-beginning", is_flag=True, help="Begin with the first record; with --group, where it is new.")
@click.option("--from-offset", type=click.IntRange(0), help="Begin at this offset.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True,
              help="Only this one; may be repeated.")  # fmt: skip
@click.option("--max-records", type=click.IntRange(1), help="End after so many.")
@click.option("--until-end", is_flag=True, help="End where the topic ends now; begins with the first record.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--keys", is_flag=True, help="The key and a tab before each value.")
@click.option("--headers", is_flag=True, help="The headers and a tab before that.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def consume(
    context: click.Context,
    topic: str,
    servers: str | None,
    config: Path | None,
    group: str | None,
    from_beginning: bool,
    from_offset: int | None,
    partitions: tuple[int, ...],
    max_records: int | None,
    until_end: bool,
    as_json: bool,
    keys: bool,
    headers: bool,
    debug: bool,
) -> None:
    """Show the records of TOPIC as bytes, each with a line end. Ctrl-C ends."""
    wanted = Wanted(topic, partitions, group, from_beginning, from_offset, until_end, max_records)
    wanted.check()
    settings = _settings(servers, config)
    there = _partitions(settings, wanted)
    form: Lines | JsonLines = JsonLines() if as_json else Lines(keys, headers)
    # Set last, so that no file of settings changes them: a commit may only cover what was written, values stay bytes,
    # and a misspelt topic must not be created. Isolation level and age of metadata stand first: there the file decides.
    own = {
        "group_id": group,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "key_deserializer": None,
        "value_deserializer": None,
    }
    usual = {"isolation_level": "read_committed", "metadata_max_age_ms": _METADATA_MS}
    with Consumer(**{**usual, **settings, **own}) as consumer:
        reading = Reading(consumer, wanted, form, sys.stdout.buffer)
        with interrupts_to(reading.end.came):
            reading.begin(there)
            reading.read()
    if reading.left_out:
        click.echo(f"Other members of group {group!r} hold every partition of {topic}: none is left here.", err=True)
    click.echo(
        f"{reading.shown} record{'' if reading.shown == 1 else 's'} of {topic}"
        + _whence(len(reading.partitions), len(reading.there)),
        err=True,
    )
    if reading.end.number is not None:
        context.exit(128 + reading.end.number)


def _settings(servers: str | None, config: Path | None) -> dict[str, Any]:
    """Return the file's settings with the cluster's address. Raises BadInput when nobody names a cluster."""
    settings: dict[str, Any] = {"client_id": "streamlet-consume"}
    if config is not None:
        settings |= client_settings_in_file(config)
        try:
            # Checked with an address made up, before the cluster is known: an error can then name the file it comes
            # from.
            ConsumerConfig.of({"bootstrap_servers": "127.0.0.1:1", **settings})
        except SettingError as error:
            raise SettingError(f"{config}: {error.message}") from error
    if servers is not None:
        settings["bootstrap_servers"] = servers
    if "bootstrap_servers" not in settings:
        if resident.status() is None:
            raise BadInput("Which cluster? Give --bootstrap-server HOST:PORT, or start one with `streamlet dev up`.")
        settings["bootstrap_servers"] = standing_cluster().living_servers
    return settings


def _whence(had_records: int, count: int) -> str:
    """Return how many partitions had records, and of how many."""
    if not had_records:
        return ""
    of = f" of {count}" if had_records < count else ""
    return f" from {had_records}{of} partition{'' if max(had_records, count) == 1 else 's'}"


def _partitions(settings: Mapping[str, Any], wanted: Wanted) -> list[TopicPartition]:
    """Return the partitions to read.

    Raises BadInput for a topic or partition that is not there, with the nearest one.
    """
    _reach(ConsumerConfig.of(settings))
    # The same file configures both clients, and each refuses settings that are only the other's.
    shared = {field.name for field in dataclasses.fields(ClientConfig)}
    own = {name: value for name, value in settings.items() if name in shared}
    servers = settings["bootstrap_servers"]
    words = f"No answer from {servers} yet: waiting for up to {_ANSWER_MS // 1000} s. Ctrl-C ends."
    telling = told_if_slow(_TOLD_AFTER_S, lambda: click.echo(words, err=True))
    with telling, Admin(**own, default_api_timeout_ms=_ANSWER_MS) as admin:
        try:
            count = len(admin.describe_topics(wanted.topic)[wanted.topic].partitions)
        except UnknownTopicOrPartition as error:
            known = list(admin.list_topics())
            near = difflib.get_close_matches(wanted.topic, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known[:20]) or 'none'}."
            raise BadInput(f"There is no topic {wanted.topic!r} at {servers}. {hint}") from error
        except AdminError as error:
            raise BadInput(error.message) from error
    beyond = [number for number in wanted.partitions if number >= count]
    if beyond:
        raise BadInput(
            f"There is no partition {beyond[0]} of {wanted.topic!r}: it has {count}, numbered from 0 to {count - 1}."
        )
    numbers = wanted.partitions or range(count)
    return [TopicPartition(wanted.topic, number) for number in dict.fromkeys(numbers)]


def _reach(config: ConsumerConfig) -> None:
    """Raise BadInput when no address takes a connection.

    A client would go on trying, for a broker that may be starting.
    """
    refused = []
    for broker in config.brokers():
        try:
            socket.create_connection((broker.host, broker.port), _REACH_S).close()
        except (OSError, UnicodeError) as error:  # a name that can be none is a UnicodeError
            refused.append(f"{broker}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise BadInput(
        f"No Kafka broker can be reached. {'; '.join(refused)}. Check that the broker runs, and that host and port are "
        "those of its listener."
    )
