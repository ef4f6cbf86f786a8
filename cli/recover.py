"""`strandline recover`: end the wait of partitions for replicas that do not come back.

strandline recover clicks:0                   what each replica has, who would lead, what could be lost
strandline recover clicks:0 --accept-loss     let the longest log of those who live lead, now
strandline recover clicks views               every partition of these topics that nobody leads
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strandline.cli.item_errors import error_fields
from strandline.cli.options import (
    admin_of,
    bootstrap_option,
    output_option,
    partitions_of,
    settings_option,
    show_json,
    topic_and_partition,
)

if TYPE_CHECKING:
    from strandline.client.admin import RecoveredPartition
    from strandline.client.errors import AnsweredError
    from strandline.client.metadata import PartitionView
    from strandline.protocol.messages import ReplicaStanding
    from strandline.protocol.types import TopicPartition

TIMEOUT_MS = 30_000


@click.command(epilog="Examples: strandline recover clicks; strandline recover clicks:0 clicks:1 --accept-loss")
@bootstrap_option
@click.argument("targets", nargs=-1, required=True, metavar="TOPIC[:PARTITION]…")
@click.option("--accept-loss", is_flag=True, help="Lead by the longest log of those who live, without the others.")
@output_option
@settings_option
@click.pass_context
def recover(
    ctx: click.Context,
    bootstrap: str | None,
    targets: tuple[str, ...],
    accept_loss: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Have partitions led although replicas are missing that may hold acknowledged records. Of a TOPIC: all that nobody
    leads."""
    from strandline.client.errors import AnsweredError
    from strandline.protocol.errors import ErrorCode

    named = [topic_and_partition(text) for text in targets]
    rows: list[dict[str, object]] = []
    failures = 0
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        for tp in dict.fromkeys(tp for topic, index in named for tp in partitions_of(admin, topic, index, _is_not_led)):
            name = f"{tp.topic}:{tp.partition}"
            try:
                found = admin.recover(tp, accept_loss=accept_loss)
            except AnsweredError as error:
                is_led = error.code == ErrorCode.ELECTION_NOT_NEEDED  # perhaps by an answer of ours that was lost
                failures += not is_led
                rows.append(_refusal_as_json(tp, error))
                if output != "json":
                    click.echo(str(error) if is_led else f"strandline: {error}", err=not is_led)
            else:
                rows.append(_as_json(found, accept_loss))
                if output != "json":
                    _show(found, name, accept_loss)
    if output == "json":
        show_json("recover", partitions=rows)
    elif not rows:
        click.echo(f"Every partition of {', '.join(targets)} is led: there is nothing to recover.")
    return 1 if failures else 0


def _is_not_led(partition: PartitionView) -> bool:
    return partition.leader < 0


def _as_json(found: RecoveredPartition, accept_loss: bool) -> dict[str, object]:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "recovered": accept_loss,
        "leader": found.leader,
        "replicas": [
            {
                "broker": replica.broker_id,
                "alive": replica.is_alive,
                "has_everything": replica.has_everything,
                "end_offset": None if replica.end_offset < 0 else replica.end_offset,
                "leader_epoch": None if replica.leader_epoch < 0 else replica.leader_epoch,
            }
            for replica in found.replicas
        ],
        **error_fields(None),
    }


def _refusal_as_json(tp: TopicPartition, error: AnsweredError) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "recovered": False,
        "leader": None,
        "replicas": [],
        **error_fields(error),
    }


def _show(found: RecoveredPartition, partition: str, accept_loss: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"replicas of {partition}", title_justify="left")
    for column in ("broker", "alive", "has everything acknowledged", "log ends at", "epoch"):
        table.add_column(column, justify="right" if column in ("broker", "log ends at", "epoch") else "left")
    for replica in found.replicas:
        says = replica.end_offset >= 0
        table.add_row(
            str(replica.broker_id),
            "yes" if replica.is_alive else "no",
            "yes" if replica.has_everything else "not known",
            str(replica.end_offset) if says else "?",
            str(replica.leader_epoch) if says and replica.leader_epoch >= 0 else "-",
        )
    Console().print(table)
    missing = [replica for replica in found.replicas if replica.end_offset < 0]
    if accept_loss:
        click.echo(f"Broker {found.leader} leads {partition}. {_loss(missing, 'is lost')}")
    elif found.leader < 0:
        click.echo(f"No replica of {partition} that lives says where its log ends: bring one back.")
    else:
        click.echo(f"Broker {found.leader} would lead {partition}. {_loss(missing, 'would be lost')}")
        click.echo(f"To go on without them: strandline recover {partition} --accept-loss")


def _loss(missing: list[ReplicaStanding], verb: str) -> str:
    if not missing:
        return f"It has the longest log of all replicas; what none of them has any more {verb}."
    brokers = ", ".join(str(replica.broker_id) for replica in missing)
    whole = [str(replica.broker_id) for replica in missing if replica.has_everything]
    known = f" (broker {', '.join(whole)} has everything that was acknowledged)" if whole else ""
    return f"What only broker {brokers} has{known} {verb}."
