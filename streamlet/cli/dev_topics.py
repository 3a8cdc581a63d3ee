"""``streamlet dev topic`` and ``streamlet dev topics``: topics of the development cluster, over our own client."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from streamlet.base.errors import BadInput
from streamlet.devcluster import resident
from streamlet.devcluster.resident import Resident
from streamlet.kafka import Admin, AdminError, NewTopic, TopicPartition
from streamlet.kafka.admin import TopicDescription
from streamlet.kafka.broker_errors import InvalidReplicationFactor, TopicAlreadyExists, UnknownTopicOrPartition
from streamlet.kafka.metadata.cluster import NO_LEADER, PartitionInfo

TIMEOUT_S = 20.0
"""Seconds to wait for an answer: on one machine one that takes longer does not come."""


def standing_cluster() -> Resident:
    """Return the cluster that is up.

    Parts that have ended are named on standard error. Raises NotAsWanted where nothing answers.
    """
    cluster = resident.require()
    if (loss := cluster.loss()) is not None:
        click.echo(f"Warning: {loss}", err=True)
    return cluster


def administrator(cluster: Resident) -> Admin:
    """Make an administrator of the cluster that is up."""
    return Admin(bootstrap_servers=cluster.living_servers, default_api_timeout_ms=int(TIMEOUT_S * 1000))


def partitions_of(admin: Admin, name: str) -> tuple[PartitionInfo, ...]:
    """Return a topic's partitions. Raises BadInput, with the command that makes the topic."""
    try:
        return admin.describe_topics(name)[name].partitions
    except UnknownTopicOrPartition as error:
        raise BadInput(
            f"There is no topic {name!r} in the development cluster. Make it with `streamlet dev topic {name}`; "
            "`streamlet dev topics` lists those that there are."
        ) from error
    except AdminError as error:
        raise BadInput(error.message) from error


def is_served(partition: PartitionInfo, cluster: Resident) -> bool:
    """Tell whether a running broker leads a partition, or can come to.

    Right after a death the dead one is still named.
    """
    return partition.leader != NO_LEADER and not cluster.gone_brokers.issuperset(partition.replicas)


def _pair(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for value, (key, equals, _) in zip(values, pairs, strict=True):
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not key=value")
    return {key: value for key, _, value in pairs}


@click.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.option("--replication", type=click.IntRange(1, 3), default=1, show_default=True)
@click.option("--config", "configs", multiple=True, callback=_pair, metavar="KEY=VALUE",
              help="A topic setting, such as retention.ms=60000.")  # fmt: skip
def topic(name: str, partitions: int, replication: int, configs: dict[str, str]) -> None:
    """Create the topic NAME."""
    cluster = standing_cluster()
    if not name:
        raise click.BadParameter("a topic's name cannot be empty")
    with administrator(cluster) as admin:
        try:
            admin.create_topics(NewTopic(name, partitions, replication, configs=dict(configs)))
        except TopicAlreadyExists as error:
            count = len(partitions_of(admin, name))
            raise BadInput(
                f"The topic {name!r} is there already, with {count} partition{'s' if count > 1 else ''}. Use it as it "
                "is, or choose another name; `streamlet dev topics` lists those that there are."
            ) from error
        except InvalidReplicationFactor as error:
            more = cluster.loss() or (
                f"Or start three brokers: `streamlet dev down`, which removes the topics there are, then "
                f"`streamlet dev up --kafka {cluster.kafka} --brokers 3`."
            )
            raise BadInput(
                f"{cluster.described()} cannot keep {replication} copies of topic {name!r}: one a broker that runs. "
                f"Ask for fewer. {more}"
            ) from error
        except AdminError as error:
            # A refusal that time does not change is bad input; a broker that did not answer is a failure, with another
            # status.
            if error.retriable:
                raise
            raise BadInput(error.message) from error
    click.echo(f"created topic {name} with {partitions} partition{'s' if partitions > 1 else ''}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, by topic.")
def topics(as_json: bool) -> None:
    """List the topics, with how many partitions, copies and records each has."""
    cluster = standing_cluster()
    with administrator(cluster) as admin:
        found = admin.describe_topics(admin.list_topics())
        records: dict[str, int | None] = dict.fromkeys(found)
        records |= _records(
            admin, [row for row in found.values() if all(is_served(part, cluster) for part in row.partitions)]
        )
    rows = {
        name: {
            "partitions": len(row.partitions),
            "replication": len(row.partitions[0].replicas),
            "records": records[name],
        }
        for name, row in sorted(found.items())
    }
    if as_json:
        click.echo(json.dumps(rows))
    elif not rows:
        click.echo("No topics yet. Make one with `streamlet dev topic NAME`.")
    else:
        widest = max(len("topic"), *map(len, rows))
        click.echo(f"{'topic':{widest}}  partitions  copies  records")
        for name, row in rows.items():
            count = "unknown" if row["records"] is None else str(row["records"])
            click.echo(f"{name:{widest}}  {row['partitions']:10}  {row['replication']:6}  {count:>7}")


def _records(admin: Admin, topics: Sequence[TopicDescription]) -> dict[str, int]:
    """Count offsets from first to end, over all partitions.

    Those that compaction or a transaction took count, too.
    """
    partitions = [TopicPartition(row.name, part.partition) for row in topics for part in row.partitions]
    first = admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    last = admin.list_offsets(dict.fromkeys(partitions, "latest"))
    counts = dict.fromkeys((row.name for row in topics), 0)
    for tp in partitions:
        counts[tp.topic] += last[tp].offset - first[tp].offset
    return counts
