"""``streamlet dev``: a real ZooKeeper, Kafka and Spark on this machine, for trying things out."""

from __future__ import annotations

import json

import click

from streamlet.cli.dev_produce import produce
from streamlet.cli.dev_topics import topic, topics
from streamlet.devcluster import resident
from streamlet.devcluster.resident import Resident, ResidentSpark


def _say(line: str) -> None:
    """Print progress to standard error: standard output is the answer."""
    click.echo(line, err=True)


def _as_json(cluster: Resident) -> dict[str, object]:
    return {
        "kafka": cluster.kafka,
        "bootstrap_servers": cluster.bootstrap_servers,
        "zookeeper": cluster.zookeeper,
        "directory": cluster.directory,
        "spark": _spark_as_json(cluster.spark),
        "processes": [
            {"name": p.name, "pid": p.identity.pid, "port": p.port, "log": p.log, "health": p.health()}
            for p in cluster.everything
        ],
    }


def _spark_as_json(spark: ResidentSpark | None) -> dict[str, object] | None:
    if spark is None:
        return None
    return {"master": spark.master_url, "page": _page(spark), "workers": spark.workers}


def _page(spark: ResidentSpark) -> str:
    return f"http://127.0.0.1:{spark.processes[0].page}"


def _show(cluster: Resident) -> None:
    click.echo(cluster.described())
    if (loss := cluster.loss()) is not None:
        click.echo(f"  {loss}")
    if cluster.zookeeper is not None:
        click.echo(f'  ZooKeeper          {cluster.zookeeper}    ZkHosts("{cluster.zookeeper}")')
    servers = cluster.bootstrap_servers
    click.echo(f'  bootstrap servers  {servers}    KafkaHosts("{servers}")')
    if cluster.spark is not None:
        master = cluster.spark.master_url
        click.echo(f"  Spark master       {master}    streamlet run FILE --spark {master}")
        click.echo(f"  Spark's page       {_page(cluster.spark)}")
        if (loss := cluster.spark.loss()) is not None:
            click.echo(f"  {loss}")
    for process in cluster.everything:
        click.echo(f"  {process.name}: pid {process.identity.pid}, {process.health()}, log {process.log}")


@click.group(invoke_without_command=True)
@click.pass_context
def dev(context: click.Context) -> None:
    """Run a real ZooKeeper and Kafka on this machine."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@dev.command()
@click.option("--kafka", type=click.Choice(["3.9", "4"]),
              help="3.9 lives in a ZooKeeper, 4 is KRaft.  [default: as the cluster there is, else 3.9]")  # fmt: skip
@click.option("--brokers", type=click.Choice(["1", "3"]), help="[default: as many as it has, else 1]")
@click.option("--spark", is_flag=True, help="Start a standalone Spark cluster, too.")
@click.option("--spark-workers", type=click.IntRange(1, 16), metavar="N",
              help="Its workers, of two task slots each.  [default: as many as it has, else 2]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def up(kafka: str | None, brokers: str | None, spark: bool, spark_workers: int | None, as_json: bool) -> None:
    """Start the cluster, or the parts of it that stopped.

    Data is kept. The cluster runs until `streamlet dev down`.
    """
    if spark_workers is not None and not spark:
        raise click.UsageError("--spark-workers belongs to --spark.")
    if spark and spark_workers is None:
        found = resident.status()
        spark_workers = 2 if found is None or found.spark is None else found.spark.workers
    number = None if brokers is None else int(brokers)
    started = resident.up(kafka, number, spark_workers=spark_workers, progress=_say)
    if as_json:
        click.echo(json.dumps({"already": started.already, **_as_json(started.resident)}))
        return
    click.echo("It is up already:" if started.already else "It is up:")
    _show(started.resident)
    for line in started.taken:
        click.echo(line)


@dev.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def down(as_json: bool) -> None:
    """Stop the cluster and delete its data and logs."""
    gone = resident.down()
    if as_json:
        ended = [{"name": p.name, "pid": p.identity.pid, "port": p.port} for p in gone.ended]
        click.echo(json.dumps({"ended": ended, "removed": gone.removed}))
        return
    for process in gone.ended:
        click.echo(f"ended {process.name} (pid {process.identity.pid}, 127.0.0.1:{process.port})")
    if gone.removed is not None:
        click.echo(f"removed {gone.removed}")
    if not gone.ended and gone.removed is None:
        click.echo("Nothing was up.")


@dev.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, or null when nothing is up.")
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show the cluster. Exit status 1 when none is up, or part of it does not answer."""
    found = resident.status()
    if as_json:
        click.echo(json.dumps(None if found is None else _as_json(found)))
    elif found is None:
        click.echo("Nothing is up.")
    else:
        _show(found)
    if found is None or any(process.health() != "answers" for process in found.everything):
        context.exit(1)


dev.add_command(topic)
dev.add_command(topics)
dev.add_command(produce)
